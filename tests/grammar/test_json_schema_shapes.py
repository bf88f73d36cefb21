"""What is not a schema is said to be invalid, with the JSON pointer of the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stcon.errors import GrammarError, InvalidPattern, InvalidSchema
from stcon.grammar import compile_json_schema

NAN = float("nan")

WRONG_SHAPES: dict[str, list[Any]] = {
    "$ref": [5, None, {}, []],
    "$dynamicRef": [5, None],
    "$schema": [5, {}],
    "$id": [5, [], None],
    "type": [None, 5, {}, [], ["string", 5], "any", "String", [["string"]]],
    "enum": [None, 5, {}, "ab"],
    "allOf": [[], {}, None, [5], True],
    "anyOf": [[], {}, None, ["a"], False],
    "oneOf": [[], {}, None, [None], 1],
    "not": [None, 5, [], "a"],
    "if": [None, 5, [], "a"],
    "minimum": ["1", None, True, [], {}, NAN],
    "maximum": ["1", None, False, [], {}, NAN],
    "exclusiveMinimum": ["1", None, [], {}, NAN],
    "exclusiveMaximum": ["1", None, [], {}, NAN],
    "multipleOf": ["1", None, True, 0, -1, 0.0, NAN],
    "minLength": ["1", None, True, -1, 1.5, NAN, float("inf")],
    "maxLength": ["1", None, True, -1, 1.5, NAN, float("inf")],
    "minItems": ["1", None, True, -1, 1.5, NAN],
    "maxItems": ["1", None, True, -1, 1.5, NAN],
    "minProperties": ["1", None, True, -1, 1.5, NAN],
    "maxProperties": ["1", None, True, -1, 1.5, NAN],
    "pattern": [5, None, [], {}],
    "format": [5, None, [], {}],
    "prefixItems": [{}, 5, None, [5], True],
    "items": [5, None, "a", [5]],
    "contains": [5, None, [], "a"],
    "uniqueItems": [5, None, "true", []],
    "unevaluatedItems": [5, None, []],
    "properties": [5, None, [], "a", {"a": 5}, {"a": None}],
    "patternProperties": [5, None, [], "a", {"a": 5}],
    "additionalProperties": [5, None, [], "a"],
    "propertyNames": [5, None, [], "a"],
    "required": ["a", None, {}, [5], 5],
    "dependentRequired": [5, [], {"a": "b"}, {"a": [5]}, {"a": {}}],
    "dependentSchemas": [5, [], {"a": "b"}, {"a": ["b"]}],
    "dependencies": [5, [], {"a": 5}, {"a": [5]}],
    "unevaluatedProperties": [5, None, []],
}

SHAPES = [(keyword, value) for keyword, values in WRONG_SHAPES.items() for value in values]


def places() -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Places of a subschema: its pointer, and a document around it."""
    return {
        "root": ("", lambda inner: inner),
        "property": ("/properties/x~1y~0", lambda inner: {"properties": {"x/y~": inner}}),
        "branch": ("/anyOf/1/not", lambda inner: {"anyOf": [True, {"not": inner}]}),
        "item": ("/items", lambda inner: {"items": inner, "maxItems": 3}),
        "consequence": ("/if/else", lambda inner: {"if": {"if": False, "else": inner}}),
        "dependent": (
            "/dependentSchemas/a/properties/b",
            lambda inner: {"dependentSchemas": {"a": {"properties": {"b": inner}}}},
        ),
    }


@pytest.mark.parametrize("place", places())
@pytest.mark.parametrize(("keyword", "value"), SHAPES, ids=lambda v: repr(v)[:20])
def test_wrong_shape_is_invalid_with_its_pointer(keyword: str, value: Any, place: str) -> None:
    """A keyword with a value it cannot have is invalid, and the error names the place."""
    if place != "root" and keyword in ("$id", "$schema"):
        pytest.skip("read at the root")
    pointer, around = places()[place]
    with pytest.raises(InvalidSchema) as caught:
        compile_json_schema(around({keyword: value}))
    assert caught.value.pointer is not None
    assert caught.value.pointer.startswith(f"{pointer}/{keyword}"), caught.value.pointer


@pytest.mark.parametrize("first", ["additionalProperties", "unevaluatedProperties", "minProperties"])
@pytest.mark.parametrize("keyword", ["properties", "patternProperties", "required"])
@pytest.mark.parametrize("value", [5, None, "a", True])
def test_wrong_shape_is_invalid_beside_others(first: str, keyword: str, value: Any) -> None:
    """A keyword that reads its neighbours meets wrong ones."""
    schema = {first: 1 if first == "minProperties" else False, keyword: value}
    if (keyword, value) == ("required", True):
        with pytest.raises(GrammarError):
            compile_json_schema(schema)
        return
    with pytest.raises(InvalidSchema) as caught:
        compile_json_schema(schema)
    assert caught.value.pointer is not None
    assert caught.value.pointer.startswith(f"/{keyword}")


@pytest.mark.parametrize(
    "schema",
    [
        None,
        5,
        "",
        "nonsense",
        "[1]",
        "3",
        "null",
        b"\xff",
        "{",
        '{"a": NaN, "minimum": NaN}',
        '{"minimum": Infinity}',
        [],
        (),
        {1: 2},
        {"properties": {1: True}},
        {"patternProperties": {1: True}},
        {"const": {1: 2}},
        {"const": {1, 2}},
        {"const": b"a"},
        {"enum": [object()]},
        {"enum": [NAN]},
        {"const": float("inf")},
        {"default": {None: 1}},
        {"dependentRequired": {2: ["a"]}},
    ],
    ids=lambda v: repr(v)[:30],
)
def test_what_is_not_json_is_invalid(schema: Any) -> None:
    """Not a schema at all, or a Python value that JSON has not."""
    with pytest.raises(InvalidSchema):
        compile_json_schema(schema)


def test_refusals_name_the_innermost_place() -> None:
    """The pointer leads through references to where the trouble is."""
    schema = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"items": {"pattern": "("}}}}
    with pytest.raises(InvalidPattern) as caught:
        compile_json_schema(schema)
    assert caught.value.pointer == "/$defs/x/items/pattern"
