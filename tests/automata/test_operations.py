"""Boolean operations and questions, against brute force over short texts."""

from __future__ import annotations

import automata_strategies as strategies
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.automata import (
    CharDfa,
    accepts,
    compile_pattern,
    complement,
    count_words,
    difference,
    equivalent,
    everything,
    intersection,
    is_empty,
    labels_reachable,
    length_between,
    literals,
    minimize,
    nothing,
    product,
    shortest_word,
    union,
)
from stcon.errors import TooLarge

quick = settings(max_examples=150, deadline=None)
dfas = strategies.char_dfas(max_states=4)
several_texts = st.lists(strategies.code_point_texts, min_size=1, max_size=6)


@given(st.lists(dfas, min_size=1, max_size=3), several_texts)
@quick
def test_product_labels_texts_with_the_combination(parts: list[CharDfa], texts: list[str]) -> None:
    """The label of a text is the combination of its labels, and the result is minimal."""

    def combine(labels: tuple[int, ...]) -> int:
        return sum(3**i * (label + 1) for i, label in enumerate(labels)) % 5 - 1

    result = product(parts, combine)
    assert minimize(result).num_states == result.num_states
    for text in texts:
        assert accepts(result, text) == combine(tuple(accepts(part, text) for part in parts))


@given(dfas, dfas, several_texts)
@quick
def test_set_operations_on_each_text(a: CharDfa, b: CharDfa, texts: list[str]) -> None:
    """Union, intersection, difference and complement are those of the sets of accepted texts."""
    both = [(union(a, b), intersection(a, b), difference(a, b), complement(a))]
    for text in texts:
        in_a, in_b = accepts(a, text) >= 0, accepts(b, text) >= 0
        expected = [in_a or in_b, in_a and in_b, in_a and not in_b, not in_a]
        assert [[accepts(dfa, text) == 0 for dfa in row] for row in both] == [expected]


def test_product_of_large_levels_equals_the_pattern_of_the_conjunction() -> None:
    """The vectorised levels number tuples as the plain ones do."""
    a, b = compile_pattern("[ab]*a[ab]{11}"), compile_pattern("[ab]*b[ab]{3}")
    expected = compile_pattern("[ab]*a[ab]{7}b[ab]{3}")
    assert equivalent(intersection(a, b, max_states=100_000), expected)


def test_product_past_its_limit_is_refused() -> None:
    """The limit counts reachable tuples."""
    with pytest.raises(TooLarge, match="product"):
        intersection(compile_pattern("(a{7})*"), compile_pattern("(a{11})*"), max_states=50)


def test_union_and_intersection_of_nothing() -> None:
    """Of no automata at all, the union is empty and the intersection everything."""
    assert is_empty(union())
    assert equivalent(intersection(), everything())


def brute_force(dfa: CharDfa, longest: int) -> dict[str, int]:
    """Accepted texts over one code point a class, by label."""
    letters = {int(k): chr(int(c)) for c, k in zip(dfa.starts[::-1], dfa.classes[::-1], strict=True)}
    found = {}
    layer = [""]
    for _ in range(longest + 1):
        found.update({text: accepts(dfa, text) for text in layer if accepts(dfa, text) >= 0})
        layer = [text + letter for text in layer for letter in letters.values()]
    return found


@given(dfas)
@quick
def test_shortest_word_is_accepted_and_none_is_shorter(dfa: CharDfa) -> None:
    """For any label and for each, against all texts no longer than the states allow."""
    found = brute_force(dfa, 4)
    for label in (None, 0, 1):
        lengths = [len(text) for text, value in found.items() if label in (None, value)]
        word = shortest_word(dfa, label)
        assert (word is None) == (not lengths)
        if word is not None:
            assert len(word) == min(lengths)
            assert accepts(dfa, word) == label if label is not None else accepts(dfa, word) >= 0
    assert labels_reachable(dfa) == set(found.values())
    assert is_empty(dfa) == (not found)


@given(dfas, dfas)
@quick
def test_equivalent_compares_labels_of_all_texts(a: CharDfa, b: CharDfa) -> None:
    """Equivalent automata have the same minimal form, others a text on which they differ."""
    same = equivalent(a, b)
    assert equivalent(a, minimize(a))
    witness = shortest_word(product([a, b], lambda labels: 0 if labels[0] != labels[1] else -1))
    assert same == (witness is None)
    if witness is not None:
        assert accepts(a, witness) != accepts(b, witness)


def test_shortest_word_prefers_readable_characters() -> None:
    """Of a class the letter is shown, not its first code point, and never a lone surrogate if that can be helped."""
    assert shortest_word(compile_pattern("[^x]{2}")) == "aa"
    assert shortest_word(compile_pattern(r"[\ud900-\uffff]")) == "\ue000"
    assert shortest_word(nothing()) is None


COUNTS = [
    ("", 1),
    ("[ab]{3}", 8),
    ("[ab]{0,3}", 15),
    ("a|ab|abc|a", 3),
    ("[]", 0),
    (r"\d{2}", 100),
    ("[^]", 1_114_112),
    ("a*", 10**12),
    ("(?!a)[]*b*", 10**12),
    (".{3}", 10**12),
]


@pytest.mark.parametrize("pattern, expected", COUNTS)
def test_count_words_counts_code_points_and_saturates(pattern: str, expected: int) -> None:
    """Finite languages are counted exactly up to the cap, infinite ones give the cap."""
    assert count_words(compile_pattern(pattern), 10**12) == expected


@given(st.dictionaries(st.text(alphabet="ab\né😀\ud800", max_size=4), st.integers(0, 3), max_size=12))
@quick
def test_literals_accept_exactly_their_strings_with_their_labels(strings: dict[str, int]) -> None:
    """Every string has its label, its prefixes and extensions none unless listed; the automaton is minimal."""
    dfa = literals(strings)
    near = {text[:-1] for text in strings} | {text + "a" for text in strings} | set(strings) | {"", "z"}
    for text in near:
        assert accepts(dfa, text) == strings.get(text, -1)
    assert minimize(dfa).num_states == dfa.num_states
    assert count_words(dfa, 1_000) == len(strings)


def test_literals_of_ten_thousand_strings() -> None:
    """Ten thousand numbers share their digits."""
    dfa = literals(str(n) for n in range(10_000))
    assert count_words(dfa, 10**6) == 10_000
    assert dfa.num_states < 20


LENGTHS = [(0, 0), (0, None), (2, 2), (1, 3), (3, None), (2, 1), (-1, 1), (0, -1)]


@pytest.mark.parametrize("low, high", LENGTHS)
def test_length_between_counts_code_points(low: int, high: int | None) -> None:
    """Astral characters count once; an empty interval accepts nothing."""
    dfa = length_between(low, high)
    for n in range(6):
        assert (accepts(dfa, "😀" * n) == 0) == (low <= n and (high is None or n <= high))
    assert minimize(dfa).num_states == dfa.num_states
