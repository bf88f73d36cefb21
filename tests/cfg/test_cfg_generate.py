"""Decoding under a grammar with a model without weights: complete within the limit, deterministic or not."""

from __future__ import annotations

import pytest

import stcon
from stcon.grammar.cfg.stacks import require_deterministic
from stcon.models.fake import FakeModel

GRAMMARS = {
    "palindromes": ('root ::= "a" root "a" | "b" root "b" | "c"', "gbnf"),
    "even palindromes": ('root ::= "a" root "a" | "b" root "b" | "xy"  | ""', "gbnf"),
    "sums": ('root ::= sum\nsum ::= sum "+" term | term\nterm ::= [0-9] | "(" sum ")"', "gbnf"),
    "even palindromes of lexemes": ('start: [x]\nx: A start A | B start B\nA: "a"\nB: /b+/', "lark"),
}


def model() -> FakeModel:
    tokens: list[bytes | None] = [*(bytes([byte]) for byte in range(256)), b"ab", b"ba", b"aa", b"((", b"+1", None]
    return FakeModel(stcon.Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,)), seed=7)


@pytest.mark.parametrize("mode", ["mask", "canonical"])
@pytest.mark.parametrize("limit", [3, 21])
@pytest.mark.parametrize("name", GRAMMARS)
def test_output_is_a_text_of_the_grammar_within_the_limit(name: str, limit: int, mode: str) -> None:
    """Whatever the model prefers, the output is complete when the limit is reached."""
    text, syntax = GRAMMARS[name]
    grammar = stcon.compile_grammar(text, syntax=syntax)  # type: ignore[arg-type]
    result = model().generate("x", grammar, limit, mode=mode, raw=True)  # type: ignore[arg-type]
    assert result.complete
    assert len(result.tokens) <= limit
    assert grammar.accepts(result.text)


def test_a_limit_below_the_byte_bound_is_refused() -> None:
    """No text of this language has fewer than five bytes."""
    grammar = stcon.compile_grammar('root ::= "a" root "a" | "a" root "b" | "aacaa"', syntax="gbnf")
    assert grammar.conflict is not None
    with pytest.raises(stcon.LimitTooSmall):
        model().generate("x", grammar, 4, raw=True)


def test_devices_refuse_sets_of_stacks() -> None:
    """What puts a machine on a GPU says why a grammar that is not deterministic cannot be there."""
    grammar = stcon.compile_grammar('root ::= "a" root "a" | "aa"', syntax="gbnf")
    with pytest.raises(stcon.Unsupported, match="rule root: after 'a'"):
        require_deterministic(grammar.machine)
    require_deterministic(stcon.compile_grammar('root ::= "a" root "b" | "c"', syntax="gbnf").machine)
