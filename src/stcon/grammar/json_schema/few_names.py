"""Names that can run out: objects that need more names than there are.

Where an object's names come from a finite set (``propertyNames``) and their number matters, a search that takes one
undeclared name after another would count on names that were used before. Few names are therefore declared one by one,
and a number that no object reaches is false. Conjunctions are counted as they are (`Satisfiability.object`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stcon.errors import TooLarge, Unsupported
from stcon.grammar.json_schema.formula import Formula

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stcon.grammar.json_schema.satisfy import Satisfiability

MAX_DECLARED = 64


def few_names(sat: Satisfiability, formula: Formula, declared: Iterable[str]) -> list[str]:
    """The names that may come beside `declared`, if `formula` counts names and they are few enough to run out."""
    allowed, most = _allowed(sat, formula, declared), _most_asked(formula)
    if allowed is None or most == 0 or _number(sat, allowed, most) >= most:
        return []
    return sat.strings.words(allowed, MAX_DECLARED) or []


def with_possible_counts(sat: Satisfiability, formula: Formula) -> Formula:
    """An object formula without the numbers of names that cannot be reached, or might not be.

    The latter where names run out and are too many to declare: then objects of so many names are given up, which is
    narrower.
    """
    f = sat.formulas
    if sat.independent(formula) is not None or _most_asked(formula) == 0:
        return formula
    declared = sat.undeclared(formula).declared
    allowed = _allowed(sat, formula, declared)
    if allowed is None:
        return formula
    others = _number(sat, allowed, _most_asked(formula))
    counts = [atom for atom in formula.atoms if atom.atom[0] == "minprops"]
    beyond = {atom: f.false for atom in counts if atom.atom[1] > others + len(declared)}
    doubtful = [atom.atom[1] for atom in counts if others < atom.atom[1] and atom not in beyond] if others else []
    if doubtful:
        beyond = {atom: f.false for atom in counts if atom.atom[1] >= min(doubtful)}
        return f.and_([f.replace(formula, beyond), f.atom(("maxprops", min(doubtful) - 1))])
    return f.replace(formula, beyond)


def _most_asked(formula: Formula) -> int:
    return max((atom.atom[1] for atom in formula.atoms if atom.atom[0] == "minprops"), default=0)


def _allowed(sat: Satisfiability, formula: Formula, declared: Iterable[str]) -> Formula | None:
    """The undeclared names that may come at all, as a string formula; None where all may."""
    f = sat.formulas
    parts = formula.parts if formula.kind == "and" else (formula,)
    forbidden = [part.atom[1] for part in parts if part.atom[:1] == ("each",) and part.atom[2] is f.false]
    if not forbidden:
        return None
    return f.and_([*map(f.not_, forbidden), f.not_(f.atom(("strings", frozenset(declared))))])


def _number(sat: Satisfiability, names: Formula, cap: int) -> int:
    """How many names there are, at most `cap`; `cap` where that is not found out."""
    try:
        return sat.strings.count(names, cap)
    except (TooLarge, Unsupported):
        if sat.effort.strict:
            raise
        return cap
