"""The server's fields for grammars: vLLM's and llama.cpp's spellings, and errors that name the parameter."""

from __future__ import annotations

from typing import Any

import pytest

from stcon.server.grammars import Grammars
from stcon.server.requests import BadRequest, constraint

TAG = {"begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</n>"}
STRUCTURAL = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<n>"], "tags": [TAG]}}


@pytest.mark.parametrize(
    ("body", "accepted", "rejected"),
    [
        ({"structured_outputs": {"grammar": 'root ::= "a"\n  "b"'}}, "ab", "a"),
        ({"structured_outputs": {"grammar": 'start: "a" "b"'}}, "ab", "a"),
        ({"guided_grammar": 'root ::= "a"'}, "a", "b"),
        ({"grammar": "root ::= [a-z]+ ."}, "ab\n", "a"),
        ({"structured_outputs": {"structural_tag": STRUCTURAL}}, "x<n>1</n>", "x<n>y"),
        ({"response_format": STRUCTURAL}, "x<n>1</n>", "x<n>y"),
    ],
)
def test_grammar_fields(body: dict[str, Any], accepted: str, rejected: str) -> None:
    """Each spelling of a grammar is taken in its own syntax."""
    grammar = constraint(body, Grammars())
    assert grammar is not None
    assert grammar.accepts(accepted)
    assert not grammar.accepts(rejected)


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({"grammar": "root ::= x"}, "grammar", "there is no rule named x"),
        ({"guided_grammar": 3}, "guided_grammar", "expected a grammar"),
        ({"grammar": 'root ::= "a"', "guided_regex": "a"}, "grammar", "give one constraint"),
    ],
)
def test_bad_grammar_fields_are_named(body: dict[str, Any], param: str, part: str) -> None:
    """The error names the parameter at fault and the place in the grammar."""
    with pytest.raises(BadRequest, match=part) as caught:
        constraint(body, Grammars())
    assert caught.value.param == param
