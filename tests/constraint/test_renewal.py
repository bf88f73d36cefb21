"""A lazily built machine keeps what it has built: its state budget is one text's, not that of all texts ever read."""

from __future__ import annotations

import json
import random

import pytest

import stcon
from stcon.grammar import compile_json_schema
from stcon.vocab.vocabulary import Vocabulary

NAMES = [f"field{i}" for i in range(9)]
VALUE = {"type": "integer"}
SCHEMA = {"properties": {name: VALUE for name in NAMES}, "required": NAMES, "additionalProperties": False}  # noqa: C420
BUDGET = 1_500


def documents(count: int) -> list[str]:
    """Documents whose names come in ever another order."""
    rng = random.Random(0)
    return [json.dumps(dict.fromkeys(rng.sample(NAMES, 9), 1), separators=(",", ":")) for _ in range(count)]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """The bytes alone."""
    return Vocabulary.from_bytes([*(bytes((b,)) for b in range(256)), None], end_ids=[256])


def test_the_budget_is_used_up_by_one_machine() -> None:
    """The premise: one machine cannot read all of these."""
    machine = compile_json_schema(SCHEMA, key_order="any", max_states=BUDGET).machine
    texts = documents(60)
    with pytest.raises(stcon.TooLarge):
        all(machine.run(machine.initial(), text.encode()) for text in texts)


def test_many_texts_in_any_order_are_checked_by_one_grammar() -> None:
    """`Grammar.accepts` goes on with a new machine where the old one has grown."""
    grammar = compile_json_schema(SCHEMA, key_order="any", max_states=BUDGET)
    assert all(grammar.accepts(text) for text in documents(60))
    assert not grammar.accepts(documents(1)[0].replace(":1,", ':"1",'))


def test_a_matcher_takes_the_new_machine_when_reset(vocabulary: Vocabulary) -> None:
    """One matcher, one output after another; another that is in the middle of its output goes on with the old one."""
    grammar = compile_json_schema(SCHEMA, key_order="any", max_states=BUDGET)
    first, *others = documents(60)
    held, matcher = (stcon.Matcher(grammar, vocabulary) for _ in range(2))
    assert held.accept_bytes(first[:20].encode())
    for text in others:
        matcher.reset()
        assert matcher.accept_bytes(text.encode())
        assert matcher.is_complete
    assert grammar.machine is not held._kernel.machine
    assert held.accept_bytes(first[20:].encode())
    assert held.is_complete


def test_a_whole_machine_stays() -> None:
    """What is built in full has nothing to make room for."""
    grammar = compile_json_schema({"enum": [f"{i * 7919 % 1000}" for i in range(300)]}, max_states=700).build()
    machine = grammar.machine
    assert machine.is_whole
    assert machine.num_states > 350
    assert grammar.machine is machine
