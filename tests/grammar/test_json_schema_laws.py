"""Laws of boolean algebra and of the keywords: schemas that mean the same give machines with the same texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from _random_schemas import Choices, SchemaMaker
from _schema_oracle import differing_text, paths

from stcon.errors import GrammarError, InvalidSchema, TooLarge, Unsatisfiable, Unsupported
from stcon.grammar import Grammar, compile_json_schema

Schema = Any
Pair = tuple[Schema, Schema]
Law = Callable[[Schema, Schema, Schema], Pair]


def negated(schema: Schema) -> Schema:
    """The schema of exactly the other values."""
    return {"not": schema}


def of_type(kind: str, schema: Schema) -> Schema:
    """`schema`, for values of one type only."""
    return {"allOf": [{"type": kind}, schema]}


LAWS: dict[str, Law] = {
    "double negation": lambda a, b, c: (a, negated(negated(a))),
    "de morgan, or": lambda a, b, c: (negated({"anyOf": [a, b]}), {"allOf": [negated(a), negated(b)]}),
    "de morgan, and": lambda a, b, c: (negated({"allOf": [a, b]}), {"anyOf": [negated(a), negated(b)]}),
    "allOf commutes": lambda a, b, c: ({"allOf": [a, b, c]}, {"allOf": [c, a, b]}),
    "anyOf commutes": lambda a, b, c: ({"anyOf": [a, b, c]}, {"anyOf": [b, c, a]}),
    "oneOf commutes": lambda a, b, c: ({"oneOf": [a, b, c]}, {"oneOf": [c, b, a]}),
    "allOf is associative": lambda a, b, c: ({"allOf": [a, b, c]}, {"allOf": [{"allOf": [a, b]}, c]}),
    "allOf is idempotent": lambda a, b, c: (a, {"allOf": [a, a]}),
    "and over or": lambda a, b, c: (
        {"allOf": [a, {"anyOf": [b, c]}]},
        {"anyOf": [{"allOf": [a, b]}, {"allOf": [a, c]}]},
    ),
    "absorption": lambda a, b, c: (a, {"anyOf": [a, {"allOf": [a, b]}]}),
    "excluded middle": lambda a, b, c: (b, {"allOf": [b, {"anyOf": [a, negated(a)]}]}),
    "oneOf of two": lambda a, b, c: (
        {"oneOf": [a, b]},
        {"allOf": [{"anyOf": [a, b]}, negated({"allOf": [a, b]})]},
    ),
    "oneOf of three": lambda a, b, c: (
        {"oneOf": [a, b, c]},
        {
            "anyOf": [
                {"allOf": [a, negated(b), negated(c)]},
                {"allOf": [negated(a), b, negated(c)]},
                {"allOf": [negated(a), negated(b), c]},
            ]
        },
    ),
    "if": lambda a, b, c: (
        {"if": a, "then": b, "else": c},
        {"anyOf": [{"allOf": [a, b]}, {"allOf": [negated(a), c]}]},
    ),
    "dependentSchemas": lambda a, b, c: (
        {"dependentSchemas": {"a": a}},
        {"anyOf": [negated({"type": "object", "required": ["a"]}), a]},
    ),
    "dependentRequired": lambda a, b, c: (
        {"dependentRequired": {"a": ["b", "c"]}},
        {"dependentSchemas": {"a": {"required": ["c", "b"]}}},
    ),
    "reference": lambda a, b, c: (
        {"$defs": {"x": a}, "properties": {"a": {"$ref": "#/$defs/x"}}},
        {"properties": {"a": a}},
    ),
    "properties by pattern": lambda a, b, c: (
        {"properties": {"a": a}, "type": "object", "required": ["a"]},
        {"patternProperties": {"^a$": a}, "type": "object", "required": ["a"]},
    ),
    "additional by pattern": lambda a, b, c: (
        {"additionalProperties": a, "properties": {"a": True}},
        {"patternProperties": {"^$|^[^a]|^a[^]": a}, "properties": {"a": True}},
    ),
    "names by pattern": lambda a, b, c: (
        {"propertyNames": {"pattern": "^b"}},
        {"patternProperties": {"^[^b]": False, "^$": False}},
    ),
    "items by prefix": lambda a, b, c: (
        {"items": a, "maxItems": 2},
        {"prefixItems": [a, a], "maxItems": 2},
    ),
    "contains counts down": lambda a, b, c: (
        of_type("array", {"contains": a, "minContains": 2}),
        of_type("array", negated({"contains": a, "minContains": 0, "maxContains": 1})),
    ),
    "contains splits": lambda a, b, c: (
        {"contains": a, "minContains": 1, "maxContains": 2},
        {"allOf": [{"contains": a}, {"contains": a, "minContains": 0, "maxContains": 2}]},
    ),
    "items is no contained exception": lambda a, b, c: (
        of_type("array", {"items": a}),
        of_type("array", negated({"contains": negated(a)})),
    ),
    "unevaluated without neighbours": lambda a, b, c: (
        {"additionalProperties": a, "properties": {"b": b}},
        {"unevaluatedProperties": a, "properties": {"b": b}},
    ),
    "unevaluated items": lambda a, b, c: (
        {"prefixItems": [b], "items": a},
        {"prefixItems": [b], "unevaluatedItems": a},
    ),
}

FIXED_LAWS: dict[str, Pair] = {
    "type list": ({"type": ["string", "null"]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
    "enum is anyOf const": (
        {"enum": [1, "a", None, [1], {"a": 2}]},
        {"anyOf": [{"const": {"a": 2}}, {"const": [1]}, {"const": None}, {"const": "a"}, {"const": 1}]},
    ),
    "equal values": ({"enum": [1, "a", [2]]}, {"enum": [[2], "a", 1, "a", 1]}),
    "bounds": (
        {"type": "number", "minimum": 3},
        {"allOf": [{"type": "number"}, {"not": {"exclusiveMaximum": 3}}]},
    ),
    "lengths": (
        {"type": "string", "minLength": 2, "maxLength": 3},
        {"allOf": [{"type": "string"}, {"not": {"maxLength": 1}}, {"not": {"minLength": 4}}]},
    ),
    "length by pattern": ({"type": "string", "minLength": 2}, {"type": "string", "pattern": "^[^]{2}"}),
    "counts": (
        {"type": "object", "maxProperties": 1, "properties": {"a": True, "b": True}, "additionalProperties": False},
        {
            "type": "object",
            "not": {"minProperties": 2},
            "properties": {"a": True, "b": True},
            "additionalProperties": False,
        },
    ),
    "items count": ({"type": "array", "minItems": 2}, {"type": "array", "not": {"maxItems": 1}}),
    "false items": ({"type": "array", "items": False}, {"const": []}),
    "false additional": ({"type": "object", "additionalProperties": False}, {"const": {}}),
    "multiples": (
        {"type": "integer", "multipleOf": 6},
        {"type": "integer", "allOf": [{"multipleOf": 2}, {"multipleOf": 3}]},
    ),
    "true and empty": (True, {}),
    "unfolded recursion": (
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "items": {"type": "array", "items": {"$ref": "#"}}},
    ),
    "mutual recursion": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"type": "array", "items": {"$ref": "#/$defs/b"}},
                "b": {"type": "array", "items": {"$ref": "#/$defs/a"}},
            },
        },
    ),
}


def compiled(schema: Schema) -> Grammar | None:
    """The grammar; None for no text at all. Raises for the other refusals."""
    try:
        return compile_json_schema(schema, key_order="any", closed=False)
    except Unsatisfiable:
        return None


def assert_same(left: Schema, right: Schema, limit: int = 250) -> bool:
    """Both schemas have the same texts, as far as `limit` pairs of places show; False where one is refused."""
    try:
        first, second = compiled(left), compiled(right)
        if first is None or second is None:
            assert first is second, f"one of {left} and {right} has no text"
            return True
        text = differing_text(first.machine, second.machine, limit)
    except (Unsupported, TooLarge):
        return False
    except InvalidSchema as error:
        if "refers to itself" in error.message:
            return False
        raise
    assert text is None, f"{text!r} tells {left} from {right}"
    return True


@pytest.mark.parametrize("name", FIXED_LAWS)
def test_equal_schemas_have_equal_machines(name: str) -> None:
    """Pairs written by hand."""
    assert assert_same(*FIXED_LAWS[name], limit=600)


@pytest.mark.parametrize("name", LAWS)
def test_laws_hold_for_random_schemas(name: str) -> None:
    """Each law, for random parts."""
    compared = 0
    for seed in range(12):
        maker = SchemaMaker(Choices.seeded(seed), 2020)
        maker.references = ["#/$defs/p"]
        parts = [maker.schema(seed % 2) for _ in range(3)]
        definition = maker.object_schema(0)
        if "$ref" in definition:
            continue
        pair = tuple({"$defs": {"p": definition}, "allOf": [side]} for side in LAWS[name](*parts))
        if name == "reference":
            pair = ({**pair[0], "$defs": {"p": definition, "x": parts[0]}}, pair[1])
        compared += assert_same(*pair, limit=60)
    assert compared > 4


# which spellings a number may have (1, 1.0, 1E0) depends on what a place says of numbers as it is written: where an
# alternative is found to add nothing, what it said of integers still counts. The values are the same.
SPELLED_APART = pytest.mark.xfail(reason="1E0 is taken where all is said of numbers, not where integers are mentioned")


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SPELLED_APART) if name == "and over or" else name for name in LAWS]
)
def test_laws_hold_for_many_random_schemas(name: str) -> None:
    """Each law, for many random parts, looking further."""
    for seed in range(300):
        maker = SchemaMaker(Choices.seeded(1_000 + seed), 2020)
        maker.references = ["#/$defs/p"]
        parts = [maker.schema(seed % 3) for _ in range(3)]
        definition = maker.object_schema(0)
        pair = tuple({"$defs": {"p": definition}, "allOf": [side]} for side in LAWS[name](*parts))
        if name == "reference":
            pair = ({**pair[0], "$defs": {"p": definition, "x": parts[0]}}, pair[1])
        assert_same(*pair, limit=150)


def test_bounded_languages_are_equal_exhaustively() -> None:
    """All texts of at most nine bytes of two spellings of one schema, one by one."""
    left = compile_json_schema({"enum": ["a", "b", [], ["c", ""], {"a": []}, True, None]})
    right = compile_json_schema({"anyOf": [{"const": v} for v in (None, True, {"a": []}, ["c", ""], [], "b", "a")]})
    texts = [
        {text for text, config in paths(grammar.machine, 9) if grammar.machine.accepts(config)}
        for grammar in (left, right)
    ]
    assert texts[0] == texts[1] == {b'"a"', b'"b"', b"[]", b'["c",""]', b'{"a":[]}', b"true", b"null"}


def test_different_schemas_are_told_apart() -> None:
    """The comparison itself: it finds the text in which two machines differ."""
    with pytest.raises(AssertionError, match="tells"):
        assert_same({"type": "array", "maxItems": 2}, {"type": "array", "maxItems": 3})
    with pytest.raises(GrammarError):
        compile_json_schema({"type": 5})
