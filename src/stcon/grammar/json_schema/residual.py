"""How a formula changes while a value is read: derivatives by one item or one name, and its value at the end.

Each function takes a formula over the atoms of arrays (or objects) and returns one over atoms about what follows, mixed
with ``schema`` atoms about the item (or value) that comes next; `decide` splits the two.

Source: Brzozowski's derivatives, on formulas instead of expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.instances import name_in
from stcon.grammar.json_schema.keywords import Expander


class Names:
    """The declared names of one object: those still to come, and all of them.

    A name that is declared but no longer to come was read or passed over, and may not be spelled again.

    Attributes:
        declared: every declared name, in the machine's order.
        remaining: those that may still come, in that order.
        any_order: whether they may come in another order.
        depth: the object's depth, where the layout depends on it.
    """

    __slots__ = ("_hash", "_next", "_set", "any_order", "declared", "depth", "remaining")

    def __init__(
        self, declared: tuple[str, ...], remaining: tuple[str, ...], *, any_order: bool, depth: int = 0
    ) -> None:
        self.declared = declared
        self.remaining = remaining
        self.any_order = any_order
        self.depth = depth
        self._next: dict[int, Names] = {}
        self._hash = hash((declared, remaining, depth))
        self._set: frozenset[str] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Names)
            and self._hash == other._hash
            and self.depth == other.depth
            and self.remaining == other.remaining
            and self.declared == other.declared
        )

    @property
    def remaining_set(self) -> frozenset[str]:
        """`remaining` without its order."""
        if self._set is None:
            self._set = frozenset(self.remaining)
        return self._set

    def after(self, index: int) -> Names:
        """What may come after ``remaining[index]``: the later names; in any order, all the others."""
        following = self._next.get(index)
        if following is None:
            rest = self.remaining[index + 1 :]
            if self.any_order:
                rest = self.remaining[:index] + rest
            following = self._next[index] = Names(self.declared, rest, any_order=self.any_order, depth=self.depth)
        return following

    def none(self) -> Names:
        """No declared name may come any more."""
        return Names(self.declared, (), any_order=self.any_order, depth=self.depth)


class Parts:
    """A conjunction of demands that do not depend on each other: which names must come, and what values must satisfy.

    Attributes:
        required: the names that must come.
        least, most: bounds on the number of names; None without an upper one.
        possible: whether a name's demand can be satisfied, for whoever finds out.
    """

    def __init__(self, residuals: Residuals) -> None:
        self.required: set[str] = set()
        self.least = 0
        self.most: int | None = None
        self.possible: dict[str, bool] = {}
        self._residuals = residuals
        self._by_name: dict[str, list[Formula]] = {}
        self._by_set: list[tuple[Formula, Formula]] = []

    @classmethod
    def of(cls, formula: Formula, residuals: Residuals) -> Parts | None:
        """`formula` taken apart, or None if it is not such a conjunction."""
        parts = cls(residuals)
        for part in formula.parts if formula.kind == "and" else (formula,):
            payload: Any = part.atom if part.kind == "atom" else (part.kind,)
            match payload:
                case ("has", name):
                    parts.required.add(name)
                case ("prop", name, child):
                    parts._by_name.setdefault(name, []).append(child)
                case ("each", names, child):
                    parts._by_set.append((names, child))
                case ("minprops", count):
                    parts.least = max(parts.least, count)
                case ("maxprops", count):
                    parts.most = count if parts.most is None else min(parts.most, count)
                case ("true",):
                    pass
                case _:
                    return None
        return parts

    @property
    def counts(self) -> bool:
        """Whether the number of names matters."""
        return self.least > 0 or self.most is not None

    def demand(self, name: str) -> Formula:
        """The value formula that the value of `name` must satisfy."""
        demands = self._by_name.get(name, [])
        spoken = [child for names, child in self._by_set if self._residuals.contains_name(names, name)]
        if len(demands) == 1 and not spoken:
            return demands[0]
        return self._residuals.formulas.and_([*demands, *spoken])


class Residuals:
    """Derivatives of the formulas of one compilation."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.formulas = expander.formulas
        self._member: dict[tuple[Formula, str], bool] = {}
        self._finished: dict[Formula, Formula] = {}
        self._items: dict[Formula, Formula] = {}
        self._skipped: dict[tuple[Formula, str], Formula] = {}

    # ------------------------------------------------------------------------------------------------- arrays

    def end_array(self, formula: Formula) -> bool:
        """Whether an array that ends here satisfies `formula`."""
        done = self._finished.get(formula)
        if done is None:
            done = self._finished[formula] = self.formulas.map_atoms(formula, self._end_item)
        return done is self.formulas.true

    def item(self, formula: Formula) -> Formula:
        """`formula` after one more item, with ``schema`` atoms about that item."""
        done = self._items.get(formula)
        if done is None:
            done = self._items[formula] = self.formulas.map_atoms(formula, self._item)
        return done

    def _end_item(self, atom: Formula) -> Formula:
        match atom.atom:
            case ("contains", _, least, _):
                return self.formulas.constant(least == 0)
            case ("minitems", _):
                return self.formulas.false
        return self.formulas.true

    def _item(self, atom: Formula) -> Formula:
        f = self.formulas
        match atom.atom:
            case ("item", index, child):
                return child if index == 0 else f.atom(("item", index - 1, child))
            case ("items", first, child):
                return f.and_([child, atom]) if first == 0 else f.atom(("items", first - 1, child))
            case ("minitems", count):
                return f.atom(("minitems", count - 1)) if count > 1 else f.true
            case ("maxitems", count):
                return f.atom(("maxitems", count - 1)) if count > 0 else f.false
            case ("contains", child, least, most):
                matched = self._contains(child, least - 1, None if most is None else most - 1)
                return f.or_([f.and_([child, matched]), f.and_([f.not_(child), atom])])
        return atom

    def _contains(self, child: Formula, least: int, most: int | None) -> Formula:
        least = max(least, 0)
        if most is not None and most < least:
            return self.formulas.false
        if least == 0 and most is None:
            return self.formulas.true
        return self.formulas.atom(("contains", child, least, most))

    # ------------------------------------------------------------------------------------------------- objects

    def end_object(self, formula: Formula) -> bool:
        """Whether an object that ends here satisfies `formula`."""
        done = self._finished.get(formula)
        if done is None:
            done = self._finished[formula] = self.formulas.map_atoms(formula, self._end_name)
        return done is self.formulas.true

    def take(self, formula: Formula, name: str) -> Formula:
        """`formula` after `name` is read, with ``schema`` atoms about its value."""
        changed = {atom: new for atom in formula.atoms if (new := self._taken(atom, name)) is not atom}
        return self.formulas.replace(formula, changed)

    def skip(self, formula: Formula, name: str) -> Formula:
        """`formula` once it is decided that `name` does not come."""
        key = (formula, name)
        done = self._skipped.get(key)
        if done is None:
            f = self.formulas
            changed = {}
            for atom in formula.atoms:
                payload: Any = atom.atom
                if payload[0] in ("has", "prop") and payload[1] == name:
                    changed[atom] = f.constant(payload[0] == "prop")
            done = self._skipped[key] = f.replace(formula, changed)
        return done

    def skip_all(self, formula: Formula, names: Iterable[str]) -> Formula:
        """`skip` for several names at once."""
        passed = frozenset(names)
        changed = {}
        for atom in formula.atoms:
            payload: Any = atom.atom
            if payload[0] in ("has", "prop") and payload[1] in passed:
                changed[atom] = self.formulas.constant(payload[0] == "prop")
        return self.formulas.replace(formula, changed)

    def take_other(self, formula: Formula, inside: frozenset[Formula]) -> Formula:
        """`formula` after a name that is not declared and lies in exactly the name sets `inside`."""
        return self.formulas.map_atoms(formula, lambda atom: self._other(atom, inside))

    def relevant(self, formula: Formula, name: str) -> bool:
        """Whether reading or passing `name` can change `formula`."""
        return any(self._taken(atom, name) is not atom for atom in formula.atoms)

    def name_sets(self, vector: tuple[Formula, ...]) -> list[Formula]:
        """The name sets (string formulas) of the ``each`` atoms of a vector, in a stable order."""
        atoms = {atom for formula in vector for atom in formula.atoms if atom.atom[0] == "each"}
        return sorted({atom.atom[1] for atom in atoms}, key=lambda names: names.index)

    def contains_name(self, names: Formula, name: str) -> bool:
        """Whether `name` lies in a name set; cached."""
        key = (names, name)
        inside = self._member.get(key)
        if inside is None:
            inside = self._member[key] = name_in(self.expander, names, name)
        return inside

    def _end_name(self, atom: Formula) -> Formula:
        return self.formulas.constant(atom.atom[0] not in ("has", "minprops"))

    def _taken(self, atom: Formula, name: str) -> Formula:
        match atom.atom:
            case ("has", other):
                return self.formulas.true if other == name else atom
            case ("prop", other, child):
                return child if other == name else atom
            case ("each", names, child):
                return self.formulas.and_([child, atom]) if self.contains_name(names, name) else atom
        return self._counted(atom)

    def _other(self, atom: Formula, inside: frozenset[Formula]) -> Formula:
        match atom.atom:
            case ("each", names, child):
                return self.formulas.and_([child, atom]) if names in inside else atom
        return self._counted(atom)

    def _counted(self, atom: Formula) -> Formula:
        f = self.formulas
        match atom.atom:
            case ("minprops", count):
                return f.atom(("minprops", count - 1)) if count > 1 else f.true
            case ("maxprops", count):
                return f.atom(("maxprops", count - 1)) if count > 0 else f.false
        return atom
