"""The one form that every front end gives: rules over patterns, references, terminals and embedded schemas.

A *pattern* is a regular expression over code points (`stcon.automata.regex.Node`). Byte-level grammars (GBNF, EBNF)
are made of patterns and references; there, any split of the text will do. Lark grammars are made of terminals and
references; there, the text is first cut into lexemes, each as long as can be (`Terminal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from stcon.automata import regex
from stcon.errors import InvalidGrammar, TooLarge, Unsupported

MAX_NESTING = 100
MAX_TEXT = 2_000_000
MAX_RULES = 20_000


class Place(NamedTuple):
    """A position in a grammar's text, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text that a regular expression matches."""

    node: regex.Node


@dataclass(frozen=True, slots=True)
class Reference:
    """A text of another rule."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Lexeme:
    """One lexeme of a terminal."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Embedded:
    """A JSON text that satisfies a schema (an index into `Source.schemas`)."""

    index: int
    place: Place


@dataclass(frozen=True, slots=True)
class Free:
    """Text in which none of some triggers occurs; or, with bodies, up to and with the first, then that one's body.

    Attributes:
        triggers: none empty.
        bodies: as many, or none.
    """

    triggers: tuple[str, ...]
    bodies: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parts in order; none: the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of the options."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The body `low` to `high` times (None: without end)."""

    body: Expression
    low: int
    high: int | None


Expression = Pattern | Reference | Lexeme | Embedded | Free | Sequence | Choice | Repetition

EMPTY = Sequence(())


class Alternative(NamedTuple):
    """One alternative of a rule, with what it says and where."""

    body: Expression
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its alternatives, in the order written."""

    name: str
    alternatives: tuple[Alternative, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal of a lexer.

    Attributes:
        node: what it matches.
        priority: among terminals that match the same lexeme, those of the highest priority count.
    """

    name: str
    node: regex.Node
    priority: int
    place: Place


@dataclass
class Source:
    """A grammar as read.

    Attributes:
        start: the name of the start rule.
        rules: by name.
        terminals: by name; none in a byte-level grammar.
        ignored: names of the terminals that may stand between lexemes.
        schemas: of `Embedded`.
    """

    start: str
    rules: dict[str, Rule] = field(default_factory=dict)
    terminals: dict[str, Terminal] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    schemas: list[Mapping[str, Any] | bool] = field(default_factory=list)


def invalid(message: str, place: Place) -> NoReturn:
    """Raise `InvalidGrammar` at `place`."""
    raise InvalidGrammar(f"{place}: {message}")


def unsupported(message: str, place: Place, advice: str | None = None) -> NoReturn:
    """Raise `Unsupported` at `place`."""
    raise Unsupported(f"{place}: {message}", advice=advice)


def check_size(text: str) -> None:
    """Raise `TooLarge` where a grammar's text is."""
    if len(text) > MAX_TEXT:
        raise TooLarge("characters of the grammar", given=len(text), limit=MAX_TEXT)


# ------------------------------------------------------------------------------------------------- smart constructors


def sequence(parts: list[Expression]) -> Expression:
    """`parts` in order; neighbouring patterns become one."""
    merged: list[Expression] = []
    for part in parts:
        if isinstance(part, Pattern) and merged and isinstance(merged[-1], Pattern):
            merged[-1] = Pattern(_joined(merged[-1].node, part.node))
        else:
            merged.append(part)
    return merged[0] if len(merged) == 1 else Sequence(tuple(merged))


def choice(options: list[Expression]) -> Expression:
    """Any of `options`; patterns become one."""
    if len(options) == 1:
        return options[0]
    nodes = [node for option in options if (node := as_node(option)) is not None]
    if len(nodes) == len(options):
        return Pattern(regex.Alternation(tuple(nodes)))
    return Choice(tuple(options))


def repetition(body: Expression, low: int, high: int | None) -> Expression:
    """`body` repeated; of a pattern it is a pattern."""
    node = as_node(body)
    return Repetition(body, low, high) if node is None else Pattern(regex.Repeat(node, low, high))


def literal(text: str) -> Pattern:
    """Exactly `text`."""
    return Pattern(regex.concatenation([regex.Characters(((ord(c), ord(c) + 1),)) for c in text]))


def as_node(expression: Expression) -> regex.Node | None:
    """The regular expression of a pattern, or of the empty text; None of anything else."""
    if isinstance(expression, Pattern):
        return expression.node
    return regex.EMPTY if expression == EMPTY else None


def _joined(left: regex.Node, right: regex.Node) -> regex.Node:
    parts = left.parts if isinstance(left, regex.Concatenation) else (left,)
    more = right.parts if isinstance(right, regex.Concatenation) else (right,)
    return regex.Concatenation((*parts, *more))
