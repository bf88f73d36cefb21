"""Array states: what the items so far leave to satisfy, and which outcomes of the next item can still do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stcon.errors import Unsupported
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.satisfy import Vector, listed_values

if TYPE_CHECKING:
    from stcon.grammar.json_schema.builder import Edges, MachineBuilder

MAX_UNIQUE_VALUES = 64


class ArrayBuilder:
    """The array part of a `MachineBuilder`."""

    def __init__(self, builder: MachineBuilder) -> None:
        self.builder = builder
        self.sat = builder.sat
        self.residuals = builder.sat.residuals
        self.formulas = builder.formulas

    def start(self, vector: Vector) -> int:
        """The state after ``[``."""
        return self.builder.event(("array", vector), lambda: {**self._close(vector), **self._item(vector)})

    def normal(self, formula: Formula) -> Formula:
        """`formula` without ``unique`` atoms, where the items' values are listed: each value at most once."""
        return unique_as_counts(self.sat, formula)

    def _after_item(self, vector: Vector) -> int:
        return self.builder.event(("item", vector), lambda: {**self._close(vector), **self._comma(vector)})

    def _close(self, vector: Vector) -> Edges:
        for label, formula in enumerate(vector):
            if formula is not self.formulas.false and self.residuals.end_array(formula):
                return {0x5D: self.builder.accept(label)}
        return {}

    def _comma(self, vector: Vector) -> Edges:
        if self._continuations(vector) is None:
            return {}
        following = self.builder.event(("comma", vector), lambda: self._item(vector))
        return {0x2C: self.builder.after(0x2C, following)}

    def _item(self, vector: Vector) -> Edges:
        found = self._continuations(vector)
        if found is None:
            return {}
        conditions, symbol = found
        return self.builder.called(conditions, symbol)

    def _continuations(self, vector: Vector) -> tuple[Vector, int] | None:
        """The value machine of the next item and where it returns to; None if no item can come."""
        after = tuple(self.residuals.item(formula) for formula in vector)
        by_rest: dict[Vector, list[Formula]] = {}
        for decision in self.sat.decide(after):
            rest = tuple(f if self.sat.array(f) else self.formulas.false for f in decision.rest)
            if any(formula is not self.formulas.false for formula in rest):
                by_rest.setdefault(rest, []).append(decision.condition)
        if not by_rest:
            return None
        conditions = tuple(self.formulas.or_(parts) for parts in by_rest.values())
        return conditions, self.builder.machine.return_symbol([self._after_item(rest) for rest in by_rest])


def unique_as_counts(sat: Any, formula: Formula) -> Formula:
    """`formula` with each ``unique`` atom replaced by "every listed value at most once".

    Exact where every item that `formula` admits is one of finitely many listed values.

    Raises:
        Unsupported: it is not.
    """
    f = sat.formulas
    unique = [atom for atom in formula.atoms if atom.atom[0] == "unique"]
    if not unique:
        return formula
    parts = formula.parts if formula.kind == "and" else (formula,)
    if any(part.kind == "atom" and part.atom[0] == "maxitems" and part.atom[1] <= 1 for part in parts):
        return f.replace(formula, dict.fromkeys(unique, f.true))  # type: ignore[no-any-return]
    values = _item_values(parts)
    if values is None or len(values) > MAX_UNIQUE_VALUES:
        raise Unsupported(
            "uniqueItems over items that are not a short list of values",
            pointer=unique[0].atom[1],
            keyword="uniqueItems",
            advice="list the items' values with enum, or drop uniqueItems",
        )
    origin = values[0][1]
    once = f.and_(
        f.atom(("contains", f.atom(("schema", sat.expander.schemas.values((value,), origin))), 0, 1))
        for value, _ in values
    )
    return f.replace(formula, dict.fromkeys(unique, once))  # type: ignore[no-any-return]


def _item_values(parts: tuple[Formula, ...]) -> list[tuple[Any, Any]] | None:
    """The values that items may have, with the schema that lists them; None unless all items' values are listed."""
    found: dict[Any, tuple[Any, Any]] = {}
    whole = False
    for part in parts:
        if part.kind != "atom" or part.atom[0] not in ("item", "items"):  # type: ignore[index]
            continue
        _, index, child = part.atom  # type: ignore[misc]
        if child.kind == "false":
            whole = True
            continue
        conjuncts = child.parts if child.kind == "and" else (child,)
        for conjunct in conjuncts:
            listed = listed_values(conjunct) if conjunct.kind == "atom" else None
            if listed is not None:
                found.update({key: (value, conjunct.atom[1]) for key, value in listed})
                whole = whole or (part.atom[0] == "items" and index == 0)  # type: ignore[index]
                break
        else:
            if part.atom[0] == "item":  # type: ignore[index]
                return None
    return list(found.values()) if whole else None
