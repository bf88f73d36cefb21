"""Random grammars, and a naive recogniser that knows nothing of how grammars are compiled (after CYK)."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

Grammar = dict[str, list[list[str]]]

LETTERS = "ab("
SHORT_WORDS = ["".join(word) for length in range(5) for word in itertools.product(LETTERS, repeat=length)]


@st.composite
def grammars(draw: st.DrawFn) -> Grammar:
    """Up to four rules A, B, … of up to three alternatives of up to three symbols; any of them may be useless."""
    names = "ABCD"[: draw(st.integers(1, 4))]
    symbol = st.one_of(st.sampled_from(LETTERS), st.sampled_from(names))
    alternatives = st.lists(st.lists(symbol, max_size=3), min_size=1, max_size=3)
    return {name: draw(alternatives) for name in names}


def as_gbnf(grammar: Grammar) -> str:
    """The grammar as text; its start is A."""
    return "\n".join(f"{name} ::= {' | '.join(map(_alternative, rules))}" for name, rules in grammar.items())


def _alternative(symbols: list[str]) -> str:
    return " ".join(symbol if symbol.isupper() else f'"{symbol}"' for symbol in symbols) or '""'


def as_lark(grammar: Grammar, terminals: list[str]) -> str:
    """The grammar as text, its letters read as terminals A, B and C that may match the same lexemes."""
    names = dict(zip(LETTERS, ("TA", "TB", "TC"), strict=True))
    rules = [
        f"{name.lower()}: {' | '.join(' '.join(names.get(s, s.lower()) for s in symbols) for symbols in alternatives)}"
        for name, alternatives in grammar.items()
    ]
    return "\n".join(
        [*rules, *(f"{name}: /{pattern}/" for name, pattern in zip(names.values(), terminals, strict=True))]
    )


def language(grammar: Grammar, longest: int) -> set[str]:
    """All words of A of at most `longest` letters: the sets of all rules' words, round by round."""
    words: dict[str, set[str]] = {name: set() for name in grammar}
    while True:
        found = {name: {w for rule in rules for w in _words(words, rule, longest)} for name, rules in grammar.items()}
        if found == words:
            return words["A"]
        words = found


def _words(words: dict[str, set[str]], symbols: list[str], longest: int) -> set[str]:
    prefixes = {""}
    for symbol in symbols:
        nexts = words.get(symbol, {symbol})
        prefixes = {p + w for p in prefixes for w in nexts if len(p) + len(w) <= longest}
    return prefixes


def derives(grammar: Grammar, word: str) -> bool:
    """Whether A derives `word`: which rule derives which span, round by round until nothing is added."""
    spans: set[tuple[str, int, int]] = set()
    while True:
        found = {
            (name, begin, end)
            for name, alternatives in grammar.items()
            for symbols in alternatives
            for begin in range(len(word) + 1)
            for end in _ends(grammar, spans, symbols, word, begin)
        }
        if found <= spans:
            return ("A", 0, len(word)) in spans
        spans |= found


def _ends(grammar: Grammar, spans: set[tuple[str, int, int]], symbols: list[str], word: str, begin: int) -> set[int]:
    places = {begin}
    for symbol in symbols:
        if symbol in grammar:
            places = {end for place in places for end in range(place, len(word) + 1) if (symbol, place, end) in spans}
        else:
            places = {place + 1 for place in places if word[place : place + 1] == symbol}
    return places
