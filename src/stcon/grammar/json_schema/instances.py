"""The truth of an atom on a concrete JSON value: for enumerated values, whose outcome is known before they are read."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from stcon.errors import Unsupported
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.keywords import equal, type_of
from stcon.grammar.json_schema.schema import number

if TYPE_CHECKING:
    from stcon.grammar.json_schema.keywords import Expander


def satisfies(expander: Expander, formula: Formula, value: Any) -> bool:
    """Whether `value` satisfies a value formula (over ``schema`` atoms)."""
    local = expander.expand(formula, type_of(value))
    return expander.formulas.evaluate(local, lambda atom: truth(expander, atom.atom, value))


def truth(expander: Expander, atom: tuple[Any, ...], value: Any) -> bool:
    """Whether `value`, of the atom's type, makes the atom true."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal)):
        return number_truth(atom, number(value))
    if isinstance(value, str):
        return string_truth(atom, value)
    if isinstance(value, list):
        return _array_truth(expander, atom, value)
    return _object_truth(expander, atom, value)


def number_truth(atom: tuple[Any, ...], value: Decimal) -> bool:
    """Whether a decimal makes a number atom true."""
    match atom:
        case ("integer", _):  # as if spelled without a fraction: in draft 4, enumerated integers are
            return bool(value == value.to_integral_value())
        case ("min", bound, exclusive):
            return bool(value > bound if exclusive else value >= bound)
        case ("max", bound, exclusive):
            return bool(value < bound if exclusive else value <= bound)
        case ("multiple", divisor):
            return _is_multiple(value, divisor)
        case ("numbers", values):
            return bool(value in values)
    raise AssertionError(atom)


def string_truth(atom: tuple[Any, ...], value: str) -> bool:
    """Whether a string makes a string atom true."""
    from stcon.grammar.json_schema.strings import atom_dfa

    match atom:
        case ("strings", values):
            return bool(value in values)
        case ("minlen", count):
            return bool(len(value) >= count)
        case ("maxlen", count):
            return bool(len(value) <= count)
    from stcon.automata import accepts

    if atom[0] == "format":
        from stcon.grammar.json_schema.formats import format_universe

        universe = format_universe(atom[1])
        if universe is not None and accepts(universe, value) < 0:
            raise Unsupported(
                f"whether {value!r} has format {atom[1]!r}", keyword="format", advice="drop one of the two"
            )
    return accepts(atom_dfa(atom), value) >= 0


def _is_multiple(value: Decimal, divisor: Decimal) -> bool:
    """Exactly, whatever the decimal context's precision: both as integers over one power of ten."""
    shift = min(int(value.as_tuple().exponent), int(divisor.as_tuple().exponent))
    return _scaled(value, shift) % _scaled(divisor, shift) == 0


def _scaled(value: Decimal, exponent: int) -> int:
    sign, digits, own = value.as_tuple()
    integer: int = int("".join(map(str, digits))) * 10 ** (int(own) - exponent)
    return -integer if sign else integer


def _array_truth(expander: Expander, atom: tuple[Any, ...], value: list[Any]) -> bool:
    match atom:
        case ("item", index, child):
            return bool(index >= len(value)) or satisfies(expander, child, value[index])
        case ("items", first, child):
            return all(satisfies(expander, child, item) for item in value[first:])
        case ("contains", child, least, most):
            found = sum(satisfies(expander, child, item) for item in value)
            return bool(least <= found and (most is None or found <= most))
        case ("minitems", count):
            return bool(len(value) >= count)
        case ("maxitems", count):
            return bool(len(value) <= count)
        case ("unique", _):
            return not any(equal(a, b) for i, a in enumerate(value) for b in value[:i])
    raise AssertionError(atom)


def _object_truth(expander: Expander, atom: tuple[Any, ...], value: dict[str, Any]) -> bool:
    match atom:
        case ("has", name):
            return name in value
        case ("prop", name, child):
            return name not in value or satisfies(expander, child, value[name])
        case ("each", names, child):
            return all(
                satisfies(expander, child, inner) for name, inner in value.items() if name_in(expander, names, name)
            )
        case ("minprops", count):
            return bool(len(value) >= count)
        case ("maxprops", count):
            return bool(len(value) <= count)
    raise AssertionError(atom)


def name_in(expander: Expander, names: Formula, name: str) -> bool:
    """Whether a property name satisfies a string formula."""
    return expander.formulas.evaluate(names, lambda atom: string_truth(atom.atom, name))
