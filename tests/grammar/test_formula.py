"""Formulas simplify without changing meaning; equal formulas are one object."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stcon.grammar.json_schema.formula import Formula, Formulas

NAMES = ("a", "b", "c", "d")


def expressions() -> st.SearchStrategy[object]:
    """Nested ("and" | "or" | "one" | "not", …) tuples over names and constants."""
    leaves = st.sampled_from([*NAMES, True, False])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or", "one"]), st.lists(inner, max_size=4).map(tuple)),
            st.tuples(st.just("not"), st.tuples(inner)),
        ),
        max_leaves=12,
    )


def build(f: Formulas, expression: object) -> Formula:
    if isinstance(expression, bool):
        return f.constant(expression)
    if isinstance(expression, str):
        return f.atom(("x", expression))
    kind, parts = expression  # type: ignore[misc]
    built = [build(f, part) for part in parts]
    return {"and": f.and_, "or": f.or_, "one": f.one}[kind](built) if kind != "not" else f.not_(built[0])


def value(expression: object, truth: dict[str, bool]) -> bool:
    if isinstance(expression, bool):
        return expression
    if isinstance(expression, str):
        return truth[expression]
    kind, parts = expression  # type: ignore[misc]
    values = [value(part, truth) for part in parts]
    return {"and": all(values), "or": any(values), "one": sum(values) == 1, "not": not values[0] if values else None}[
        kind
    ]


def assignments() -> list[dict[str, bool]]:
    return [dict(zip(NAMES, bits, strict=True)) for bits in itertools.product([False, True], repeat=len(NAMES))]


@given(expressions())
def test_a_formula_has_the_truth_table_of_what_it_was_built_from(expression: object) -> None:
    """Simplification never changes a value."""
    f = Formulas()
    formula = build(f, expression)
    for truth in assignments():
        assert f.evaluate(formula, lambda atom, truth=truth: truth[atom.atom[1]]) == value(expression, truth)


@given(expressions(), st.sampled_from(NAMES), st.booleans())
def test_replace_substitutes_and_forgets_the_atom(expression: object, name: str, constant: bool) -> None:
    """After replacing an atom by a constant it no longer occurs, and the values are those with it fixed."""
    f = Formulas()
    atom = f.atom(("x", name))
    formula = f.replace(build(f, expression), {atom: f.constant(constant)})
    assert atom not in formula.atoms
    for truth in assignments():
        fixed = {**truth, name: constant}
        assert f.evaluate(formula, lambda a, truth=truth: truth[a.atom[1]]) == value(expression, fixed)


@given(expressions())
def test_a_double_negation_is_the_same_object(expression: object) -> None:
    """Negation is pushed down to atoms, so that ¬¬φ is φ itself."""
    f = Formulas()
    formula = build(f, expression)
    assert f.not_(f.not_(formula)) is formula


@given(st.lists(expressions(), min_size=2, max_size=4), st.randoms())
def test_the_order_of_parts_does_not_matter(parts: list[object], random: object) -> None:
    """Conjunction, disjunction and exactly-one of permuted parts are one object; De Morgan holds as identity."""
    f = Formulas()
    built = [build(f, part) for part in parts]
    shuffled = list(built)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert f.and_(built) is f.and_(shuffled)
    assert f.or_(built) is f.or_(shuffled)
    assert f.one(built) is f.one(shuffled)
    assert f.not_(f.and_(built)) is f.or_([f.not_(part) for part in shuffled])


def test_a_part_that_occurs_twice_cannot_be_the_one_that_holds() -> None:
    """one(a, a, b) is ¬a ∧ b."""
    f = Formulas()
    a, b = f.atom(("x", "a")), f.atom(("x", "b"))
    assert f.one([a, a, b]) is f.and_([f.not_(a), b])
