"""xgrammar's formats of structural tags, as tool parsers write them: read exactly, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

import stcon
from stcon.errors import InvalidGrammar, TooLarge, Unsupported

NUMBER = {
    "type": "json_schema",
    "json_schema": {"type": "integer"},
    "style": "json",
    "any_order": False,
    "excludes": [],
}
SEPARATED: dict[str, Any] = {
    "type": "tags_with_separator",
    "tags": [
        {"type": "tag", "begin": '<c>\n{"n": "a", "v": ', "content": NUMBER, "end": "}\n</c>"},
        {"type": "tag", "begin": '<c>{"n": "b", "v": ', "content": NUMBER, "end": ["}</c>", "}</d>"]},
    ],
    "separator": "",
}
FIRST, SECOND = '<c>\n{"n": "a", "v": 1}\n</c>', '<c>{"n": "b", "v": 22}</d>'


def compiled(format: Any) -> stcon.Grammar:
    """The grammar of a format."""
    return stcon.compile_grammar(json.dumps({"type": "structural_tag", "format": format}), syntax="structural_tag")


def text(value: str) -> dict[str, str]:
    """A constant text."""
    return {"type": "const_string", "value": value}


CASES: list[tuple[Any, list[str], list[str]]] = [
    (SEPARATED, ["", FIRST, FIRST + SECOND], [FIRST + "," + SECOND, "x"]),
    ({**SEPARATED, "at_least_one": True}, [FIRST, SECOND + FIRST], ["", FIRST + "\n"]),
    ({**SEPARATED, "at_least_one": True, "stop_after_first": True}, [FIRST, SECOND], ["", FIRST + SECOND]),
    ({**SEPARATED, "separator": ", "}, ["", FIRST, FIRST + ", " + SECOND], [FIRST + SECOND, FIRST + ", "]),
    ({"type": "sequence", "elements": [text("a"), NUMBER, text("b")]}, ["a1b", "a-20b"], ["ab", "a1"]),
    ({"type": "or", "elements": [text("a"), NUMBER]}, ["a", "7"], ["a7", ""]),
    ({"type": "optional", "content": text("a")}, ["", "a"], ["aa"]),
    ({"type": "star", "content": text("ab")}, ["", "abab"], ["a"]),
    ({"type": "plus", "content": text("ab")}, ["ab", "abab"], [""]),
    ({"type": "repeat", "min": 2, "max": 3, "content": text("x")}, ["xx", "xxx"], ["x", "xxxx"]),
    ({"type": "repeat", "min": 2, "max": -1, "content": text("x")}, ["xx", "xxxxx"], ["x"]),
    ({"type": "regex", "pattern": "[ab]+"}, ["ab"], ["c"]),
    ({"type": "grammar", "grammar": 'root ::= "(" root? ")"'}, ["(())"], ["("]),
    (
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"},
        ["<t></t>", "<t>a < b </ t</t>"],
        ["<t>a</t>b</t>", "<t>a"],
    ),
    (
        {"type": "tag", "begin": "<t>", "content": {"type": "sequence", "elements": [text("k="), NUMBER]}, "end": ""},
        ["<t>k=3"],
        ["<t>3"],
    ),
]


@pytest.mark.parametrize(("format", "texts", "others"), CASES)
def test_formats(format: Any, texts: list[str], others: list[str]) -> None:
    """Each format admits its texts and no others."""
    grammar = compiled(format)
    assert [one for one in [*texts, *others] if grammar.accepts(one)] == texts


def test_tags_after_a_trigger_hold_formats() -> None:
    """The content of a triggered tag is any format."""
    tag = {"type": "tag", "begin": "<calls>", "content": SEPARATED, "end": "</calls>"}
    grammar = compiled({"type": "triggered_tags", "triggers": ["<calls>"], "tags": [tag]})
    assert grammar.accepts(f"well: <calls>{FIRST}{SECOND}</calls> so")
    assert not grammar.accepts(f"<calls>{FIRST}")


def test_excluded_texts_do_not_come() -> None:
    """The free text around triggered tags has none of the excluded texts; their content may."""
    tag = {"type": "tag", "begin": "<t>", "content": {"type": "regex", "pattern": "[a-z<>/]{1,9}"}, "end": ";"}
    format = {"type": "triggered_tags", "triggers": ["<t>"], "tags": [tag], "excludes": ["<think>", "</think>"]}
    grammar = compiled(format)
    good = ["", "a<thin>", "a<t>b;c", "<t><think>;", "<t>b; < /think>"]
    bad = ["<think>", "a</think>b", "<t>b;<think>", "<t>b"]
    assert [one for one in good + bad if grammar.accepts(one)] == good
    required = compiled({**format, "at_least_one": True, "stop_after_first": True})
    assert [one for one in ("a<t>b;", "<think><t>b;", "a", "<t>b;c") if required.accepts(one)] == ["a<t>b;"]


def _with(**changes: Any) -> Any:
    return {"type": "tag", "begin": "<t>", "content": {**NUMBER, **changes}, "end": "</t>"}


@pytest.mark.parametrize(
    ("format", "error"),
    [
        (_with(style="qwen_xml"), Unsupported),
        (_with(excludes=["</t>"]), Unsupported),
        (_with(any_order=True), Unsupported),
        ({**_with(), "begin": {"type": "token", "token": 5}}, Unsupported),
        ({**_with(), "content": {"type": "any_text", "excludes": ["x"]}}, Unsupported),
        ({"type": "any_text"}, Unsupported),
        ({"type": "any_tokens"}, Unsupported),
        ({"type": "sequence", "elements": []}, InvalidGrammar),
        ({"type": "repeat", "min": 3, "max": 2, "content": text("x")}, InvalidGrammar),
        ({**SEPARATED, "tags": []}, InvalidGrammar),
        ([], InvalidGrammar),
    ],
)
def test_what_is_not_enforced_is_refused(format: Any, error: type[Exception]) -> None:
    """What would be read as something else, or is none, is refused."""
    with pytest.raises(error):
        compiled(format)


def test_formats_in_formats_have_a_limit() -> None:
    """Formats nested past the limit are refused, however they are written."""
    nested: Any = text("x")
    for _ in range(150):
        nested = {"type": "optional", "content": nested}
    with pytest.raises(TooLarge):
        compiled(nested)
