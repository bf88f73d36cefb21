"""What is refused is refused when compiling, not while decoding: every schema that can be reached is looked at.

The machine is built on demand, so compilation visits each schema that can describe a value and expands it for every
type, which checks its keywords and compiles its patterns and formats. The results are used when rows are built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stcon.errors import GrammarError, TooLarge, Unsupported
from stcon.grammar.json_schema import numbers
from stcon.grammar.json_schema.atoms import JsonType
from stcon.grammar.json_schema.formats import format_universe
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.satisfy import Satisfiability
from stcon.grammar.json_schema.schema import SchemaNode


def check_reachable(sat: Satisfiability, root: SchemaNode) -> list[SchemaNode]:
    """Visit every schema that a value under `root` can meet; returns them.

    Raises:
        GrammarError: the first thing that is invalid, too large, or not enforced exactly, with its place.
    """
    seen = {root: None}
    pending = [root]
    while pending:
        node = pending.pop()
        for kind in sat.expander.kinds(node):
            formula = sat.expander.formula(node, kind)
            for atom in sorted(formula.atoms, key=lambda atom: atom.index):
                for inner in _schemas_in(atom.atom):
                    if inner not in seen:
                        seen[inner] = None
                        pending.append(inner)
            try:
                _check_local(sat, node, kind, formula)
            except GrammarError as error:
                raise error if error.pointer is not None else error.at(node.pointer) from None
    _check_formats_of_names(sat, list(seen))
    return list(seen)


def _check_formats_of_names(sat: Satisfiability, nodes: list[SchemaNode]) -> None:
    """Refuse a declared name of which it is not decided whether it has a format that names are asked to have."""
    objects = [node for node in nodes if "object" in sat.expander.kinds(node)]
    partly: dict[Formula, SchemaNode] = {}
    for node in objects:
        for atom in sat.expander.formula(node, "object").atoms:
            payload: Any = atom.atom
            if payload[0] == "each" and any(_is_partly_decided(part.atom) for part in payload[1].atoms):
                partly.setdefault(payload[1], node)
    if not partly:
        return
    names: dict[str, None] = {}
    for node in objects:
        atoms = (atom.atom for atom in sat.expander.formula(node, "object").atoms)
        names.update((payload[1], None) for payload in atoms if payload[0] in ("has", "prop"))
        if node.has("properties"):
            names.update(dict.fromkeys(node.contents["properties"]))
    for name_set, node in partly.items():
        for name in names:
            try:
                sat.residuals.contains_name(name_set, name)
            except Unsupported as error:
                raise error.at(f"{node.pointer}/propertyNames", "format") from None


def _is_partly_decided(atom: Any) -> bool:
    return bool(atom[0] == "format" and format_universe(atom[1]) is not None)


def _check_local(sat: Satisfiability, node: SchemaNode, kind: JsonType, formula: Formula) -> None:
    """Refuse now what the schema alone asks of a value of one type and is too large, or not enforced."""
    match kind:
        case "string" if len(formula.atoms) > 1 or formula.kind == "not":
            sat.strings.language((formula,))
        case "number" if len(formula.atoms) > 1 and any(atom.atom[0] == "multiple" for atom in formula.atoms):
            numbers.number_language(sat.formulas, (formula,), sat.expander.spellings)
        case "array":
            _check_unique(sat, node, formula)
        case "object":
            _check_names(sat, node, formula)


def _schemas_in(atom: Any) -> Iterator[SchemaNode]:
    for part in atom:
        if isinstance(part, Formula):
            for inner in part.atoms:
                if inner.atom[0] == "schema":
                    yield inner.atom[1]


def _check_names(sat: Satisfiability, node: SchemaNode, formula: Formula) -> None:
    """Tell undeclared names apart now: many overlapping patterns, or lengths (which names have no register for)."""
    each = [atom for atom in formula.atoms if atom.atom[0] == "each"]
    patterned = [atom for atom in each if any(part.atom[0] != "strings" for part in atom.atom[1].atoms)]
    if len(patterned) < 2 and not any(part.atom[0] in ("minlen", "maxlen") for a in each for part in a.atom[1].atoms):
        return
    names = sat.undeclared(formula).none()
    try:
        groups = sat.other_names((formula,), names)
        sat.strings.language(tuple(group.names for group in groups), counter=False)
    except TooLarge as error:
        keyword = "patternProperties" if node.has("patternProperties") else "propertyNames"
        raise error.at(f"{node.pointer}/{keyword}" if node.has(keyword) else node.pointer, keyword) from None


def _check_unique(sat: Satisfiability, node: SchemaNode, formula: Formula) -> None:
    """Refuse an array that is only possible with equal items: these are not generated."""
    unique = [atom for atom in formula.atoms if atom.atom[0] == "unique"]
    if unique and not sat.of_type("array", formula):
        repeated = sat.formulas.replace(formula, dict.fromkeys(unique, sat.formulas.false))
        if sat.of_type("array", repeated):
            raise Unsupported(
                "an array that must have equal items",
                pointer=node.pointer,
                keyword="uniqueItems",
                advice="drop the not",
            )
