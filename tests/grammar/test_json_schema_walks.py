"""Random walks: no dead end ever, and what ends is a JSON value that the schema allows, its names written once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from _random_schemas import SCHEMA_URIS, Choices, SchemaMaker
from _schema_oracle import WHITESPACE, is_valid, parse, repeated_names, validator, walk
from _shared_data import maskbench, official_suite, suite_options

from stcon.errors import GrammarError
from stcon.grammar import Grammar, compile_json_schema
from stcon.grammar.analysis import check

ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string", "minLength": 1}, "number": {"type": "integer", "minimum": 1}},
    "required": ["street"],
}

HAND_MADE: dict[str, Any] = {
    "anything": True,
    "record": {"properties": {"a": ADDRESS, "b": {"type": "array", "items": ADDRESS, "maxItems": 3}}, "type": "object"},
    "tree": {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v"],
        "additionalProperties": False,
    },
    "exclusive": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "x": {"minimum": 3}}, "required": ["k", "x"]},
        ]
    },
    "names": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-c]{1,2}$"},
        "patternProperties": {"^a": {"type": "null"}},
    },
    "counted": {
        "type": "object",
        "properties": dict.fromkeys("abcde", True),
        "additionalProperties": False,
        "minProperties": 2,
        "maxProperties": 3,
    },
    "contains": {"type": "array", "contains": {"multipleOf": 3}, "minContains": 2, "maxContains": 3, "maxItems": 5},
    "lengths": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "é|[a-z]$"},
    "negated": {
        "not": {
            "anyOf": [
                {"type": ["string", "array"]},
                {"type": "object", "required": ["a"]},
                {"type": "number", "minimum": 10},
            ]
        }
    },
    "conditional": {
        "type": "object",
        "properties": {"k": {"type": "boolean"}, "n": {"type": "integer"}},
        "if": {"properties": {"k": {"const": True}}, "required": ["k"]},
        "then": {"required": ["n"]},
        "else": {"properties": {"n": False}},
    },
    "unevaluated": {
        "allOf": [{"properties": {"a": True}}, {"if": {"required": ["b"]}, "then": {"properties": {"b": True}}}],
        "unevaluatedProperties": False,
        "type": "object",
    },
    "enumerated": {"enum": ["", "a\"b", "é😀", None, -0.5, [1, {"a": []}], {"k": {"l": 1}, "": 2}]},
    "unique": {"type": "array", "items": {"enum": [1, "a", None]}, "uniqueItems": True},
    "unspellable": {"properties": {"\ud800": True, "a": {"enum": ["\udfff", "b"]}}, "additionalProperties": False},
}  # fmt: skip

SETTINGS = [
    {"whitespace": whitespace, "key_order": order, "closed": closed, "escapes": escapes}
    for whitespace in WHITESPACE
    for order, closed, escapes in (("schema", True, "minimal"), ("any", False, "minimal"), ("schema", False, "any"))
]


def walked(schema: Any, seed: int, count: int, oracle: Any = None, **options: Any) -> int:
    """Walk a machine `count` times and judge each text; returns how many ended (0 where the schema is refused)."""
    try:
        grammar = compile_json_schema(schema, **options)
    except GrammarError:
        return 0
    source = random.Random(seed)
    oracle = validator(schema) if oracle is None else oracle
    ended = 0
    for _ in range(count):
        text = walk(grammar.machine, source)
        if text is None:
            continue
        ended += 1
        assert grammar.accepts(text)
        assert is_valid(oracle, parse(text)) is not False, f"{text!r} is invalid"
        assert not repeated_names(text.decode()), f"{text!r} repeats a name"
    return ended


@pytest.mark.parametrize("name", HAND_MADE)
def test_walks_of_hand_made_schemas_end_in_valid_text(name: str) -> None:
    """In every setting, walks never get stuck and most end."""
    total = sum(walked(HAND_MADE[name], i, 12, **options) for i, options in enumerate(SETTINGS))
    assert total > 12 * len(SETTINGS) // 3


@pytest.mark.parametrize("name", HAND_MADE)
def test_machines_of_hand_made_schemas_are_trim_and_unambiguous(name: str) -> None:
    """Every state can reach an end, and a number's end never competes with its caller."""
    if name == "anything":
        pytest.skip("too many states to build whole")
    grammar = compile_json_schema(HAND_MADE[name], whitespace="compact", closed=True)
    assert check(grammar.build().machine) == []


@pytest.mark.parametrize("draft", SCHEMA_URIS)
def test_walks_of_random_schemas_end_in_valid_text(draft: int) -> None:
    """The same over random schemas of every draft."""
    ended = 0
    for seed in range(50):
        schema = SchemaMaker(Choices.seeded(100_000 * draft + seed), draft).root(1 + seed % 3)
        ended += walked(schema, seed, 4, **SETTINGS[seed % len(SETTINGS)])
    assert ended > 50


def test_machines_of_random_schemas_are_trim_and_unambiguous() -> None:
    """The structural check on small random machines, built whole."""
    checked = 0
    for seed in range(60):
        schema = SchemaMaker(Choices.seeded(seed), 2020).root(1 + seed % 2)
        try:
            grammar = compile_json_schema(schema, max_states=1_000, closed=bool(seed % 2)).build()
        except GrammarError:
            continue
        checked += 1
        assert check(grammar.machine) == [], schema
    assert checked > 15


@pytest.mark.long
@pytest.mark.parametrize("draft", SCHEMA_URIS)
def test_walks_of_many_random_schemas_end_in_valid_text(draft: int) -> None:
    """The same over thousands of schemas."""
    for seed in range(2_000):
        schema = SchemaMaker(Choices.seeded(50_000_000 * draft + seed), draft).root(1 + seed % 4)
        walked(schema, seed, 6, **SETTINGS[seed % len(SETTINGS)])


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_walks_of_real_schemas_end_in_valid_text(part: int) -> None:
    """The same over real schemas."""
    for seed, case in enumerate(maskbench()[part::20]):
        walked(case["schema"], seed, 2, **SETTINGS[seed % len(SETTINGS)])


@pytest.mark.long
def test_walks_of_the_official_suite_end_in_valid_text() -> None:
    """The same over the schemas of the official suite."""
    for seed, case in enumerate(official_suite()):
        options = suite_options(case["id"])
        oracle = validator(case["schema"], registry=registry_of(options["documents"]))
        walked(case["schema"], seed, 4, oracle, **{**SETTINGS[seed % len(SETTINGS)], **options})


def registry_of(documents: dict[str, Any]) -> Any:
    """The suite's remote documents, as the library referencing wants them."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    return Registry().with_contents(documents.items(), default_specification=DRAFT202012)


def test_walk_finds_a_dead_end() -> None:
    """The walk itself: a machine that gets stuck is caught."""
    from _schema_oracle import DeadEnd

    from stcon.grammar.machine import Machine

    machine = Machine()
    start, stuck = machine.new_state(), machine.new_state()
    machine.set_edges(start, {0x61: stuck})
    machine.set_edges(stuck, {})
    with pytest.raises(DeadEnd):
        walk(machine, random.Random(0))
    assert isinstance(compile_json_schema(True), Grammar)
