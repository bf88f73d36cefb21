"""The normal form of a grammar: a pushdown that reads from the top of a stack of states, without ε and left recursion.

A *configuration* is a stack of states, top first. The top state q is replaced

* by `tail` on a byte in `mask`, for each (mask, tail) in ``reads[q]``;
* by `tail` on a lexeme, or a text of an embedded schema, likewise (``lexemes[q]``, ``embeds[q]``);
* by (entry, *tail) without reading, for each (entry, tail) in ``calls[q]``;
* by nothing, where ``accepts[q]``.

The empty stack accepts. An *entry* is where a rule begins; it never accepts, and a chain of calls from it never comes
back to it, so every run reads within a bounded number of moves. States that do nothing but accept are left out of
tails, so that a call in last place leaves nothing on the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stcon.errors import TooLarge

MAX_STATES = 100_000
MAX_EDGES = 400_000

Tail = tuple[int, ...]
ALL_BYTES = (1 << 256) - 1


class Origin(NamedTuple):
    """Where a state comes from: the rule, its alternative's number (from 1; 0: before it is chosen) and text."""

    rule: str
    alternative: int
    text: str
    place: str

    def __str__(self) -> str:
        return f"{self.rule} ::= {self.text} ({self.place})" if self.alternative else f"{self.rule} ({self.place})"


@dataclass(eq=False)
class Pushdown:
    """See the module.

    Attributes:
        origins: where each state comes from.
        start: the start rule's entry; -1 if the language is at most the empty text.
        is_nullable: whether the empty text belongs to the language.
        entries: entry → name of its rule.
        first: state → the bytes (bit set) that can come first before it accepts.
        neutral: pairs (a, b) of states such that on a stack a above b means the same as the one that stays.
    """

    reads: list[list[tuple[int, Tail]]] = field(default_factory=list)
    calls: list[list[tuple[int, Tail]]] = field(default_factory=list)
    lexemes: list[list[tuple[int, Tail]]] = field(default_factory=list)
    embeds: list[list[tuple[int, Tail]]] = field(default_factory=list)
    accepts: list[bool] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    start: int = -1
    is_nullable: bool = False
    entries: dict[int, str] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    corners: dict[int, tuple[int, int]] = field(default_factory=dict)
    num_edges: int = 0

    def new_state(self, origin: Origin) -> int:
        """A state without moves. Raises `TooLarge`."""
        if len(self.reads) >= MAX_STATES:
            raise TooLarge(
                "states of the grammar", given=len(self.reads) + 1, limit=MAX_STATES, advice="lower its repeat counts"
            )
        for table in (self.reads, self.calls, self.lexemes, self.embeds):
            table.append([])
        self.accepts.append(False)
        self.origins.append(origin)
        return len(self.reads) - 1

    def tables(self) -> tuple[list[list[tuple[int, Tail]]], ...]:
        """The four tables of moves."""
        return self.reads, self.calls, self.lexemes, self.embeds

    def moves(self, state: int) -> Iterator[tuple[int, int, Tail]]:
        """(number of the table, letter, tail) of every move of `state`."""
        for kind, table in enumerate(self.tables()):
            for letter, tail in table[state]:
                yield kind, letter, tail

    def count_edges(self, more: int) -> None:
        """Note `more` moves. Raises `TooLarge`."""
        self.num_edges += more
        if self.num_edges > MAX_EDGES:
            raise TooLarge("moves of the grammar", given=self.num_edges, limit=MAX_EDGES, advice="simplify its rules")

    def is_idle(self, state: int) -> bool:
        """Whether `state` does nothing but accept."""
        return self.accepts[state] and not any(table[state] for table in self.tables())

    def joined(self, tail: Tail, below: Tail) -> Tail:
        """`tail` on top of `below`, without what is neutral there.

        A state [N/M] (`stcon.grammar.cfg.leftrec`) reads what may come between a finished M and a finished N of which
        it is the left corner. [N/N] is closed under repetition, hence [M/M][N/M] and [N/M][N/N] are both [N/M].
        """
        if not tail or not below:
            return tail or below
        upper, lower = self.corners.get(tail[-1]), self.corners.get(below[0])
        if upper is None or lower is None or upper[0] != lower[1]:
            return tail + below
        if lower[0] == lower[1]:
            return self.joined(tail, below[1:]) if len(below) > 1 else tail
        if upper[0] == upper[1]:
            return self.joined(tail[:-1], below)
        return tail + below
