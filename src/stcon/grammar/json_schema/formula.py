"""Hash-consed boolean formulas: what a value still has to satisfy.

A `Formula` is true, false, an atom, or a combination by not, and, or, exactly-one. Equal formulas are one object, so
`is` compares them and a dictionary keyed by them is cheap. Negation is pushed to atoms (De Morgan), so that a schema
and its double negation give one formula; exactly-one is a node of its own, because a plain expansion hides that its
parts exclude each other.

Formulas of one compilation share a `Formulas` table and are never mixed with another's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from stcon.grammar.json_schema.atoms import complement

Payload = tuple[Any, ...]
"""A tag and its arguments, hashable."""


class Formula:
    """One node; made only by `Formulas`.

    Attributes:
        kind: "true", "false", "atom", "not" (of an atom or an exactly-one), "and", "or", "one".
        parts: the operands.
        atom: the payload of an atom, else ``()``.
        index: position in its table, a stable order for printing and sorting.
    """

    __slots__ = ("_atoms", "atom", "index", "kind", "parts")

    def __init__(self, kind: str, parts: tuple[Formula, ...], atom: Payload, index: int) -> None:
        self.kind = kind
        self.parts = parts
        self.atom = atom
        self.index = index
        self._atoms: frozenset[Formula] | None = None

    @property
    def atoms(self) -> frozenset[Formula]:
        """The atom nodes below (and including) this one."""
        if self._atoms is None:
            if self.kind == "atom":
                self._atoms = frozenset((self,))
            else:
                self._atoms = frozenset().union(*(part.atoms for part in self.parts))
        return self._atoms

    def __repr__(self) -> str:
        if self.kind == "atom":
            return repr(self.atom)
        if self.kind in ("true", "false"):
            return self.kind
        return f"{self.kind}({', '.join(map(repr, self.parts))})"


class Formulas:
    """The table of one compilation. Every operation simplifies what can be seen locally and returns the shared node."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, Formula] = {}
        self.true: Final = self._node("true", (), ())
        self.false: Final = self._node("false", (), ())

    def __len__(self) -> int:
        return len(self._nodes)

    def constant(self, value: bool) -> Formula:
        """True or false as a formula."""
        return self.true if value else self.false

    def atom(self, payload: Payload) -> Formula:
        """The atom with this payload; payloads of different classes never compare equal (use tuples led by a tag)."""
        return self._node("atom", (), payload)

    def not_(self, part: Formula) -> Formula:
        """Negation, pushed down to atoms and exactly-ones; counts have no negation but their complement."""
        match part.kind:
            case "true":
                return self.false
            case "false":
                return self.true
            case "not":
                return part.parts[0]
            case "and":
                return self.or_(self.not_(p) for p in part.parts)
            case "or":
                return self.and_(self.not_(p) for p in part.parts)
            case "atom" if (counted := complement(part.atom)) is not None:
                return self.atom(counted)
        return self._node("not", (part,), ())

    def and_(self, parts: Iterable[Formula]) -> Formula:
        """Conjunction: flattened, without duplicates, false when it holds a part and its negation."""
        return self._nary("and", parts, unit=self.true, zero=self.false)

    def or_(self, parts: Iterable[Formula]) -> Formula:
        """Disjunction: flattened, without duplicates, true when it holds a part and its negation."""
        return self._nary("or", parts, unit=self.false, zero=self.true)

    def one(self, parts: Iterable[Formula]) -> Formula:
        """Exactly one of `parts` (a multiset) holds."""
        open_parts = [part for part in parts if part is not self.false]
        true_count = sum(part is self.true for part in open_parts)
        if true_count > 1:
            return self.false
        rest = [part for part in open_parts if part is not self.true]
        if true_count == 1:
            return self.and_(self.not_(part) for part in rest)
        counts: dict[Formula, int] = {}
        for part in rest:
            counts[part] = counts.get(part, 0) + 1
        repeated = [part for part, count in counts.items() if count > 1]
        if repeated:  # a part that occurs twice cannot be the one that holds
            single = [part for part, count in counts.items() if count == 1]
            return self.and_([*(self.not_(part) for part in repeated), self.one(single)])
        if not rest:
            return self.false
        if len(rest) == 1:
            return rest[0]
        ordered = tuple(sorted(rest, key=_index))
        return self._node("one", ordered, ())

    def replace(self, formula: Formula, values: Mapping[Formula, Formula]) -> Formula:
        """Substitute atom nodes by formulas and simplify. Cost: the nodes above a changed atom."""
        if not values or _has_none(formula.atoms, values):
            return formula
        return self._replace(formula, values, {})

    def map_atoms(self, formula: Formula, function: Callable[[Formula], Formula]) -> Formula:
        """Replace every atom node by ``function(node)``."""
        values = {atom: new for atom in formula.atoms if (new := function(atom)) is not atom}
        return self.replace(formula, values)

    def evaluate(self, formula: Formula, truth: Callable[[Formula], bool]) -> bool:
        """The value of `formula` when every atom node has the value ``truth(node)``."""
        match formula.kind:
            case "true":
                return True
            case "false":
                return False
            case "atom":
                return truth(formula)
            case "not":
                return not self.evaluate(formula.parts[0], truth)
            case "and":
                return all(self.evaluate(part, truth) for part in formula.parts)
            case "or":
                return any(self.evaluate(part, truth) for part in formula.parts)
        return sum(self.evaluate(part, truth) for part in formula.parts) == 1

    def _replace(self, node: Formula, values: Mapping[Formula, Formula], memo: dict[Formula, Formula]) -> Formula:
        if node.kind == "atom":
            return values.get(node, node)
        if _has_none(node.atoms, values):
            return node
        done = memo.get(node)
        if done is None:
            parts = [self._replace(part, values, memo) for part in node.parts]
            done = memo[node] = self._rebuild(node.kind, parts)
        return done

    def _rebuild(self, kind: str, parts: list[Formula]) -> Formula:
        match kind:
            case "not":
                return self.not_(parts[0])
            case "and":
                return self.and_(parts)
            case "or":
                return self.or_(parts)
        return self.one(parts)

    def _nary(self, kind: str, parts: Iterable[Formula], *, unit: Formula, zero: Formula) -> Formula:
        flat: set[Formula] = set()
        for part in parts:
            if part is zero:
                return zero
            if part.kind == kind:
                flat.update(part.parts)
            elif part is not unit:
                flat.add(part)
        if not flat:
            return unit
        if len(flat) == 1:
            return next(iter(flat))
        for part in flat:
            if part.kind == "not" and part.parts[0] in flat:
                return zero
            if part.kind == "atom" and (counted := complement(part.atom)) is not None and self.atom(counted) in flat:
                return zero
        key = (kind, frozenset(flat))
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Formula(kind, tuple(sorted(flat, key=_index)), (), len(self._nodes))
        return node

    def _node(self, kind: str, parts: tuple[Formula, ...], payload: Payload) -> Formula:
        key = (kind, parts, payload)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Formula(kind, parts, payload, len(self._nodes))
        return node


def _has_none(atoms: frozenset[Formula], values: Mapping[Formula, Formula]) -> bool:
    """Whether no atom is among `values`. Cost: the smaller of the two (`isdisjoint` reads all of a mapping)."""
    return not any(atom in values for atom in atoms) if len(atoms) < len(values) else atoms.isdisjoint(values)


def _index(formula: Formula) -> int:
    return formula.index
