"""What the front ends share: a place in a text, spaces, escapes and counts."""

from __future__ import annotations

from bisect import bisect_right

from stcon.errors import TooLarge
from stcon.grammar.cfg.syntax import Place, invalid

MAX_COUNT = 1_000_000
_ESCAPES = {"n": 10, "t": 9, "r": 13, "\\": 92, '"': 34, "[": 91, "]": 93}
_MORE_ESCAPES = {"a": 7, "b": 8, "f": 12, "v": 11, "0": 0, "e": 27}
_LAST_CODE_POINT = 0x10FFFF


class Reader:
    """A text and a place in it."""

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.at = 0
        self._lines = [0, *(index + 1 for index, c in enumerate(self.text) if c == "\n")]

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.text)

    @property
    def place(self) -> Place:
        """The present position."""
        return self.place_of(self.at)

    def place_of(self, at: int) -> Place:
        """The position of offset `at`."""
        line = bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)

    def peek(self, text: str) -> bool:
        """Whether `text` comes next."""
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        """Read `text` if it comes next."""
        if not self.peek(text):
            return False
        self.at += len(text)
        return True

    def skip(self, *, newlines: bool, comments: bool = True) -> None:
        """Read spaces, and ``#`` up to the end of its line; with `newlines` across lines."""
        while not self.at_end:
            character = self.text[self.at]
            if character == "#" and comments:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif character in " \t" or (newlines and character in "\r\n"):
                self.at += 1
            else:
                return

    def quantifier(self) -> tuple[int, int | None] | None:
        """Read ``* + ?`` or ``{m,n}``; None where none of them stands."""
        for text, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(text):
                return bounds
        if not self.peek("{"):
            return None
        place = self.place
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, self.at)].partition(",")
        low, high = low.strip(), high.strip()
        if (
            end < 0
            or not (low or (comma and high))
            or not all(not c or (c.isascii() and c.isdigit()) for c in (low, high))
        ):
            invalid("expected {m}, {m,}, {,n} or {m,n}", place)
        self.at = end + 1
        least = self.count(low or "0")
        return least, (self.count(high) if high else None) if comma else least

    def count(self, digits: str) -> int:
        """A repeat count. Raises `TooLarge`."""
        if len(digits) > 7 or int(digits) > MAX_COUNT:
            raise TooLarge("repeat count of the grammar", given=float(digits[:300]), limit=MAX_COUNT)
        return int(digits)

    def escape(self, more: str, *, braces: bool) -> int:
        """Read an escape; `more` are letters beyond the common ones, `braces` allows ``\\u{…}``."""
        place = self.place
        self.at += 1
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter and letter in more:
            return _MORE_ESCAPES.get(letter, ord(letter))
        if braces and letter == "u" and self.take("{"):
            end = self.text.find("}", self.at)
            return self._hexadecimal(max(end, self.at) - self.at, place, skip=1)
        if letter in ("x", "u", "U"):
            return self._hexadecimal({"x": 2, "u": 4, "U": 8}[letter], place)
        invalid(f"unknown escape \\{letter}", place)

    def _hexadecimal(self, length: int, place: Place, skip: int = 0) -> int:
        digits = self.text[self.at : self.at + length]
        self.at += length + skip
        if not digits or len(digits) < length or any(c not in "0123456789abcdefABCDEF" for c in digits):
            invalid("expected hexadecimal digits", place)
        code = int(digits[:16], 16)
        if code > _LAST_CODE_POINT:
            invalid("no such code point", place)
        return code
