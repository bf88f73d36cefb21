"""Unicode properties and character sets, code point by code point."""

from __future__ import annotations

import itertools
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stcon.automata import NUM_CODE_POINTS, accepts, charset, compile_pattern, unicode_data
from stcon.errors import Unsupported


def members(characters: charset.CharSet) -> set[int]:
    """Every code point of a set."""
    return {c for low, high in characters for c in range(low, high)}


CATEGORIES = [
    ("L", "L"),
    ("Letter", "L"),
    ("Lu", "Lu"),
    ("Uppercase_Letter", "Lu"),
    ("Nd", "Nd"),
    ("P", "P"),
    ("Zs", "Zs"),
]
CATEGORIES += [("Cn", "Cn"), ("Cs", "Cs"), ("Currency_Symbol", "Sc"), ("M", "M"), ("Other", "C")]


@pytest.mark.parametrize("name, short", CATEGORIES)
def test_general_category_is_that_of_unicodedata(name: str, short: str) -> None:
    """Short and long names, whole categories and groups, on every code point."""
    expected = {c for c in range(NUM_CODE_POINTS) if unicodedata.category(chr(c)).startswith(short)}
    assert members(unicode_data.property_set(name, None)) == expected
    assert members(unicode_data.property_set("gc", name)) == expected


def test_cased_letter_joins_three_categories() -> None:
    """LC is Lu, Ll and Lt."""
    parts = [unicode_data.property_set(name, None) for name in ("Lu", "Ll", "Lt")]
    assert unicode_data.property_set("LC", None) == charset.union(*parts)


SHORTHANDS = [(r"\d", str.isdecimal), (r"\s", str.isspace), (r"\w", lambda c: c.isalnum() or c == "_")]
SHORTHANDS += [(r"\p{Lowercase}", str.islower), (r"\p{Uppercase}", str.isupper), (r"\P{Any}", lambda _: False)]


@pytest.mark.parametrize("pattern, predicate", SHORTHANDS)
def test_unicode_shorthand_holds_on_every_code_point(pattern, predicate) -> None:  # type: ignore[no-untyped-def]
    """The character classes of Python's dialect are those of `str`'s predicates, which `re` uses."""
    dfa = compile_pattern(pattern, dialect="python")
    wrong = [c for c in range(0, NUM_CODE_POINTS, 37) if (accepts(dfa, chr(c)) == 0) != predicate(chr(c))]
    assert wrong == []


def test_property_escapes_and_their_negation_part_all_characters() -> None:
    r"""``\p`` and ``\P``, alone and in classes."""
    for text in ("é", "1", "-", "\n", "😀"):
        letter = accepts(compile_pattern(r"\p{L}"), text) == 0
        assert letter == text.isalpha()
        assert (accepts(compile_pattern(r"\P{L}"), text) == 0) != letter
        assert (accepts(compile_pattern(r"[^\p{L}\d]"), text) == 0) == (not letter and text != "1")


@pytest.mark.parametrize("name, value", [("Script", "Greek"), ("Emoji", None), ("NoSuch", None), ("gc", "Xx")])
def test_unknown_property_is_refused(name: str, value: str | None) -> None:
    """What the standard library has no data for is not approximated."""
    with pytest.raises(Unsupported, match=name):
        unicode_data.property_set(name, value)


def test_case_closure_is_the_relation_of_re() -> None:
    """Each cased character matches, ignoring case, exactly the characters that `re` lets it match."""
    orbits = unicode_data._case_orbits()
    everyone = "".join(map(chr, orbits))
    for c, orbit in list(orbits.items())[::7]:
        assert {ord(d) for d in re.findall(re.escape(chr(c)), everyone, re.IGNORECASE)} == set(orbit)


def test_no_other_character_has_case_for_re() -> None:
    """Outside of the orbits every character equals itself only, seen from the cased ones."""
    orbits = unicode_data._case_orbits()
    cased = re.compile("[" + "".join(re.escape(chr(c)) for c in orbits) + "]", re.IGNORECASE)
    others = [chr(c) for c in range(NUM_CODE_POINTS) if c not in orbits]
    assert [c for c in others if cased.match(c)] == []


ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=5)


@given(ranges, ranges)
def test_set_algebra_of_charsets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    """Union, intersection, complement and difference are those of sets; the form is canonical."""
    x, y = charset.normalize(a), charset.normalize(b)
    assert members(charset.union(x, y)) == members(x) | members(y)
    assert members(charset.intersection(x, y)) == members(x) & members(y)
    assert members(charset.difference(x, y)) == members(x) - members(y)
    assert charset.complement(charset.complement(x)) == x
    assert charset.normalize((c, c + 1) for c in members(x)) == x


@given(st.lists(ranges.map(charset.normalize), max_size=4))
def test_partition_never_splits_a_set_and_never_joins_two_signatures(sets: list[charset.CharSet]) -> None:
    """Each code point's class says exactly which sets hold it."""
    starts, classes, held_by = charset.partition(sets)
    assert starts[0] == 0
    assert all(a != b for a, b in itertools.pairwise(classes))
    for c in range(42):
        interval = max(i for i, start in enumerate(starts) if start <= c)
        expected = sum(1 << i for i, s in enumerate(sets) if charset.contains(s, c))
        assert held_by[classes[interval]] == expected
