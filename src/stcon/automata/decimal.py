"""Conditions on numbers as `CharDfa`s over JSON number text, in exact decimal arithmetic.

Each function returns a complete DFA that accepts (label 0) exactly the texts *of its universe* whose value satisfies
the condition. There are three universes, because comparing ``1000e-3`` with a bound needs counting and is no regular
language:

- **plain**: JSON numbers without an exponent. Every condition is exact here.
- **scientific**: plain, and texts with an exponent behind a normalised mantissa (one digit 1–9 before the point) or a
  zero one: ``1e-05``, ``-2.5E+16``, ``0e7``, but not ``25e15``. This is what printing a float gives. `at_least`,
  `at_most` and `equal_to` are exact here with ``exponent=True``.
- **full**: every JSON number (RFC 8259). Bounds at zero are exact here with ``exponent=True``.

A complement is a condition only inside a universe: intersect it with `number_text` or `scientific_text` of the same
kind. `is_integer` and `multiple_of` are plain only.

Construction: the grammar's phases times a *condition*, which remembers the least it needs (how far the digits agree
with the bound, a class of residues); pairs are explored from the start, so what is built is reachable and nearly
minimal. Values are never converted to binary floating point and never rounded by a decimal context.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from itertools import count
from math import gcd
from typing import NamedTuple

from stcon.automata.dfa import CharDfa
from stcon.automata.number_text import (
    FULL,
    NO_EXPONENT,
    NONZERO,
    PLAIN,
    POWER_PHASES,
    SCIENTIFIC,
    YES,
    Anything,
    Digits,
    Memo,
    build,
    digits_of,
)
from stcon.errors import InvalidOption, TooLarge

DEFAULT_MAX_STATES = 20_000


class _Integer(Anything):
    """The value is an integer; nothing to remember."""

    def __init__(self, fraction_zeros: bool) -> None:
        self.fraction_zeros = fraction_zeros

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        if phase == "point":
            return memo if self.fraction_zeros else None
        return None if phase == "fraction" and symbol != "0" else memo


def number_text(exponent: bool = True) -> CharDfa:
    """Every JSON number: the full universe, or the plain one without `exponent`. Source: RFC 8259 §6."""
    return build(FULL if exponent else PLAIN, Anything(), what="number")


def scientific_text() -> CharDfa:
    """The scientific universe: numbers whose exponent, if any, follows a normalised or zero mantissa."""
    return build(SCIENTIFIC, Anything(), what="number")


def is_integer(*, fraction_zeros: bool = True) -> CharDfa:
    """Plain numbers with an integer value: 1, -0, 1.0; without `fraction_zeros` only texts without a fraction.

    Source: JSON Schema 2020-12 core §4.2.3 (1.0 is an integer); draft 4 §3.5 (it is not).
    """
    return build(PLAIN, _Integer(fraction_zeros), what="integer")


class _Signum(Anything):
    """The value's sign (-1, 0, 1) is in `wanted`: decided by "-" and the first nonzero digit, whatever the exponent."""

    start: Memo = 1

    def __init__(self, wanted: frozenset[int]) -> None:
        self.wanted = wanted

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        if phase == "sign":
            return -1
        if memo == YES or symbol not in NONZERO or phase in POWER_PHASES:
            return memo
        return YES if memo in self.wanted else None

    def accepts(self, memo: Memo, phase: str) -> bool:
        return memo == YES or 0 in self.wanted


class _Match(NamedTuple):
    """Digits being read and compared with a target: `read` of them so far, which compare as `order`."""

    read: int = 0
    order: int = 0

    def longer(self, digit: str, target: str) -> _Match:
        """One more digit of an integer (`target` has no leading zeros): its length counts before its digits."""
        if digit == "0" and not self.read:
            return self
        if self.read >= len(target):
            return _Match(len(target) + 1, 1)
        return _Match(self.read + 1, self.order or _compare(digit, target[self.read]))

    def integer_order(self, target: str) -> int:
        """The order if the integer ends here."""
        return _compare(self.read, len(target)) or self.order

    def finer(self, digit: str, target: str) -> _Match:
        """One more digit behind the point (`target` has no trailing zeros): the first difference counts."""
        if self.order:
            return self
        order = _compare(digit, target[self.read] if self.read < len(target) else "0")
        return _Match(0, order) if order else _Match(min(self.read + 1, len(target)), 0)

    def fraction_order(self, target: str) -> int:
        """The order if the fraction ends here."""
        return self.order or (-1 if self.read < len(target) else 0)


def _compare(a: str | int, b: str | int) -> int:
    """-1, 0 or 1; digits compare as their values."""
    return (a > b) - (a < b)  # type: ignore[operator]


class _Reading(NamedTuple):
    """The number being read: its current part, and the same digits as a mantissa d.ddd (None: no exponent follows)."""

    part: _Match = _Match()
    mantissa: _Match | None = _Match()


class _Power(NamedTuple):
    """The exponent being read; `ahead` is the order of the mantissas, which breaks ties."""

    ahead: int
    negative: bool | None = None
    size: _Match = _Match()


class _Bound(Anything):
    """The order (-1, 0, 1) of the value and a bound other than zero is in `wanted`.

    Numbers of the other sign are decided by it. For the rest the magnitudes are compared as text: the length of the
    integer part, then digit by digit; behind an exponent, the exponents and then the mantissas.
    """

    start: Memo = "start"

    def __init__(self, bound: Digits, wanted: frozenset[int]) -> None:
        self.bound, self.wanted = bound, wanted
        self.integer, self.fraction = bound.integer, bound.fraction
        self.exponent = bound.point - 1
        self.exponent_size = str(abs(self.exponent)) if self.exponent else ""

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        if memo == "start":
            if (phase == "sign") != self.bound.negative:
                return YES if (1 if self.bound.negative else -1) in self.wanted else None
            memo = _Reading()
            if phase == "sign":
                return memo
        if isinstance(memo, _Reading):
            return self._number(memo, phase, symbol)
        return self._exponent(memo, phase, symbol) if isinstance(memo, _Power) else memo

    def _number(self, memo: _Reading, phase: str, symbol: str) -> Memo | None:
        part, mantissa = memo
        if phase == "e":
            if mantissa is None or mantissa == _Match():  # no digit of it read: it is zero
                return self._decided(-1)
            return _Power(mantissa.fraction_order(self.bound.digits))
        if phase.startswith("one") and symbol != ".":
            assert mantissa is not None
            mantissa = mantissa.finer(symbol, self.bound.digits)
        elif phase in NO_EXPONENT:
            mantissa = None
        if phase.endswith("point"):
            part = _Match(0, part.integer_order(self.integer))
        elif phase.endswith("fraction"):
            part = part.finer(symbol, self.fraction)
        else:
            part = part.longer(symbol, self.integer)
        decided = part.order if phase in ("point", "fraction") else int(part.read > len(self.integer))
        return self._decided(decided) if decided and mantissa is None else _Reading(part, mantissa)

    def _exponent(self, memo: _Power, phase: str, symbol: str) -> Memo | None:
        ahead, negative, size = memo
        if negative is None:
            negative = symbol == "-"
            if self.exponent and negative != (self.exponent < 0):
                return self._decided(-1 if negative else 1)
        if phase == "exponent":
            size = size.longer(symbol, self.exponent_size)
            if size.read > len(self.exponent_size):
                return self._decided(-1 if negative else 1)
        return _Power(ahead, negative, size)

    def _decided(self, order: int) -> Memo | None:
        """No further digit changes the order of the magnitudes."""
        return YES if self._in_wanted(order) else None

    def _in_wanted(self, order: int) -> bool:
        return (-order if self.bound.negative else order) in self.wanted

    def accepts(self, memo: Memo, phase: str) -> bool:
        if isinstance(memo, _Power):
            order = memo.size.integer_order(self.exponent_size)
            return self._in_wanted((-order if memo.negative else order) or memo.ahead)
        if isinstance(memo, _Reading):
            if phase.endswith("fraction"):
                return self._in_wanted(memo.part.fraction_order(self.fraction))
            order = memo.part.integer_order(self.integer)
            return self._in_wanted(order or (-1 if self.fraction else 0))
        return memo == YES


def _ordered(bound: Decimal, wanted: frozenset[int], exponent: bool) -> CharDfa:
    parts = digits_of(bound)
    if not parts.digits:
        return build(FULL if exponent else PLAIN, _Signum(wanted), what="bound")
    return build(SCIENTIFIC if exponent else PLAIN, _Bound(parts, wanted), what="bound")


def at_least(bound: Decimal, *, exclusive: bool = False, exponent: bool = False) -> CharDfa:
    """Numbers ≥ `bound` (> if `exclusive`).

    Args:
        bound: any finite decimal.
        exclusive: leave the bound itself out.
        exponent: exact over the scientific universe instead of the plain one; over the full one if the bound is 0.

    Raises:
        InvalidOption: the bound is not finite.
        TooLarge: the bound has more than `MAX_DIGITS` digits when written without exponent.

    Cost: about two states a digit of the bound.
    Source: JSON Schema 2020-12 validation §6.2.4, §6.2.5.
    """
    return _ordered(bound, frozenset({1} if exclusive else {0, 1}), exponent)


def at_most(bound: Decimal, *, exclusive: bool = False, exponent: bool = False) -> CharDfa:
    """Numbers ≤ `bound` (< if `exclusive`); otherwise as `at_least`. Source: JSON Schema validation §6.2.2, §6.2.3."""
    return _ordered(bound, frozenset({-1} if exclusive else {0, -1}), exponent)


class _Residue(NamedTuple):
    """Places read behind the point, and the residue that stands for its class."""

    places: int
    value: int


class _Multiple(Anything):
    """The value is a multiple of n / 10^places (n a positive integer, places ≥ 0).

    The digits read so far, without the point, are an integer with residue r mod n. With t more digits read it becomes
    r·10^t + s, s < 10^t, so all that counts of r is which s make it 0 mod n: ``-r·10^t mod n`` if that is below 10^t,
    else none. Behind the point t is known (the places still open; a text that ends early means zeros). Before it, t is
    any number ≥ places. Residues equal in this are one state, which is what keeps 1/10^8 and 10^6 small.

    Source: these are the Myhill–Nerode classes; their count for places = 0 is B. Alexeev, "Minimal DFA for testing
    divisibility" (2004), which `num_states` generalises.
    """

    start: Memo = _Residue(0, 0)

    def __init__(self, n: int, places: int) -> None:
        self.n, self.places = n, places
        self.representatives: dict[Memo, int] = {}
        powers = [1]
        while powers[-1] < n or len(powers) <= places:
            powers.append(powers[-1] * 10)
        self.powers = powers

    def num_states(self) -> int:
        """The number of residue classes, before building them."""
        behind = sum(-(-min(power, self.n) // gcd(power, self.n)) for power in self.powers[: self.places + 1])
        before, best = 0, self.n
        for power in self.powers[self.places :]:
            shared = gcd(power, self.n)
            best = min(best, before + self.n // shared)
            before += power // shared
        return behind + best

    def _hit(self, residue: int, power: int) -> int | None:
        rest = -residue * power % self.n
        return rest if rest < power else None

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        assert isinstance(memo, _Residue)
        if phase == "sign":
            return memo
        key: Memo
        read, residue = memo
        if phase == "fraction":
            if read == self.places:
                return memo if symbol == "0" else None
            read += 1
        if symbol != ".":
            residue = (10 * residue + int(symbol)) % self.n
        if phase in ("point", "fraction"):
            hit = self._hit(residue, self.powers[self.places - read])
            if hit is None:
                return None
            key = (read, hit)
        else:
            key = tuple(self._hit(residue, power) for power in self.powers[self.places :])
        return _Residue(read, self.representatives.setdefault(key, residue))

    def accepts(self, memo: Memo, phase: str) -> bool:
        assert isinstance(memo, _Residue)
        read, residue = memo
        return residue * self.powers[self.places - read] % self.n == 0


def multiple_of(divisor: Decimal, *, max_states: int = DEFAULT_MAX_STATES) -> CharDfa:
    """Plain numbers that are an integer multiple of `divisor`, a positive decimal.

    Raises:
        InvalidOption: not finite, or not positive.
        TooLarge: more than `max_states` residue classes (``given``), known before any is built; too many digits.

    Cost: for divisor n / 10^k about n / gcd(n, 10^k) states and at most as many for each of k places; factors of ten
    add one state each. A prime divisor p has p classes.
    Source: JSON Schema 2020-12 validation §6.2.1.
    """
    negative, digits, point = digits_of(divisor)
    if negative or not digits:
        raise InvalidOption(f"multipleOf must be positive, got {divisor}")
    exponent = point - len(digits)
    condition = _Multiple(int(digits) * 10 ** max(exponent, 0), max(-exponent, 0))
    given = condition.num_states()
    if given > max_states:
        raise TooLarge("states for multipleOf", given=given, limit=max_states, advice="use a divisor with fewer digits")
    return build(PLAIN, condition, what="multipleOf", max_states=2 * max_states + 100)


class _Terminal(NamedTuple):
    """A text of the trie that spells a wanted value: as it stands, or with one of some exponents (None: with any)."""

    plain: bool
    exponents: frozenset[int] | None


class _Left(NamedTuple):
    """What may follow in an exponent: the rests of the wanted digits; leading zeros before them are skipped."""

    begun: bool
    digits: frozenset[str]

    @staticmethod
    def of(exponents: frozenset[int], *, negative: bool) -> _Left:
        """The exponents of one sign, zero being of both."""
        return _Left(False, frozenset(str(abs(x)) if x else "" for x in exponents if not x or negative == (x < 0)))

    def read(self, symbol: str) -> _Left | None:
        if symbol == "0" and not self.begun:
            return self
        rests = frozenset(text[1:] for text in self.digits if text.startswith(symbol))
        return _Left(True, rests) if rests else None


class _Equal(Anything):
    """The value is one of a finite set: a trie of their shortest texts, plain and as mantissas, then trailing zeros.

    Memory: a trie node; a `_Terminal` in trailing zeros past the trie; behind "e" the exponents, then `_Left`.
    """

    start: Memo = 0

    def __init__(self, values: Iterable[Digits], exponent: bool) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.behind_point = [False]
        plain: set[int] = set()
        exponents: dict[int, set[int]] = {}
        zeros: set[int] = set()
        for value in values:
            if not value.digits:
                zeros |= {self._insert("0", ""), self._insert("-0", "")}
                continue
            sign = "-" if value.negative else ""
            plain.add(self._insert(sign + (value.integer or "0"), value.fraction))
            if exponent:
                mantissa = self._insert(sign + value.digits[0], value.digits[1:])
                exponents.setdefault(mantissa, set()).add(value.point - 1)
        self.terminals: dict[int, _Terminal] = dict.fromkeys(zeros, _Terminal(True, None))
        for node in plain | exponents.keys():
            self.terminals[node] = _Terminal(node in plain, frozenset(exponents.get(node, ())))
        self._spread_terminals()

    def _insert(self, integer: str, fraction: str) -> int:
        node = 0
        for symbol in integer + "." * bool(fraction) + fraction:
            node = self._child(node, symbol)
        return node

    def _child(self, node: int, symbol: str) -> int:
        if symbol not in self.children[node]:
            self.children[node][symbol] = len(self.children)
            self.children.append({})
            self.behind_point.append(self.behind_point[node] or symbol == ".")
        return self.children[node][symbol]

    def _spread_terminals(self) -> None:
        """A point and zeros behind a terminal spell the same value, also where the trie goes on. Parents come first."""
        for node in count():
            if node == len(self.children):
                return
            if node in self.terminals and not self.behind_point[node]:
                self.terminals[self._child(node, ".")] = self.terminals[node]
            elif node in self.terminals and "0" in self.children[node]:
                self.terminals[self.children[node]["0"]] = self.terminals[node]

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        if isinstance(memo, int):
            if symbol in self.children[memo]:
                return self.children[memo][symbol]
            memo = self.terminals.get(memo)
        if memo is None or isinstance(memo, _Terminal):
            return self._behind_text(memo, phase, symbol)
        if isinstance(memo, frozenset):
            memo = _Left.of(memo, negative=symbol == "-")
            if phase == "e sign":
                return memo
        return memo.read(symbol) if isinstance(memo, _Left) else memo

    def _behind_text(self, terminal: _Terminal | None, phase: str, symbol: str) -> Memo | None:
        if terminal is None:
            return None
        if phase == "e":
            return YES if terminal.exponents is None else terminal.exponents or None
        return terminal if symbol == "0" and phase.endswith("fraction") else None

    def accepts(self, memo: Memo, phase: str) -> bool:
        terminal = self.terminals.get(memo) if isinstance(memo, int) else memo
        if isinstance(terminal, _Terminal):
            return terminal.plain
        return memo == YES or (isinstance(memo, _Left) and "" in memo.digits)


def equal_to(values: Iterable[Decimal], *, exponent: bool = False, max_states: int = 100_000) -> CharDfa:
    """Numbers equal to one of `values`; -0 equals 0. None of them: no text is accepted.

    Args:
        exponent: exact over the scientific universe instead of the plain one.

    Raises:
        InvalidOption: a value is not finite.
        TooLarge: a value has more than `MAX_DIGITS` digits, or past `max_states`.

    Cost: about a state a digit of the values (two with `exponent`), shared prefixes once.
    """
    condition = _Equal((digits_of(value) for value in values), exponent)
    grammar = SCIENTIFIC if exponent else PLAIN
    return build(grammar, condition, what="equal numbers", max_states=max_states)
