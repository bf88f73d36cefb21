"""Places at which so many schemas meet that a row of the machine might not fit: found without building any.

A *place* is where a value stands, with the schemas that can be asked about it there: one for most, several where
applicators, patterns of names or ``contains`` meet. The automata of its strings, numbers and names are at most the
product of all atoms there. `crowded` names a place where such a bound passes its limit; whether the machine does is for
the builder to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stcon.grammar.json_schema import numbers, strings
from stcon.grammar.json_schema.atoms import JsonType
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.products import MAX_PRODUCT_STATES
from stcon.grammar.json_schema.satisfy import Satisfiability
from stcon.grammar.json_schema.schema import SchemaNode

MAX_PLACES = 1_000
MAX_SETS = 5


class Place(NamedTuple):
    """Where a value stands.

    Attributes:
        schemas: the ``schema`` atoms that may be asked about it.
        open: those whose outcome may be either; the others have to hold.
    """

    schemas: frozenset[Formula]
    open: frozenset[Formula]


def crowded(sat: Satisfiability, nodes: Iterable[SchemaNode]) -> SchemaNode | None:
    """A schema at a place where a limit might be passed; None if every row is known to fit.

    Args:
        nodes: every schema that a value can meet.

    Cost: linear in the atoms of the schemas, and of the places where several meet; these are at most `MAX_PLACES`.
    """
    survey = _Survey(sat)
    alone = (node for node in nodes if not survey.is_plain(node))
    pending = [Place(frozenset({sat.formulas.atom(("schema", node))}), frozenset()) for node in alone]
    seen = set(pending)
    most = len(seen) + MAX_PLACES
    while pending:
        place = pending.pop()
        if len(seen) > most or survey.is_crowded(place):
            found: list[SchemaNode] = [atom.atom[1] for atom in place.schemas]
            return min(found, key=lambda node: node.index)
        for inner in survey.inside(place):
            if inner not in seen:
                seen.add(inner)
                pending.append(inner)
    return None


class _Survey:
    def __init__(self, sat: Satisfiability) -> None:
        self.sat = sat
        self.expander = sat.expander
        self.contains_name = sat.residuals.contains_name

    def is_plain(self, node: SchemaNode) -> bool:
        """Whether at each place inside `node` one schema stands, which has to hold: seen at a glance."""
        kinds = self.expander.kinds(node)
        return all(
            kind not in kinds or self._is_plain(self.expander.formula(node, kind)) for kind in ("object", "array")
        )

    def _is_plain(self, formula: Formula) -> bool:
        taken: set[Any] = set()
        sets = []
        for part in formula.parts if formula.kind == "and" else (formula,):
            payload: Any = part.atom or (part.kind,)
            child = payload[-1] if payload[0] in ("prop", "item", "items", "each") else None
            place = payload[0] if payload[0] == "items" else payload[:2]
            if part.kind in ("or", "one", "not") or payload[0] == "contains" or place in taken:
                return False
            if child is not None and child.kind not in ("atom", "false"):
                return False
            if payload[0] == "each" and child is not None and child.kind == "atom":
                sets.append(payload[1])
            taken.add(place)
        if not sets:
            return True
        names = [place[1] for place in taken if place[0] == "prop"]
        return len(sets) == 1 and not any(self.contains_name(sets[0], name) for name in names)

    def _atoms(self, place: Place, kind: JsonType) -> dict[Formula, bool]:
        """The atoms that may be asked of a value of one type, each with whether it has to hold."""
        found: dict[Formula, bool] = {}
        for schema in place.schemas:
            local = self.expander.expand(schema, kind)
            conjuncts = local.parts if local.kind == "and" else (local,)
            for atom in local.atoms:
                found[atom] = found.get(atom, False) or (schema not in place.open and atom in conjuncts)
        return found

    # ------------------------------------------------------------------------------------------------- limits

    def is_crowded(self, place: Place) -> bool:
        """Whether an automaton of the value at `place` may pass its limit."""
        if len(place.schemas) == 1 and not place.open:
            return False  # looked at as it is, with its own automata
        return (
            _string_states(self._atoms(place, "string")) > MAX_PRODUCT_STATES
            or _number_states(self._atoms(place, "number")) > MAX_PRODUCT_STATES
            or (len(place.schemas) > 1 and self._name_states(self._atoms(place, "object")) > MAX_PRODUCT_STATES)
        )

    def _name_states(self, atoms: Iterable[Formula]) -> int:
        """A bound on the automaton of undeclared names; past its limit where many sets of names meet."""
        sets = {atom.atom[1] for atom in atoms if atom.atom[0] == "each"}
        patterned = [names for names in sets if any(part.atom[0] != "strings" for part in names.atoms)]
        if len(patterned) > MAX_SETS:
            return MAX_PRODUCT_STATES + 1
        return _string_states({part for names in patterned for part in names.atoms})

    # ------------------------------------------------------------------------------------------------- inside

    def inside(self, place: Place) -> Iterator[Place]:
        """The places of items and of names' values, but for those of one schema that has to hold."""
        for asked in (*self._values(self._atoms(place, "object")), *self._items(self._atoms(place, "array"))):
            schemas = frozenset(atom for child, _ in asked for atom in child.atoms)
            held = {atom for child, certain in asked if certain for atom in _conjuncts(child)}
            if len(schemas) > 1 or not schemas <= held:
                yield Place(schemas, schemas - held)

    def _values(self, atoms: Mapping[Formula, bool]) -> Iterator[list[Asked]]:
        named: dict[str, list[Asked]] = {}
        sets: list[tuple[Formula, Asked]] = []
        for atom, certain in atoms.items():
            payload: Any = atom.atom
            if payload[0] == "prop":
                named.setdefault(payload[1], []).append((payload[2], certain))
            elif payload[0] == "each" and payload[2].atoms:
                sets.append((payload[1], (payload[2], certain)))
        for name, asked in named.items():
            yield asked + [more for names, more in sets if self.contains_name(names, name)]
        yield [asked for _, asked in sets]

    def _items(self, atoms: Mapping[Formula, bool]) -> Iterator[list[Asked]]:
        single: dict[int, list[Asked]] = {}
        later: list[tuple[int, Asked]] = []
        every: list[Asked] = []
        for atom, certain in atoms.items():
            match atom.atom:
                case ("item", index, child):
                    single.setdefault(index, []).append((child, certain))
                case ("items", first, child):
                    later.append((first, (child, certain)))
                case ("contains", child, _, _):
                    every.append((child, False))
        for index, asked in single.items():
            yield asked + every + [more for first, more in later if first <= index]
        yield every + [asked for _, asked in later]


Asked = tuple[Formula, bool]


def _conjuncts(child: Formula) -> tuple[Formula, ...]:
    parts = child.parts if child.kind == "and" else (child,)
    return tuple(part for part in parts if part.kind == "atom")


def _string_states(atoms: Iterable[Formula]) -> int:
    """A bound on the product of string atoms: lengths nest in each other, and lists add up."""
    states, words, longest = 1, 1, 0
    for atom in atoms:
        match atom.atom:
            case ("strings", values):
                words += sum(map(len, values))
            case ("minlen" | "maxlen", count):
                longest = max(longest, count if count <= strings.MAX_COUNTED_LENGTH else 0)
            case _:
                states *= strings.atom_dfa(atom.atom).num_states
    return states * (longest + 2) + words


def _number_states(atoms: Iterable[Formula]) -> int:
    """A bound on the product of number atoms: bounds and values divide one line, divisors multiply."""
    states, bounds = 1, 1
    for atom in atoms:
        if atom.atom[0] == "multiple":
            states *= numbers.atom_dfa(atom.atom).num_states
        elif atom.atom[0] != "numbers":
            bounds += numbers.atom_dfa(atom.atom).num_states
    return states * bounds
