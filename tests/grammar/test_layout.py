"""Whitespace: fixed layouts are json.dumps' own spellings; free ones are bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stcon.errors import InvalidOption
from stcon.grammar import compile_json_schema

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
ANY = {style: compile_json_schema(True, whitespace=style) for style in ("compact", "json", "pretty", "flexible")}  # type: ignore[arg-type]
SPELL = {
    "compact": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "pretty": lambda value: json.dumps(value, ensure_ascii=False, indent=2),
}


@given(VALUES)
def test_each_fixed_layout_accepts_its_own_spelling_and_no_other(value: object) -> None:
    """A value is accepted as json.dumps spells it in that style; in another style only if the texts are equal."""
    texts = {style: spell(value) for style, spell in SPELL.items()}
    for style, text in texts.items():
        assert ANY[style].accepts(text)
        assert ANY["flexible"].accepts(text)
        for other, spelled in texts.items():
            assert ANY[other].accepts(text) == (spelled == text)


def test_flexible_whitespace_is_bounded_and_nothing_follows_the_end() -> None:
    """A run past the limit is refused, as is whitespace after the value."""
    grammar = compile_json_schema(
        {"type": "array", "items": {"type": "integer"}}, whitespace="flexible", max_whitespace=3
    )
    assert grammar.accepts("   [ \n\t1   ,2 ]")
    assert not grammar.accepts("    []")
    assert not grammar.accepts("[1,    2]")
    assert not grammar.accepts("[1] ")


def test_a_pattern_fills_every_gap() -> None:
    """The caller's pattern stands in each gap, and must be matched where it does not match the empty text."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}}}, "required": ["a"]}
    optional = compile_json_schema(schema, whitespace_pattern=r"[ ]?")
    assert optional.accepts('{"a":[null,null]}')
    assert optional.accepts(' { "a" : [ null , null ] }')
    assert not optional.accepts('{  "a":[]}')
    assert not optional.accepts('{\n"a":[]}')
    required = compile_json_schema(schema, whitespace_pattern=" ")
    assert required.accepts(' { "a" : [ ] }')
    assert not required.accepts('{"a":[]}')


def test_pretty_closes_recursive_schemas_at_their_own_depth() -> None:
    """The indent follows the nesting through references."""
    tree = {
        "$defs": {"n": {"type": "object", "properties": {"k": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}},
        "$ref": "#/$defs/n",
    }
    grammar = compile_json_schema(tree, whitespace="pretty", indent=3)
    value = {"k": [{}, {"k": [{"k": []}]}]}
    assert grammar.accepts(json.dumps(value, indent=3))
    assert not grammar.accepts(json.dumps(value, indent=2))


@pytest.mark.parametrize("pattern", ["a", "[ ]|x", "(?!)"])
def test_a_pattern_that_is_not_whitespace_is_refused(pattern: str) -> None:
    """Only JSON's own whitespace may be matched, and something must be."""
    with pytest.raises(InvalidOption):
        compile_json_schema(True, whitespace_pattern=pattern)


def test_a_pattern_for_all_whitespace_means_jsons_and_is_bounded() -> None:
    r"""``\s`` matches more than JSON's whitespace and ``*`` has no end: gaps take what is both JSON's and bounded."""
    grammar = compile_json_schema({"type": "array"}, whitespace_pattern=r"\s*", max_whitespace=5)
    assert grammar.accepts("[]")
    assert grammar.accepts("[ \n\t\r ]")
    assert not grammar.accepts("[\u00a0]")
    assert not grammar.accepts("[" + 6 * " " + "]")


@pytest.mark.parametrize(
    "options",
    [
        {"indent": "2"},
        {"indent": True},
        {"max_whitespace": "9"},
        {"max_whitespace": 0},
        {"whitespace_pattern": 5},
        {"whitespace": None},
        {"whitespace": ["compact"]},
        {"key_order": []},
        {"escapes": {}},
        {"format": None},
        {"closed": "yes"},
        {"max_states": "many"},
        {"max_states": 0},
        {"documents": 5},
        {"documents": {5: {}}},
        {"documents": {"http://x": 5}},
    ],
    ids=repr,
)
def test_options_of_another_type_are_invalid(options: dict[str, Any]) -> None:
    """Whatever is passed for an option, what is raised says which option it is."""
    with pytest.raises(InvalidOption, match=next(iter(options))):
        compile_json_schema(True, **options)
