"""The sample grammars: verdicts in every syntax and by both strategies, and which of them are deterministic."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import stcon
from stcon.bench.grammars import Sample, read_samples
from stcon.grammar.analysis import check

SAMPLES = {sample.name: sample for sample in read_samples(Path(__file__).parents[2] / "examples" / "grammars")}
SLOW = {"python_expression"}
NAMES = [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in SAMPLES]
STACKS = {("palindromes", "ebnf"), ("palindromes", "gbnf"), ("palindromes", "lark"), ("japanese", "lark")}


@cache
def compiled(name: str, syntax: str, strategy: str = "auto") -> stcon.Grammar:
    sample: Sample = SAMPLES[name]
    text = sample.lark if syntax == "lark" else sample.ebnf
    return stcon.compile_grammar(text, syntax=syntax, strategy=strategy)


@pytest.mark.parametrize("syntax", ["gbnf", "ebnf", "lark"])
@pytest.mark.parametrize("name", NAMES)
def test_verdicts_of_samples(name: str, syntax: str) -> None:
    """Each text is accepted or not as the sample says; the EBNF form reads the same as GBNF."""
    grammar, sample = compiled(name, syntax), SAMPLES[name]
    assert [text for text in sample.accept if not grammar.accepts(text)] == []
    assert [text for text in sample.reject if grammar.accepts(text)] == []


@pytest.mark.parametrize("syntax", ["ebnf", "lark"])
@pytest.mark.parametrize("name", NAMES)
def test_verdicts_of_samples_by_stacks(name: str, syntax: str) -> None:
    """So they are by sets of stacks."""
    grammar, sample = compiled(name, syntax, "stacks"), SAMPLES[name]
    assert [text for text in sample.accept if not grammar.accepts(text)] == []
    assert [text for text in sample.reject if grammar.accepts(text)] == []


@pytest.mark.parametrize("syntax", ["gbnf", "ebnf", "lark"])
@pytest.mark.parametrize("name", NAMES)
def test_which_samples_are_deterministic(name: str, syntax: str) -> None:
    """All but the palindromes (and, in Lark, Japanese quotes) have a deterministic machine, which is trim."""
    grammar = compiled(name, syntax)
    assert (grammar.conflict is not None) == ((name, syntax) in STACKS)
    if grammar.conflict is None and name not in ("sql", "c_subset"):
        assert {violation.kind for violation in check(grammar.machine)} <= {"ambiguous"}


@pytest.mark.parametrize(("name", "syntax"), [("json", "ebnf"), ("left_recursive", "ebnf"), ("arithmetic", "lark")])
def test_masks_of_samples_are_equal_by_both_strategies(name: str, syntax: str) -> None:
    """Along accepted texts, the masks of the machine are those of the sets of stacks."""
    tokens: list[bytes | None] = [*(bytes([b]) for b in range(256)), b'":', b"((", b", ", b"1 + ", b"true", None]
    vocabulary = stcon.Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    mine = stcon.Matcher(compiled(name, syntax), vocabulary)
    theirs = stcon.Matcher(compiled(name, syntax, "stacks"), vocabulary)
    for text in SAMPLES[name].accept[:4]:
        mine.reset()
        theirs.reset()
        for byte in text.encode():
            assert np.array_equal(mine.bitmask(), theirs.bitmask())
            assert mine.accept(byte)
            assert theirs.accept(byte)
        assert mine.is_complete
        assert theirs.is_complete


def test_nesting_costs_one_symbol_a_level() -> None:
    """JSON nests 60 deep under the stack's cap of 64, in both syntaxes."""
    text = "[" * 60 + "]" * 60
    assert compiled("json", "ebnf").accepts(text)
    assert compiled("json", "lark").accepts(text)


def test_forced_text_of_a_grammar() -> None:
    """What a grammar forces is written without asking the model."""
    grammar = stcon.compile_grammar('root ::= "SELECT " [a-z]+ " FROM t;"', syntax="gbnf")
    vocabulary = stcon.Vocabulary.from_bytes([*(bytes([b]) for b in range(256)), None], end_ids=(256,))
    matcher = stcon.Matcher(grammar, vocabulary)
    assert matcher.forced_bytes() == b"SELECT "
    assert matcher.accept_bytes(b"SELECT a ")
    assert matcher.forced_bytes() == b"FROM t;"
