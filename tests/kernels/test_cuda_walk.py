"""The GPU walk, run on the CPU from its own text, equals the reference bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import kernel_cases as cases
import numpy as np
import pytest
from cuda_on_cpu import HostKernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_random_machines import ALPHABET, configurations, machines, string_machines

from stcon.errors import InvalidOption
from stcon.grammar.machine import UNBOUNDED, Configuration, Machine
from stcon.kernels import reference
from stcon.vocab.vocabulary import Vocabulary

torch = pytest.importorskip("torch")

from stcon.kernels.cuda import CudaGrammars, CudaWalker  # noqa: E402 (needs torch)

POISON = 0x5A5A5A5A
PLAN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def walker_for(
    machine: Machine, vocabulary: Vocabulary, *, rows: int = 16, chunk_words: int = 1, reverse: bool = False
) -> CudaWalker:
    """A walker on the CPU; every row follows `machine`, whose rows are built no earlier than they are missed."""
    grammars = CudaGrammars("cpu", ahead=0)
    kernels = HostKernels(reverse)
    walker = CudaWalker(vocabulary, grammars, rows, kernels=kernels, chunk_words=((1024, chunk_words),))
    index = grammars.add(machine)
    for row in range(rows):
        walker.set_row(row, index)
    return walker


def masks(walker: CudaWalker, configs: Sequence[Configuration]) -> np.ndarray:
    """int32[len(configs), W], a batch at a time, written over poison."""
    words = torch.full((len(configs), walker.vocabulary.num_words), POISON, dtype=torch.int32)
    for begin in range(0, len(configs), walker.max_rows):
        part = words[begin : begin + walker.max_rows]
        for row, config in enumerate(configs[begin : begin + walker.max_rows]):
            walker.set_row(row, 0, config)
        walker.bitmask(part)
        while walker.build_missing():
            walker.bitmask(part)
    return words.numpy()


def assert_masks_equal(walker: CudaWalker, machine: Machine, configs: Sequence[Configuration]) -> None:
    given_masks = masks(walker, configs)
    for config, mask in zip(configs, given_masks, strict=True):
        expected = reference.mask(machine, config, walker.vocabulary)
        assert mask.tolist() == expected.tolist(), config


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", cases.SMALL)
def test_bitmask_of_every_state_and_stack(name: str, reverse: bool) -> None:
    """Every state with every stack up to 3 symbols, threads in either order, in chunks of one word."""
    machine = cases.SMALL[name]()
    configs = list(cases.configurations(machine, depth=3, counters=(0, 3)))
    assert_masks_equal(walker_for(machine, cases.vocabulary(65, seed=1), reverse=reverse), machine, configs)


@pytest.mark.parametrize("name", cases.SMALL)
def test_bitmask_over_all_strings_to_length_4(name: str) -> None:
    """Every string over the alphabet is a token; the stack is at most one deep, or nearly full."""
    machine = cases.SMALL[name]()
    configs = [*cases.configurations(machine, depth=1), *cases.near_the_cap(machine, seed=0, count=20)]
    assert_masks_equal(walker_for(machine, cases.full_vocabulary(), chunk_words=4), machine, configs)


@pytest.mark.parametrize("size", [1, 31, 32, 33])
def test_bitmask_at_word_boundaries(size: int) -> None:
    """Vocabularies that end just before, at and after a word, and one token alone."""
    machine = cases.json_values()
    configs = list(cases.configurations(machine, depth=2))
    assert_masks_equal(walker_for(machine, cases.text_vocabulary(size), chunk_words=2), machine, configs)


@pytest.mark.parametrize("name", cases.TEXTS)
def test_bitmask_of_text(name: str) -> None:
    """Strings bounded in every way, at every state and counter: plain tokens by length, the others walked."""
    machine = cases.TEXTS[name]()
    configs = list(cases.configurations(machine, depth=1, counters=tuple(range(7))))
    assert_masks_equal(walker_for(machine, cases.text_vocabulary(), chunk_words=2), machine, configs)


def test_bitmask_of_long_tokens() -> None:
    """Runs of plain characters longer than any plain token and than a byte counts, before a quote and after it."""
    long = [
        b"a" * 254,
        b"a" * 255 + b'"',
        b"a" * 300 + b'"]',
        b'"' + b"a" * 300,
        b'a"' + b"b" * 20 + b'"',
        b"\\n" + b"k" * 400,
    ]
    long += ["é".encode() * 127 + b'a"', "é".encode() * 130 + b'"', b'xy"]', b"xyz\\", b"ab"]
    tokens: list[bytes | None] = [*long, b'"', b"a", b"]", None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    short = Vocabulary.from_bytes([t for t in tokens if t is None or len(t) < 4 or b'"' in t[1:]], [9])
    bounds = [{}, {"high": 256}, {"high": 255}, {"high": 299}, {"low": 300}, {"low": 2, "high": 128}, {"prefix": 2}]
    for options in bounds:
        machine = cases.text(**options)
        configs = list(cases.configurations(machine, depth=1, counters=(0, 1, 44)))
        for chosen in (vocabulary, short):
            assert_masks_equal(walker_for(machine, chosen, chunk_words=1), machine, configs)


@pytest.mark.parametrize("name", ["many_pushes", "counters", "two_labels"])
def test_bitmask_of_a_grammar_that_is_not_staged(name: str) -> None:
    """The same from global memory, as where a grammar is larger than its place in a block."""
    machine = cases.SMALL[name]()
    walker = walker_for(machine, cases.vocabulary(65, seed=8))
    walker.grammars.table.view(torch.int32)[0, -1] = 1 << 30  # Grammar::num_bytes
    assert_masks_equal(walker, machine, list(cases.configurations(machine, depth=2, counters=(0, 3))))


@PLAN
@given(st.data())
def test_bitmask_of_random_machines(data: st.DataObject) -> None:
    """Any edges, effects, bounds and labels, some rows built when first met, any stack."""
    machine = data.draw(machines())
    texts = st.binary(min_size=1, max_size=6).map(lambda text: bytes(ALPHABET[b % len(ALPHABET)] for b in text))
    tokens: list[bytes | None] = [*data.draw(st.lists(texts, min_size=1, max_size=40)), None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    configs = data.draw(st.lists(configurations(machine), min_size=1, max_size=8))
    assert_masks_equal(walker_for(machine, vocabulary), machine, configs)


@PLAN
@given(st.data())
def test_bitmask_of_random_string_machines(data: st.DataObject) -> None:
    """The free-text shortcut never changes a mask, whatever the bounds on and inside characters."""
    machine = data.draw(string_machines())
    configs = data.draw(st.lists(configurations(machine), min_size=1, max_size=8))
    assert_masks_equal(walker_for(machine, cases.text_vocabulary(), chunk_words=2), machine, configs)


def test_rows_of_different_grammars() -> None:
    """Rows follow their own grammars in one launch; equal rows get equal words, free rows every token."""
    vocabulary = cases.vocabulary(33, seed=3)
    grammars = CudaGrammars("cpu", ahead=0)
    walker = CudaWalker(vocabulary, grammars, 40, kernels=HostKernels(), chunk_words=((1024, 1),))
    chosen = [cases.brackets(), cases.counters(), cases.built_on_the_way()]
    numbers = [grammars.add(machine) for machine in chosen]
    places: list[tuple[int, Configuration]] = []
    for row in range(39):
        which = row % 3
        configs = list(cases.configurations(chosen[which], depth=1))
        places.append((which, configs[row // 3 % 4]))
        walker.set_row(row, numbers[which], places[-1][1])
    words = torch.full((40, vocabulary.num_words), POISON, dtype=torch.int32)
    walker.bitmask(words)
    while walker.build_missing():
        walker.bitmask(words)
    for row, (which, config) in enumerate(places):
        assert words[row].tolist() == reference.mask(chosen[which], config, vocabulary).tolist()
    assert words[39].tolist() == [-1, 1]


def test_a_number_is_given_again_after_remove() -> None:
    """Adding and removing grammars leaves the others' masks alone, and a number is used again."""
    vocabulary = cases.vocabulary(33, seed=4)
    grammars = CudaGrammars("cpu", capacity=2)
    walker = CudaWalker(vocabulary, grammars, 2, kernels=HostKernels())
    kept, dropped = grammars.add(cases.brackets()), grammars.add(cases.counters())
    grammars.remove(dropped)
    machine = cases.two_labels()
    assert grammars.add(machine) == dropped
    walker.set_row(0, kept)
    walker.set_row(1, dropped)
    words = torch.empty((2, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    first = cases.brackets()
    assert words[0].tolist() == reference.mask(first, first.initial(), vocabulary).tolist()
    assert words[1].tolist() == reference.mask(machine, machine.initial(), vocabulary).tolist()


def unset(words: np.ndarray, tokens: Sequence[int]) -> list[int]:
    """`words` without the bits of `tokens`."""
    words = words.copy().view(np.uint32)
    for token in tokens:
        words[token >> 5] &= ~np.uint32(1 << (token & 31))
    return words.view(np.int32).tolist()


def test_a_rows_own_limits() -> None:
    """Short tokens, banned tokens and tokens outside the host's words are left out of that row alone."""
    machine, vocabulary = cases.dfa(), cases.vocabulary(65, seed=5)
    walker = walker_for(machine, vocabulary, rows=5)
    whole = reference.mask(machine, machine.initial(), vocabulary)
    short = [
        t for t in range(vocabulary.size) if t not in vocabulary.end_ids and len(vocabulary.token_bytes(t) or b"") < 2
    ]
    walker.min_bytes[1] = 2
    walker.banned[2, :3] = torch.tensor([0, 40, vocabulary.end_ids[0]])
    walker.num_banned[2] = 3
    walker.is_restricted[3] = 1
    walker.allowed[3, 1] = -1
    words = torch.empty((5, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    assert words[0].tolist() == words[4].tolist() == whole.tolist()
    assert words[1].tolist() == unset(whole, short)
    assert words[2].tolist() == unset(whole, [0, 40, vocabulary.end_ids[0]])
    assert words[3].tolist() == [0, *whole[1:2].tolist(), 0]


def test_budget_of_an_automaton() -> None:
    """With a need table, the tokens that leave no completion are left out: 1 + need(c·t) <= remaining."""
    machine = Machine()
    states = [machine.new_state() for _ in range(4)] + [machine.new_state(label=0)]
    for here, after in itertools.pairwise(states):
        machine.set_edges(here, {cases.A: here, cases.B: after})
    machine.set_edges(states[4], {cases.A: states[0], cases.C: states[4]})
    tokens: list[bytes | None] = [b"a", b"b", b"ab", b"bb", b"ba", b"c", b"abba", None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    needs = needs_by_search(machine, vocabulary)
    grammars = CudaGrammars("cpu")
    walker = CudaWalker(vocabulary, grammars, 1, kernels=HostKernels())
    index = grammars.add(machine, need=np.array(needs, np.int32))
    words = torch.empty((1, 1), dtype=torch.int32)
    for state in states:
        for remaining in range(6):
            walker.set_row(0, index, Configuration(state))
            walker.remaining[0] = remaining
            walker.bitmask(words)
            for token, data in enumerate(tokens):
                after = machine.run(Configuration(state), data) if data else None
                fits = after is not None and 1 + needs[after.state] <= remaining
                if data is None:
                    fits = machine.accepts(Configuration(state)) and remaining >= 1
                assert bool(words[0, 0] >> token & 1) is fits, (state, remaining, data)


@pytest.mark.parametrize("name", ["brackets", "counters", "built_on_the_way"])
def test_a_need_table_is_refused_where_the_state_does_not_tell(name: str) -> None:
    """With calls, with bounds, and with rows that are not built."""
    machine = cases.SMALL[name]()
    with pytest.raises(InvalidOption, match="without calls and bounds"):
        CudaGrammars("cpu").add(machine, need=np.zeros(machine.num_states, np.int32))


def needs_by_search(machine: Machine, vocabulary: Vocabulary) -> list[int]:
    """Fewest tokens from each state to acceptance, by passes until nothing changes."""
    needs = [0 if machine.accepts(Configuration(q)) else UNBOUNDED for q in range(machine.num_states)]
    for _ in range(machine.num_states):
        for state in range(machine.num_states):
            for token in range(vocabulary.size):
                after = machine.run(Configuration(state), vocabulary.token_bytes(token) or b"\xff")
                if after is not None and needs[after.state] != UNBOUNDED:
                    needs[state] = min(needs[state], 1 + needs[after.state])
    return needs


def test_missing_rows_are_reported_to_every_row_in_the_same_place() -> None:
    """A stalled row is named with its state, rows that share its work too, and others are not."""
    machine, vocabulary = cases.built_on_the_way(), cases.full_vocabulary(longest=2)
    walker = walker_for(machine, vocabulary, rows=3)
    walker.set_row(2, -1)
    words = torch.empty((3, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    assert walker.missing.tolist()[0] == walker.missing.tolist()[1] >= 0
    assert walker.missing.tolist()[2] == -1
    assert walker.build_missing()
    assert walker.missing.tolist() == [-1, -1, -1]
