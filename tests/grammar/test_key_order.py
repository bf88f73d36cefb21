"""The order of names: a stable topological merge of every list of properties that applies."""

from __future__ import annotations

import random
from typing import Any

import pytest
from _schema_oracle import differing_text, walk

from stcon.grammar import compile_json_schema
from stcon.grammar.json_schema import many_names
from stcon.grammar.json_schema.evaluated import _merge

A, B, C = ({"type": "integer"},) * 3


@pytest.mark.parametrize(
    ("lists", "merged"),
    [
        ([["a", "b"]], ["a", "b"]),
        ([["a", "c"], ["a", "b", "c"]], ["a", "b", "c"]),
        ([["b"], ["a", "b"]], ["a", "b"]),
        ([["a"], ["b"]], ["a", "b"]),
        ([["a", "b"], ["b", "a"]], ["a", "b"]),
        ([["a", "b", "c"], ["c", "d"], ["b", "d", "a"]], ["a", "b", "c", "d"]),
    ],
)
def test_merge_keeps_each_list_and_first_appearance(lists: list[list[str]], merged: list[str]) -> None:
    """Each list's order is kept where the lists agree; else first appearance decides."""
    assert _merge(lists) == merged


def test_names_follow_the_text_of_the_schema() -> None:
    """Declared order is enforced; what was passed over does not come later."""
    grammar = compile_json_schema({"type": "object", "properties": {"z": A, "a": B}})
    assert grammar.accepts('{"z":1,"a":2}')
    assert grammar.accepts('{"a":2}')
    assert not grammar.accepts('{"a":2,"z":1}')


def test_names_only_required_come_after_the_declared() -> None:
    """A name in `required` alone stands behind every declared name, before any other."""
    grammar = compile_json_schema({"type": "object", "properties": {"b": A}, "required": ["a"]}, closed=False)
    assert grammar.accepts('{"b":1,"a":true}')
    assert not grammar.accepts('{"a":true,"b":1}')
    assert grammar.accepts('{"b":1,"a":true,"other":0}')
    assert not grammar.accepts('{"b":1,"other":0,"a":true}')


def test_any_order_takes_every_permutation_once() -> None:
    """With key_order="any" every order is accepted, no repetition, no declared name as an undeclared one."""
    schema = {"type": "object", "properties": {"a": A, "b": B, "c": C}, "required": ["a"]}
    grammar = compile_json_schema(schema, key_order="any", closed=False)
    for text in ('{"a":1}', '{"b":1,"a":2}', '{"c":0,"x":[],"b":1,"a":2}', '{"x":1,"a":2}'):
        assert grammar.accepts(text), text
    for text in ('{"b":1}', '{"a":1,"a":2}', '{"a":1,"b":"s"}', '{"b":1,"c":2,"b":3,"a":1}', "{}"):
        assert not grammar.accepts(text), text


def test_closed_reading_is_narrower_and_follows_the_branch() -> None:
    """closed=True takes no undeclared name, and a branch's names only with the branch."""
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["p", "q"]}},
        "required": ["kind"],
        "anyOf": [
            {"properties": {"kind": {"const": "p"}, "x": A}},
            {"properties": {"kind": {"const": "q"}, "y": A}},
        ],
    }
    closed = compile_json_schema(schema)
    assert closed.accepts('{"kind":"p","x":1}')
    assert closed.accepts('{"kind":"q","y":1}')
    assert not closed.accepts('{"kind":"p","y":1}')
    assert not closed.accepts('{"kind":"p","z":1}')
    assert compile_json_schema(schema, closed=False).accepts('{"kind":"p","y":1}')


def test_closed_reading_gives_way_where_it_would_leave_nothing() -> None:
    """An object that needs an undeclared name stays open, also when closed is asked for."""
    schema = {"type": "object", "properties": {"a": A}, "required": ["b"], "propertyNames": {"pattern": "^[abc]$"}}
    assert compile_json_schema(schema).accepts('{"a":1,"b":2}')
    listed = {"type": "object", "properties": {"a": A}, "minProperties": 2, "propertyNames": {"enum": ["a", "k"]}}
    assert compile_json_schema(listed).accepts('{"a":1,"k":2}')


@pytest.mark.parametrize("key_order", ["schema", "any"])
def test_states_grow_linearly_with_optional_names(key_order: Any) -> None:
    """500 optional names take a number of states proportional to their text: built whole, or by a text in any order."""
    sizes = {}
    for count in (100, 200):
        schema = {"type": "object", "properties": {f"name_{i:03}": A for i in range(count)}}
        grammar = compile_json_schema(schema, key_order=key_order)
        assert grammar.accepts("{" + ",".join(f'"name_{i:03}":{i}' for i in range(count)) + "}")
        sizes[count] = grammar.build().num_states if key_order == "schema" else grammar.num_states
    assert sizes[200] < 2.3 * sizes[100]


SOME_NAMES: dict[str, Any] = {
    "open": {"properties": {"a": A, "ab": {"type": "null"}, "b": True, "": B, "é": C}, "required": ["ab", "é"]},
    "closed": {"properties": {"a": A, "ab": {"type": "null"}, "b": False}, "additionalProperties": False},
    "by pattern": {"properties": {"a": A, "ba": B}, "patternProperties": {"^b": {"minimum": 2}}, "required": ["ba"]},
    "listed": {"properties": {"a": A, "b": B}, "propertyNames": {"enum": ["a", "b", "c", "ab"]}, "required": ["c"]},
    "none": {"properties": {"a": A}, "propertyNames": False},
}


@pytest.mark.parametrize("name", SOME_NAMES)
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_many_names_in_any_order_are_read_as_few_are(
    name: str, whitespace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states for many names and those for few have the same texts."""
    schema = {"type": "object", **SOME_NAMES[name]}
    few = compile_json_schema(schema, key_order="any", closed=False, whitespace=whitespace)
    monkeypatch.setattr(many_names, "MANY", 0)
    many = compile_json_schema(schema, key_order="any", closed=False, whitespace=whitespace)
    assert differing_text(few.machine, many.machine, 400) is None
    source = random.Random(0)
    for _ in range(10):
        text = walk(many.machine, source, steps=30)
        assert text is None or few.accepts(text)
