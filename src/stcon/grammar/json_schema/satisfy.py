"""Which outcomes are possible: satisfiability of value formulas.

Satisfiability is what keeps the machine trim. A value formula is satisfiable iff some JSON type is; an array or
object iff a search over its residual formulas reaches one that may end, along values that are themselves satisfiable.
Recursive schemas make this a least fixpoint: it is computed in passes, in which a formula met again below itself counts
as unsatisfiable for now; what a pass finds satisfiable is kept, and when a pass finds nothing new, what it did not find
satisfiable is not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from stcon.automata import ByteDfa
from stcon.errors import GrammarError, TooLarge, Unsupported
from stcon.grammar.json_schema import numbers
from stcon.grammar.json_schema.atoms import TYPES, JsonType
from stcon.grammar.json_schema.decisions import MAX_CASES, Decisions, Vector
from stcon.grammar.json_schema.effort import AUTOMATON_STEPS, PRODUCT_STEPS, Effort
from stcon.grammar.json_schema.few_names import few_names, with_possible_counts
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.residual import Names, Parts, Residuals
from stcon.grammar.json_schema.strings import StringLanguages, Strings, spell
from stcon.grammar.json_schema.unique import with_distinct_items
from stcon.grammar.json_schema.values import Values

MAX_NAME_CLASSES = 64
MAX_NAME_SETS = 8

Node = TypeVar("Node", bound=Hashable)
Language = TypeVar("Language")


class NameClass(NamedTuple):
    """Undeclared names that a container treats alike: their string formula, and the vector after one is read."""

    names: Formula
    after: Vector


class Satisfiability:
    """Answers and caches for one compilation.

    Args:
        residuals: derivatives, with the expander and formulas they use.
        strings: string languages.
        closed: whether objects take the names they list only, as the machine reads them.
    """

    def __init__(self, residuals: Residuals, strings: StringLanguages, *, closed: bool = False) -> None:
        self.residuals = residuals
        self.expander = residuals.expander
        self.formulas = residuals.formulas
        self.strings = strings
        self._true: set[Formula] = set()
        self._false: set[Formula] = set()
        self._unfit: dict[Formula, GrammarError] = {}
        self._strings_of: dict[tuple[Vector, bool], Strings] = {}
        self._provisional: set[Formula] | None = None
        self._grew = False
        self.effort = Effort()
        self.decisions = Decisions(self.expander, self.value, self.effort)
        self._open_objects: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[tuple[Formula, int], bool]] = {}
        self._open_arrays: dict[Formula, bool] = {}
        self.values = Values(self, closed=closed)
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
                if formula in self._false or self.effort.is_spent:
                    return False
                if not self._grew:
                    self._false |= self._provisional - self._true
                    return False
        except RecursionError:
            if self.effort.strict:
                raise
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
            self.effort.doubts += 1
            return False
        if not self.effort.spend():
            return False
        self._provisional.add(formula)
        doubts = self.effort.doubts
        if self._some_type(formula):
            self._true.add(formula)
            self._grew = True
            return True
        if self.effort.doubts == doubts:  # nothing was assumed on the way: final
            self._false.add(formula)
        return False

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
                return self._fits(formula, lambda: numbers.satisfiable(self.formulas, formula))
            case "string":
                return self._fits(formula, lambda: self.strings.satisfiable(formula))
            case "array":
                return self.array(with_distinct_items(self, formula))
        formula = with_possible_counts(self, formula)
        return self.object(formula, self.undeclared(formula))

    def _fits(self, formula: Formula, satisfiable: Callable[[], bool]) -> bool:
        """`satisfiable`; false where that is not decided or takes too large a product, if this is not refused."""
        error = self._unfit.get(formula)
        if error is None:
            self.effort.steps += AUTOMATON_STEPS if len(formula.atoms) > 1 else 1
            try:
                return satisfiable()
            except (TooLarge, Unsupported) as raised:
                error = self._unfit[formula] = raised
                self.effort.steps += PRODUCT_STEPS
        if self.effort.strict:
            raise error
        return False

    def strings_of(self, vector: Vector, *, counter: bool = True) -> Strings:
        """The strings of each label; where the product is too large, those of as many labels as fit."""
        key = (vector, counter)
        if key not in self._strings_of:
            self._strings_of[key] = self._fitting(vector, partial(self.strings.language, counter=counter))
        return self._strings_of[key]

    def numbers_of(self, vector: Vector) -> ByteDfa | None:
        """The number texts of each label, as `strings_of`."""
        spellings = self.expander.spellings
        return self._fitting(vector, lambda fitting: numbers.number_language(self.formulas, fitting, spellings))

    def _fitting(self, vector: Vector, language: Callable[[Vector], Language]) -> Language:
        while True:
            try:
                return language(vector)
            except TooLarge:
                possible = [label for label, formula in enumerate(vector) if formula is not self.formulas.false]
                if self.effort.strict or len(possible) == 1:
                    raise
                kept = possible[: len(possible) // 2]
                vector = tuple(f if label in kept else self.formulas.false for label, f in enumerate(vector))

    # ------------------------------------------------------------------------------------------------- arrays

    def array(self, formula: Formula) -> bool:
        """Whether some continuation of an array satisfies `formula`."""
        return self._search(formula, self._open_arrays, self.residuals.end_array, self._next_items)

    def _next_items(self, formula: Formula) -> Iterator[Formula]:
        for decision in self.decisions.cases((self.residuals.item(formula),)):
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
        doubts = self.effort.doubts
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
                    if not self.effort.spend():
                        return False
                    seen.add(node)
                    path.append(node)
                    if known.get(node) or (node not in known and ends(node)):
                        break
                    iterators.append(iter(()) if node in known else following(node))
        if path:
            known.update(dict.fromkeys(path, True))
            return True
        if self.effort.doubts == doubts:
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
        if counted and self.independent(formula) is None:
            names.update(dict.fromkeys(few_names(self, formula, names)))
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
            if found < cap and next(self.decisions.cases(group.after), None) is not None:
                found += self._number_of_names(group.names, cap)
        return found

    def _number_of_names(self, names: Formula, cap: int) -> int:
        """How many names satisfy `names`, which some do; at most about `cap`, and not too many."""
        try:
            return self.strings.count(names, cap)
        except TooLarge:
            if self.effort.strict:
                raise
            return 1

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
                for decision in self.decisions.cases(group.after):
                    yield decision.rest[0], position
            return
        name = names.remaining[position]
        passed = residuals.skip(formula, name)
        if passed is not self.formulas.false:
            yield passed, position + 1
        for decision in self.decisions.cases((residuals.take(formula, name),)):
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
            cases.append(so_far)
            if not (
                self.effort.spend()
                and self.effort.admits("overlaps of sets of names", len(cases), MAX_CASES)
                and self.effort.admits("patterns that one name can match", len(inside) - len(certain), MAX_NAME_SETS)
            ):
                return
            if index < len(sets):
                split(index + 1, inside.union(groups[sets[index]]), f.and_([so_far, sets[index]]))
                split(index + 1, inside, f.and_([so_far, f.not_(sets[index])]))
                return
            after = tuple(self.residuals.take_other(formula, inside) for formula in vector)
            if any(formula is not f.false for formula in after) and self._some_name(so_far):
                number = len(classes) + (after not in classes)
                if self.effort.admits("classes of names by patterns", number, MAX_NAME_CLASSES):
                    classes.setdefault(after, []).append(so_far)

        cases: list[Formula] = []
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
        return names is self.formulas.true or excluded or self._fits(names, lambda: self.strings.spells_name(names))
