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


def with_distinct_items(sat: Satisfiability, formula: Formula) -> Formula:
    """An array formula with its ``unique`` atom decided or counted.

    Returns:
        Without the atom where there is at most one item; with "every listed value at most once" in its place where
        items have few values; else with it true, and once more as a conjunct, which marks the array's states.
    """
    f = sat.formulas
    unique = [atom for atom in formula.atoms if atom.atom[0] == "unique"]
    parts = formula.parts if formula.kind == "and" else (formula,)
    if not unique or (len(unique) == 1 and unique[0] in parts and _marked(formula, unique[0])):
        counts_or_marks = formula
    else:
        counts_or_marks = f.and_([f.replace(formula, dict.fromkeys(unique, f.true)), unique[0]])
    if not unique or counts_or_marks is f.false:
        return counts_or_marks
    mark = unique[0]
    parts = counts_or_marks.parts if counts_or_marks.kind == "and" else (counts_or_marks,)
    if any(part.kind == "atom" and part.atom[0] == "maxitems" and part.atom[1] <= 1 for part in parts):
        return f.replace(counts_or_marks, {mark: f.true})
    options = _options(parts)
    if options:
        rest = [part for part in parts if part.parts != options]
        done = [with_distinct_items(sat, f.and_([*rest, option])) for option in options]
        if not any(mark in option.atoms for option in done):
            return f.or_(done)
    values = _item_values(sat, parts)
    if values is None:
        return f.false if _too_few_values(sat, parts) else counts_or_marks
    origin = sat.expander.schemas.root
    each = (f.atom(("schema", sat.expander.schemas.values((value,), origin))) for value in values)
    return f.replace(counts_or_marks, {mark: f.and_(f.atom(("contains", child, 0, 1)) for child in each)})


def _options(parts: tuple[Formula, ...]) -> tuple[Formula, ...]:
    """The disjuncts of a conjunct that lists arrays of bounded length, as an enumeration of arrays is."""

    def is_bounded(option: Formula) -> bool:
        return option.kind == "and" and any(part.kind == "atom" and part.atom[0] == "maxitems" for part in option.parts)

    return next((part.parts for part in parts if part.kind == "or" and all(map(is_bounded, part.parts))), ())


def _too_few_values(sat: Satisfiability, parts: tuple[Formula, ...]) -> bool:
    """Whether all items are of one kind that has fewer values than items are asked for."""
    least = max((part.atom[1] for part in parts if part.kind == "atom" and part.atom[0] == "minitems"), default=0)
    demands = [part.atom[2] for part in parts if part.kind == "atom" and part.atom[:2] == ("items", 0)]
    return least > 1 and bool(demands) and sat.number_of_values(sat.formulas.and_(demands), least) < least


def _marked(formula: Formula, unique: Formula) -> bool:
    """Whether `unique` occurs in `formula` as a conjunct only."""
    return all(part is unique or unique not in part.atoms for part in formula.parts) or formula is unique


def _item_values(sat: Satisfiability, parts: tuple[Formula, ...]) -> list[Any] | None:
    """All values that items may have, if they are few; None if not."""
    atoms = [part.atom for part in parts if part.kind == "atom" and part.atom[0] in ("item", "items")]
    last = max((index + (tag == "item") for tag, index, _ in atoms), default=0)
    if last > MAX_UNIQUE_VALUES:
        return None
    most = min((part.atom[1] for part in parts if part.kind == "atom" and part.atom[0] == "maxitems"), default=last + 1)
    found: dict[Any, Any] = {}
    for position in range(min(last + 1, most)):  # the last one stands for all items after the others
        demands = [child for tag, index, child in atoms if index == position or (tag == "items" and index < position)]
        values = sat.values(sat.formulas.and_(demands))
        if values is None:
            return None
        found.update((canonical(value), value) for value in values)
    return list(found.values()) if len(found) <= MAX_UNIQUE_VALUES else None
