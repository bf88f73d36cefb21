"""`LimitedPlanner` where it is tight: the stack's cap, healing, forced text longer than what is left."""

from __future__ import annotations

import random

import numpy as np
import pytest
from small_machines import nested

import stcon
from stcon.constraint.budget import budget_for
from stcon.constraint.forced import Planner
from stcon.constraint.limited import LimitedPlan, LimitedPlanner
from stcon.constraint.sharing import kernel_for
from stcon.errors import DecodingError, LimitTooSmall
from stcon.grammar.machine import STACK_CAP, Configuration, Machine
from stcon.vocab import Vocabulary


def letters(*longer: bytes) -> Vocabulary:
    """JSON's characters and `longer` tokens."""
    single = [bytes((byte,)) for byte in b'abxy(),[]{}":0123456789']
    return Vocabulary.from_bytes([*single, *longer, None], end_ids=[len(single) + len(longer)])


def limited(machine: Machine, vocabulary: Vocabulary, policy: str) -> LimitedPlanner:
    """A limited planner under a policy."""
    kernel = kernel_for(machine, vocabulary)
    return LimitedPlanner(Planner(vocabulary, kernel, policy=policy), budget_for(kernel))  # type: ignore[arg-type]


def finish(planner: LimitedPlanner, limit: int, rng: random.Random) -> bytes:
    """An output drawn at random from what is admitted, deepest first where `rng` says so."""
    plan: LimitedPlan = planner.start(limit)
    vocabulary, text = planner.planner.vocabulary, vocabulary_text(planner, plan)
    while plan.remaining and not plan.plan.is_done:
        mask = plan.plan.mask if plan.within is None else plan.within
        choices = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        assert choices
        token = rng.choice(choices)
        if token in vocabulary.end_ids:
            break
        plan = planner.step(plan, token)
        text += vocabulary_text(planner, plan)
    return text


def vocabulary_text(planner: LimitedPlanner, plan: LimitedPlan) -> bytes:
    """The text of a plan's tokens."""
    return planner.planner.vocabulary.decode(plan.tokens)


@pytest.mark.parametrize("policy", ["canonical", "any", "none"])
def test_step_text_is_complete_when_nothing_remains(policy: str) -> None:
    """Random choices at every limit from the least one, with tokens that cross several returns."""
    machine, vocabulary = nested(), letters(b")))", b"),(", b"((", b"xx", b"x)", b",y")
    planner = limited(machine, vocabulary, policy)
    for seed in range(60):
        text = finish(planner, 1 + seed % 12, random.Random(seed))
        end = machine.run(machine.initial(), text)
        assert end is not None
        assert machine.accepts(end), text


def test_need_at_the_cap_of_the_stack() -> None:
    """Up to the cap, what is needed is what closes the brackets; a bracket past it is not admitted."""
    machine, vocabulary = nested(), letters(b"))")
    budget = budget_for(kernel_for(machine, vocabulary))
    config = machine.initial()
    for depth in range(1, STACK_CAP + 1):
        following = machine.run(config, b"(")
        assert following is not None
        config = following
        need = budget.need(config.pack())
        assert need is None if len(config.stack) > STACK_CAP else need == 1 + -(-depth // 2), depth
        if len(config.stack) == STACK_CAP - 1:
            break
    assert isinstance(config, Configuration)
    mask = np.full(vocabulary.num_words, -1, np.int32)
    budget.restrict(config.pack(), 10_000, mask)
    after = machine.run(config, b"(")
    opening = 4
    allowed = bool(mask[0] >> opening & 1)
    assert vocabulary.token_bytes(opening) == b"("
    assert allowed == (after is not None and budget.need(after.pack()) is not None)


def test_start_refuses_before_anything_is_planned() -> None:
    """The least limit is named, and it is enough."""
    grammar = stcon.compile({"type": "object", "properties": {"ab": {"const": "xy"}}, "required": ["ab"]})
    planner = limited(grammar.machine, letters(), "canonical")
    with pytest.raises(LimitTooSmall) as caught:
        planner.start(3)
    needed = caught.value.needed
    assert needed == len('{"ab":"xy"}')
    assert finish(planner, needed, random.Random(0)) == b'{"ab":"xy"}'


def test_start_forced_text_in_the_tokenizers_split_may_be_too_long() -> None:
    """Where only the shortest split fits, it is what is left to choose."""
    grammar = stcon.compile({"type": "object", "properties": {"ab": {"const": "xy"}}, "required": ["ab"]})
    tokens = [b'{"ab":"xy"}', b'{"ab":', b'"xy"}']
    single = [bytes((byte,)) for byte in b'abxy{}":']
    vocabulary = Vocabulary.from_bytes(
        [*single, *tokens, None],
        end_ids=[len(single) + 3],
        encode=lambda text: [b'abxy{}":'.index(b) for b in text.encode()],
    )
    planner = limited(grammar.machine, vocabulary, "canonical")
    assert planner.budget.start == 1
    assert finish(planner, 1, random.Random(0)) == b'{"ab":"xy"}'
    assert len(planner.start(11).tokens) == 11


def test_start_no_tokens_spell_a_text() -> None:
    """A vocabulary that lacks a byte is a decoding error, not a limit."""
    grammar = stcon.compile_regex("a(x|z)z")
    with pytest.raises(DecodingError):
        limited(grammar.machine, letters(), "canonical").start(100)


def test_sets_of_stacks_are_complete_within_every_limit() -> None:
    """A grammar that is not deterministic keeps limits too, far and near."""
    grammar = stcon.compile_grammar('root ::= "a" root "a" | "b" root "b" | "xy"', syntax="gbnf")
    planner = limited(grammar.machine, letters(), "canonical")
    for limit in (2, 4, 9, 40):
        assert grammar.accepts(finish(planner, limit, random.Random(limit)))
