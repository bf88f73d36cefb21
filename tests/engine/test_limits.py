"""Token limits: every output is complete within its limit, or the limit is refused before the model is asked."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from engine_cases import MACHINES, VOCABULARIES, grammar
from hypothesis import given, settings
from hypothesis import strategies as st

import stcon
from stcon.engine.loop import generate
from stcon.engine.sampling import Sampling
from stcon.errors import LimitTooSmall
from stcon.models.fake import FakeModel, prefer, prefer_longest

MODES = ("mask", "any", "canonical")
PROMPT = [40, 41, 42]
BIASES = {
    "none": lambda v: None,
    "longest": prefer_longest,
    "open": lambda v: prefer(v, lambda data: data[-1:] in b'[{"'),
    "digits": lambda v: prefer(v, bytes.isdigit),
    "white": lambda v: prefer(v, bytes.isspace),
}
SCHEMAS = {
    "tree": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "required": ["name", "kids"]}}},
    "lengths": {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 5}, "minItems": 2},
    "unique": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 3},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1},
    "names": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
}  # fmt: skip


@cache
def compiled(name: str, whitespace: str) -> stcon.Grammar:
    """The grammar of a schema."""
    return stcon.compile(SCHEMAS[name], whitespace=whitespace, closed=False)


def fake(vocabulary: str, bias: str, seed: int) -> FakeModel:
    """An adversary over a small vocabulary."""
    tokens = VOCABULARIES[vocabulary]()
    return FakeModel(tokens, seed, bias=BIASES[bias](tokens))


adversaries = st.tuples(st.sampled_from(sorted(VOCABULARIES)), st.sampled_from(sorted(BIASES)), st.integers(0, 10**6))


def outcome(model, goal, limit, mode, temperature=0.0):
    """The output within `limit`, or the limit that would do."""
    try:
        return generate(
            model, PROMPT, goal, max_tokens=limit, mode=mode, budget=True, sampling=Sampling(temperature, seed=7)
        )
    except LimitTooSmall as refused:
        assert not model.num_passes
        return refused.needed


@settings(max_examples=60, deadline=None)
@given(adversaries, st.sampled_from(sorted(MACHINES)), st.sampled_from(MODES), st.integers(1, 30))
def test_generate_small_machines_are_complete_or_refused(adversary, machine, mode, limit):
    """On every machine, under every adversary: complete within the limit, or refused with the limit that would do."""
    goal = grammar(machine)
    output = outcome(fake(*adversary), goal, limit, mode)
    if output is None or isinstance(output, int):
        assert output is None or output > limit
        if output is not None:
            again = outcome(fake(*adversary), goal, output, mode)
            assert again.complete
            assert len(again.tokens) <= output
    else:
        assert output.complete
        assert len(output.tokens) <= limit


@settings(max_examples=150, deadline=None)
@given(
    adversaries,
    st.sampled_from(sorted(SCHEMAS)),
    st.tuples(st.sampled_from(["compact", "flexible"]), st.sampled_from(MODES)),
    st.integers(1, 40),
    st.sampled_from([0.0, 1.0]),
)
def test_generate_schemas_are_complete_or_refused(adversary, name, options, limit, temperature):
    """Recursion, lengths, numbers, items and names that may not repeat: the value is always there."""
    whitespace, mode = options
    goal = compiled(name, whitespace)
    output = outcome(fake(*adversary), goal, limit, mode, temperature)
    if isinstance(output, int):
        assert output > limit
    elif output is not None:
        assert output.complete
        assert output.value == json.loads(output.text)
        assert len(output.tokens) <= limit


@settings(max_examples=60, deadline=None)
@given(adversaries, st.sampled_from(sorted(SCHEMAS)), st.sampled_from(MODES), st.sampled_from([0.0, 1.0]))
def test_generate_room_changes_nothing(adversary, name, mode, temperature):
    """An output that ends within the limit by itself is the same, token for token, with and without the rule."""
    goal = compiled(name, "compact")
    sampling = Sampling(temperature, seed=7)
    free = generate(fake(*adversary), PROMPT, goal, max_tokens=60, mode=mode, sampling=sampling)
    if free.finish_reason == "stop" and name not in {"unique", "names"}:
        limit = len(free.tokens)
        kept = outcome(fake(*adversary), goal, limit, mode, temperature)
        assert [token.id for token in kept.tokens] == [token.id for token in free.tokens]
        assert kept.finish_reason == "stop"


def test_generate_shortens_gracefully():
    """As the limit falls the output loses items, then characters, and never its form."""
    vocabulary = VOCABULARIES["bpe"]()
    model = FakeModel(vocabulary, 3, bias=prefer(vocabulary, lambda data: data.isalpha(), 3.0))
    goal = compiled("tree", "compact")
    sizes = []
    for limit in range(60, 12, -6):
        output = outcome(model, goal, limit, "canonical")
        assert output.complete
        sizes.append(len(output.text))
    assert sizes[0] > sizes[-1]


def test_generate_no_limit_too_small_is_tried():
    """A refused limit names the one that would do, and the model was not asked."""
    model = fake("bpe", "none", 1)
    with pytest.raises(LimitTooSmall) as caught:
        generate(model, PROMPT, compiled("tree", "compact"), max_tokens=1, budget=True)
    assert (caught.value.limit, model.num_passes) == (1, 0)
    assert caught.value.needed is not None
    assert np.isfinite(caught.value.needed)
