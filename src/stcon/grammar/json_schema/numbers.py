"""Number machines: from a vector of number formulas to a labelled byte automaton over JSON number text.

Values are decided exactly, in decimal. What may be *spelled* is narrower than JSON's grammar, so that one value has few
spellings and a model cannot run on: an enumerated value is spelled as the schema's author did, or in plain digits; a
fraction has no trailing zeros, except a single one after the point (``1.0``); an exponent follows one digit before the
point, as printing a float gives; where a value has to be an integer or a multiple there is no exponent
(docs/departures.md).

Source: RFC 8259 section 6; JSON Schema validation 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache, partial
from typing import Any

import numpy as np

from stcon.automata import ByteDfa, CharDfa, compile_pattern, encode_utf8, literals
from stcon.automata import decimal as decimals
from stcon.grammar.json_schema.formula import Formula, Formulas
from stcon.grammar.json_schema.instances import number_truth
from stcon.grammar.json_schema.products import labelled_product
from stcon.grammar.json_schema.schema import number
from stcon.grammar.json_schema.strings import _evaluate, _shape, sorted_atoms

MAX_SPELLINGS = 32
MAX_SMALL_DIGITS = 100

_INTEGER = r"-?(0|[1-9][0-9]*)"
_PLAIN = _INTEGER + r"(\.(0|[0-9]*[1-9]))?"
_SCIENTIFIC = _PLAIN + r"|-?[1-9](\.(0|[0-9]*[1-9]))?[eE][+\-]?[0-9]{1,3}"


def number_language(
    formulas: Formulas, vector: tuple[Formula, ...], authored: Mapping[Decimal, Iterable[str]]
) -> ByteDfa | None:
    """The number texts of each label, or None if there are none. Cached by the atoms' values.

    Args:
        vector: number formulas, at most one true of any number.
        authored: how the schema spells the values it enumerates.

    Raises:
        TooLarge: the product of the atoms passes its budget.
    """
    possible = [label for label, formula in enumerate(vector) if formula is not formulas.false]
    if len(vector) > 1 and len(possible) == 1:
        return _labelled(number_language(formulas, (vector[possible[0]],), authored), possible[0])
    listed = {atom for formula in vector for atom in formula.atoms if atom.atom[0] == "numbers"}
    none = dict.fromkeys(listed, formulas.false)
    if listed and all(formulas.replace(formula, none) is formulas.false for formula in vector):
        return _listed(formulas, vector, {value for atom in listed for value in atom.atom[1]}, authored)
    return _language(tuple(_shape(tightest(formulas, formula)) for formula in vector))


def _labelled(dfa: ByteDfa | None, label: int) -> ByteDfa | None:
    """`dfa`, whose texts all have label 0, with another label."""
    return None if dfa is None else replace(dfa, labels=np.where(dfa.labels >= 0, label, -1).astype(np.int32))


def tightest(formulas: Formulas, formula: Formula) -> Formula:
    """A conjunction with only the tightest of its bounds."""
    if formula.kind != "and":
        return formula
    lower: list[tuple[Decimal, bool]] = []
    upper: list[tuple[Decimal, bool]] = []
    rest = []
    for part in formula.parts:
        positive = part.kind == "atom"
        atom: tuple[Any, ...] = part.atom if positive else part.parts[0].atom if part.kind == "not" else ()
        match (positive, atom):
            case (True, ("min", bound, exclusive)):
                lower.append((bound, exclusive))
            case (False, ("max", bound, exclusive)):
                lower.append((bound, not exclusive))
            case (True, ("max", bound, exclusive)):
                upper.append((bound, exclusive))
            case (False, ("min", bound, exclusive)):
                upper.append((bound, not exclusive))
            case _:
                rest.append(part)
    if lower:
        rest.append(formulas.atom(("min", *max(lower))))
    if upper:
        rest.append(formulas.atom(("max", *min(upper, key=lambda entry: (entry[0], not entry[1])))))
    return formulas.and_(rest)


def _listed(
    formulas: Formulas, vector: tuple[Formula, ...], values: set[Decimal], authored: Mapping[Decimal, Iterable[str]]
) -> ByteDfa | None:
    """Finitely many values, each in few spellings."""
    texts: dict[str, int] = {}
    for value in sorted(values):
        for text in {*authored.get(value, ()), _plain(value)}:
            for label, formula in enumerate(vector):
                if formulas.evaluate(formula, partial(_truth, value, text)):
                    texts[text] = label
    return encode_utf8(literals(texts)) if texts else None


def _truth(value: Decimal, text: str, atom: Formula) -> bool:
    if atom.atom == ("integer", False):  # draft 4: a matter of spelling
        return not set(text) & set(".eE")
    return number_truth(atom.atom, value)


def _plain(value: Decimal) -> str:
    """Digits without exponent, or with one where that would take more than 40 characters."""
    plain = format(value, "f")
    return plain if len(plain) <= 40 else format(value, "E").replace("E+", "e+").replace("E-", "e-")


def satisfiable(formulas: Formulas, formula: Formula) -> bool:
    """Whether some number satisfies `formula`. Cost: for bounds alone, no automaton."""
    if formula.kind == "atom" and formula.atom[0] == "numbers":
        return bool(formula.atom[1])
    bounded = tightest(formulas, formula)
    parts = bounded.parts if bounded.kind == "and" else (bounded,)
    if all(part.kind == "atom" and _is_small(part.atom) for part in parts):
        return _has_room([part.atom for part in parts])
    return formula.kind == "true" or number_language(formulas, (formula,), {}) is not None


def _is_small(atom: tuple[Any, ...]) -> bool:
    """Whether an atom is a bound or asks for an integer, with an automaton that surely fits."""
    if atom[0] in ("min", "max"):
        return bool(len(atom[1].as_tuple().digits) + abs(atom[1].adjusted()) <= MAX_SMALL_DIGITS)
    return bool(atom[0] == "integer")


def _has_room(atoms: list[tuple[Any, ...]]) -> bool:
    """Whether a number lies within at most one lower and one upper bound, and is an integer if that is asked for."""
    low, high = ([atom[1:] for atom in atoms if atom[0] == side] for side in ("min", "max"))
    if not low or not high:
        return True
    (least, above), (most, below) = low[0], high[0]
    if any(atom[0] == "integer" for atom in atoms):
        with localcontext() as context:
            context.prec = 4 * MAX_SMALL_DIGITS
            least = least.to_integral_value(ROUND_FLOOR) + 1 if above else least.to_integral_value(ROUND_CEILING)
            most = most.to_integral_value(ROUND_CEILING) - 1 if below else most.to_integral_value(ROUND_FLOOR)
        return bool(least <= most)
    return bool(least < most or (least == most and not above and not below))


def count(formulas: Formulas, formula: Formula, cap: int) -> int:
    """How many number texts satisfy `formula`, at most `cap`: no fewer than there are values."""
    dfa = None if formula.kind == "true" else number_language(formulas, (formula,), {})
    if dfa is None:
        return cap if formula.kind == "true" else 0
    ends = (dfa.labels >= 0).astype(np.int64)
    cap += 1  # 0 may be written -0
    reached = ends.copy()  # texts of at most as many bytes as rounds
    for _ in range(dfa.num_states):
        rows = np.where(dfa.delta < 0, 0, reached[dfa.delta])[:, dfa.byte_class].sum(axis=1)
        longer = np.minimum(ends + rows, cap)
        if longer[dfa.start] >= cap or np.array_equal(longer, reached):
            return int(longer[dfa.start]) - _accepts(dfa, b"-0")
        reached = longer
    return cap


def values(formulas: Formulas, formula: Formula, most: int) -> list[Decimal] | None:
    """The numbers that satisfy `formula`, each once; None if more than `most`, or written in very many ways."""
    dfa = None if formula.kind == "true" else number_language(formulas, (formula,), {})
    if dfa is None:
        return None if formula.kind == "true" else []
    texts = _texts(dfa, MAX_SPELLINGS * most)
    if texts is None:
        return None
    found = {number(Decimal(text)) for text in texts}
    return [Decimal(_plain(value)) for value in sorted(found)] if len(found) <= most else None


def _texts(dfa: ByteDfa, most: int) -> list[str] | None:
    """Every text of a trim automaton, if they are at most `most`."""
    bytes_of = [np.flatnonzero(dfa.byte_class == k).tolist() for k in range(dfa.delta.shape[1])]
    level, texts = [(dfa.start, b"")], []
    while level:
        texts += [text.decode() for state, text in level if dfa.labels[state] >= 0]
        edges = ((int(target), k, text) for state, text in level for k, target in enumerate(dfa.delta[state]))
        level = [(target, text + bytes((byte,))) for target, k, text in edges if target >= 0 for byte in bytes_of[k]]
        if len(texts) + len(level) > most:
            return None
    return texts


def _accepts(dfa: ByteDfa, text: bytes) -> bool:
    state = dfa.start
    for byte in text:
        state = int(dfa.delta[state, dfa.byte_class[byte]]) if state >= 0 else -1
    return state >= 0 and bool(dfa.labels[state] >= 0)


@lru_cache(maxsize=4096)
def _language(shape: tuple[Any, ...]) -> ByteDfa | None:
    order = sorted_atoms(shape)
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
        characters = labelled_product(factors, label)
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
