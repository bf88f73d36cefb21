"""Number machines: from a vector of number formulas to a labelled byte automaton over JSON number text.

Values are decided exactly, in decimal. What may be *spelled* is narrower than JSON's grammar, so that one value has few
spellings and a model cannot run on: a fraction has no trailing zeros, except a single one after the point (``1.0``);
an exponent follows one digit before the point, as printing a float gives; where a value has to be an integer or a
multiple there is no exponent (docs/departures.md).

Source: RFC 8259 section 6; JSON Schema validation 6.2.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from stcon.automata import ByteDfa, CharDfa, compile_pattern, encode_utf8, product
from stcon.automata import decimal as decimals
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.strings import MAX_PRODUCT_STATES, _atoms, _evaluate, _shape

_INTEGER = r"-?(0|[1-9][0-9]*)"
_PLAIN = _INTEGER + r"(\.(0|[0-9]*[1-9]))?"
_SCIENTIFIC = _PLAIN + r"|-?[1-9](\.(0|[0-9]*[1-9]))?[eE][+\-]?[0-9]{1,3}"


def number_language(vector: tuple[Formula, ...]) -> ByteDfa | None:
    """The number texts of each label, or None if there are none. Cached by the atoms' values.

    Raises:
        TooLarge: the product of the atoms passes its budget.
    """
    return _language(tuple(_shape(formula) for formula in vector))


def satisfiable(formula: Formula) -> bool:
    """Whether some number satisfies `formula`."""
    if formula.kind == "atom" and formula.atom[0] != "numbers":
        return True
    return formula.kind == "true" or number_language((formula,)) is not None


@lru_cache(maxsize=4096)
def _language(shape: tuple[Any, ...]) -> ByteDfa | None:
    atoms: dict[Hashable, None] = {}
    for part in shape:
        _atoms(part, atoms)
    order: list[Any] = list(atoms)
    exponent = all(atom[0] in ("min", "max", "numbers") for atom in order)
    spelling = compile_pattern(_INTEGER if _one_integer(shape) else _SCIENTIFIC if exponent else _PLAIN)

    def label(labels: tuple[int, ...]) -> int:
        if labels[0] < 0:
            return -1
        truth = {atom: accepted >= 0 for atom, accepted in zip(order, labels[1:], strict=True)}
        return next((i for i, part in enumerate(shape) if _evaluate(part, truth)), -1)

    if (order == [("integer", True)] and shape == (("integer", True),)) or order == [("integer", False)] == list(shape):
        characters = spelling
    else:
        factors = [spelling, *(atom_dfa(atom, exponent) for atom in order)]
        characters = product(factors, label, max_states=MAX_PRODUCT_STATES)
    if not (characters.labels >= 0).any():
        return None
    return encode_utf8(characters)


def _one_integer(shape: tuple[Any, ...]) -> bool:
    return len(shape) == 1 and _demands_integer(shape[0])


def _demands_integer(shape: Any) -> bool:
    kind = shape[0]
    return kind == "integer" or (kind == "and" and any(_demands_integer(part) for part in shape[1]))


@lru_cache(maxsize=4096)
def atom_dfa(atom: tuple[Any, ...], exponent: bool = False) -> CharDfa:
    """The complete DFA of one number atom, over texts without exponent or, for bounds and values, with normal ones."""
    match atom:
        case ("integer", fraction_zeros):
            return decimals.is_integer(fraction_zeros=fraction_zeros)
        case ("min", bound, exclusive):
            return decimals.at_least(bound, exclusive=exclusive, exponent=exponent)
        case ("max", bound, exclusive):
            return decimals.at_most(bound, exclusive=exclusive, exponent=exponent)
        case ("multiple", divisor):
            return decimals.multiple_of(divisor)
        case ("numbers", values):
            return decimals.equal_to(values, exponent=exponent)
    raise AssertionError(atom)
