"""What is refused is refused when compiling, not while decoding: every schema that can be reached is looked at.

The machine is built on demand, so compilation visits each schema that can describe a value and expands it for every
type, which checks its keywords and compiles its patterns and formats. The results are used when rows are built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stcon.errors import Unsupported
from stcon.grammar.json_schema.arrays import unique_as_counts
from stcon.grammar.json_schema.atoms import TYPES
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.satisfy import Satisfiability
from stcon.grammar.json_schema.schema import SchemaNode


def check_reachable(sat: Satisfiability, root: SchemaNode) -> int:
    """Visit every schema that a value under `root` can meet; returns their number.

    Raises:
        GrammarError: the first thing that is invalid, too large, or not enforced exactly, with its place.
    """
    seen = {root}
    pending = [root]
    while pending:
        node = pending.pop()
        for kind in TYPES:
            formula = sat.expander.formula(node, kind)
            for atom in sorted(formula.atoms, key=lambda atom: atom.index):
                for inner in _schemas_in(atom.atom):
                    if inner not in seen:
                        seen.add(inner)
                        pending.append(inner)
            if kind == "string" and len(formula.atoms) > 1:
                sat.strings.language((formula,))  # a product past its budget is refused now
            if kind == "array":
                unique_as_counts(sat, formula)
            if kind == "object":
                _check_repeats(sat, node, formula)
    return len(seen)


def _schemas_in(atom: Any) -> Iterator[SchemaNode]:
    for part in atom:
        if isinstance(part, Formula):
            for inner in part.atoms:
                if inner.atom[0] == "schema":
                    yield inner.atom[1]


def _check_repeats(sat: Satisfiability, node: SchemaNode, formula: Formula) -> None:
    """Refuse an object whose verdict could depend on an undeclared name written twice.

    A repeated name counts twice, and its first value may be what violates a negated condition, while readers of JSON
    keep the last. Declared names are never repeated; of the others only as many are known as a state can count: none.
    """
    if not _depends_on_repeats(formula, positive=True):
        return
    names = sat.undeclared(formula)
    if sat.other_names((formula,), names.none()):
        raise Unsupported(
            "a condition that counts or negates properties with names that are not declared",
            pointer=node.pointer,
            keyword="minProperties",
            advice="declare the names in properties, or drop the condition",
        )


def _depends_on_repeats(formula: Formula, *, positive: bool) -> bool:
    match formula.kind:
        case "atom":
            payload: Any = formula.atom
            if payload[0] == "each":
                return not positive
            return (payload[0] == "minprops" and positive and payload[1] > 1) or (
                payload[0] == "maxprops" and not positive
            )
        case "not":
            return _depends_on_repeats(formula.parts[0], positive=not positive)
        case "one":
            return any(_depends_on_repeats(part, positive=sign) for part in formula.parts for sign in (True, False))
    return any(_depends_on_repeats(part, positive=positive) for part in formula.parts)
