"""Names in any order where they are many: what follows a name is made only for the name that is read.

Each set of names still to come is an object state of its own. With a state ready for each name of each set, a document
of n names would make n² of them; here it makes one, and the trie nodes on the way to it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from stcon.grammar.json_schema.decisions import Vector
from stcon.grammar.json_schema.residual import Names
from stcon.grammar.json_schema.rows import CallRow, Edges, Row
from stcon.grammar.json_schema.satisfy import NameClass
from stcon.grammar.json_schema.strings import Words, spell
from stcon.grammar.machine import BEGIN, DEAD, SCARCE

if TYPE_CHECKING:
    from stcon.grammar.json_schema.objects import ObjectBuilder

MANY = 48


class _Open(NamedTuple):
    """The names that may come in one state of an object.

    Attributes:
        vector: of one formula, a conjunction of independent demands that counts nothing.
        names: those still to come.
        texts: every declared name as it is spelled, sorted, and those that are listed without being declared.
        follow: of each text, what the name leads to: its place in `names.remaining`, or a state (`listed`), or `DEAD`.
        listed: texts before which `follow` is a state.
        symbol: where the automaton of other names returns to, or None without one.
    """

    vector: Vector
    names: Names
    texts: list[bytes]
    follow: dict[bytes, int]
    listed: frozenset[bytes]
    symbol: int | None


class ManyNames:
    """The part of an `ObjectBuilder` for many names in any order."""

    def __init__(self, objects: ObjectBuilder) -> None:
        self._objects = objects
        self._builder = objects.builder
        self._machine = objects.machine
        self._sat = objects.sat

    def applies(self, vector: Vector, names: Names) -> bool:
        """Whether the names of a state are many, and each can be judged by itself."""
        if not names.any_order or len(names.remaining) <= MANY or self._builder.options.escapes == "any":
            return False
        parts = self._sat.independent(vector[0]) if len(vector) == 1 else None
        return parts is not None and not parts.counts

    def root(self, vector: Vector, names: Names, classes: list[tuple[NameClass, int]]) -> int | None:
        """The state after a name's opening quote; None if no name can come.

        Args:
            classes: the undeclared names, with the state after each.
        """
        parts = self._sat.independent(vector[0])
        assert parts is not None
        follow = dict.fromkeys(_spelled(names.declared), DEAD)
        for place, name in enumerate(names.remaining):
            if (text := spell(name)) is not None and self._sat.value(parts.demand(name)):
                follow[text] = place
        others, symbol, mark = self._others(names, classes, follow)
        listed = frozenset(follow).difference(_spelled(names.declared)) if symbol is None else frozenset()
        if symbol is None:
            follow = {text: target for text, target in follow.items() if target != DEAD}
        if not follow and symbol is None:
            return None
        known = _Open(vector, names, sorted(follow), follow, listed, symbol)
        return self._state(known, b"", others, mark)

    def _others(
        self, names: Names, classes: list[tuple[NameClass, int]], follow: dict[bytes, int]
    ) -> tuple[int | None, int | None, int]:
        """The automaton of undeclared names, where it returns to, and the mark; a list of names goes to `follow`."""
        if not classes:
            return None, None, 0
        vector, language = self._objects.others(tuple(group.names for group, _ in classes), names.declared)
        if isinstance(language, Words):
            follow.update({text: classes[label][1] for text, label in language.texts})
            return None, None, BEGIN | SCARCE
        symbol = self._machine.return_symbol([target for _, target in classes])
        mark = BEGIN if language.endless else BEGIN | SCARCE
        return self._builder.string(vector, counter=False), symbol, mark

    def _state(self, known: _Open, prefix: bytes, others: int | None, mark: int = 0) -> int:
        """The state after `prefix`, the beginning of a declared name, from which `others` may also go on."""
        key = ("many", known.vector, known.names, prefix)
        return self._builder.event(key, lambda: self._row(known, prefix, others), gap=False, mark=mark)

    def _row(self, known: _Open, prefix: bytes, others: int | None) -> Row:
        edges: Edges = {}
        index = bisect_left(known.texts, prefix)
        while index < len(known.texts) and known.texts[index].startswith(prefix):
            byte = known.texts[index][len(prefix)]
            longer = prefix + bytes((byte,))
            after = None if others is None else self._machine.edge(others, byte)
            edges[byte] = self._edge(known, longer, None if after == DEAD else after)
            index = bisect_left(known.texts, prefix + bytes((byte + 1,)), lo=index) if byte < 0xFF else len(known.texts)
        return edges if others is None or known.symbol is None else CallRow(others, known.symbol, edges)

    def _edge(self, known: _Open, text: bytes, others: int | None) -> int:
        place = known.follow.get(text)
        if place is None:
            if others is None and not self._leads_on(known, text):
                return DEAD
            return self._state(known, text, others)
        if place == DEAD or text in known.listed:
            return place
        name = known.names.remaining[place]
        target = self._objects.declared_target(known.vector, name, known.names.after(place))
        return DEAD if target is None else target

    def _leads_on(self, known: _Open, prefix: bytes) -> bool:
        """Whether a name that begins so may come."""
        index = bisect_left(known.texts, prefix)
        while index < len(known.texts) and known.texts[index].startswith(prefix):
            if known.follow[known.texts[index]] != DEAD:
                return True
            index += 1
        return False


def _spelled(names: tuple[str, ...]) -> list[bytes]:
    return [text for name in names if (text := spell(name)) is not None]
