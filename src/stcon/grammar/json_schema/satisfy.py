"""Which outcomes are possible: satisfiability of value formulas, and what a value's outcome leaves over.

*Satisfiability* is what keeps the machine trim. A value formula is satisfiable iff some JSON type is; an array or
object iff a search over its residual formulas reaches one that may end, along values that are themselves satisfiable.
Recursive schemas make this a least fixpoint: it is computed in passes, in which a formula met again below itself counts
as unsatisfiable for now; what a pass finds satisfiable is kept, and when a pass finds nothing new, what it did not find
satisfiable is not.

*Deciding*: after an item or a name's value, its outcome for the schemas that matter selects what the container still
has to satisfy. `decide` lists the different remainders with the condition, over schemas, under which each arises.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stcon.errors import TooLarge
from stcon.grammar.json_schema import numbers
from stcon.grammar.json_schema.atoms import TYPES, JsonType
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.instances import satisfies
from stcon.grammar.json_schema.residual import Names, Residuals
from stcon.grammar.json_schema.strings import StringLanguages

MAX_STEPS = 300_000
MAX_DECISIONS = 4_096

Vector = tuple[Formula, ...]


class Decision(NamedTuple):
    """One possible remainder: the value formula under which it arises, and what the container still has to satisfy."""

    condition: Formula
    rest: Vector


class NameClass(NamedTuple):
    """Undeclared names that a container treats alike: their string formula, and the vector after one is read."""

    names: Formula
    after: Vector


class Satisfiability:
    """Answers and caches for one compilation.

    Args:
        residuals: derivatives, with the expander and formulas they use.
        strings: string languages.
    """

    def __init__(self, residuals: Residuals, strings: StringLanguages) -> None:
        self.residuals = residuals
        self.expander = residuals.expander
        self.formulas = residuals.formulas
        self.strings = strings
        self._true: set[Formula] = set()
        self._false: set[Formula] = set()
        self._provisional: set[Formula] | None = None
        self._grew = False
        self._doubts = 0
        self._steps = 0
        self._decisions: dict[Vector, list[Decision]] = {}
        self._open_objects: dict[tuple[Formula, tuple[str, ...]], bool] = {}

    # ------------------------------------------------------------------------------------------------- values

    def value(self, formula: Formula) -> bool:
        """Whether some JSON value satisfies a value formula.

        Raises:
            TooLarge: the step budget is spent.
        """
        if self._provisional is not None:
            return self._visit(formula)
        if formula in self._true or formula is self.formulas.true:
            return True
        if formula in self._false or formula is self.formulas.false:
            return False
        try:
            while True:
                self._provisional, self._grew = set(), False
                if self._visit(formula):
                    return True
                if formula in self._false:
                    return False
                if not self._grew:
                    self._false |= self._provisional - self._true
                    return False
        finally:
            self._provisional = None

    def _visit(self, formula: Formula) -> bool:
        if formula in self._true or formula is self.formulas.true:
            return True
        if formula in self._false or formula is self.formulas.false:
            return False
        assert self._provisional is not None
        if formula in self._provisional:
            self._doubts += 1
            return False
        self._count()
        self._provisional.add(formula)
        doubts = self._doubts
        if self._some_type(formula):
            self._true.add(formula)
            self._grew = True
            return True
        if self._doubts == doubts:  # nothing was assumed on the way: final
            self._false.add(formula)
        return False

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooLarge("steps to find out what can be satisfied", given=self._steps, limit=MAX_STEPS)

    def _some_type(self, formula: Formula) -> bool:
        local: dict[JsonType, Formula] = {}
        for kind in TYPES:
            local[kind] = self.expander.expand(formula, kind)
            if local[kind] is self.formulas.true:
                return True
        return any(self.of_type(kind, local[kind]) for kind in TYPES)

    def of_type(self, kind: JsonType, formula: Formula) -> bool:
        """Whether some value of one type satisfies a formula over the type's atoms."""
        if formula.kind in ("true", "false"):
            return formula is self.formulas.true
        match kind:
            case "null":
                raise AssertionError("null has no atoms")
            case "boolean":
                return True  # an atom or its negation: true or false satisfies it
            case "number":
                return numbers.satisfiable(formula)
            case "string":
                return self.strings.satisfiable(formula)
            case "array":
                return self.array(formula)
        return self.object(formula, self.undeclared(formula))

    def values(self, formula: Formula) -> list[Any] | None:
        """All scalar values that satisfy a value formula, if it admits no others and their list is at hand."""
        f = self.formulas
        found: list[Any] = []
        for kind in ("array", "object"):
            if self.of_type(kind, self.expander.expand(formula, kind)):  # type: ignore[arg-type]
                return None
        if self.expander.expand(formula, "null") is f.true:
            found.append(None)
        boolean = self.expander.expand(formula, "boolean")
        found += [value for value in (False, True) if f.replace(boolean, {f.atom(("true",)): f.constant(value)}) is f.true]
        for kind, tag in (("string", "strings"), ("number", "numbers")):
            local = self.expander.expand(formula, kind)  # type: ignore[arg-type]
            listed = {atom for atom in local.atoms if atom.atom[0] == tag}  # type: ignore[index]
            if f.replace(local, dict.fromkeys(listed, f.false)) is not f.false:
                return None
            words = sorted({value for atom in listed for value in atom.atom[1]})  # type: ignore[index]
            found += [word for word in words if satisfies(self.expander, formula, word)]
        return found

    # ------------------------------------------------------------------------------------------------- arrays

    def array(self, formula: Formula) -> bool:
        """Whether some continuation of an array satisfies `formula`."""
        seen = {formula}
        pending = [formula]
        while pending:
            current = pending.pop()
            if self.residuals.end_array(current):
                return True
            self._count()
            for decision in self.decide((self.residuals.item(current),)):
                rest = decision.rest[0]
                if rest not in seen:
                    seen.add(rest)
                    pending.append(rest)
        return False

    # ------------------------------------------------------------------------------------------------- objects

    def undeclared(self, formula: Formula) -> Names:
        """The names that a formula over object atoms mentions, as if declared in the order of first mention."""
        names: dict[str, None] = {}
        counted = any(atom.atom[0] == "minprops" for atom in formula.atoms)  # type: ignore[index]
        for atom in sorted(formula.atoms, key=lambda atom: atom.index):
            payload: Any = atom.atom
            if payload[0] in ("has", "prop"):
                names[payload[1]] = None
            elif payload[0] == "each" and counted:  # names with trivial schemas count as well
                for inner in payload[1].atoms:
                    if inner.atom[0] == "strings":
                        names.update(dict.fromkeys(sorted(inner.atom[1])))
        ordered = tuple(names)
        return Names(ordered, ordered, any_order=False)

    def object(self, formula: Formula, names: Names) -> bool:
        """Whether some continuation of an object, with `names` still to come, satisfies `formula`."""
        if formula is self.formulas.true:
            return True
        if formula is self.formulas.false:
            return False
        if self.residuals.end_object(formula):
            return True
        key = (formula, names.remaining)
        known = self._open_objects.get(key)
        if known is None:
            doubts = self._doubts
            known = self._search_object(formula, names)
            if known or self._doubts == doubts:
                self._open_objects[key] = known
        return known

    def _search_object(self, formula: Formula, names: Names) -> bool:
        independent = self._independent(formula, names)
        if independent is not None:
            return independent
        seen: set[tuple[Formula, int]] = {(formula, 0)}
        pending = [(formula, 0)]
        while pending:
            current, position = pending.pop()
            if self.residuals.end_object(current):
                return True
            self._count()
            for following in self._successors(current, position, names):
                if following[0] is not self.formulas.false and following not in seen:
                    seen.add(following)
                    pending.append(following)
        return False

    def _successors(self, formula: Formula, position: int, names: Names) -> list[tuple[Formula, int]]:
        residuals = self.residuals
        while position < len(names.remaining) and not residuals.relevant(formula, names.remaining[position]):
            position += 1
        if position == len(names.remaining):
            found = []
            for group in self.other_names((formula,), names):
                found += [(decision.rest[0], position) for decision in self.decide(group.after)]
            return found
        name = names.remaining[position]
        found = [(residuals.skip(formula, name), position + 1)]
        taken = self.decide((residuals.take(formula, name),))
        return found + [(decision.rest[0], position + 1) for decision in taken]

    def _independent(self, formula: Formula, names: Names) -> bool | None:
        """The answer for a conjunction whose parts speak of different names or of all; None if it is not one."""
        parts = formula.parts if formula.kind == "and" else (formula,)
        required = []
        for part in parts:
            payload: Any = part.atom
            if part.kind != "atom" or payload[0] not in ("has", "prop", "each"):
                return None
            if payload[0] == "has":
                required.append(payload[1])
        remaining = set(names.remaining)
        for name in required:
            if name not in remaining:
                return None
            demands = [part.atom[2] for part in parts if self._speaks_of(part.atom, name)]  # type: ignore[index]
            if not self.value(self.formulas.and_(demands)):
                return False
        return True

    def _speaks_of(self, payload: Any, name: str) -> bool:
        if payload[0] == "prop":
            return bool(payload[1] == name)
        return payload[0] == "each" and self.residuals.contains_name(payload[1], name)

    def other_names(self, vector: Vector, names: Names) -> list[NameClass]:
        """The classes of undeclared names that may come next, by the name sets they lie in; at least one each."""
        f = self.formulas
        declared = f.not_(f.atom(("strings", frozenset(names.declared)))) if names.declared else f.true
        classes: dict[Vector, list[Formula]] = {}
        sets = self.residuals.name_sets(vector)

        def split(index: int, inside: frozenset[Formula], so_far: Formula) -> None:
            if so_far is f.false:
                return
            if index < len(sets):
                split(index + 1, inside | {sets[index]}, f.and_([so_far, sets[index]]))
                split(index + 1, inside, f.and_([so_far, f.not_(sets[index])]))
                return
            after = tuple(self.residuals.take_other(formula, inside) for formula in vector)
            if any(formula is not f.false for formula in after) and self._some_name(so_far):
                classes.setdefault(after, []).append(so_far)

        split(0, frozenset(), declared)
        return [NameClass(f.or_(parts), after) for after, parts in classes.items()]

    def _some_name(self, names: Formula) -> bool:
        parts = names.parts if names.kind == "and" else (names,)
        excluded = all(part.kind == "not" and part.parts[0].atom[0] == "strings" for part in parts)  # type: ignore[index]
        return names is self.formulas.true or excluded or self.strings.satisfiable(names)

    # ------------------------------------------------------------------------------------------------- deciding

    def decide(self, vector: Vector) -> list[Decision]:
        """The remainders of `vector` (container atoms mixed with ``schema`` atoms of the next value).

        Only remainders that are not false throughout and whose condition is satisfiable; conditions exclude each other
        and cover all values that leave anything possible.
        """
        known = self._decisions.get(vector)
        if known is None:
            doubts = self._doubts
            known = self._decide(vector)
            if self._doubts == doubts:
                self._decisions[vector] = known
        return known

    def _decide(self, vector: Vector) -> list[Decision]:
        base, vector = self._certain(vector)
        if base is self.formulas.false:
            return []
        found: dict[Vector, list[Formula]] = {}
        if not any(_schema_atoms(formula) for formula in vector):
            self._record(found, base, vector)
        else:
            self._by_values(base, vector, found)
        return [
            Decision(condition, rest)
            for rest, conditions in found.items()
            if (condition := self.formulas.or_(conditions)) is not self.formulas.false
        ]

    def _certain(self, vector: Vector) -> tuple[Formula, Vector]:
        """Conjuncts about the next value alone must hold: they become the condition common to all remainders."""
        if len(vector) > 1:
            return self.formulas.true, vector
        formula = vector[0]
        parts = formula.parts if formula.kind == "and" else (formula,)
        alone = [part for part in parts if part.kind != "true" and len(_schema_atoms(part)) == len(part.atoms) > 0]
        if not alone:
            return self.formulas.true, vector
        rest = [part for part in parts if part not in set(alone)]
        return self.formulas.and_(alone), (self.formulas.and_(rest),)

    def _by_values(self, base: Formula, vector: Vector, found: dict[Vector, list[Formula]]) -> None:
        """Enumerated values first: each decides every schema at once; then the values that none of them lists."""
        f = self.formulas
        atoms = _schema_atoms(base).union(*(_schema_atoms(formula) for formula in vector))
        listed = {atom: values for atom in atoms if (values := listed_values(atom)) is not None}
        candidates: dict[Any, Any] = {}
        for atom in sorted(listed, key=lambda atom: atom.index):
            for key, value in listed[atom]:
                candidates.setdefault(key, value)
        by_rest: dict[Vector, list[Any]] = {}
        for value in candidates.values():
            outcome = {atom: f.constant(satisfies(self.expander, atom, value)) for atom in atoms}
            if f.replace(base, outcome) is f.true:
                rest = tuple(f.replace(formula, outcome) for formula in vector)
                by_rest.setdefault(rest, []).append(value)
        origin = min(listed, key=lambda atom: atom.index).atom[1] if listed else None  # type: ignore[index]
        for rest, values in by_rest.items():
            node = self.expander.schemas.values(tuple(values), origin)
            self._record(found, f.atom(("schema", node)), rest)
        if listed:
            none = dict.fromkeys(listed, f.false)
            node = self.expander.schemas.values(tuple(candidates.values()), origin)
            elsewhere = f.not_(f.atom(("schema", node)))
            base = f.and_([f.replace(base, none), elsewhere])
            vector = tuple(f.replace(formula, none) for formula in vector)
        self._by_cases(base, vector, found)

    def _by_cases(self, base: Formula, vector: Vector, found: dict[Vector, list[Formula]]) -> None:
        """Split on one schema after another; cases that no value can be in are dropped."""
        f = self.formulas
        if base is f.false or all(formula is f.false for formula in vector) or not self.value(base):
            return
        atoms = frozenset().union(*(_schema_atoms(formula) for formula in vector))
        if not atoms:
            self._record(found, base, vector)
            return
        self._count()
        atom = min(atoms, key=lambda atom: atom.index)
        for literal, value in ((atom, f.true), (f.not_(atom), f.false)):
            outcome = {atom: value}
            rest = tuple(f.replace(formula, outcome) for formula in vector)
            self._by_cases(f.and_([base, literal]), rest, found)

    def _record(self, found: dict[Vector, list[Formula]], condition: Formula, rest: Vector) -> None:
        if all(formula is self.formulas.false for formula in rest) or not self.value(condition):
            return
        found.setdefault(rest, []).append(condition)
        if len(found) > MAX_DECISIONS:
            raise TooLarge("outcomes of one value", given=len(found), limit=MAX_DECISIONS)


def _schema_atoms(formula: Formula) -> frozenset[Formula]:
    return frozenset(atom for atom in formula.atoms if atom.atom[0] == "schema")  # type: ignore[index]


def listed_values(atom: Formula) -> list[tuple[Any, Any]] | None:
    """The values of an enumerating schema with keys that equal values share, or None."""
    from stcon.grammar.json_schema.schema import canonical

    node = atom.atom[1]  # type: ignore[index]
    if node.dialect.ref_hides_siblings and node.has("$ref"):
        return None
    if node.has("const"):
        return [(canonical(node.contents["const"]), node.contents["const"])]
    if node.has("enum") and isinstance(node.contents["enum"], list):
        return [(canonical(value), value) for value in node.contents["enum"]]
    return None
