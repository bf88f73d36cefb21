"""Conditions on number text against exact fractions, exhaustively on short texts and at random on long ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.automata.decimal import (
    at_least,
    at_most,
    equal_to,
    is_integer,
    multiple_of,
    number_text,
    scientific_text,
)
from stcon.automata.dfa import CharDfa
from stcon.errors import InvalidOption, TooLarge

PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
FULL = re.compile(PLAIN.pattern + r"([eE][+-]?[0-9]+)?")
SCIENTIFIC = re.compile(PLAIN.pattern + r"|-?([1-9](\.[0-9]+)?|0(\.0+)?)[eE][+-]?[0-9]+")
ALPHABET = "-019.5eE+"

Holds = Callable[[Fraction], bool]


def accepts(dfa: CharDfa, text: str) -> bool:
    """Run a complete DFA by its definition."""
    state = dfa.start
    for char in text:
        interval = int(np.searchsorted(dfa.starts, ord(char), side="right")) - 1
        state = int(dfa.delta[state, dfa.classes[interval]])
    return int(dfa.labels[state]) == 0


def short_texts() -> list[str]:
    """Every text of at most 5 characters over the alphabet."""
    return ["".join(word) for size in range(6) for word in product(ALPHABET, repeat=size)]


SHORT = short_texts()
SHORT_NUMBERS = {text for text in SHORT if FULL.fullmatch(text)}


def accepted_short(dfa: CharDfa) -> set[str]:
    """The short texts that the DFA accepts, by running all of them at once, length by length."""
    classes = [int(dfa.classes[np.searchsorted(dfa.starts, ord(c), side="right") - 1]) for c in ALPHABET]
    states, labels = np.array([dfa.start]), []
    for _ in range(6):
        labels.append(dfa.labels[states])
        states = dfa.delta[states][:, classes].reshape(-1)
    hits = np.flatnonzero(np.concatenate(labels) == 0)
    return {SHORT[i] for i in hits}


def expected_short(universe: re.Pattern[str], holds: Holds) -> set[str]:
    return {text for text in SHORT_NUMBERS if universe.fullmatch(text) and holds(Fraction(text))}


def numbers(*, exponent: bool) -> st.SearchStrategy[str]:
    """JSON number texts, biased to leading and trailing zeros, and to few distinct digits."""
    digits = st.text("0123456789", min_size=1, max_size=8) | st.text("09", min_size=1, max_size=12)
    integer = st.just("0") | digits.map(lambda d: d.lstrip("0") or "0")
    fraction = st.just("") | digits.map(lambda d: "." + d)
    parts = [st.sampled_from(["", "-"]), integer, fraction]
    if exponent:
        parts.append(st.just("") | st.from_regex(r"[eE][+-]?0{0,2}[0-9]{1,2}", fullmatch=True))
    return st.tuples(*parts).map("".join)


def near(text: str) -> st.SearchStrategy[str]:
    """The text itself, respelled with zeros, cut, prolonged, or with one digit changed."""
    fraction = text if "." in text else text + "."
    variants = [
        text,
        fraction + "0",
        fraction + "00",
        fraction + "1",
        fraction + "9",
        text[:-1],
        text + "0",
        text + "9",
    ]
    changed = [text[:i] + d + text[i + 1 :] for i, c in enumerate(text) if c.isdigit() for d in "059"]
    return st.sampled_from([v for v in variants + changed if FULL.fullmatch(v)] or ["0"])


@st.composite
def bound_and_text(draw: st.DrawFn, *, exponent: bool) -> tuple[str, str]:
    """A bound and a number text that is often close to it."""
    bound = draw(numbers(exponent=exponent))
    close = near(bound)
    if exponent:
        close |= st.just(f"{Decimal(bound).normalize():e}")
    return bound, draw(close | numbers(exponent=exponent))


BOUNDS = [
    "0",
    "-0.0",
    "1",
    "-1",
    "5",
    "9.5",
    "10",
    "-10",
    "0.5",
    "0.05",
    "-0.5",
    "0.019",
    "100",
    "-99.9",
    "1e3",
    "5e-4",
]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("exponent", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_bounds_on_all_short_texts(bound: str, exponent: bool, exclusive: bool) -> None:
    """A bound accepts exactly the texts of its universe whose value satisfies it; at zero all JSON numbers."""
    value, limit = Decimal(bound), Fraction(bound)
    universe = (SCIENTIFIC if limit else FULL) if exponent else PLAIN
    low = at_least(value, exclusive=exclusive, exponent=exponent)
    high = at_most(value, exclusive=exclusive, exponent=exponent)
    assert accepted_short(low) == expected_short(universe, lambda v: v > limit or (v == limit and not exclusive))
    assert accepted_short(high) == expected_short(universe, lambda v: v < limit or (v == limit and not exclusive))


def test_universes_on_all_short_texts() -> None:
    """The three universes are the grammars that they claim to be."""
    assert accepted_short(number_text()) == SHORT_NUMBERS
    assert accepted_short(number_text(exponent=False)) == expected_short(PLAIN, lambda v: True)
    assert accepted_short(scientific_text()) == expected_short(SCIENTIFIC, lambda v: True)


def test_is_integer_on_all_short_texts() -> None:
    """1.0 and -0 are integers; without fraction zeros only texts without a fraction are."""
    integral = expected_short(PLAIN, lambda v: v.denominator == 1)
    assert accepted_short(is_integer()) == integral
    assert accepted_short(is_integer(fraction_zeros=False)) == {text for text in integral if "." not in text}


@pytest.mark.parametrize(
    "divisor", ["1", "2", "3", "5", "7", "10", "15", "2.5", "0.5", "0.01", "0.05", "0.15", "9.5", "1e3", "50", "0.019"]
)
def test_multiple_of_on_all_short_texts(divisor: str) -> None:
    """A divisor accepts exactly the plain texts whose value is an integer multiple of it."""
    expected = expected_short(PLAIN, lambda v: (v / Fraction(divisor)).denominator == 1)
    assert accepted_short(multiple_of(Decimal(divisor))) == expected


@pytest.mark.parametrize("exponent", [False, True])
@pytest.mark.parametrize(
    "values", [[], ["0"], ["1", "1.5", "1.05", "-1"], ["10", "100", "0.1", "0.01"], ["5e3", "5e-3", "5", "-0.5", "50"]]
)
def test_equal_to_on_all_short_texts(values: list[str], exponent: bool) -> None:
    """Exactly the spellings in the universe of the listed values are accepted, trailing zeros and -0 among them."""
    wanted = {Fraction(value) for value in values}
    expected = expected_short(SCIENTIFIC if exponent else PLAIN, lambda v: v in wanted)
    assert accepted_short(equal_to(map(Decimal, values), exponent=exponent)) == expected


@given(bound_and_text(exponent=False), st.booleans())
@settings(max_examples=250, deadline=None)
def test_bounds_on_random_plain_numbers(case: tuple[str, str], exclusive: bool) -> None:
    """Both bounds agree with exact fractions on texts near the bound."""
    bound, text = case
    limit, value = Fraction(bound), Fraction(text)
    inside = bool(PLAIN.fullmatch(text))
    low, high = (f(Decimal(bound), exclusive=exclusive) for f in (at_least, at_most))
    assert accepts(low, text) == (inside and (value > limit or (value == limit and not exclusive)))
    assert accepts(high, text) == (inside and (value < limit or (value == limit and not exclusive)))


@given(bound_and_text(exponent=True), st.booleans())
@settings(max_examples=250, deadline=None)
def test_bounds_on_random_scientific_numbers(case: tuple[str, str], exclusive: bool) -> None:
    """With exponents the verdict is exact on the scientific universe, and nothing outside it is accepted."""
    bound, text = case
    limit, value = Fraction(bound), Fraction(text)
    inside = bool((SCIENTIFIC if limit else FULL).fullmatch(text))
    low, high = (f(Decimal(bound), exclusive=exclusive, exponent=True) for f in (at_least, at_most))
    assert accepts(low, text) == (inside and (value > limit or (value == limit and not exclusive)))
    assert accepts(high, text) == (inside and (value < limit or (value == limit and not exclusive)))


@given(st.lists(numbers(exponent=True), max_size=5), st.data(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_equal_to_on_random_numbers(values: list[str], data: st.DataObject, exponent: bool) -> None:
    """Equality is equality of values, for any spelling in the universe."""
    close = [near(value) | st.just(f"{Decimal(value):e}") for value in values]
    text = data.draw(st.one_of(numbers(exponent=True), *close))
    dfa = equal_to(map(Decimal, values), exponent=exponent)
    inside = (SCIENTIFIC if exponent else PLAIN).fullmatch(text)
    assert accepts(dfa, text) == (bool(inside) and Fraction(text) in set(map(Fraction, values)))


@given(
    st.integers(1, 400),
    st.integers(-6, 6),
    st.integers(-(10**12), 10**12),
    st.integers(0, 8),
    st.sampled_from(["", "0", "00"]),
)
@settings(max_examples=250, deadline=None)
def test_multiple_of_on_random_numbers(n: int, power: int, m: int, places: int, zeros: str) -> None:
    """A text, and the multiple of the divisor next to it, are judged as by exact division."""
    divisor = Decimal(n).scaleb(power)
    dfa = multiple_of(divisor)
    exact = Fraction(divisor)
    value = Fraction(m, 10**places)
    for number in (value, value // exact * exact):
        text = plain_text(number) + (zeros if number.denominator > 1 else "")
        assert accepts(dfa, text) == ((number / exact).denominator == 1), text


def plain_text(value: Fraction) -> str:
    """The shortest plain text of a decimal fraction."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + digits[: len(digits) - places] + ("." + digits[len(digits) - places :] if places else "")


@pytest.mark.parametrize(
    "divisor, most",
    [("1000000", 20), ("1e-8", 25), ("1e300", 320), ("0.01", 12), ("2.5", 20), ("7", 14), ("1024", 165), ("3e-10", 50)],
)
def test_multiple_of_needs_few_states(divisor: str, most: int) -> None:
    """Factors of ten cost one state each, not ten times the states."""
    assert multiple_of(Decimal(divisor)).num_states <= most


@pytest.mark.parametrize("divisor", ["104729", "9007199254740993", "0.9973", "1048576"])
def test_multiple_of_is_refused_before_it_is_built(divisor: str) -> None:
    """Too many residue classes are refused with both numbers."""
    with pytest.raises(TooLarge) as caught:
        multiple_of(Decimal(divisor))
    assert caught.value.given > caught.value.limit == 20_000


@given(st.integers(1, 3_000), st.integers(-4, 4))
@settings(max_examples=100, deadline=None)
def test_multiple_of_counts_its_states_beforehand(n: int, power: int) -> None:
    """The number a refusal gives is the number of states, up to the fixed few of the grammar."""
    divisor = Decimal(n).scaleb(power)
    with pytest.raises(TooLarge) as caught:
        multiple_of(divisor, max_states=0)
    assert multiple_of(divisor).num_states - caught.value.given in (4, 5)


@pytest.mark.parametrize("divisor", ["0", "-1", "-0.0", "NaN", "Infinity"])
def test_multiple_of_refuses_what_is_not_positive(divisor: str) -> None:
    """multipleOf takes positive finite numbers only."""
    with pytest.raises(InvalidOption):
        multiple_of(Decimal(divisor))


def test_bounds_with_hundreds_of_digits() -> None:
    """Digits far past any binary float decide, before and behind the point."""
    bound = "1" + "0" * 300 + "." + "0" * 200 + "1"
    dfa = at_least(Decimal(bound))
    assert accepts(dfa, bound)
    assert not accepts(dfa, bound[:-1] + "09")
    assert accepts(dfa, bound[:-1] + "2")
    assert not accepts(dfa, "9" * 300 + ".9")
    assert accepts(at_most(Decimal(bound)), bound[:-1])
    assert dfa.num_states < 1_200


@pytest.mark.parametrize("text", ["1e4001", "1e-4001", "1e999999999", "9" * 4001])
def test_bounds_refuse_too_many_digits(text: str) -> None:
    """A bound that would need thousands of states is refused with both numbers."""
    for refuse in (at_least, at_most, lambda value: equal_to([value]), multiple_of):
        with pytest.raises(TooLarge) as caught:
            refuse(Decimal(text))
        assert caught.value.given > caught.value.limit


def test_equal_to_takes_thousands_of_values() -> None:
    """A large enum is one trie: every value is accepted, and no neighbour of one."""
    dfa = equal_to(Decimal(3 * i) for i in range(5_000))
    assert all(accepts(dfa, str(3 * i)) for i in range(0, 5_000, 37))
    assert not any(accepts(dfa, str(3 * i + 1)) for i in range(0, 5_000, 37))


def test_every_dfa_is_complete() -> None:
    """Arrays have the shapes and ranges that CharDfa promises, and other characters lead to the dead state."""
    for dfa in (number_text(), at_least(Decimal("-1.5"), exponent=True), multiple_of(Decimal("0.7")), equal_to([])):
        assert dfa.starts[0] == 0
        assert (np.diff(dfa.starts) > 0).all()
        assert dfa.delta.min() >= 0
        assert dfa.delta.max() < dfa.num_states
        assert dfa.classes.max() < dfa.num_classes
        assert not any(accepts(dfa, text) for text in ["", "1a", "١", "1,5", " 1", "1 ", "+1", "\U0010ffff"])
