"""`CpuKernel` equals the reference bit for bit, on everything small."""

from __future__ import annotations

import random
import threading

import kernel_cases as cases
import numpy as np
import pytest

from stcon.errors import TooLarge
from stcon.grammar.machine import CONFIG_WORDS, COUNT, DEAD, RESET, STACK_CAP, UNBOUNDED, Configuration, Machine
from stcon.kernels import plain, reference, walk
from stcon.kernels.cpu import CpuKernel
from stcon.vocab.vocabulary import Vocabulary

POISON = 0x5A5A5A5A


def kernel_mask(kernel: CpuKernel, config: Configuration) -> list[int]:
    """The mask as a list, written over poison; the configuration must be left alone."""
    words = config.pack()
    out = np.full(kernel.vocabulary.num_words, POISON, np.int32)
    kernel.mask(words, out)
    assert Configuration.unpack(words) == config
    return out.tolist()


def assert_masks_equal(machine: Machine, vocabulary: Vocabulary, configs: list[Configuration], **options: int) -> None:
    """All configurations, cold in one order and warm in another."""
    kernel = CpuKernel(machine, vocabulary, **options)
    expected = {config: reference.mask(machine, config, vocabulary).tolist() for config in configs}
    for seed in range(2):
        random.Random(seed).shuffle(configs)
        for config in configs:
            assert kernel_mask(kernel, config) == expected[config], config
    assert kernel.rows.hits + kernel.rows.misses == 2 * len(configs)


@pytest.mark.parametrize("name", cases.SMALL)
def test_mask_of_every_state_and_stack_to_depth_4(name: str) -> None:
    """Masks are equal on every state and every stack up to 4 symbols."""
    machine = cases.SMALL[name]()
    configs = list(cases.configurations(machine, depth=4))
    assert_masks_equal(machine, cases.vocabulary(33, seed=1), configs)


@pytest.mark.parametrize("size", [31, 32, 33])
@pytest.mark.parametrize("name", cases.SMALL)
def test_mask_at_word_boundaries(name: str, size: int) -> None:
    """Vocabularies that end just before, at and after a word, with duplicate tokens and several end tokens."""
    machine = cases.SMALL[name]()
    configs = list(cases.configurations(machine, depth=2, counters=(0, 3)))
    for seed in range(2):
        assert_masks_equal(machine, cases.vocabulary(size, seed), configs)


@pytest.mark.parametrize("name", cases.SMALL)
def test_mask_over_all_strings_to_length_4(name: str) -> None:
    """Every string over the alphabet up to length 4 is a token; the stack is at most one deep, or nearly full."""
    machine = cases.SMALL[name]()
    configs = [*cases.configurations(machine, depth=1), *cases.near_the_cap(machine, seed=0, count=20)]
    assert_masks_equal(machine, cases.full_vocabulary(), configs)


def test_mask_of_every_counter() -> None:
    """Rows shared between counters are right at every counter, in every order."""
    machine = cases.counters()
    configs = list(cases.configurations(machine, depth=2, counters=tuple(range(8))))
    assert_masks_equal(machine, cases.vocabulary(33, seed=2), configs)


@pytest.mark.parametrize("name", ["brackets", "many_pushes", "lazy_numbers", "counters"])
def test_mask_near_the_stack_cap(name: str) -> None:
    """Rows are never shared between a stack with room and one without."""
    machine = cases.SMALL[name]()
    shallow = [
        Configuration(state, (0,) * height)
        for state in range(machine.num_states)
        for height in range(0, STACK_CAP + 1, 7)
    ]
    configs = [*shallow, *cases.near_the_cap(machine, seed=3, count=300)]
    assert_masks_equal(machine, cases.vocabulary(33, seed=3), configs)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_mask_with_a_tiny_cache(rows: int) -> None:
    """Evicting rows changes no answer, and the limit in bytes is kept."""
    machine, vocabulary = cases.two_labels(), cases.vocabulary(32, seed=4)
    row_bytes = 4 * (vocabulary.num_words + 7 + STACK_CAP)
    configs = list(cases.configurations(machine, depth=2))
    assert_masks_equal(machine, vocabulary, configs, cache_bytes=rows * row_bytes)
    kernel = CpuKernel(machine, vocabulary, cache_bytes=rows * row_bytes)
    for config in configs:
        kernel_mask(kernel, config)
        assert len(kernel.rows) <= rows


def test_row_is_shared_by_stacks_that_differ_below_what_was_looked_at() -> None:
    """Theorem 22: a row serves every stack that continues below the exposed symbols, and any counter not looked at."""
    machine = cases.brackets()
    vocabulary = Vocabulary.from_bytes([b"a", b"aa", b"b", None], [3])
    kernel = CpuKernel(machine, vocabulary)
    for below in range(20):
        kernel_mask(kernel, Configuration(1, (*(i % 2 for i in range(below)), 0, 1), counter=below))
    assert kernel.rows.misses == 1


def test_row_is_shared_by_counters_that_are_reset_before_they_matter() -> None:
    """A counter that is set to 0 before any test of it does not matter; one that is tested first does."""
    machine = Machine()
    start, bounded = machine.new_state(), machine.new_state(effect=COUNT, counter_hi=2)
    machine.set_edges(start, {ord("a"): machine.new_state(effect=RESET)})
    machine.set_edges(start + 2, {ord("a"): bounded})
    machine.set_edges(bounded, {ord("a"): bounded})
    vocabulary = Vocabulary.from_bytes([b"a" * n for n in range(1, 9)] + [None], [8])
    kernel = CpuKernel(machine, vocabulary)
    for counter in range(9):
        kernel_mask(kernel, Configuration(start, (), counter))
    assert kernel.rows.misses == 1
    for counter in range(9):
        kernel_mask(kernel, Configuration(bounded, (), counter))
    assert kernel.rows.misses == 1 + 3  # two more, one more, none


# ------------------------------------------------------------------------------------------------- free text


@pytest.mark.parametrize("name", cases.TEXTS)
def test_mask_of_text(name: str) -> None:
    """The free-text shortcut gives the same bits as walking every token, at every counter."""
    machine = cases.TEXTS[name]()
    states = [s for s in range(machine.num_states) if s < 6] + [machine.num_states - 1]
    stacks = [(), (0,), (0,) * STACK_CAP]
    configs = [Configuration(s, stack, counter) for s in states for stack in stacks for counter in range(7)]
    assert_masks_equal(machine, cases.text_vocabulary(), configs)


LONGEST = 7  # characters in the longest plain token of `text_vocabulary`


@pytest.mark.parametrize(
    ("name", "counter", "expected"),
    [
        ("unbounded", 0, LONGEST),
        ("at_most_3", 0, 3),
        ("at_most_3", 2, 1),
        ("at_most_3", 3, 0),
        ("at_most_0", 0, 0),
        ("from_2_to_5", 1, 4),
        ("at_least_2", 9, LONGEST),
        ("untrimmed_inside", 1, 2),
        ("refused_inside", 0, plain.MIXED),
        ("two_by_states", 0, LONGEST),
        ("two_by_states_at_most_4", 0, 4),
        ("ascii_only", 0, plain.MIXED),
        ("one_refused", 0, plain.MIXED),
        ("ascii_refused", 0, plain.MIXED),
    ],
)
def test_shortcut_is_taken(name: str, counter: int, expected: int) -> None:
    """The run of plain characters is known exactly where all of them do the same, and nowhere else."""
    machine = cases.TEXTS[name]()
    kernel = CpuKernel(machine, cases.text_vocabulary())
    walk.open_walk(Configuration(0, (), counter).pack(), kernel._frames, kernel._nodes, kernel._seen)
    assert kernel._plain_run(Configuration(0, (), counter).pack()) == expected


def test_shortcut_is_not_taken_where_a_character_returns() -> None:
    """One character that ends its callee may be refused by the caller: no shortcut, though all characters agree."""
    machine = Machine()
    end, body = machine.new_state(label=0, final=True), machine.new_state()
    machine.set_edges(body, dict.fromkeys(cases.PLAIN_ASCII, end) | cases.character_edges(machine, end, UNBOUNDED))
    machine.return_symbol([DEAD])
    machine.return_symbol([body])
    vocabulary = Vocabulary.from_bytes([b"a", "é".encode(), b'"', b"\xc3", None], [4])
    assert_masks_equal(machine, vocabulary, list(cases.configurations(machine, depth=2)))


def test_plain_tokens_by_length() -> None:
    """Row n of the table has exactly the plain tokens of at most n characters."""
    vocabulary = cases.text_vocabulary()
    table = plain.PlainTokens(vocabulary)
    assert table.longest == LONGEST == vocabulary.plain_longest
    for run in range(table.longest + 1):
        words = table.words[table.row_of_run[run]]
        for token in range(vocabulary.size):
            data = vocabulary.token_bytes(token)
            is_plain = bool(vocabulary.plain_words[token // 32] >> token % 32 & 1)
            expected = is_plain and len((data or b"").decode()) <= run
            assert bool(words[token // 32] >> token % 32 & 1) is expected


def test_mask_of_text_without_plain_tokens() -> None:
    """A vocabulary without plain tokens has no shortcut and no trouble."""
    vocabulary = Vocabulary.from_bytes([b'"', b"\\", b"\xc3", None], [3])
    machine = cases.text()
    assert_masks_equal(machine, vocabulary, list(cases.configurations(machine, depth=1)))


def test_mask_of_long_text_shares_rows_between_counters() -> None:
    """Far from its bounds a string of bounded length has one row, not one a counter."""
    machine = cases.text(low=2, high=10_000)
    kernel = CpuKernel(machine, cases.text_vocabulary())
    for counter in range(100, 9_000, 7):
        kernel_mask(kernel, Configuration(1, (), counter))
    assert kernel.rows.misses == 1


# ------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("name", cases.SMALL)
def test_advance_live_forced_accepts(name: str) -> None:
    """The other questions are answered as the reference answers them, and a failed advance changes nothing."""
    machine = cases.SMALL[name]()
    kernel = CpuKernel(machine, cases.vocabulary(31, seed=5))
    texts = random.Random(name).sample(cases.strings(b"abcd", 4), 25)
    every = list(cases.configurations(machine, depth=3, counters=(0, 2)))
    chosen = random.Random(7).sample(every, min(150, len(every)))
    for config in [*chosen, *cases.near_the_cap(machine, seed=6, count=30)]:
        words = config.pack()
        assert kernel.accepts(words) is machine.accepts(config)
        assert kernel.live_bytes(words).tolist() == reference.live_bytes(machine, config).tolist()
        for limit in (0, 1, 9):
            assert kernel.forced(words, limit) == reference.forced(machine, config, limit)
        assert Configuration.unpack(words) == config
        for text in texts:
            expected = reference.advance(machine, config, text)
            words = config.pack()
            assert kernel.advance(words, text) is (expected is not None)
            np.testing.assert_array_equal(words, (expected or config).pack())


def test_advance_over_a_long_text() -> None:
    """A text with far more pushes than the scratch holds is read in one call."""
    machine = cases.brackets()
    kernel = CpuKernel(machine, cases.vocabulary(31, seed=0))
    text = b"a" + (b"a" * 60 + b"b" * 60) * 100
    words = machine.initial().pack()
    assert kernel.advance(words, text)
    assert Configuration.unpack(words) == machine.run(machine.initial(), text)
    assert not kernel.advance(words, b"a" * 70)
    assert kernel.advance(words, b"")


def test_forced_chain_crosses_calls_and_returns() -> None:
    """A chain goes through pushes, eager returns and lazy ones, and stops where the text may end."""
    machine = Machine()
    start, middle, inside = machine.new_state(), machine.new_state(), machine.new_state()
    lazy, end = machine.new_state(label=0), machine.new_state(label=0, final=True)
    first, second = machine.return_symbol([middle]), machine.return_symbol([lazy])
    machine.set_edges(start, {ord("x"): machine.action(inside, (first, second))})
    machine.set_edges(inside, {ord("y"): end})
    machine.set_edges(middle, {ord("z"): end})
    machine.set_edges(lazy, {})
    kernel = CpuKernel(machine, cases.vocabulary(31, seed=0))
    words = machine.initial().pack()
    assert kernel.forced(words, 100) == b"xyz" == reference.forced(machine, machine.initial(), 100)
    assert kernel.advance(words, b"xyz")
    assert kernel.accepts(words)
    assert kernel.forced(words, 100) == b""


def test_forced_chain_stops_at_a_class_of_two_bytes() -> None:
    """One live class is a choice if it has two bytes."""
    machine = Machine()
    start, middle, end = machine.new_state(), machine.new_state(), machine.new_state(label=0, final=True)
    row = np.full(256, DEAD, np.int32)
    row[[ord("a"), ord("b")]] = end
    machine.set_row(middle, row)
    machine.set_edges(start, {ord("z"): middle})
    kernel = CpuKernel(machine, cases.vocabulary(31, seed=0))
    assert kernel.forced(machine.initial().pack(), 9) == b"z" == reference.forced(machine, machine.initial(), 9)


# ------------------------------------------------------------------------------------------------- rows built on demand


def counting_machine(max_states: int = 1000) -> Machine:
    """Row i is built on demand: makes states, actions and symbols, and splits a class of its own."""

    def build(state: int) -> None:
        following, called = machine.new_state(label=0), machine.new_state()
        symbol = machine.return_symbol([following, state])
        splitting = 0x61 + state % 100
        machine.set_edges(
            state, {0x61: following, splitting: machine.action(called, (symbol, symbol)), 0x7A: following}
        )

    machine = Machine(row_builder=build, max_states=max_states)
    machine.new_state()
    return machine


def test_mask_builds_rows_as_it_meets_them() -> None:
    """Storage that grows and classes that split in the middle of a walk lose nothing."""
    tokens: list[bytes | None] = [*cases.strings(bytes(range(0x61, 0x66)), 3), b"aaaaaaaaaa", b"z" * 40, None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    rng = random.Random(8)
    for _ in range(5):
        machine = counting_machine()
        kernel = CpuKernel(machine, vocabulary)
        words = machine.initial().pack()
        for _ in range(6):
            config = Configuration.unpack(words)
            first = kernel_mask(kernel, config)
            assert first == reference.mask(machine, config, vocabulary).tolist() == kernel_mask(kernel, config)
            token = rng.choice([t for t in range(vocabulary.size - 1) if first[t // 32] >> t % 32 & 1])
            assert kernel.advance(words, vocabulary.token_bytes(token) or b"")
            assert kernel.forced(words, 5) == reference.forced(machine, Configuration.unpack(words), 5)
        assert machine.num_states > 64


def test_two_kernels_see_each_others_rows() -> None:
    """Rows built by one kernel, or by the machine's own step, are seen by another whose arrays were older."""
    machine = counting_machine()
    vocabulary = Vocabulary.from_bytes([b"a", b"z", b"b", None], [3])
    kernels = [CpuKernel(machine, vocabulary) for _ in range(2)]
    words = [machine.initial().pack() for _ in kernels]
    config = machine.initial()
    for i in range(300):
        byte = b"az"[i % 2 : i % 2 + 1]
        config = machine.run(config, byte) or config
        for kernel, own in zip(kernels, words, strict=True):
            assert kernel.advance(own, byte)
            assert Configuration.unpack(own) == config


def test_refusal_while_building_changes_nothing() -> None:
    """A builder that refuses: the error comes through, the configuration stays, and the next call says the same."""
    machine = counting_machine(max_states=20)
    vocabulary = Vocabulary.from_bytes([b"a" * 30, None], [1])
    kernel = CpuKernel(machine, vocabulary)
    words, before = machine.initial().pack(), machine.initial().pack()
    for _ in range(2):
        with pytest.raises(TooLarge):
            kernel.mask(words, np.zeros(1, np.int32))
        with pytest.raises(TooLarge):
            kernel.advance(words, b"a" * 30)
        np.testing.assert_array_equal(words, before)
    assert kernel.advance(words, b"aaa")


def test_threads_share_a_kernel() -> None:
    """Eight threads with one kernel, building rows as they go, each get their own right answers."""
    machine = counting_machine(max_states=100_000)
    vocabulary = Vocabulary.from_bytes([b"a", b"az", b"zz", b"b", b"aaaa", None], [5])
    kernel = CpuKernel(machine, vocabulary)
    results: dict[int, list[tuple[Configuration, list[int]]]] = {}

    def work(seed: int) -> None:
        rng = random.Random(seed)
        words = machine.initial().pack()
        trail = []
        for _ in range(40):
            out = np.zeros(1, np.int32)
            kernel.mask(words, out)
            trail.append((Configuration.unpack(words), out.tolist()))
            kernel.advance(words, rng.choice([b"a", b"z"]))
        results[seed] = trail

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for trail in results.values():
        for config, found in trail:
            assert found == reference.mask(machine, config, vocabulary).tolist()


def test_configuration_layout() -> None:
    """The kernels' layout is state, depth, counter, stack from the bottom, zeros."""
    words = Configuration(3, (7, 8), 5).pack()
    assert words.tolist() == [3, 2, 5, 7, 8] + [0] * (CONFIG_WORDS - 5)
