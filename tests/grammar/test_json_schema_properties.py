"""Random schemas and instances against jsonschema: what is accepted is valid, what is valid is accepted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from _random_schemas import Choices, SchemaMaker
from _schema_oracle import WHITESPACE, has_integral_float, is_valid, spell, validator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stcon.errors import GrammarError, InvalidSchema, TooLarge, Unsatisfiable, Unsupported
from stcon.grammar import Grammar, compile_json_schema

DRAFTS = (2020, 2019, 7, 6, 4)
PATIENT = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def choices_of(data: st.DataObject) -> Choices:
    """Choices drawn one by one, so that a failure shrinks."""
    return Choices(lambda n: data.draw(st.integers(0, n - 1)))


def instances(maker: SchemaMaker, schema: Any, count: int) -> Iterator[Any]:
    """Instances near `schema`: half of them with one place changed."""
    for _ in range(count):
        value = maker.near(schema, schema)
        yield value
        yield maker.mutated(value)


def compiled(schema: Any, **options: Any) -> Grammar | GrammarError:
    """The grammar, or why there is none."""
    try:
        return compile_json_schema(schema, **options)
    except GrammarError as error:
        return error


def orders(value: Any, limit: int = 300) -> Iterator[Any]:
    """The orders in which the keys of `value` can be written, all levels together; at most `limit`."""
    return itertools.islice(_orders(value), limit)


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for names in itertools.permutations(value):
            for inner in itertools.product(*(list(orders(value[name], 24)) for name in names)):
                yield dict(zip(names, inner, strict=True))
    elif isinstance(value, list):
        for inner in itertools.product(*(list(orders(item, 24)) for item in value)):
            yield list(inner)
    else:
        yield value


def may_narrow(schema: Any) -> bool:
    """Whether uniqueItems may stand under a negation, where arrays with equal items are not written."""
    text = json.dumps(schema)
    conditional = ("not", "oneOf", "anyOf", "if", "contains", "dependentSchemas", "dependencies")
    return '"uniqueItems"' in text and any(f'"{keyword}"' in text for keyword in conditional)


def check_verdicts(schema: Any, values: list[Any], whitespace: str) -> None:
    """The statement of this file, for one schema."""
    loose = compiled(schema, whitespace=whitespace, key_order="any", closed=False)
    if isinstance(loose, InvalidSchema):
        assert "refers to itself" in loose.message, loose
        return
    ordered = compiled(schema, whitespace=whitespace, key_order="schema", closed=False)
    closed = compiled(schema, whitespace=whitespace, key_order="any", closed=True)
    oracle = validator(schema)
    for value in values:
        valid = is_valid(oracle, value)
        text = spell(value, whitespace)
        if isinstance(loose, Unsatisfiable):
            assert not valid, f"called unsatisfiable, but {text} is valid"
        if not isinstance(loose, Grammar):
            continue
        accepted = loose.accepts(text)
        assert not accepted or valid, f"{text} is invalid and accepted"
        if isinstance(closed, Grammar) and closed.accepts(text):
            assert accepted, f"{text} is accepted by the closed reading only"
        if isinstance(ordered, Grammar) and ordered.accepts(text):
            assert accepted, f"{text} is accepted in the schema's order only"
        if valid and not has_integral_float(value) and not may_narrow(schema):
            assert accepted, f"{text} is valid and refused"
            assert isinstance(ordered, Grammar), ordered
            some = any(ordered.accepts(spell(order, whitespace)) for order in orders(value))
            assert some, f"{text} is valid and refused in every order of its keys"


@pytest.mark.parametrize("whitespace", WHITESPACE)
@PATIENT
@given(data=st.data())
def test_verdicts_equal_jsonschema(data: st.DataObject, whitespace: str) -> None:
    """No invalid instance is accepted; every valid one is, in any order, and in some order of the schema's."""
    maker = SchemaMaker(choices_of(data), data.draw(st.sampled_from(DRAFTS)))
    schema = maker.root(2)
    check_verdicts(schema, list(instances(maker, schema, 3)), whitespace)


@pytest.mark.parametrize("draft", DRAFTS)
def test_verdicts_equal_jsonschema_on_seeds(draft: int) -> None:
    """The same on fixed seeds, deeper schemas and more instances each."""
    for seed in range(60):
        maker = SchemaMaker(Choices.seeded(1_000 * draft + seed), draft)
        schema = maker.root(2 + seed % 2)
        check_verdicts(schema, list(instances(maker, schema, 8)), "compact")


@pytest.mark.long
@pytest.mark.parametrize("draft", DRAFTS)
def test_verdicts_equal_jsonschema_on_many_seeds(draft: int) -> None:
    """The same on thousands of schemas."""
    for seed in range(3_000):
        maker = SchemaMaker(Choices.seeded(10_000_000 * draft + seed), draft)
        schema = maker.root(1 + seed % 4)
        check_verdicts(schema, list(instances(maker, schema, 10)), list(WHITESPACE)[seed % 3])


def test_refusals_of_random_schemas_are_few() -> None:
    """Most satisfiable random schemas compile, so that the tests above test something."""
    refused = 0
    compiled_count = 0
    for seed in range(200):
        maker = SchemaMaker(Choices.seeded(seed), 2020)
        outcome = compiled(maker.root(2))
        refused += isinstance(outcome, (Unsupported, TooLarge))
        compiled_count += isinstance(outcome, Grammar)
    assert compiled_count > 100
    assert refused < 30
