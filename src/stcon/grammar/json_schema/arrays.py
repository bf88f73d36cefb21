"""Array states: what the items so far leave to satisfy, and which outcomes of the next item can still do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stcon.grammar.json_schema.decisions import Vector
from stcon.grammar.machine import BEGIN, END, SCOPE

if TYPE_CHECKING:
    from stcon.grammar.json_schema.builder import MachineBuilder
    from stcon.grammar.json_schema.rows import Edges


class ArrayBuilder:
    """The array part of a `MachineBuilder`."""

    def __init__(self, builder: MachineBuilder) -> None:
        self.builder = builder
        self.sat = builder.sat
        self.residuals = builder.sat.residuals
        self.formulas = builder.formulas
        self.layout = builder.layout

    def start(self, vector: Vector, depth: int) -> int:
        """The state after ``[``, for an array at `depth`."""
        mark = SCOPE | BEGIN if _distinct(vector) else 0
        return self.builder.event(("array", vector, depth), lambda: self._first(vector, depth), mark=mark)

    def _first(self, vector: Vector, depth: int) -> Edges:
        edges = self._close(vector, b"")
        if self._continuations(vector, depth) is not None:
            edges.update(self._element(self.layout.first(depth), vector, depth))
        return edges

    def _element(self, text: bytes, vector: Vector, depth: int) -> Edges:
        key = ("element", vector, depth)
        mark = BEGIN if _distinct(vector) else 0
        return self.builder.led(text, key, lambda: self._item(vector, depth), mark=mark)

    def _after_item(self, vector: Vector, depth: int) -> int:
        return self.builder.event(
            ("item", vector, depth),
            lambda: {**self._close(vector, self.layout.last(depth)), **self._comma(vector, depth)},
            mark=END if _distinct(vector) else 0,
        )

    def _close(self, vector: Vector, text: bytes) -> Edges:
        for label, formula in enumerate(vector):
            if formula is not self.formulas.false and self.residuals.end_array(formula):
                return self.builder.closed(0x5D, label, text)
        return {}

    def _comma(self, vector: Vector, depth: int) -> Edges:
        if self._continuations(vector, depth) is None:
            return {}
        mark = BEGIN if _distinct(vector) else 0
        element = self.builder.event(("element", vector, depth), lambda: self._item(vector, depth), mark=mark)
        return {0x2C: self.builder.path(self.layout.next(depth), element)}

    def _item(self, vector: Vector, depth: int) -> Edges:
        found = self._continuations(vector, depth)
        assert found is not None, "an item where none can come"
        conditions, symbol = found
        return self.builder.called(conditions, symbol, self.layout.deeper(depth))

    def _continuations(self, vector: Vector, depth: int) -> tuple[Vector, int] | None:
        """The value machine of the next item and where it returns to; None if no item can come."""
        after = tuple(self.residuals.item(formula) for formula in vector)
        by_rest = self.sat.decisions.distinct(after, self._possible)
        if not by_rest:
            return None
        conditions = tuple(self.formulas.or_(parts) for parts in by_rest.values())
        return conditions, self.builder.machine.return_symbol([self._after_item(rest, depth) for rest in by_rest])

    def _possible(self, vector: Vector) -> Vector:
        return tuple(f if self.sat.array(f) else self.formulas.false for f in vector)


def _distinct(vector: Vector) -> bool:
    """Whether no two items may be equal (an atom that stays in the residual to the end)."""
    return any(atom.atom[0] == "unique" for formula in vector for atom in formula.atoms)
