"""`Budget`: a token is admitted iff the text can still be completed within the tokens that are left."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_machines import counted, nested, random_machines
from test_need import LEVELS, configurations, fewest, vocabularies

import stcon
from stcon.constraint.budget import Budget
from stcon.constraint.matcher import Matcher
from stcon.grammar.grammar import Grammar
from stcon.grammar.machine import Configuration, Machine
from stcon.kernels import reference
from stcon.kernels.cpu import CpuKernel
from stcon.vocab import Vocabulary

REST = 3


def bits(mask: np.ndarray, size: int) -> set[int]:
    """The tokens of a mask."""
    return {token for token in range(size) if mask[token >> 5] >> (token & 31) & 1}


def expected_mask(machine: Machine, vocabulary: Vocabulary, config: Configuration, remaining: int) -> set[int] | None:
    """By search: the tokens with a continuation of at most ``remaining - 1`` more; None if too many to try."""
    allowed = set(vocabulary.end_ids) if machine.accepts(config) and remaining > 0 else set()
    for token in range(vocabulary.size):
        after = machine.run(config, data) if (data := vocabulary.token_bytes(token)) else None
        if after is not None and remaining > 0:
            need = fewest(machine, vocabulary, after, levels=remaining - 1)
            if need == -1:
                return None
            allowed |= {token} if need is not None else set()
    return allowed


def check(
    machine: Machine, vocabulary: Vocabulary, depth: int, counters: tuple[int, ...] = (0,), *, is_trim: bool = True
) -> int:
    """Compare the mask of every configuration with every limit; how many were compared."""
    budget, compared = Budget(CpuKernel(machine, vocabulary)), 0
    budget._may_be_stuck |= not is_trim  # ask at every limit: `worst` is for machines without dead ends
    for config in configurations(machine, depth, counters):
        for remaining in range(REST + 1):
            expected = expected_mask(machine, vocabulary, config, remaining)
            if expected is None:
                continue
            mask = reference.mask(machine, config, vocabulary)
            budget.restrict(config.pack(), remaining, mask)
            assert bits(mask, vocabulary.size) == expected, (config, remaining)
            compared += 1
    return compared


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_machines(), vocabularies)
def test_restrict_random_machine_and_tokens(machine: Machine, vocabulary: Vocabulary) -> None:
    """Least restrictive on any machine: every state on every stack of at most 2 symbols."""
    check(machine, vocabulary, 2, is_trim=False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_machines(bounds=True), vocabularies)
def test_restrict_random_machine_with_counters(machine: Machine, vocabulary: Vocabulary) -> None:
    """The same with counter bounds."""
    check(machine, vocabulary, 1, (0, 1, 2, 3), is_trim=False)


def test_restrict_nested_all_stacks_to_depth_4() -> None:
    """Every state of a recursive machine on every stack of at most 4 symbols, tokens that cross several returns."""
    words = [b"x", b"y", b"(", b")", b",", b"))", b"x)", b"),(", b"((", b"y)))", b"xx", b",y)", b")),x"]
    vocabulary = Vocabulary.from_bytes([*words, None], end_ids=[len(words)])
    assert check(nested(), vocabulary, 4) >= 60


def test_restrict_counted_runs() -> None:
    """Minimum and maximum lengths against tokens of several characters."""
    words = [b"a", b"aaa", b"a)", b"(", b")", b")(", b"a)(a", b"(a"]
    vocabulary = Vocabulary.from_bytes([*words, None], end_ids=[len(words)])
    assert check(counted(2, 6), vocabulary, 0, tuple(range(8))) > 60


def test_restrict_is_free_above_worst() -> None:
    """With more tokens left than `worst` says, no admissible token would have been taken."""
    words = [b"x", b"y", b"(", b")", b",", b"))", b"((", b"xx"]
    vocabulary = Vocabulary.from_bytes([*words, None], end_ids=[len(words)])
    machine = nested()
    budget = Budget(CpuKernel(machine, vocabulary))
    assert LEVELS > 0
    for config in configurations(machine, 3):
        packed = config.pack()
        worst = budget.worst(packed)
        assert worst <= budget.most(int(packed[1]))
        for token, data in enumerate(words):
            after = machine.run(config, data)
            if after is not None:
                need = budget.need(after.pack())
                assert need is not None, token
                assert 1 + need <= worst


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["nested", "counted", "unique", "names"]),
    st.integers(0, 2**32),
    st.sampled_from(["longest", "any", "first"]),
    st.integers(0, 8),
)
def test_matcher_remaining_always_completes(name: str, seed: int, taste: str, extra: int) -> None:
    """Whoever picks among ``bitmask(remaining=r)`` has a complete text when r tokens are spent."""
    grammar, vocabulary = language(name), letters()
    matcher, rng = Matcher(grammar, vocabulary), random.Random(seed)
    remaining = (matcher.need() or 0) + extra + (4 if name in {"unique", "names"} else 0)
    while remaining and not matcher.is_finished:
        choices = sorted(bits(matcher.bitmask(remaining=remaining), vocabulary.size))
        assert choices, (matcher.text, remaining)
        token = {
            "longest": max(choices, key=lambda t: len(vocabulary.token_bytes(t) or b"")),
            "any": rng.choice(choices),
            "first": choices[0],
        }[taste]
        assert matcher.accept(token)
        remaining -= 1
    assert matcher.is_complete
    assert accepts(grammar, matcher.text)


def test_matcher_bitmask_without_need_is_empty() -> None:
    """With fewer tokens left than are needed nothing is admitted, and `need` says how many would do."""
    matcher = Matcher(nested(), letters())
    assert matcher.accept_bytes(b"((x,(")
    need = matcher.need()
    assert need == 2  # x and )))
    assert not matcher.bitmask(remaining=need - 1).any()
    assert matcher.bitmask(remaining=need).any()


@cache
def letters() -> Vocabulary:
    """JSON's characters and some tokens of several."""
    single = [bytes((byte,)) for byte in b'abxy(),[]{}":0123456789']
    longer = [b"xx", b")))", b"),(", b'","', b'"]', b'":', b"a)(a", b'["', b'{"', b"12", b'","a', b'a"]']
    return Vocabulary.from_bytes([*single, *longer, None], end_ids=[len(single) + len(longer)])


@cache
def language(name: str) -> Grammar | Machine:
    """Machines, and schemas whose items or names may not repeat."""
    match name:
        case "nested":
            return nested()
        case "counted":
            return counted(2, 6)
        case "unique":
            string = {"type": "string", "pattern": "^[abxy0-9]{1,3}$"}
            return stcon.compile({"type": "array", "items": string, "uniqueItems": True, "minItems": 3, "maxItems": 5})
        case _:
            names = {"type": "object", "propertyNames": {"pattern": "^[ab]{1,3}$"}, "minProperties": 2}
            return stcon.compile({**names, "additionalProperties": {"type": "integer"}}, closed=False)


def accepts(grammar: Grammar | Machine, text: bytes) -> bool:
    """Whether `text` belongs to it."""
    if isinstance(grammar, Machine):
        end = grammar.run(grammar.initial(), text)
        return end is not None and grammar.accepts(end)
    return grammar.accepts(text)
