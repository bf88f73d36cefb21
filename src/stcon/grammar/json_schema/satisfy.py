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

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, TypeVar

from stcon.errors import TooLarge
from stcon.grammar.json_schema import numbers
from stcon.grammar.json_schema.atoms import TYPES, JsonType
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.instances import satisfies
from stcon.grammar.json_schema.keywords import KEYWORDS
from stcon.grammar.json_schema.residual import Names, Parts, Residuals
from stcon.grammar.json_schema.strings import StringLanguages, spell
from stcon.grammar.json_schema.unique import with_distinct_items

MAX_STEPS = 300_000
MAX_CASES = 256
MAX_NAME_CLASSES = 64
MAX_NAME_SETS = 8

Vector = tuple[Formula, ...]
Node = TypeVar("Node", bound=Hashable)


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
        self._open_objects: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[tuple[Formula, int], bool]] = {}
        self._open_arrays: dict[Formula, bool] = {}
        self._listing: set[Formula] = set()
        self._parts: dict[Formula, Parts | None] = {}

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

    def _count_case(self, cases: list[int]) -> None:
        self._count()
        cases[0] += 1
        if cases[0] > MAX_CASES:
            raise TooLarge(
                "outcomes that one value can have for the schemas at one place", given=cases[0], limit=MAX_CASES
            )

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
                return numbers.satisfiable(self.formulas, formula)
            case "string":
                return self.strings.satisfiable(formula)
            case "array":
                return self.array(with_distinct_items(self, formula))
        return self.object(formula, self.undeclared(formula))

    def values(self, formula: Formula) -> list[Any] | None:
        """All values that satisfy a value formula, if their list is at hand."""
        f = self.formulas
        for part in formula.parts if formula.kind == "and" else (formula,):
            named = listed_values(part) if part.kind == "atom" else None
            if named is not None:
                return [value for _, value in named if satisfies(self.expander, formula, value)]
        containers: tuple[JsonType, ...] = ("array", "object")
        if formula in self._listing:  # asked below itself, by the items of a recursive schema
            return None
        self._listing.add(formula)
        try:
            if any(self.of_type(kind, self.expander.expand(formula, kind)) for kind in containers):
                return None
        finally:
            self._listing.discard(formula)
        found: list[Any] = []
        if self.expander.expand(formula, "null") is f.true:
            found.append(None)
        boolean = self.expander.expand(formula, "boolean")
        found += [
            value for value in (False, True) if f.replace(boolean, {f.atom(("true",)): f.constant(value)}) is f.true
        ]
        scalars: tuple[tuple[JsonType, str], ...] = (("string", "strings"), ("number", "numbers"))
        for kind, tag in scalars:
            local = self.expander.expand(formula, kind)
            listed = {atom for atom in local.atoms if atom.atom[0] == tag}
            if f.replace(local, dict.fromkeys(listed, f.false)) is not f.false:
                return None
            words = sorted({value for atom in listed for value in atom.atom[1]})
            found += [word for word in words if satisfies(self.expander, formula, word)]
        return found

    def number_of_values(self, formula: Formula, cap: int) -> int:
        """How many values satisfy a value formula, at most `cap`; arrays and objects count as many."""
        local = {kind: self.expander.expand(formula, kind) for kind in TYPES}
        if any(local[kind] is not self.formulas.false for kind in ("array", "object")):
            return cap
        found = int(local["null"] is self.formulas.true)
        if local["boolean"] is not self.formulas.false:
            found += 2 if local["boolean"] is self.formulas.true else 1
        if found < cap and local["number"] is not self.formulas.false:
            found += numbers.count(self.formulas, local["number"], cap)
        if found < cap and local["string"] is not self.formulas.false:
            found += self.strings.count(local["string"], cap)
        return min(found, cap)

    # ------------------------------------------------------------------------------------------------- arrays

    def array(self, formula: Formula) -> bool:
        """Whether some continuation of an array satisfies `formula`."""
        return self._search(formula, self._open_arrays, self.residuals.end_array, self._next_items)

    def _next_items(self, formula: Formula) -> Iterator[Formula]:
        for decision in self.cases((self.residuals.item(formula),)):
            yield decision.rest[0]

    def _search(
        self,
        start: Node,
        known: dict[Node, bool],
        ends: Callable[[Node], bool],
        following: Callable[[Node], Iterator[Node]],
    ) -> bool:
        """Depth-first from `start` to a residual that may end; `known` keeps what the searches found.

        Successors are generated one by one, so that a search that succeeds does not list what it does not need.
        """
        doubts = self._doubts
        seen = {start}
        path = [start]
        iterators: list[Iterator[Node]] = [iter(())]
        if (found := known.get(start)) is not None:
            return found
        if not ends(start):
            iterators[0] = following(start)
            while iterators:
                node = next(iterators[-1], None)
                if node is None:
                    iterators.pop()
                    path.pop()
                elif node not in seen:
                    self._count()
                    seen.add(node)
                    path.append(node)
                    if known.get(node) or (node not in known and ends(node)):
                        break
                    iterators.append(iter(()) if node in known else following(node))
        if path:
            known.update(dict.fromkeys(path, True))
            return True
        if self._doubts == doubts:
            known.update(dict.fromkeys(seen, False))
        return False

    # ------------------------------------------------------------------------------------------------- objects

    def undeclared(self, formula: Formula) -> Names:
        """The names that a formula over object atoms mentions, as if declared in the order of first mention."""
        names: dict[str, None] = {}
        counted = any(atom.atom[0] == "minprops" for atom in formula.atoms)
        for atom in sorted(formula.atoms, key=lambda atom: atom.index):
            payload: Any = atom.atom
            if payload[0] in ("has", "prop"):
                names[payload[1]] = None
            elif payload[0] == "each" and counted:  # names with trivial schemas count as well
                for inner in payload[1].atoms:
                    if inner.atom[0] == "strings":
                        names.update(dict.fromkeys(sorted(inner.atom[1])))
        ordered = tuple(name for name in names if spell(name) is not None)
        return Names(ordered, ordered, any_order=False)

    def object(self, formula: Formula, names: Names) -> bool:
        """Whether some continuation of an object, with `names` still to come, satisfies `formula`."""
        if formula.kind in ("true", "false"):
            return formula is self.formulas.true
        if self.residuals.end_object(formula):
            return True
        parts = self.independent(formula)
        if parts is not None and parts.required <= names.remaining_set:
            return self._independent(formula, parts, names)
        known = self._open_objects.setdefault((names.declared, names.remaining), {})
        last = len(names.remaining)

        def ends(node: tuple[Formula, int]) -> bool:
            return self.residuals.end_object(node[0])

        def following(node: tuple[Formula, int]) -> Iterator[tuple[Formula, int]]:
            return self._next_names(*node, names, last)

        return self._search((formula, 0), known, ends, following)

    def _independent(self, formula: Formula, parts: Parts, names: Names) -> bool:
        if parts.most is not None and len(parts.required) > parts.most:
            return False
        if parts.most is not None and parts.least > parts.most:
            return False
        if not all(self.value(parts.demand(name)) for name in parts.required):
            return False
        missing = parts.least - len(parts.required)
        missing -= self.optional(parts, names) if missing > 0 else 0
        return missing <= 0 or self.others(formula, names, missing) >= missing

    def others(self, formula: Formula, names: Names, cap: int) -> int:
        """How many names that are not declared may come, each with some value; at most about `cap`."""
        found = 0
        for group in self.other_names((formula,), names):
            if found < cap and next(self.cases(group.after), None) is not None:
                found += self.strings.count(group.names, cap)
        return found

    def optional(self, parts: Parts, names: Names) -> int:
        """How many of the names still to come may come but need not."""
        for name in names.remaining:
            if name not in parts.possible:
                parts.possible[name] = self.value(parts.demand(name))
        return sum(parts.possible[name] for name in names.remaining if name not in parts.required)

    def _next_names(self, formula: Formula, position: int, names: Names, last: int) -> Iterator[tuple[Formula, int]]:
        residuals = self.residuals
        while position < last and not residuals.relevant(formula, names.remaining[position]):
            position += 1
        if position == last:
            for group in self.other_names((formula,), names):
                for decision in self.cases(group.after):
                    yield decision.rest[0], position
            return
        name = names.remaining[position]
        passed = residuals.skip(formula, name)
        if passed is not self.formulas.false:
            yield passed, position + 1
        for decision in self.cases((residuals.take(formula, name),)):
            yield decision.rest[0], position + 1

    def independent(self, formula: Formula) -> Parts | None:
        """A conjunction of demands on single names and on sets of names, taken apart; None if it is anything else."""
        if formula not in self._parts:
            self._parts[formula] = Parts.of(formula, self.residuals)
        return self._parts[formula]

    def other_names(self, vector: Vector, names: Names) -> list[NameClass]:
        """The classes of undeclared names that may come next, by the name sets they lie in; at least one name each."""
        f = self.formulas
        declared = f.not_(f.atom(("strings", frozenset(names.declared)))) if names.declared else f.true
        classes: dict[Vector, list[Formula]] = {}
        groups: dict[Formula, list[Formula]] = {}
        for name_set in self.residuals.name_sets(vector):
            groups.setdefault(self.undeclared_part(name_set, names.declared), []).append(name_set)
        certain = frozenset(groups.pop(f.true, ()))
        groups.pop(f.false, None)
        sets = list(groups)

        def split(index: int, inside: frozenset[Formula], so_far: Formula) -> None:
            if so_far is f.false or (index > 1 and not self._some_name(so_far)):
                return
            self._count_case(cases)
            if len(inside) - len(certain) > MAX_NAME_SETS:
                raise TooLarge("patterns that one name can match", given=len(inside), limit=MAX_NAME_SETS)
            if index < len(sets):
                split(index + 1, inside.union(groups[sets[index]]), f.and_([so_far, sets[index]]))
                split(index + 1, inside, f.and_([so_far, f.not_(sets[index])]))
                return
            after = tuple(self.residuals.take_other(formula, inside) for formula in vector)
            if any(formula is not f.false for formula in after) and self._some_name(so_far):
                classes.setdefault(after, []).append(so_far)
                if len(classes) > MAX_NAME_CLASSES:
                    raise TooLarge("classes of names by patterns", given=len(classes), limit=MAX_NAME_CLASSES)

        cases = [0]
        split(0, certain, declared)
        return [NameClass(f.or_(parts), after) for after, parts in classes.items()]

    def undeclared_part(self, names: Formula, declared: tuple[str, ...]) -> Formula:
        """A name set as it looks to names that are not declared: those listed in it are none of them."""
        f = self.formulas
        known = frozenset(declared)
        listed = {atom: f.false for atom in names.atoms if atom.atom[0] == "strings" and atom.atom[1] <= known}
        return f.replace(names, listed)

    def _some_name(self, names: Formula) -> bool:
        parts = names.parts if names.kind == "and" else (names,)
        excluded = all(part.kind == "not" and part.parts[0].atom[0] == "strings" for part in parts)
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
        found: dict[Vector, list[Formula]] = {}
        for condition, rest in self._cases_of(vector):
            found.setdefault(rest, []).append(condition)
        return [Decision(self.formulas.or_(conditions), rest) for rest, conditions in found.items()]

    def cases(self, vector: Vector) -> Iterator[Decision]:
        """The remainders of `vector` one by one, as far as the caller asks; the same remainder may come again."""
        known = self._decisions.get(vector)
        return iter(known) if known is not None else self._cases_of(vector)

    def width(self, vector: Vector) -> int:
        """How many schemas, other than listed values, tell the outcomes of the next value apart."""
        _, rest = self._certain(vector)
        atoms = frozenset().union(*(_schema_atoms(formula) for formula in rest))
        return sum(listed_values(atom) is None for atom in atoms)

    def hints(self, vector: Vector) -> Iterator[Decision]:
        """Lower bounds on what some values leave, cheap to find: one schema satisfied, nothing known of the others.

        Only where ``schema`` atoms occur positively: then satisfying more leaves no less.
        """
        f = self.formulas
        base, vector = self._certain(vector)
        atoms = frozenset().union(*(_schema_atoms(formula) for formula in vector))
        if base is f.false or len(vector) > 1 or not atoms or not _positive(vector[0], atoms):
            return
        for atom in sorted(atoms, key=_by_index):
            outcome = {other: f.constant(other is atom) for other in atoms}
            rest = (f.replace(vector[0], outcome),)
            condition = f.and_([base, atom])
            if self._possible(condition, rest):
                yield Decision(condition, rest)

    def _cases_of(self, vector: Vector) -> Iterator[Decision]:
        base, vector = self._certain(vector)
        if base is self.formulas.false:
            return
        if any(_schema_atoms(formula) for formula in vector):
            yield from self._by_values(base, vector)
        elif self._possible(base, vector):
            yield Decision(base, vector)

    def _possible(self, condition: Formula, rest: Vector) -> bool:
        return any(formula is not self.formulas.false for formula in rest) and self.value(condition)

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

    def _by_values(self, base: Formula, vector: Vector) -> Iterator[Decision]:
        """Enumerated values first: each decides every schema at once; then the values that none of them lists."""
        f = self.formulas
        atoms = _schema_atoms(base).union(*(_schema_atoms(formula) for formula in vector))
        listed = {atom: values for atom in atoms if (values := listed_values(atom)) is not None}
        if not listed:
            yield from self._by_cases(base, vector, [0])
            return
        candidates: dict[Any, Any] = {}
        for atom in sorted(listed, key=_by_index):
            for key, value in listed[atom]:
                candidates.setdefault(key, value)
        by_rest: dict[Vector, list[Any]] = {}
        for value in candidates.values():
            outcome = {atom: f.constant(satisfies(self.expander, atom, value)) for atom in atoms}
            if f.replace(base, outcome) is f.true:
                rest = tuple(f.replace(formula, outcome) for formula in vector)
                by_rest.setdefault(rest, []).append(value)
        origin = min(listed, key=_by_index).atom[1]
        for rest, values in by_rest.items():
            condition = f.atom(("schema", self.expander.schemas.values(tuple(values), origin)))
            if self._possible(condition, rest):
                yield Decision(condition, rest)
        none = dict.fromkeys(listed, f.false)
        elsewhere = f.not_(f.atom(("schema", self.expander.schemas.values(tuple(candidates.values()), origin))))
        base = f.and_([f.replace(base, none), elsewhere])
        yield from self._by_cases(base, tuple(f.replace(formula, none) for formula in vector), [0])

    def _by_cases(self, base: Formula, vector: Vector, cases: list[int]) -> Iterator[Decision]:
        """Split on one schema after another; cases that no value can be in are dropped."""
        f = self.formulas
        if base is f.false or not self._possible(base, vector):
            return
        atoms = frozenset().union(*(_schema_atoms(formula) for formula in vector))
        if not atoms:
            yield Decision(base, vector)
            return
        self._count_case(cases)
        atom = min(atoms, key=_by_index)
        for literal, value in ((atom, f.true), (f.not_(atom), f.false)):
            outcome = {atom: value}
            rest = tuple(f.replace(formula, outcome) for formula in vector)
            yield from self._by_cases(f.and_([base, literal]), rest, cases)


def _positive(formula: Formula, atoms: frozenset[Formula]) -> bool:
    """Whether `formula` can only grow when one of `atoms` becomes true."""
    if formula.kind in ("not", "one"):
        return formula.atoms.isdisjoint(atoms)
    return all(_positive(part, atoms) for part in formula.parts)


def _by_index(formula: Formula) -> int:
    return formula.index


def _schema_atoms(formula: Formula) -> frozenset[Formula]:
    return frozenset(atom for atom in formula.atoms if atom.atom[0] == "schema")


def listed_values(atom: Formula) -> list[tuple[Any, Any]] | None:
    """The values of an enumerating schema with keys that equal values share, or None."""
    from stcon.grammar.json_schema.schema import canonical

    node = atom.atom[1]
    if node.dialect.ref_hides_siblings and node.has("$ref"):
        return None
    if node.has("const") and node.dialect.version >= KEYWORDS["const"].since:
        return [(canonical(node.contents["const"]), node.contents["const"])]
    if node.has("enum") and isinstance(node.contents["enum"], list):
        return [(canonical(value), value) for value in node.contents["enum"]]
    return None
