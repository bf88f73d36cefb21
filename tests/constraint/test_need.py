"""`NeedTable` against a search: the fewest tokens from any configuration to acceptance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_machines import counted, nested, random_machines, spelled

from stcon.constraint.need import NeedTable
from stcon.grammar.machine import RESET, UNBOUNDED, Configuration, Machine
from stcon.vocab import Vocabulary

LEVELS = 5
MAX_SEEN = 3_000

vocabularies = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=8, unique=True).map(
    lambda words: Vocabulary.from_bytes([*(word.encode() for word in words), None], end_ids=[len(words)])
)


def spelled_tokens(vocabulary: Vocabulary) -> list[bytes]:
    """The tokens that have bytes."""
    return [data for token in range(vocabulary.size) if (data := vocabulary.token_bytes(token))]


def fewest(machine: Machine, vocabulary: Vocabulary, start: Configuration, levels: int = LEVELS) -> int | None:
    """Fewest tokens from `start` to acceptance, level by level; None if more than `levels`; -1 if too many to try."""
    level, seen = [start], {start}
    for count in range(levels + 1):
        if any(machine.accepts(config) for config in level):
            return count
        following: list[Configuration] = []
        for config, data in itertools.product(level, spelled_tokens(vocabulary)):
            after = machine.run(config, data)
            if after is not None and after not in seen:
                seen.add(after)
                following.append(after)
        if len(seen) > MAX_SEEN:
            return -1
        level = following
    return None


def stacks(machine: Machine, depth: int) -> Iterator[tuple[int, ...]]:
    """Every stack of at most `depth` symbols."""
    for size in range(depth + 1):
        yield from itertools.product(range(machine.num_symbols), repeat=size)


def configurations(machine: Machine, depth: int, counters: tuple[int, ...] = (0,)) -> Iterator[Configuration]:
    """Every configuration at rest: no final state under a symbol, a counter that its state can be entered with."""
    for state, stack, counter in itertools.product(range(machine.num_states), stacks(machine, depth), counters):
        effect, low, high = machine.bounds(state)
        possible = counter == 0 if effect == RESET else low <= counter <= high
        if possible and not (stack and machine.is_final(state)):
            yield Configuration(state, stack, counter)


def check(machine: Machine, vocabulary: Vocabulary, configs: Iterator[Configuration]) -> int:
    """Compare every one of `configs`; how many were."""
    table, compared = NeedTable(machine, vocabulary), 0
    for config in configs:
        expected = fewest(machine, vocabulary, config)
        if expected == -1:
            continue
        need = table.need(config.pack())
        assert (need if need is not None and need <= LEVELS else None) == expected, (config, need, expected)
        compared += 1
    return compared


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_machines(), vocabularies)
def test_need_random_machine_and_tokens(machine: Machine, vocabulary: Vocabulary) -> None:
    """With any edges, labels, lazy and eager returns, on every stack of at most 2 symbols."""
    check(machine, vocabulary, configurations(machine, 2))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_machines(bounds=True), vocabularies)
def test_need_random_machine_with_counters(machine: Machine, vocabulary: Vocabulary) -> None:
    """With counter bounds as well, from every counter."""
    counters = (0, 1, 2, 3, 4)
    check(machine, vocabulary, configurations(machine, 1, counters))


def test_need_nested_all_stacks_to_depth_4() -> None:
    """Lists in lists, ended lazily and eagerly: every state on every stack of at most 4 symbols."""
    machine = nested()
    words = [b"x", b"y", b"(", b")", b",", b"))", b"x)", b"),(", b"((", b"y)))", b"xx", b",y)"]
    vocabulary = Vocabulary.from_bytes([*words, None], end_ids=[len(words)])
    assert check(machine, vocabulary, configurations(machine, 4)) > 15


@pytest.mark.parametrize(("low", "high"), [(0, 3), (2, 2), (3, 7), (5, UNBOUNDED)])
def test_need_counted_runs(low: int, high: int) -> None:
    """Tokens of one to three characters against bounds on their number."""
    machine = counted(low, high)
    words = [b"a", b"aaa", b"a)", b"(", b")", b")(", b"a)(a", b"(a"]
    vocabulary = Vocabulary.from_bytes([*words, None], end_ids=[len(words)])
    assert check(machine, vocabulary, configurations(machine, 0, tuple(range(9)))) > 20


def test_need_no_token_spells_the_rest() -> None:
    """Where the vocabulary lacks a byte there is no way, rather than a large number."""
    machine = spelled(b"abc")
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"ab", None], end_ids=[3])
    assert NeedTable(machine, vocabulary).need(machine.initial().pack()) is None


def test_need_long_bounds_are_never_too_small() -> None:
    """With bounds past the exact range, the answer is at least the search's and a token of it leads on."""
    machine = counted(0, 200)
    words = [b"a", b"aa", b"a)", b"(", b")", b")("]
    vocabulary = Vocabulary.from_bytes([*words, None], end_ids=[len(words)])
    table = NeedTable(machine, vocabulary)
    for config in configurations(machine, 0, tuple(range(0, 201, 7))):
        need, expected = table.need(config.pack()), fewest(machine, vocabulary, config)
        assert need is not None
        assert expected is not None
        assert need >= expected
        following = [machine.run(config, word) for word in words]
        needs = [table.need(after.pack()) for after in following if after is not None]
        assert need == 0 or min(n for n in needs if n is not None) <= need - 1
