"""What a value's outcome leaves over: the remainders of a container after its next value.

After an item or a name's value, its outcome for the schemas that matter selects what the container still has to
satisfy. `Decisions.decide` lists the different remainders with the condition, over schemas, under which each arises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from stcon.errors import TooLarge, Unsupported
from stcon.grammar.json_schema.effort import Effort
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.instances import satisfies
from stcon.grammar.json_schema.keywords import KEYWORDS, Expander
from stcon.grammar.json_schema.schema import canonical

MAX_CASES = 256
MAX_KEPT = 32
FEW = 8
MAX_WIDTH = 40
OUTCOMES = "outcomes that one value can have for the schemas at one place"

Vector = tuple[Formula, ...]


class Decision(NamedTuple):
    """One possible remainder: the value formula under which it arises, and what the container still has to satisfy."""

    condition: Formula
    rest: Vector


class _Count:
    """Questions asked to tell the cases of one vector apart; `is_cut` once they are too many."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.is_cut = False
        self._questions = 0

    def one_more(self) -> bool:
        """Whether one more is within the limit."""
        self._questions += 1
        if self._questions <= MAX_CASES:
            return True
        if self.strict:
            raise TooLarge(OUTCOMES, given=self._questions, limit=MAX_CASES)
        self.is_cut = True
        return False


class Decisions:
    """The decisions of one compilation.

    Args:
        expander: with its formulas.
        value: whether some JSON value satisfies a value formula.
        effort: the budget.
    """

    def __init__(self, expander: Expander, value: Callable[[Formula], bool], effort: Effort) -> None:
        self.expander = expander
        self.formulas = expander.formulas
        self._value = value
        self._effort = effort
        self._decisions: dict[Vector, list[Decision]] = {}
        self._cut: set[Vector] = set()
        self._listable: dict[Vector, bool] = {}
        self._satisfied: dict[Hashable, dict[Formula, Formula]] = {}

    def decide(self, vector: Vector) -> list[Decision]:
        """The remainders of `vector` (container atoms mixed with ``schema`` atoms of the next value).

        Only remainders that are not false throughout and whose condition is satisfiable; conditions exclude each other
        and, if the list `is_whole`, cover all values that leave anything possible. Else they are those of the first
        cases, led by those in which one schema holds and no other.
        """
        known = self._decisions.get(vector)
        if known is None:
            doubts = self._effort.doubts
            count = _Count(strict=False)
            cases = list(self._cases_of(vector, count))
            if count.is_cut:
                self._cut.add(vector)
                cases = self._led_by_single(vector, cases)
            found: dict[Vector, list[Formula]] = {}
            for condition, rest in cases:
                found.setdefault(rest, []).append(condition)
            known = [Decision(self.formulas.or_(conditions), rest) for rest, conditions in found.items()]
            if self._effort.doubts == doubts:
                self._decisions[vector] = known
        return known

    def _led_by_single(self, vector: Vector, cases: list[Decision]) -> list[Decision]:
        """`cases`, first those in which exactly one schema holds: values that are meant for one alternative.

        A case is a conjunction of literals, so a case of all literals lies in another or excludes it.
        """
        f = self.formulas
        base, vector = self._certain(vector)
        atoms = sorted(frozenset().union(*(_schema_atoms(formula) for formula in vector)), key=_by_index)
        leading: dict[Formula, Decision] = {}
        for single in atoms[:MAX_KEPT]:
            condition = f.and_([base, single, *(f.not_(atom) for atom in atoms if atom is not single)])
            literals = frozenset(condition.parts)
            around = next((case for case in cases if literals.issuperset(_parts(case.condition))), None)
            if around is None:
                rest = tuple(f.replace(part, {atom: f.constant(atom is single) for atom in atoms}) for part in vector)
                if not self._possible(condition, rest):
                    continue
                around = Decision(condition, rest)
            leading[around.condition] = around
        return [*leading.values(), *(case for case in cases if case.condition not in leading)]

    def is_whole(self, vector: Vector) -> bool:
        """Whether `decide` lists every remainder of `vector`, not only the first ones of too many."""
        self.decide(vector)
        return vector not in self._cut

    def is_listable(self, vector: Vector) -> bool:
        """Whether the remainders of `vector` are few, and none has to be left out."""
        width = self.width(vector)
        if width <= FEW or width > MAX_WIDTH:
            return width <= FEW
        known = self._listable.get(vector)
        if known is None:
            try:
                with self._effort.refusing():
                    known = self.is_whole(vector)
            except (TooLarge, Unsupported):
                known = False
            self._listable[vector] = known
        return known

    def distinct(self, vector: Vector, narrowed: Callable[[Vector], Vector]) -> dict[Vector, list[Formula]]:
        """The remainders of `vector` after `narrowed`, which makes false what cannot be, with their conditions.

        Of too many remainders `MAX_KEPT` are kept.
        """
        decisions = self.decide(vector)
        if self.is_whole(vector):
            return self._live(decisions, narrowed, most=None)
        found = self._live(decisions, narrowed, most=MAX_KEPT)
        return found or self._live(self.hints(vector), narrowed, most=1)

    def _live(
        self, decisions: Iterable[Decision], narrowed: Callable[[Vector], Vector], most: int | None
    ) -> dict[Vector, list[Formula]]:
        found: dict[Vector, list[Formula]] = {}
        for condition, rest in decisions:
            left = narrowed(rest)
            if any(formula is not self.formulas.false for formula in left):
                found.setdefault(left, []).append(condition)
                if len(found) == most:
                    break
        return found

    def cases(self, vector: Vector) -> Iterator[Decision]:
        """The remainders of `vector` one by one, as far as the caller asks; the same remainder may come again.

        Raises:
            TooLarge: more cases are asked for than are looked at, and the schema is being compiled.
        """
        known = self._decisions.get(vector)
        if known is not None and not (vector in self._cut and self._effort.strict):
            return iter(known)
        if self._effort.strict or self.width(vector) <= FEW:
            return self._cases_of(vector, _Count(strict=self._effort.strict))
        return iter(self.decide(vector))

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

    def _cases_of(self, vector: Vector, count: _Count) -> Iterator[Decision]:
        base, vector = self._certain(vector)
        if base is self.formulas.false:
            return
        if any(_schema_atoms(formula) for formula in vector):
            yield from self._by_values(base, vector, count)
        elif self._possible(base, vector):
            yield Decision(base, vector)

    def _possible(self, condition: Formula, rest: Vector) -> bool:
        return any(formula is not self.formulas.false for formula in rest) and self._value(condition)

    def _certain(self, vector: Vector) -> tuple[Formula, Vector]:
        """Conjuncts about the next value alone must hold: they become the condition common to all remainders."""
        if len(vector) > 1:
            return self.formulas.true, vector
        formula = vector[0]
        parts = _parts(formula)
        alone = [part for part in parts if _is_about_value(part)]
        if not alone:
            return self.formulas.true, vector
        rest = [part for part in parts if part not in set(alone)]
        return self.formulas.and_(alone), (self.formulas.and_(rest),)

    def _by_values(self, base: Formula, vector: Vector, count: _Count) -> Iterator[Decision]:
        """Enumerated values first: each decides every schema at once; then the values that none of them lists."""
        f = self.formulas
        atoms = _schema_atoms(base).union(*(_schema_atoms(formula) for formula in vector))
        listed = {atom: values for atom in atoms if (values := listed_values(atom)) is not None}
        if not listed:
            yield from self._by_cases(base, vector, count)
            return
        candidates: dict[Any, Any] = {}
        for atom in sorted(listed, key=_by_index):
            for key, value in listed[atom]:
                candidates.setdefault(key, value)
        by_rest: dict[Vector, list[Any]] = {}
        for key, value in candidates.items():
            outcome = self._outcome(key, value, atoms)
            if outcome and f.replace(base, outcome) is f.true:
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
        yield from self._by_cases(base, tuple(f.replace(formula, none) for formula in vector), count)

    def _outcome(self, key: Hashable, value: Any, atoms: Iterable[Formula]) -> dict[Formula, Formula]:
        """Which schemas a listed value satisfies; empty where that is not decided (the value is then left out)."""
        known = self._satisfied.setdefault(key, {})
        try:
            for atom in atoms:
                if atom not in known:
                    known[atom] = self.formulas.constant(satisfies(self.expander, atom, value))
            return known
        except Unsupported:
            if self._effort.strict:
                raise
            return {}

    def _by_cases(self, base: Formula, vector: Vector, count: _Count) -> Iterator[Decision]:
        """Split on one schema after another; cases that no value can be in are dropped."""
        f = self.formulas
        pending = [(base, vector)]
        while pending:
            base, vector = pending.pop()
            if base is f.false or not self._possible(base, vector):
                continue
            atoms = frozenset().union(*(_schema_atoms(formula) for formula in vector))
            if not atoms:
                yield Decision(base, vector)
                continue
            if not (self._effort.spend() and count.one_more()):
                return
            atom = min(atoms, key=_by_index)
            for literal, value in ((f.not_(atom), f.false), (atom, f.true)):
                rest = tuple(f.replace(formula, {atom: value}) for formula in vector)
                pending.append((f.and_([base, literal]), rest))


def _positive(formula: Formula, atoms: frozenset[Formula]) -> bool:
    """Whether `formula` can only grow when one of `atoms` becomes true."""
    if formula.kind in ("not", "one"):
        return formula.atoms.isdisjoint(atoms)
    return all(_positive(part, atoms) for part in formula.parts)


def _parts(formula: Formula) -> tuple[Formula, ...]:
    return formula.parts if formula.kind == "and" else (formula,)


def _by_index(formula: Formula) -> int:
    return formula.index


def _is_about_value(part: Formula) -> bool:
    """Whether all atoms, and at least one, are about the next value."""
    if part.kind == "atom":
        return bool(part.atom[0] == "schema")
    return part.atoms != frozenset() and all(atom.atom[0] == "schema" for atom in part.atoms)


def _schema_atoms(formula: Formula) -> frozenset[Formula]:
    return frozenset(atom for atom in formula.atoms if atom.atom[0] == "schema")


def listed_values(atom: Formula) -> list[tuple[Any, Any]] | None:
    """The values of an enumerating schema with keys that equal values share, or None."""
    node = atom.atom[1]
    if node.dialect.ref_hides_siblings and node.has("$ref"):
        return None
    if node.has("const") and node.dialect.version >= KEYWORDS["const"].since:
        return [(canonical(node.contents["const"]), node.contents["const"])]
    if node.has("enum") and isinstance(node.contents["enum"], list):
        return [(canonical(value), value) for value in node.contents["enum"]]
    return None
