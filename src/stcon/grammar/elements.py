"""Elements of a collection under a history constraint: when two are equal, and what a text begun can still equal.

**Values** are compared as JSON Schema does: numbers by value however spelled, objects whatever their order. A number
whose exponent has more than `MAX_EXPONENT_DIGITS` digits equals every other such number (refused, not compared).

**Keys** order elements so that "can this text still become equal to an earlier element" is a search for a prefix.

Source: JSON Schema 2020-12 core, 4.2.2 (equality).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

MAX_EXPONENT_DIGITS = 18

_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_SPACES = re.compile(rb'("(?:[^"\\]|\\.)*"?)|[ \t\n\r]+', re.DOTALL)
_MANTISSA = re.compile(rb"-?([0-9]*)(?:\.([0-9]*))?")
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(_HIGH + _LOW + rb"|\\u[0-9a-fA-F]{4}|\\[^u]", re.DOTALL)
_WHOLE_CHARACTERS = re.compile(
    rb"(?:[^\\]|\\[^u]|" + _HIGH + _LOW + rb"|(?!" + _HIGH + rb")\\u[0-9a-fA-F]{4})*", re.DOTALL
)


class _Run(NamedTuple):
    """Some elements: their values, and their keys in order."""

    values: frozenset[Hashable]
    keys: tuple[bytes, ...]


class Elements:
    """A set of elements that grows one by one, immutable. Cost: O(log n) to ask, amortised O(log n) to add one."""

    __slots__ = ("_next", "_runs", "_size")

    def __init__(self, runs: tuple[_Run, ...] = ()) -> None:
        self._runs = runs
        self._size = sum(len(run.keys) for run in runs)
        self._next: tuple[Hashable, Elements] | None = None

    def __len__(self) -> int:
        return self._size

    def __contains__(self, value: Hashable) -> bool:
        return any(value in run.values for run in self._runs)

    def values(self) -> frozenset[Hashable]:
        """The values of all. Cost: O(n)."""
        return frozenset().union(*(run.values for run in self._runs))

    def added(self, value: Hashable, key: bytes) -> Elements:
        """With one more element; the same set again if asked the same again.

        Runs are merged as they reach equal lengths, so there are O(log n).
        """
        if self._next is not None and self._next[0] == value:
            return self._next[1]
        runs = list(self._runs)
        last = _Run(frozenset((value,)), (key,))
        while runs and len(runs[-1].keys) <= len(last.keys):
            other = runs.pop()
            last = _Run(other.values | last.values, tuple(sorted(other.keys + last.keys)))
        following = Elements((*runs, last))
        self._next = (value, following)
        return following

    def starting(self, prefix: bytes) -> Iterator[bytes]:
        """The keys that start with `prefix`."""
        for run in self._runs:
            for index in range(bisect_left(run.keys, prefix), len(run.keys)):
                if not run.keys[index].startswith(prefix):
                    break
                yield run.keys[index]

    def next_bytes(self, prefix: bytes) -> set[int]:
        """The bytes that follow `prefix` in some key. Cost: O(log n) a byte and run."""
        found: set[int] = set()
        for run in self._runs:
            index = bisect_left(run.keys, prefix)
            while index < len(run.keys) and run.keys[index].startswith(prefix):
                if len(run.keys[index]) == len(prefix):
                    index += 1
                    continue
                byte = run.keys[index][len(prefix)]
                found.add(byte)
                if byte == 0xFF:
                    break
                index = bisect_left(run.keys, prefix + bytes((byte + 1,)), lo=index)
        return found


NO_ELEMENTS = Elements()


def value_of(text: bytes) -> Hashable:
    """The value of a whole JSON text, equal for equal values. Cost: O(len(text))."""
    return _hashable(json.loads(text, parse_int=_number, parse_float=_number))


def key_of(text: bytes) -> bytes:
    """The key of an element whose text, or its beginning, is `text`.

    A string's is ``"`` and its characters in UTF-8, however escaped; a number's is ``#`` and its digits without zeros
    at either end; any other's is its text without whitespace. If a longer text can be equal to an element, then the
    key of its beginning is a prefix of that element's key, except that containers may be equal and spelled otherwise.
    """
    if text[:1] == b'"':
        return b'"' + unescaped(text[1:-1] if _is_closed(text) else text[1:])
    if text[:1].isdigit() or text[:1] == b"-":
        mantissa = _MANTISSA.match(text)
        assert mantissa is not None, "every text matches"
        return b"#" + (mantissa[1] + (mantissa[2] or b"")).strip(b"0")
    return text if text.isalpha() else _SPACES.sub(lambda found: found[1] or b"", text)


def is_cut(text: bytes) -> bool:
    """Whether `text`, the beginning of a string, ends inside an escape."""
    return b"\\" in text and len(_whole_characters(text[1:])) < len(text) - 1


def unescaped(body: bytes) -> bytes:
    """The characters that the inside of a string spells, in UTF-8; an escape cut short at its end is left out."""
    return _ESCAPE.sub(_character, _whole_characters(body)) if b"\\" in body else body


def _is_closed(text: bytes) -> bool:
    """Whether the string that begins `text` ends it."""
    body = text[1:-1]
    return len(text) > 1 and text[-1:] == b'"' and (len(body) - len(body.rstrip(b"\\"))) % 2 == 0


def _whole_characters(body: bytes) -> bytes:
    whole = _WHOLE_CHARACTERS.match(body)
    assert whole is not None, "every text matches"
    return whole[0]


def _character(escape: re.Match[bytes]) -> bytes:
    character: str = json.loads(b'"' + escape[0] + b'"')
    return character.encode("utf-8", "surrogatepass")


def _number(text: str) -> Hashable:
    parts = _NUMBER.fullmatch(text)
    assert parts is not None, "a machine of JSON reads JSON numbers"
    sign, whole, fraction, exponent_sign, exponent = (part or "" for part in parts.groups())
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return _Number("", "", 0)
    exponent = exponent.lstrip("0")
    if len(exponent) > MAX_EXPONENT_DIGITS:
        return _Number("", "huge", 0)
    shift = int(exponent_sign + (exponent or "0"))
    return _Number(sign, significant, shift - len(fraction) + len(digits) - len(significant))


class _Number(NamedTuple):
    sign: str
    digits: str
    exponent: int


def _hashable(value: Any) -> Hashable:
    match value:
        case _Number() | None:
            return value
        case bool() | str():
            return (type(value).__name__, value)
        case list():
            return ("list", *map(_hashable, value))
    return ("dict", frozenset((name, _hashable(part)) for name, part in value.items()))
