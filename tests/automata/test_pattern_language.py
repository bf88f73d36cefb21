"""The language of a compiled pattern, against Python's `re`."""

from __future__ import annotations

import re

import pattern_strategies as strategies
import pytest
from hypothesis import HealthCheck, given, settings

from stcon.automata import accepts, compile_pattern

quick = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))


def check(pattern: str, text_list: list[str]) -> None:
    """Both semantics agree with `re` on every text."""
    oracle = re.compile(pattern)
    full = compile_pattern(pattern, dialect="python")
    search = compile_pattern(pattern, search=True, dialect="python")
    for text in text_list:
        if text == "" and r"\B" in pattern:
            # before 3.14 `re` finds no \B in the empty text, against its documentation
            continue
        assert (accepts(full, text) == 0) == (oracle.fullmatch(text) is not None), (pattern, text, "full")
        assert (accepts(search, text) == 0) == (oracle.search(text) is not None), (pattern, text, "search")


@given(strategies.plain_patterns, strategies.texts)
@quick
def test_plain_pattern_matches_as_re_does(pattern: str, text: str) -> None:
    """Classes, repeats, groups and alternatives mean what `re` says."""
    check(pattern, [text, *strategies.ALL_SHORT_TEXTS[:80]])


@given(strategies.anchored_patterns, strategies.texts)
@quick
def test_anchored_pattern_matches_as_re_does(pattern: str, text: str) -> None:
    """Anchors and word boundaries anywhere, also under quantifiers, mean what `re` says."""
    check(pattern, [text, *strategies.ALL_SHORT_TEXTS[:80]])


@given(strategies.lookaround_patterns, strategies.texts)
@quick
def test_lookaround_pattern_matches_as_re_does(pattern: str, text: str) -> None:
    """Lookaround anywhere, nested in one another and under quantifiers, means what `re` says."""
    check(pattern, [text, *strategies.ALL_SHORT_TEXTS[:80]])


@pytest.mark.long
@given(strategies.lookaround_patterns, strategies.texts)
@thorough
def test_lookaround_pattern_matches_as_re_does_in_a_long_sweep(pattern: str, text: str) -> None:
    """The same, on more patterns and every short text."""
    check(pattern, [text, *strategies.ALL_SHORT_TEXTS])


@pytest.mark.long
@given(strategies.anchored_patterns, strategies.texts)
@thorough
def test_anchored_pattern_matches_as_re_does_in_a_long_sweep(pattern: str, text: str) -> None:
    """The same, on more patterns and every short text."""
    check(pattern, [text, *strategies.ALL_SHORT_TEXTS])


MULTI_LINE = [r"(?m)^a$", r"(?m)^$", r"(?m)a$\n^b", r"(?m:^)a|b$", r"(?m)(?<=^a)b(?=$)", r"(?m)\ba$"]
FINAL_NEWLINE = [r"a$", r"a$\n", r"(?:a$)?\n", r"a$|b", r"$", r"(?!a$)..", r"(?<=a$)\n", r"(?:a|$)+", r"a(?:b$|$)"]
FLAGS = [
    r"(?i)aB\u00c9",
    r"(?i)[^a]",
    r"(?i:a)b",
    r"(?s).",
    r"(?s:.).",
    r"(?-i:a)",
    r"(?a)\w",
    r"(?a)\W\b",
    r"(?i)[^k]",
    r"(?i)\u0131|\u0130",
    r"(?i)[k-s]",
]


@pytest.mark.parametrize("pattern", MULTI_LINE + FINAL_NEWLINE + FLAGS)
def test_python_line_anchors_and_flags_match_as_re_does(pattern: str) -> None:
    """Multi-line anchors, ``$`` before a final newline and flags, on every short text."""
    check(pattern, [*strategies.ALL_SHORT_TEXTS, "a\n\n", "ab\n", "aBÉ", "ABé", "\u212a", "ſ", "K", "İ", "ı"])


IDIOMS = [
    (r"^(?!.*\.\.)[a-z.]+$", ["a.b", "a..b", "..", "", "a.b.c"]),
    (r"(?<!a)b", ["b", "ab", "abb", "cb", ""]),
    (r"(?=.*\d)(?=.*[a-z]).{8,}", ["abcdefg1", "abcdefgh", "abc1", "\nabcdefg12"]),
    (r"^(?!-)[a-z0-9-]{1,10}(?<!-)$", ["a-b", "-a", "a-", "a" * 10, "a" * 11]),
    (r"^((?!foo|bar).)*$", ["foo", "xfoo", "fo", "barn", ""]),
    (r"^(?=.{3,5}$)(?:a|bb)+$", ["aa", "aaa", "bbaa", "bbbb", "bbbbbb", "bbb"]),
    (r"^(?=(?!x)[a-z])\w+(?<![0-9])$", ["a1", "ab", "xa", "1a", "a"]),
]


@pytest.mark.parametrize("pattern, texts", IDIOMS)
def test_lookaround_idioms_match_as_re_does(pattern: str, texts: list[str]) -> None:
    """The uses of lookaround that schemas in the wild have."""
    check(pattern, texts)


def test_lookbehind_of_any_width() -> None:
    """Unlike `re`, a lookbehind may have any width, and see from the start of the text."""
    dfa = compile_pattern(r"a+b*(?<=^a*b{2,})c")
    assert accepts(dfa, "aabbc") == 0
    assert accepts(dfa, "aabc") == -1


ECMA_ONLY = [
    (r"^a$", "a\n", False),
    (r"^\d$", "٣", False),
    (r"^\w$", "é", False),
    (r"^\s$", "\ufeff", True),
    (r"^\s$", "\x1c", False),
    (r"^.$", "\u2028", False),
    (r"^.$", "\r", False),
    (r"^[^]$", "\n", True),
    (r"[]", "a", False),
    (r"^\u{1F600}$", "😀", True),
    (r"^\uD83D\uDE00$", "😀", True),
    (r"^[\u{1F600}-\u{1F602}]$", "😁", True),
    (r"^\cA\0$", "\x01\x00", True),
    (r"^a{,2}$", "a{,2}", True),
    (r"^a{$", "a{", True),
    (r"^{}x]$", "{}x]", True),
    (r"^[\w-.]$", "-", True),
    (r"^[\w-.]$", "/", False),
    (r"^\/\-\_$", "/-_", True),
    (r"^(?<year>\d{4})$", "2024", True),
    (r"\bé\b", "é", False),
    (r"^[\b]$", "\x08", True),
]


@pytest.mark.parametrize("pattern, text, expected", ECMA_ONLY)
def test_ecma_dialect_differs_from_python_where_the_standard_says(pattern: str, text: str, expected: bool) -> None:
    """Choices of ECMA-262 that `re` does not share."""
    assert (accepts(compile_pattern(pattern, search=True), text) == 0) is expected


def test_search_and_full_match_of_anchors() -> None:
    """Without anchors a search finds the pattern anywhere; a full match is anchored by itself."""
    assert accepts(compile_pattern("b", search=True), "abc") == 0
    assert accepts(compile_pattern("b"), "abc") == -1
    assert accepts(compile_pattern("^b$"), "b") == 0
    assert accepts(compile_pattern("a^b"), "ab") == -1
    assert accepts(compile_pattern("(a|^)b", search=True), "cb") == -1
