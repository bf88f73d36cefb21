"""Quick plans are the plans: quiet places, plans remembered and shared, near limits and under histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import constraint_lab as lab
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.constraint import quiet
from stcon.constraint.forced import Plan, Planner
from stcon.constraint.sharing import kernel_for
from stcon.errors import DecodingError
from stcon.grammar import compile_json_schema
from stcon.grammar.machine import Machine

OPEN = {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 4}
WORDS = {"type": "array", "uniqueItems": True, "items": {"type": "string", "maxLength": 6}, "maxItems": 4}
CODES = {"type": "array", "uniqueItems": True, "items": {"enum": ["aa", "ab", "b"]}}
SCHEMAS = {
    "open": OPEN,
    "words": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": WORDS},
        "required": ["name", "tags"],
    },
    "codes": {"type": "object", "properties": {"codes": CODES, "n": {"type": "integer"}}, "required": ["codes"]},
    "nested": {"type": "array", "items": OPEN, "maxItems": 3},
}
NAMES = [*sorted(lab.LANGUAGES), *sorted(SCHEMAS)]


@cache
def built(name: str) -> Machine:
    return compile_json_schema(SCHEMAS[name]).machine if name in SCHEMAS else lab.language(name)


def held(plan: Plan) -> object:
    """What a plan's history holds, whichever objects hold it."""
    scopes = [(*scope._replace(elements=scope.elements.values()),) for scope in plan.history.scopes]
    return scopes, plan.history.quoted


def same(found: Plan, made: Plan) -> bool:
    """Whether two plans say the same; `found` may have forgotten text before a block's certain begin."""
    arrays = all(np.array_equal(x, y) for x, y in ((found.config, made.config), (found.mask, made.mask)))
    names = ("tokens", "replace_last", "committed", "cover", "is_done", "is_kernels")
    kept = len(found.tail.tokens)
    tails = made.tail.data.endswith(found.tail.data) and made.tail.tokens[len(made.tail.tokens) - kept :] == (
        found.tail.tokens
    )
    return arrays and tails and held(found) == held(made) and all(getattr(found, n) == getattr(made, n) for n in names)


def said(ask: Callable[..., Plan], *place: object) -> Plan | str:
    """A plan, or why there is none."""
    try:
        return ask(*place)
    except DecodingError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(sorted(lab.SPLITS)),
    st.sampled_from(["canonical", "any", "none"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_step_is_the_plan_made_anew(name: str, split: str, policy: str, heal: bool, seed: int) -> None:
    """At every place of random texts, for several tokens each, asked twice."""
    rng, vocab = random.Random(seed), lab.vocabulary(split)
    planner = Planner(vocab, kernel_for(built(name), vocab), policy=policy, heal=heal)  # type: ignore[arg-type]
    plan = anew = planner.start()
    for _ in range(25):
        tokens = [token for token in lab.admitted(plan.mask) if token not in vocab.end_ids]
        if plan.is_done or not tokens:
            return
        for token in {*rng.sample(tokens, min(4, len(tokens))), tokens[0]}:
            made = said(planner.plan, anew.config, anew.tail, token, anew.history)
            for _ in range(2):
                found = said(planner.step, plan, token)
                assert made == found if isinstance(made, str) or isinstance(found, str) else same(found, made)
        token = rng.choice(tokens)
        following = said(planner.step, plan, token)
        if isinstance(following, str):
            return
        # what is forgotten on one way is kept on the other: they must go on alike
        plan, anew = following, planner.plan(anew.config, anew.tail, token, anew.history)


def test_quiet_places_are_used() -> None:
    """In free text nothing is planned anew: the quick way is taken."""
    vocab = lab.vocabulary(sorted(lab.SPLITS)[0])
    planner = Planner(vocab, kernel_for(built("words"), vocab))
    opened = planner.kernel.machine.initial().pack()
    assert planner.kernel.advance(opened, b'{"name":"a')
    plan = planner.plan(opened)
    letters = [t for t in lab.admitted(plan.mask) if (vocab.token_bytes(t) or b"").isalpha()]
    assert len(letters) >= 5
    planner.plan = None  # type: ignore[assignment, method-assign] # raises if asked
    for token in letters[:5]:
        plan = planner.step(plan, token)
        assert plan.tokens == []


def test_remembered_plans_are_bounded_and_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten; what is shared is read-only."""
    monkeypatch.setattr(quiet, "MAX_PLANS", 2)
    vocab = lab.vocabulary(sorted(lab.SPLITS)[0])
    planner = Planner(vocab, kernel_for(built("codes"), vocab))
    plan, remembered = planner.start(), quiet.Remembered()
    for key in range(3):
        remembered.keep(key, plan)
    assert remembered.find(0) is None
    assert remembered.find(2) is plan
    with pytest.raises(ValueError, match="read-only"):
        plan.mask[0] = 0
