"""References, identifiers and dialects: resolved as jsonschema resolves them."""

from __future__ import annotations

from typing import Any

import pytest
from _random_schemas import SCHEMA_URIS
from _schema_oracle import is_valid, parse, validator

from stcon.grammar import compile_json_schema

D4, D7, D2019 = SCHEMA_URIS[4], SCHEMA_URIS[7], SCHEMA_URIS[2019]
SHARED = {"$ref": "#/$defs/t"}
LIST_OF_T = {"type": "array", "items": {"$dynamicRef": "#n"}}
NESTED = ["[]", "[[]]", "[[], []]", "[[[], []]]", "[1]"]

# schema, texts, documents
CASES: dict[str, tuple[Any, list[str], dict[str, Any]]] = {
    "recursive anchor, outermost": (
        {
            "$schema": D2019,
            "$id": "http://x/a",
            "$recursiveAnchor": True,
            "$ref": "b",
            "maxItems": 1,
            "$defs": {
                "b": {"$id": "b", "$recursiveAnchor": True, "type": "array", "items": {"$recursiveRef": "#"}},
            },
        },
        NESTED,
        {},
    ),
    "recursive anchor, inner only": (
        {
            "$schema": D2019,
            "$id": "http://x/a",
            "$ref": "b",
            "maxItems": 1,
            "$defs": {
                "b": {"$id": "b", "$recursiveAnchor": True, "type": "array", "items": {"$recursiveRef": "#"}},
            },
        },
        NESTED,
        {},
    ),
    "dynamic anchor, outermost": (
        {
            "$id": "http://x/a",
            "$dynamicAnchor": "n",
            "$ref": "b",
            "maxItems": 1,
            "$defs": {"b": {"$id": "b", "$dynamicAnchor": "n", **LIST_OF_T}},
        },
        NESTED,
        {},
    ),
    "dynamic anchor, inner only": (
        {
            "$id": "http://x/a",
            "$ref": "b",
            "maxItems": 1,
            "$defs": {"b": {"$id": "b", "$dynamicAnchor": "n", **LIST_OF_T}},
        },
        NESTED,
        {},
    ),
    "dynamic reference to a plain anchor": (
        {"$id": "http://x/a", "$ref": "b", "maxItems": 1, "$defs": {"b": {"$id": "b", "$anchor": "n", **LIST_OF_T}}},
        NESTED,
        {},
    ),
    "two ways to one dynamic reference": (
        {
            "$id": "http://x/a",
            "anyOf": [{"$ref": "s"}, {"$ref": "i"}],
            "$defs": {
                "s": {"$id": "s", "$ref": "l", "$defs": {"q": {"$dynamicAnchor": "T", "type": "string"}}},
                "i": {"$id": "i", "$ref": "l", "$defs": {"q": {"$dynamicAnchor": "T", "type": "integer"}}},
                "l": {
                    "$id": "l",
                    "type": "array",
                    "items": {"$dynamicRef": "#T"},
                    "$defs": {"z": {"$dynamicAnchor": "T"}},
                },
            },
        },
        ['["a"]', "[1]", '[1, "a"]', "[]", "[null]"],
        {},
    ),
    "base of an embedded resource": (
        {
            "$schema": D7,
            "$id": "http://x/r",
            "definitions": {
                "a": {
                    "$id": "sub/",
                    "definitions": {"q": {"type": "string"}},
                    "items": {"$ref": "#/definitions/q"},
                },
                "q": {"type": "integer"},
            },
            "items": {"$ref": "sub/"},
        },
        ["[[1]]", '[["a"]]'],
        {},
    ),
    "identifier beside a reference in draft 7": (
        {
            "$schema": D7,
            "$id": "http://x/r",
            "properties": {"a": {"$id": "http://y/z", "$ref": "#/definitions/q"}},
            "definitions": {"q": {"type": "integer"}},
        },
        ['{"a": 1}', '{"a": "x"}'],
        {},
    ),
    "identifiers of draft 4": (
        {
            "$schema": D4,
            "id": "http://x/r",
            "definitions": {"a": {"id": "t.json", "type": "integer"}, "b": {"id": "#frag", "type": "string"}},
            "properties": {"a": {"$ref": "t.json"}, "b": {"$ref": "#frag"}},
        },
        ['{"a": 1}', '{"a": "x"}', '{"b": 1}', '{"b": "s"}'],
        {},
    ),
    "fragment identifier of draft 7": (
        {"$schema": D7, "definitions": {"b": {"$id": "#f", "type": "string"}}, "properties": {"b": {"$ref": "#f"}}},
        ['{"b": 1}', '{"b": "s"}'],
        {},
    ),
    "another document": (
        {"$ref": "http://r/x#/$defs/q"},
        ["1", '"a"'],
        {"http://r/x": {"$defs": {"q": {"$ref": "#/$defs/z"}, "z": {"type": "integer"}}}},
    ),
    "another document of draft 4": (
        {"items": {"$ref": "http://r/x"}},
        ["[2.0]", "[2]"],
        {"http://r/x": {"$schema": D4, "type": "integer"}},
    ),
    "another document with a name of its own": (
        {"$ref": "http://r/x"},
        ["[1]", '["a"]'],
        {"http://r/x": {"$id": "http://other/y", "items": {"$ref": "#/$defs/z"}, "$defs": {"z": {"type": "integer"}}}},
    ),
    "embedded draft 4": (
        {"$id": "http://x/", "items": {"$id": "e", "$schema": D4, "minimum": 3, "exclusiveMinimum": True}},
        ["[3]", "[4]"],
        {},
    ),
    "embedded draft 4 behind a reference": (
        {"$ref": "#/$defs/q", "$defs": {"q": {"$id": "http://e/", "$schema": D4, "type": "integer"}}},
        ["2.0", "2"],
        {},
    ),
    "schema under an unknown keyword": (
        {"foo": {"$id": "http://x/u", "type": "integer"}, "$ref": "#/foo"},
        ["1", '"a"'],
        {},
    ),
    "identifier inside an enum": (
        {
            "enum": [{"$id": "http://x/q", "a": {}}],
            "$defs": {"z": {"$id": "http://x/q", "type": "object"}},
            "$ref": "http://x/q",
        },
        ['{"$id": "http://x/q", "a": {}}'],
        {},
    ),
    "one anchor in two resources": (
        {
            "$id": "http://x/",
            "$defs": {
                "a": {"$anchor": "q", "type": "integer"},
                "b": {"$id": "b", "$defs": {"c": {"$anchor": "q", "type": "string"}}, "items": {"$ref": "#q"}},
            },
            "items": {"$ref": "#q"},
            "contains": {"$ref": "b"},
        },
        ["[1]", '["a"]'],
        {},
    ),
    "one Python object in two resources": (
        {
            "$id": "http://x/",
            "$defs": {
                "a": {"$id": "a", "$defs": {"t": {"type": "integer"}}, "items": SHARED},
                "b": {"$id": "b", "$defs": {"t": {"type": "string"}}, "items": SHARED},
            },
            "prefixItems": [{"$ref": "a"}, {"$ref": "b"}],
        },
        ['[[1], ["a"]]', '[["a"], ["a"]]', "[[1], [1]]"],
        {},
    ),
    "empty reference": ({"type": "array", "items": {"$ref": ""}}, ["[[]]", "[1]"], {}),
    "reference to false": ({"items": {"$ref": "#/$defs/t"}, "$defs": {"t": False}}, ["[]", "[1]"], {}),
    "siblings of a reference in draft 7": (
        {
            "$schema": D7,
            "$ref": "#/definitions/a",
            "if": {"const": 1},
            "then": False,
            "definitions": {"a": {"type": "integer"}},
        },
        ["1", '"a"'],
        {},
    ),
    "a keyword of a later draft": ({"$schema": D7, "dependentRequired": {"a": ["b"]}}, ['{"a": 1}'], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_references_resolve_as_in_jsonschema(name: str) -> None:
    """Each text has jsonschema's verdict."""
    schema, texts, documents = CASES[name]
    grammar = compile_json_schema(schema, whitespace="json", closed=False, documents=documents)
    oracle = validator(schema, **({"registry": registry_of(documents)} if documents else {}))
    for text in texts:
        valid, accepted = is_valid(oracle, parse(text)), grammar.accepts(text)
        assert valid or not accepted, f"{text} is invalid"
        assert accepted or not valid or "." in text, f"{text} is valid"  # 2.0 may be refused where 2 is meant


def registry_of(documents: dict[str, Any]) -> Any:
    """The documents, as the library referencing wants them."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    return Registry().with_contents(documents.items(), default_specification=DRAFT202012)
