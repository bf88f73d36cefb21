"""Regular expressions as grammars: the whole output matches, as `re` says, and nothing gets stuck."""

from __future__ import annotations

import random
import re

import pytest
from _random_schemas import Choices
from _schema_oracle import walk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stcon.errors import GrammarError, InvalidPattern, TooLarge, Unsatisfiable, Unsupported
from stcon.grammar import Grammar, compile_regex
from stcon.grammar.analysis import check

# pattern, texts that match whole, texts that do not
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "literal": ("abc", ["abc"], ["", "ab", "abcd", "xabc"]),
    "empty": ("", [""], ["a"]),
    "alternatives": ("cat|dogs?", ["cat", "dog", "dogs"], ["cats", "do", ""]),
    "alternative of nothing": ("a|", ["a", ""], ["aa", "b"]),
    "classes": (r"[a-c]\d[^x]", ["a1y", "c9\n"], ["d1y", "a1x", "a1"]),
    "repeats": ("(ab){2,3}c*", ["abab", "ababab", "ababcc"], ["ab", "abababab", "ababc "]),
    "lazy": ("a+?b*?", ["a", "aab", "abb"], ["", "b"]),
    "dot": ("a.c", ["abc", "a😀c"], ["a\nc", "ac"]),
    "anchors": ("^a$", ["a"], ["", "aa"]),
    "python anchors": (r"\Aa\Z", ["a"], ["a\n"]),
    "unicode": ("[α-ω]+|日本", ["αβγ", "日本"], ["日", "a", "Α"]),
    "surrogate pairs": ("[😀-😂]{2}", ["😀😂"], ["😀", "😃😃"]),
    "escapes": (r"\.\*\\\n\x41é", [".*\\\nAé"], ["a*\\\nAé"]),
    "groups": (r"(?:a(?P<n>b)(c))+", ["abc", "abcabc"], ["ab", "abcab"]),
    "case": (r"(?i:ab)c", ["abc", "ABc", "aBc"], ["abC"]),
    "lookahead": (r"(?=a)[a-z]{2}", ["ab", "az"], ["ba", "a"]),
    "negative lookahead": (r"(?!no)[a-z]+", ["yes", "on"], ["no", "nothing"]),
    "word boundary": (r"\bab\b c", ["ab c"], ["abc"]),
    "digits of unicode": (r"\d+", ["12", "٣"], ["a", ""]),
    "sign and number": (r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", ["1", "-1.5", "+2e-7"], ["1.", "e5", "--1"]),
    "date": (r"\d{4}-(0[1-9]|1[0-2])-\d\d", ["2024-02-30"], ["2024-13-01", "24-01-01"]),
}


@pytest.mark.parametrize("name", CASES)
def test_texts_match_whole(name: str) -> None:
    """Hand-made patterns, each also against `re`."""
    pattern, good, bad = CASES[name]
    grammar = compile_regex(pattern)
    for text in good:
        assert re.fullmatch(pattern, text)
        assert grammar.accepts(text), text
    for text in bad:
        assert not re.fullmatch(pattern, text) or pattern.endswith("$")
        assert not grammar.accepts(text), text


@pytest.mark.parametrize("name", CASES)
def test_machine_is_trim_and_walks_end_in_matches(name: str) -> None:
    """No dead end; what a random walk writes matches."""
    pattern = CASES[name][0]
    machine = compile_regex(pattern).machine
    if machine.num_states < 3_000:
        assert check(machine) == []
    source = random.Random(0)
    for _ in range(30):
        text = walk(machine, source, steps=8, patience=60)
        assert text is None or re.fullmatch(pattern, text.decode()), text


def random_pattern(choices: Choices, depth: int) -> str:
    """A pattern on which Python and a small alphabet agree."""
    if depth == 0:
        return choices.among(("a", "b", "[ab]", ".", "[^a]", "é", ""))
    kind = choices.pick(5)
    inner = random_pattern(choices, depth - 1)
    if kind == 0:
        return inner + random_pattern(choices, depth - 1)
    if kind == 1:
        return f"(?:{inner}|{random_pattern(choices, depth - 1)})"
    if kind == 2:
        return f"(?:{inner})" + choices.among(("*", "+", "?", "{2}", "{1,2}", "{0}", "{2,}"))
    if kind == 3:
        return choices.among(("(?=", "(?!")) + inner + ")" + random_pattern(choices, depth - 1)
    return f"({inner})"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_patterns_match_as_re(data: st.DataObject) -> None:
    """Every text of at most four characters of a small alphabet."""
    pattern = random_pattern(Choices(lambda n: data.draw(st.integers(0, n - 1))), 3)
    texts = data.draw(st.lists(st.text("abé", max_size=5), min_size=6, max_size=12))
    try:
        grammar = compile_regex(pattern)
    except Unsatisfiable:
        assert not any(re.fullmatch(pattern, text) for text in texts)
        return
    except Unsupported:
        return
    for text in texts:
        assert grammar.accepts(text) == bool(re.fullmatch(pattern, text)), (pattern, text)


def test_bytes_that_are_no_text_are_refused() -> None:
    """Broken UTF-8, surrogates, overlong forms."""
    grammar = compile_regex("(?s:.*)")
    assert grammar.accepts("é😀\n\0".encode())
    for data in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"a\x80"):
        assert not grammar.accepts(data)


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("(", InvalidPattern),
        ("a{2,1}", InvalidPattern),
        ("[z-a]", InvalidPattern),
        ("*a", InvalidPattern),
        (5, InvalidPattern),
        (None, InvalidPattern),
        (b"a", InvalidPattern),
        (r"(a)\1", Unsupported),
        ("a(?!)", Unsatisfiable),
        ("[^\\s\\S]", Unsatisfiable),
        ("a^b", Unsatisfiable),
        ("[\ud800-\udfff]", Unsatisfiable),
        ("((a{100}){100}){100}", TooLarge),
        ("[ab]*a[ab]{30}", TooLarge),
        ("(" * 5_000 + "a" + ")" * 5_000, TooLarge),
    ],
    ids=lambda value: repr(value)[:24] if not isinstance(value, type) else value.__name__,
)
def test_bad_pattern_is_refused(pattern: object, error: type[GrammarError]) -> None:
    """Each kind of refusal."""
    with pytest.raises(error):
        compile_regex(pattern)  # type: ignore[arg-type]


def test_dialects_differ_where_they_should() -> None:
    """`\\d` is ASCII in ECMA's dialect, Unicode in Python's."""
    assert compile_regex(r"\d", dialect="python").accepts("٣")
    assert not compile_regex(r"\d", dialect="ecma").accepts("٣")


def test_shortest_text_and_sizes() -> None:
    """A grammar knows its shortest text, its size and its source."""
    grammar = compile_regex("a{3}(b|cc)")
    assert isinstance(grammar, Grammar)
    assert grammar.shortest() == "aaab"
    assert grammar.kind == "regex"
    assert grammar.source == "a{3}(b|cc)"
    assert grammar.num_states == grammar.build().num_states > 3
    assert grammar.nbytes > 0
