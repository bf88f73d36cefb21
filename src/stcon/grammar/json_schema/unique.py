"""uniqueItems: counted where the values of items are few and listed, else left to the history constraint.

A machine cannot remember items. Where `unique` is one demand of several possible ones, or its negation is, texts with
equal items are given up: what remains is narrower, and in it the demand simply holds (docs/departures.md).

Source: JSON Schema validation, section 6.4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.schema import canonical

if TYPE_CHECKING:
    from stcon.grammar.json_schema.satisfy import Satisfiability

MAX_UNIQUE_VALUES = 64
MAX_NEEDED_VALUES = 8
MAX_OPTIONS = 40


def with_distinct_items(sat: Satisfiability, formula: Formula) -> Formula:
    """An array formula with its ``unique`` atom decided or counted.

    Returns:
        Without the atom where there is at most one item; with "every listed value at most once" in its place where
        items have few values; else with it true, and once more as a conjunct, which marks the array's states. False
        where more items are asked for than have values.
    """
    return _Distinct(sat).of(formula)


class _Distinct:
    """One call of `with_distinct_items`: alternatives are looked at one by one, `MAX_OPTIONS` at most."""

    def __init__(self, sat: Satisfiability) -> None:
        self.sat = sat
        self.formulas = sat.formulas
        self.left = MAX_OPTIONS

    def of(self, formula: Formula) -> Formula:
        f = self.formulas
        unique = [atom for atom in formula.atoms if atom.atom[0] == "unique"]
        parts = _conjuncts(formula)
        if not unique:
            return formula
        mark = unique[0]
        if len(unique) > 1 or mark not in parts or not _marked(formula, mark):
            formula = f.and_([f.replace(formula, dict.fromkeys(unique, f.true)), mark])
            parts = _conjuncts(formula)
        if formula is f.false:
            return formula
        if any(part.kind == "atom" and part.atom[0] == "maxitems" and part.atom[1] <= 1 for part in parts):
            return f.replace(formula, {mark: f.true})
        choice = next((part for part in parts if part.kind in ("or", "one")), None)
        if choice is not None and len(choice.parts) <= self.left:
            self.left -= len(choice.parts)
            return self._one_by_one(mark, [part for part in parts if part is not choice], self._options(choice))
        return self._counted(formula, parts, mark)

    def _options(self, choice: Formula) -> list[Formula]:
        if choice.kind == "or":
            return list(choice.parts)
        f = self.formulas
        return [f.and_(part if part is one else f.not_(part) for part in choice.parts) for one in choice.parts]

    def _one_by_one(self, mark: Formula, rest: list[Formula], options: list[Formula]) -> Formula:
        """Alternatives that cannot be are dropped; the mark stays where one of the others needs it."""
        f = self.formulas
        done = [self.of(f.and_([*rest, option])) for option in options]
        if not any(mark in option.atoms for option in done):
            return f.or_(done)
        return f.and_([f.or_(f.replace(option, {mark: f.true}) for option in done), mark])

    def _counted(self, formula: Formula, parts: tuple[Formula, ...], mark: Formula) -> Formula:
        f, sat = self.formulas, self.sat
        values = _item_values(sat, parts)
        if _too_few_values(sat, parts, values):
            return f.false
        if values is None:
            return f.and_([formula, self._at_most_once(_needed_values(sat, parts))])
        return f.replace(formula, {mark: self._at_most_once(values)})

    def _at_most_once(self, values: list[Any]) -> Formula:
        f, schemas = self.formulas, self.sat.expander.schemas
        each = (f.atom(("schema", schemas.values((value,), schemas.root))) for value in values)
        return f.and_(f.atom(("contains", child, 0, 1)) for child in each)


def _conjuncts(formula: Formula) -> tuple[Formula, ...]:
    return formula.parts if formula.kind == "and" else (formula,)


def _too_few_values(sat: Satisfiability, parts: tuple[Formula, ...], values: list[Any] | None) -> bool:
    """Whether more items are asked for than have values: of all kinds, or of a kind that ``contains`` speaks of."""
    every = [part.atom[2] for part in parts if part.kind == "atom" and part.atom[:2] == ("items", 0)]
    for part in parts:
        if part.kind == "atom" and part.atom[0] == "contains" and part.atom[2] > 1:
            _, child, wanted, _ = part.atom
            if sat.values.number(sat.formulas.and_([*every, child]), wanted) < wanted:
                return True
    least = max((part.atom[1] for part in parts if part.kind == "atom" and part.atom[0] == "minitems"), default=0)
    if 1 < least <= MAX_UNIQUE_VALUES:
        values = _item_values(sat, (*parts, sat.formulas.atom(("maxitems", least))))  # those of the first items
    if values is not None and len(values) < least:
        return True
    return least > 1 and bool(every) and sat.values.number(sat.formulas.and_(every), least) < least


def _marked(formula: Formula, unique: Formula) -> bool:
    """Whether `unique` occurs in `formula` as a conjunct only."""
    return all(part is unique or unique not in part.atoms for part in formula.parts) or formula is unique


def _needed_values(sat: Satisfiability, parts: tuple[Formula, ...]) -> list[Any]:
    """The values of the items that must come and have few: which one of them is written decides which is left."""
    least = max((part.atom[1] for part in parts if part.kind == "atom" and part.atom[0] == "minitems"), default=0)
    atoms = [part.atom for part in parts if part.kind == "atom" and part.atom[0] in ("item", "items")]
    found: dict[Any, Any] = {}
    for position in range(min(least, MAX_UNIQUE_VALUES)):
        values = sat.values.listed(_demand(sat, atoms, position))
        if values is not None and len(values) <= MAX_NEEDED_VALUES:
            found.update((canonical(value), value) for value in values)
    return list(found.values()) if len(found) <= MAX_NEEDED_VALUES else []


def _demand(sat: Satisfiability, atoms: list[Any], position: int) -> Formula:
    """The value formula of the item at `position`."""
    return sat.formulas.and_(
        child for tag, index, child in atoms if index == position or (tag == "items" and index < position)
    )


def _item_values(sat: Satisfiability, parts: tuple[Formula, ...]) -> list[Any] | None:
    """All values that items may have, if they are few; None if not."""
    atoms = [part.atom for part in parts if part.kind == "atom" and part.atom[0] in ("item", "items")]
    last = max((index + (tag == "item") for tag, index, _ in atoms), default=0)
    if last > MAX_UNIQUE_VALUES:
        return None
    most = min((part.atom[1] for part in parts if part.kind == "atom" and part.atom[0] == "maxitems"), default=last + 1)
    found: dict[Any, Any] = {}
    for position in range(min(last + 1, most)):  # the last one stands for all items after the others
        values = sat.values.listed(_demand(sat, atoms, position))
        if values is None:
            return None
        found.update((canonical(value), value) for value in values)
    return list(found.values()) if len(found) <= MAX_UNIQUE_VALUES else None
