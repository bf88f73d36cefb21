"""/v1/grammar/check: sizes of a constraint, and how far a text keeps to it."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette")

from test_batch_files import make_model

from stcon.server import checks
from stcon.server.checks import grammar_report
from stcon.server.refusals import BadRequest

MODEL = make_model()
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"enum": ["x", "yy"]}},
    "required": ["a"],
}


def formatted(schema):
    """A body that asks for `schema`."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}


def reading(text, schema=SCHEMA):
    """What is said of `text`."""
    return grammar_report({**formatted(schema), "text": text}, MODEL)["text"]


def test_report_has_the_machines_size():
    """A machine is built whole, and its shortest text is one of the format."""
    report = grammar_report(formatted(SCHEMA), MODEL)
    assert (report["kind"], report["whole"]) == ("json", True)
    assert report["states"] > 10
    assert report["bytes"] > report["states"]
    assert json.loads(report["shortest"]) == {"a": 0}
    assert "text" not in report


def test_machines_past_the_budget_are_not_built_whole(monkeypatch):
    """What is too large to be built whole is said to be, and no shortest text is claimed."""
    monkeypatch.setattr(checks, "MAX_BUILT", 5)
    report = grammar_report(formatted(SCHEMA), MODEL)
    assert (report["whole"], report["shortest"]) == (False, None)


@pytest.mark.parametrize(
    ("text", "valid", "characters"),
    [
        ('{"a":1}', True, 7),
        ('{ "b" : "yy",\n  "a" : 12, "more": [] }', True, None),  # any order, any whitespace, names that are not listed
        ('{"a":1', False, 6),
        ('{"a":-1', False, 6),  # -0 is not below 0
        ('{"a":1,"b":"z"}', False, 12),
        ("Sure! {", False, 0),
        ("", False, 0),
    ],
)
def test_texts_are_read_as_documents(text, valid, characters):
    """Layout is no fault; the first character that cannot stand there is."""
    expected = {"valid": valid, "characters": len(text) if characters is None else characters}
    assert reading(text) == expected


def test_characters_are_counted_not_bytes():
    """Offsets are in characters, also past the first 128."""
    schema = {"enum": ["é😀a", "é😀b"]}
    assert reading('"é😀c"', schema) == {"valid": False, "characters": 3}
    assert reading('"é😀a"', schema) == {"valid": True, "characters": 5}
    assert reading("\ud800", schema) == {"valid": False, "characters": 0}


def test_expressions_and_grammars_are_read_as_they_are():
    """Formats that are no schemas are checked by their own machine."""
    expression = {"structured_outputs": {"regex": "a+b"}}
    assert grammar_report({**expression, "text": "aab"}, MODEL)["text"] == {"valid": True, "characters": 3}
    assert grammar_report({**expression, "text": "aac"}, MODEL)["text"] == {"valid": False, "characters": 2}
    grammar = {"grammar": 'root ::= "a" root "b" | "c"', "text": "aacb"}
    assert grammar_report(grammar, MODEL)["text"] == {"valid": False, "characters": 4}


@given(
    st.one_of(
        st.text('{}":,ab x1y\n', max_size=12),
        st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(-2, 3), st.sampled_from(["x", "yy", "z"]))).map(
            json.dumps
        ),
    )
)
def test_verdict_is_that_of_a_validator(text):
    """`valid` is what jsonschema says of the parsed text, and the part that can begin a text is one that can."""
    found = reading(text)
    try:
        expected = jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    except ValueError:
        expected = False
    assert found["valid"] == expected
    assert reading(text[: found["characters"]])["characters"] == found["characters"]


@pytest.mark.parametrize("text", [1, ["a"], "a" * (checks.MAX_TEXT + 1)])
def test_what_is_no_text_is_refused(text):
    """A text is a string of bounded length."""
    with pytest.raises(BadRequest):
        reading(text)


def test_no_constraint_is_refused():
    """There is nothing to check."""
    with pytest.raises(BadRequest, match="no constraint"):
        grammar_report({"text": "a"}, MODEL)
