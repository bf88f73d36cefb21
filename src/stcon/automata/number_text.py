"""JSON number text: its grammar in three universes, and the product of a grammar with a condition on the value.

`build` explores the grammar's phases times what a `Condition` remembers of the text; `stcon.automata.decimal` has the
conditions. Phases are named after what was read last; the scientific universe keeps "one" (a single digit 1–9 before
the point) and "zero" apart, since only these may take an exponent there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from decimal import Decimal
from typing import NamedTuple, Protocol

import numpy as np

from stcon.automata.dfa import CharDfa
from stcon.errors import InvalidOption, TooLarge

MAX_DIGITS = 4_000

_SYMBOLS = "0123456789-+.e"
_STARTS = [0, *range(0x2B, 0x3B), 0x45, 0x46, 0x65, 0x66]
_CLASSES = [0, 12, 0, 11, 13, 0, *range(1, 11), 0, 14, 0, 14, 0]
NONZERO = "123456789"

Memo = Hashable
YES = "satisfied, whatever follows"
Grammar = Mapping[str, Mapping[str, str]]


def _grammar(*edges: tuple[str, str, str]) -> Grammar:
    """phase → symbol → next phase, from (phase, symbols, next phase)."""
    table: dict[str, dict[str, str]] = {}
    for phase, symbols, target in edges:
        table.setdefault(target, {})
        table.setdefault(phase, {}).update(dict.fromkeys(symbols, target))
    return table


_DIGITS = "0" + NONZERO
_EXPONENT = (("e", "+-", "e sign"), ("e", _DIGITS, "exponent"), ("e sign", _DIGITS, "exponent"))
_EXPONENT_MORE = ("exponent", _DIGITS, "exponent")
_PLAIN_EDGES = (
    ("start", "-", "sign"),
    ("start", "0", "zero"),
    ("start", NONZERO, "integer"),
    ("sign", "0", "zero"),
    ("sign", NONZERO, "integer"),
    ("integer", _DIGITS, "integer"),
    ("zero", ".", "point"),
    ("integer", ".", "point"),
    ("point", _DIGITS, "fraction"),
    ("fraction", _DIGITS, "fraction"),
)
PLAIN = _grammar(*_PLAIN_EDGES)
FULL = _grammar(
    *_PLAIN_EDGES, *((phase, "e", "e") for phase in ("zero", "integer", "fraction")), *_EXPONENT, _EXPONENT_MORE
)
SCIENTIFIC = _grammar(
    *_PLAIN_EDGES,
    ("start", NONZERO, "one"),
    ("sign", NONZERO, "one"),
    ("one", _DIGITS, "integer"),
    ("one", ".", "one point"),
    ("one point", _DIGITS, "one fraction"),
    ("one fraction", _DIGITS, "one fraction"),
    ("zero", ".", "zero point"),
    ("zero point", "0", "zero fraction"),
    ("zero fraction", "0", "zero fraction"),
    ("zero point", NONZERO, "fraction"),
    ("zero fraction", NONZERO, "fraction"),
    *((phase, "e", "e") for phase in ("zero", "one", "zero fraction", "one fraction")),
    *_EXPONENT,
    _EXPONENT_MORE,
)
POWER_PHASES = {"e", "e sign", "exponent"}
NO_EXPONENT = {"integer", "point", "fraction"}
_ACCEPTING = {"zero", "one", "integer", "zero fraction", "one fraction", "fraction", "exponent"}


class Condition(Protocol):
    """What is remembered of the text read so far."""

    start: Memo

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        """The memory after `symbol`, which led into `phase`; None if no continuation can satisfy the condition."""

    def accepts(self, memo: Memo, phase: str) -> bool:
        """Whether the number that ends in `phase` satisfies the condition."""


def build(grammar: Grammar, condition: Condition, *, what: str, max_states: int = 2 * MAX_DIGITS + 1_000) -> CharDfa:
    """Explore phase × memory. State 0 is dead, state 1 the start.

    Raises:
        TooLarge: past `max_states`.
    """
    keys: list[tuple[str, Memo]] = [("start", condition.start)]
    index = {keys[0]: 1}
    rows = [[0] * (len(_SYMBOLS) + 1)]
    for phase, memo in keys:  # grows while it is read
        row = [0] * (len(_SYMBOLS) + 1)
        for symbol, target in grammar[phase].items():
            after = condition.read(memo, target, symbol)
            if after is None:
                continue
            key = (target, after)
            if key not in index:
                keys.append(key)
                index[key] = len(keys)
                if len(keys) > max_states:
                    raise TooLarge(f"states for {what}", given=len(keys), limit=max_states)
            row[1 + _SYMBOLS.index(symbol)] = index[key]
        rows.append(row)
    labels = [-1] + [0 if phase in _ACCEPTING and condition.accepts(memo, phase) else -1 for phase, memo in keys]
    return CharDfa(
        starts=np.array(_STARTS, np.int32),
        classes=np.array(_CLASSES, np.int32),
        delta=np.array(rows, np.int32),
        labels=np.array(labels, np.int32),
        start=1,
    )


class Digits(NamedTuple):
    """±0.d1d2…dn · 10^point, without leading or trailing zeros; no digits for zero."""

    negative: bool
    digits: str
    point: int

    @property
    def integer(self) -> str:
        """The digits before the decimal point, none if they are zero."""
        return self.digits[: max(self.point, 0)].ljust(self.point, "0")

    @property
    def fraction(self) -> str:
        """The digits behind the decimal point, without trailing zeros."""
        return "0" * -self.point + self.digits if self.point < 0 else self.digits[self.point :]


def digits_of(value: Decimal) -> Digits:
    """Take a number apart, exactly.

    Raises:
        InvalidOption: not finite.
        TooLarge: more than `MAX_DIGITS` digits when written without exponent.
    """
    sign, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidOption(f"{value} is not a finite number")
    text = "".join(map(str, figures)).lstrip("0")
    if not text:
        return Digits(False, "", 0)
    size = len(text) + abs(exponent)
    if size > MAX_DIGITS:
        raise TooLarge("digits of a number", given=size, limit=MAX_DIGITS)
    return Digits(bool(sign), text.rstrip("0"), len(text) + exponent)


class Anything:
    """No condition; what the others inherit."""

    start: Memo = ()

    def read(self, memo: Memo, phase: str, symbol: str) -> Memo | None:
        return memo

    def accepts(self, memo: Memo, phase: str) -> bool:
        return True
