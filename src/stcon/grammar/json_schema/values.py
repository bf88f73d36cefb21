"""The values of a value formula, where they are few: what `uniqueItems` can run out of.

Scalars are listed from their automata, arrays and objects by walking their residual formulas. Two texts of one value
(``1`` and ``1.0``, two orders of names) are listed once.

The list may hold more than the values (nested ``uniqueItems`` is not looked at), never less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stcon.errors import TooLarge, Unsupported
from stcon.grammar.json_schema import numbers
from stcon.grammar.json_schema.atoms import TYPES, JsonType
from stcon.grammar.json_schema.decisions import listed_values
from stcon.grammar.json_schema.evaluated import closed_reading
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.instances import satisfies
from stcon.grammar.json_schema.residual import Names
from stcon.grammar.json_schema.schema import canonical
from stcon.grammar.json_schema.strings import spell

if TYPE_CHECKING:
    from stcon.grammar.json_schema.satisfy import Satisfiability

MAX_LISTED = 16
MAX_NUMBERED = 200
MAX_NAMES = 16


class _TooMany(Exception):
    """The values are too many to list."""


class Values:
    """The values of the formulas of one compilation.

    Args:
        sat: answers about them.
        closed: whether objects take the names they list only.
    """

    def __init__(self, sat: Satisfiability, *, closed: bool) -> None:
        self._sat = sat
        self._closed = closed
        self._formulas = sat.formulas
        self._known: dict[tuple[Formula, int], list[Any] | None] = {}
        self._open: set[Formula] = set()

    def listed(self, formula: Formula, most: int = MAX_LISTED) -> list[Any] | None:
        """All values that satisfy a value formula, if they are enumerated or at most `most`; None if not."""
        key = (formula, most)
        if key in self._known:
            return self._known[key]
        effort = self._sat.effort
        if formula in self._open:  # asked below itself, by a recursive schema
            effort.doubts += 1
            return None
        doubts = effort.doubts
        self._open.add(formula)
        found: list[Any] | None = None
        try:
            found = self._list(formula, most)
        except (_TooMany, TooLarge):
            pass
        except Unsupported:
            if effort.strict:
                raise
        finally:
            self._open.discard(formula)
        if effort.doubts == doubts:
            self._known[key] = found
        return found

    def number(self, formula: Formula, cap: int) -> int:
        """How many values satisfy a value formula, at most `cap`; no fewer than there are."""
        listed = self.listed(formula, min(max(cap, MAX_LISTED), MAX_NUMBERED))
        if listed is not None:
            return min(len(listed), cap)
        local = {kind: self._sat.expander.expand(formula, kind) for kind in TYPES}
        if any(local[kind] is not self._formulas.false for kind in ("array", "object")):
            return cap
        found = int(local["null"] is self._formulas.true)
        if local["boolean"] is not self._formulas.false:
            found += 2 if local["boolean"] is self._formulas.true else 1
        try:
            if found < cap and local["number"] is not self._formulas.false:
                found += numbers.count(self._formulas, local["number"], cap)
            if found < cap and local["string"] is not self._formulas.false:
                found += self._sat.strings.count(local["string"], cap)
        except (TooLarge, Unsupported):
            if self._sat.effort.strict:
                raise
            return cap
        return min(found, cap)

    def _list(self, formula: Formula, most: int) -> list[Any]:
        for part in formula.parts if formula.kind == "and" else (formula,):
            named = listed_values(part) if part.kind == "atom" else None
            if named is not None:
                return [value for _, value in named if satisfies(self._sat.expander, formula, value)]
        local = {kind: self._sat.expander.expand(formula, kind) for kind in TYPES}
        if any(local[kind] is self._formulas.true for kind in ("number", "string", "array", "object")):
            raise _TooMany
        found: list[Any] = [None] if local["null"] is self._formulas.true else []
        found += [value for value in (False, True) if self._is_boolean(local["boolean"], value)]
        found += self._scalars(formula, "string", local["string"], most)
        found += self._scalars(formula, "number", local["number"], most)
        if self._sat.of_type("array", local["array"]):
            self._arrays(local["array"], [], found, most)
        if self._sat.of_type("object", local["object"]):
            self._objects(self._read(formula, local["object"]), found, most)
        return list({canonical(value): value for value in found}.values())

    def _is_boolean(self, local: Formula, value: bool) -> bool:
        f = self._formulas
        return f.replace(local, {f.atom(("true",)): f.constant(value)}) is f.true

    def _scalars(self, formula: Formula, kind: JsonType, local: Formula, most: int) -> list[Any]:
        f = self._formulas
        if local is f.false or not self._sat.of_type(kind, local):
            return []
        tag = "strings" if kind == "string" else "numbers"
        enumerated = {atom for atom in local.atoms if atom.atom[0] == tag}
        if f.replace(local, dict.fromkeys(enumerated, f.false)) is f.false:
            candidates = sorted({value for atom in enumerated for value in atom.atom[1]})
            return [value for value in candidates if satisfies(self._sat.expander, formula, value)]
        if kind == "string":
            found: list[Any] | None = self._sat.strings.words(local, most)
        else:
            found = numbers.values(f, local, most)
        if found is None:
            raise _TooMany
        return found

    def _values(self, condition: Formula, most: int) -> list[Any]:
        found = self.listed(condition, most)
        if found is None:
            raise _TooMany
        return found

    def _arrays(self, formula: Formula, prefix: list[Any], found: list[Any], most: int) -> None:
        if self._sat.residuals.end_array(formula):
            found.append(prefix)
        if len(found) > most or len(prefix) > most:
            raise _TooMany
        for condition, (rest,) in self._sat.decisions.decide((self._sat.residuals.item(formula),)):
            if self._sat.array(rest):
                for value in self._values(condition, most):
                    self._arrays(rest, [*prefix, value], found, most)

    def _read(self, formula: Formula, local: Formula) -> Formula:
        """`local` in the closed reading, where that is asked for and leaves an object."""
        if not self._closed:
            return local
        narrowed = self._formulas.and_([local, closed_reading(self._sat.expander, formula)])
        return narrowed if self._sat.of_type("object", narrowed) else local

    def _objects(self, formula: Formula, found: list[Any], most: int) -> None:
        sets = (atom.atom[1] for atom in formula.atoms if atom.atom[0] == "each")
        listed = [name for names in sets for part in names.atoms if part.atom[0] == "strings" for name in part.atom[1]]
        declared = dict.fromkeys([*self._sat.undeclared(formula).declared, *sorted(listed)])
        ordered = tuple(name for name in declared if spell(name) is not None)
        names = Names(ordered, ordered, any_order=False)
        if len(ordered) > MAX_NAMES or self._sat.others(formula, names, 1):
            raise _TooMany
        self._members(formula, names, {}, found, most)

    def _members(self, formula: Formula, names: Names, prefix: dict[str, Any], found: list[Any], most: int) -> None:
        if not self._sat.object(formula, names):
            return
        if not names.remaining:
            found.append(prefix)
            if len(found) > most:
                raise _TooMany
            return
        name, following = names.remaining[0], names.after(0)
        self._members(self._sat.residuals.skip(formula, name), following, prefix, found, most)
        for condition, (rest,) in self._sat.decisions.decide((self._sat.residuals.take(formula, name),)):
            if self._sat.object(rest, following):
                for value in self._values(condition, most):
                    self._members(rest, following, {**prefix, name: value}, found, most)
