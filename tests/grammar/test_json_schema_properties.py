"""Random schemas and instances against jsonschema: what is accepted is valid, what is valid is accepted."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from _random_schemas import Choices, SchemaMaker
from _schema_oracle import WHITESPACE, has_integral_float, is_valid, spell, validator
from _shared_data import maskbench
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
        check_verdicts(schema, list(instances(maker, schema, 10)), list(WHITESPACE)[seed % len(WHITESPACE)])


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


def damaged(value: Any, source: random.Random) -> Any:
    """`value` with one place changed a little: what instances that are nearly right look like."""
    if isinstance(value, dict) and value and source.random() < 0.8:
        name = source.choice(list(value))
        kind = source.random()
        if kind < 0.2:
            return {k: v for k, v in value.items() if k != name}
        if kind < 0.3:
            return {**value, name + "x": value[name]}
        return {**value, name: damaged(value[name], source)}
    if isinstance(value, list) and value and source.random() < 0.8:
        index = source.randrange(len(value))
        if source.random() < 0.3:
            return value[:index] + value[index + 1 :] if source.random() < 0.5 else [*value, value[index]]
        return [*value[:index], damaged(value[index], source), *value[index + 1 :]]
    if isinstance(value, str) and source.random() < 0.7:
        at = source.randrange(len(value) + 1)
        return value[:at] + source.choice(("", "a", "Z", "0", "-", " ", "/")) + value[at + source.randrange(2) :]
    if isinstance(value, int) and not isinstance(value, bool) and source.random() < 0.7:
        return value + source.choice((-100, -1, 1, 1_000))
    return source.choice((None, True, 0, -1, 1.5, "", "a", [], {}, ["a"], {"a": 1}))


def mistakes_on(case: Any, count: int, seed: int) -> Iterator[str]:
    """Verdicts on damaged instances of a real schema that are not jsonschema's; formats are left out of it."""
    grammar = compiled(case["schema"], whitespace="json", key_order="any", closed=False, format="annotation")
    if not isinstance(grammar, Grammar):
        return
    source, oracle = random.Random(seed), validator(case["schema"])
    for test in case["tests"]:
        for _ in range(count):
            value = damaged(test["data"], source)
            valid = is_valid(oracle, value)
            accepted = grammar.accepts(spell(value, "json"))
            if accepted and not valid:
                yield f"{case['id']} accepts {spell(value, 'json')}"
            elif valid and not accepted and not has_integral_float(value):
                yield f"{case['id']} refuses {spell(value, 'json')}"


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_verdicts_on_damaged_real_instances_equal_jsonschema(part: int) -> None:
    """Instances of real schemas with one place changed."""
    cases = maskbench()[part::20]
    mistakes = [mistake for i, case in enumerate(cases) for mistake in mistakes_on(case, 3, i)]
    assert not [mistake for mistake in mistakes if " accepts " in mistake]
    assert len(mistakes) < len(cases) // 50, "\n".join(mistakes)
