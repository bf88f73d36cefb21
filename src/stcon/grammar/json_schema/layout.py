"""Where whitespace stands: between the tokens of a JSON text, by a fixed layout or as the writer likes.

A *fixed* layout (compact, json, pretty) prescribes the bytes before the first member of a container, after a comma,
after a colon and before the closing bracket of a container that is not empty. A *free* one (flexible, a pattern) lets
whitespace stand in every gap: a bounded run, or a match of the caller's pattern.

Source: RFC 8259, section 2 (``ws``); `json.dumps` for the spellings of "json" and "pretty".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stcon.automata import ByteDfa, compile_pattern, encode_utf8
from stcon.automata.operations import difference, intersection, is_empty
from stcon.errors import InvalidOption

Whitespace = Literal["compact", "json", "pretty", "flexible"]

MAX_WHITESPACE = 64
MAX_INDENT = 16
MAX_RUN = 1_000
SPACES = b" \n\r\t"


@dataclass(frozen=True, eq=False)
class Layout:
    """How the gaps of a JSON text are filled.

    Attributes:
        separator: the bytes after a colon, and after a comma where `indent` is None.
        indent: spaces a level for a line a member, or None for one line.
        longest_run: in every gap, up to this many whitespace characters (0: none but the prescribed ones).
        gap: in every gap, a text of this automaton over whitespace, a bounded run; None without a pattern.
    """

    separator: bytes = b""
    indent: int | None = None
    longest_run: int = 0
    gap: ByteDfa | None = None

    @classmethod
    def of(
        cls, whitespace: Whitespace, *, indent: int = 2, pattern: str | None = None, longest_run: int = MAX_WHITESPACE
    ) -> Layout:
        """The layout of the public options; a pattern takes the place of the named style.

        Raises:
            InvalidOption: an option out of its range, or a pattern that matches more than whitespace.
        """
        _require(_is_integer(indent, 0, MAX_INDENT), "indent", indent, f"an integer from 0 to {MAX_INDENT}")
        _require(
            _is_integer(longest_run, 1, MAX_RUN), "max_whitespace", longest_run, f"an integer from 1 to {MAX_RUN:,}"
        )
        if pattern is not None:
            _require(isinstance(pattern, str), "whitespace_pattern", pattern, "a regular expression")
            return cls(gap=_gap(pattern, longest_run))
        match whitespace:
            case "compact":
                return cls()
            case "json":
                return cls(separator=b" ")
            case "pretty":
                return cls(separator=b" ", indent=indent)
            case "flexible":
                return cls(longest_run=longest_run)
        raise InvalidOption(f"whitespace must be compact, json, pretty or flexible, not {whitespace!r}")

    @property
    def free(self) -> bool:
        """Whether whitespace in the gaps is the writer's choice."""
        return self.longest_run > 0 or self.gap is not None

    def deeper(self, depth: int) -> int:
        """The depth of the members of a container at `depth`; always 0 where depth does not matter."""
        return 0 if self.indent is None else depth + 1

    def first(self, depth: int) -> bytes:
        """Before the first member of a container at `depth`."""
        return b"" if self.indent is None else self._line(depth + 1)

    def next(self, depth: int) -> bytes:
        """After a comma in a container at `depth`."""
        return self.separator if self.indent is None else self._line(depth + 1)

    def last(self, depth: int) -> bytes:
        """Before the bracket that closes a container at `depth` which has members."""
        return b"" if self.indent is None else self._line(depth)

    def _line(self, depth: int) -> bytes:
        assert self.indent is not None
        return b"\n" + b" " * (self.indent * depth)


def _gap(pattern: str, longest_run: int) -> ByteDfa:
    """The gaps that match `pattern`, of JSON's whitespace and at most `longest_run` characters.

    Other whitespace that ``\\s`` matches is none in JSON; anything else in a gap is a mistake of the caller's.
    """
    characters = compile_pattern(pattern)
    if not is_empty(difference(characters, compile_pattern(r"\s*"))):
        raise InvalidOption(f"whitespace_pattern {pattern!r} matches more than whitespace")
    bounded = intersection(characters, compile_pattern(rf"[ \n\r\t]{{0,{longest_run}}}"))
    if is_empty(bounded):
        raise InvalidOption(f"whitespace_pattern {pattern!r} matches no gap of at most {longest_run} JSON whitespaces")
    return encode_utf8(bounded)


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _require(condition: bool, option: str, given: object, expected: str) -> None:
    if not condition:
        raise InvalidOption(f"{option} must be {expected}, not {given!r}")
