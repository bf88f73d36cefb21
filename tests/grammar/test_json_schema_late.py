"""Nothing is refused after compiling: what would pass a limit in a row is left out, and every text can be ended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from _random_schemas import SCHEMA_URIS, Choices, SchemaMaker
from _schema_oracle import is_valid, parse, validator, walk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stcon.errors import GrammarError
from stcon.grammar import Grammar, compile_json_schema
from stcon.grammar.json_schema import compile as compiling
from stcon.grammar.json_schema import decisions, numbers, products, satisfy, strings

SETTINGS: list[dict[str, Any]] = [
    {"whitespace": whitespace, "key_order": order, "closed": closed, "escapes": escapes}
    for whitespace in ("compact", "flexible")
    for order, closed, escapes in (("schema", True, "minimal"), ("any", False, "minimal"), ("schema", False, "any"))
]

CACHED = (strings._characters, strings._bounded_block, strings._encoded, numbers._language)


def crowded_schema(choices: Choices, draft: int) -> dict[str, Any]:
    """Alternatives that meet at the same names and items, so that every limit has something to limit."""
    maker = SchemaMaker(choices, draft)
    keyword = choices.among(("anyOf", "oneOf", "allOf"))
    schema: dict[str, Any] = {keyword: [maker.schema(1 + choices.pick(2)) for _ in range(2 + choices.pick(5))]}
    schema["$schema"] = SCHEMA_URIS[draft]
    schema[maker.definitions] = {"p": maker.schema(1), "q": maker.schema(0)}
    return schema


def compiled(schema: Any, **options: Any) -> Grammar | None:
    """The grammar, or None where it is refused, as it should be, now."""
    try:
        return compile_json_schema(schema, **options)
    except GrammarError:
        return None


def walk_and_judge(grammar: Grammar, schema: Any, seed: int, count: int) -> int:
    """Walk `count` times and judge what is written; returns how many walks ended."""
    source, oracle = random.Random(seed), validator(schema)
    texts = [text for _ in range(count) if (text := walk(grammar.machine, source, steps=30)) is not None]
    for text in texts:
        assert is_valid(oracle, parse(text)) is not False, text
    return len(texts)


def build_some_rows(grammar: Grammar, most: int) -> None:
    """Build the first rows of a machine, reached by a text or not."""
    for state in range(most):
        if state < grammar.machine.num_states:
            grammar.machine.build(state)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_row_of_a_schema_is_refused(data: st.DataObject) -> None:
    """Whatever the schema, once it is compiled every row is built, and every walk ends in a valid text."""
    choices = Choices(lambda n: data.draw(st.integers(0, n - 1)))
    schema = crowded_schema(choices, choices.among(tuple(SCHEMA_URIS)))
    grammar = compiled(schema, **choices.among(SETTINGS))
    if grammar is not None:
        walk_and_judge(grammar, schema, choices.pick(1_000), 2)
        build_some_rows(grammar, 100)


def walk_seeds(draft: int, seeds: range) -> int:
    """The same on fixed seeds; returns how many walks ended."""
    ended = 0
    for seed in seeds:
        schema = crowded_schema(Choices.seeded(9_000 * draft + seed), draft)
        grammar = compiled(schema, **SETTINGS[seed % len(SETTINGS)])
        if grammar is not None:
            ended += walk_and_judge(grammar, schema, seed, 2)
            build_some_rows(grammar, 100)
    return ended


@pytest.mark.parametrize("draft", SCHEMA_URIS)
def test_no_row_of_a_random_schema_is_refused(draft: int) -> None:
    """The same on fixed seeds."""
    assert walk_seeds(draft, range(15)) > 5


@pytest.mark.long
@pytest.mark.parametrize("draft", SCHEMA_URIS)
def test_no_row_of_many_random_schemas_is_refused(draft: int) -> None:
    """The same on hundreds of seeds."""
    assert walk_seeds(draft, range(15, 400)) > 100


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limits so small that many rows pass them; and no looking ahead, which would refuse these schemas."""
    for module in (products, strings):
        monkeypatch.setattr(module, "MAX_PRODUCT_STATES", 70)
    monkeypatch.setattr(products, "MAX_FOLDED_STATES", 140)
    monkeypatch.setattr(numbers, "MAX_SMALL_DIGITS", -1)
    monkeypatch.setattr(decisions, "MAX_CASES", 1)
    monkeypatch.setattr(decisions, "MAX_KEPT", 1)
    monkeypatch.setattr(decisions, "FEW", 1)
    monkeypatch.setattr(satisfy, "MAX_CASES", 6)
    monkeypatch.setattr(satisfy, "MAX_NAME_CLASSES", 2)
    monkeypatch.setattr(satisfy, "MAX_NAME_SETS", 1)
    monkeypatch.setattr(compiling, "crowded", lambda *_: None)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for function in CACHED:
        function.cache_clear()


@pytest.mark.parametrize("draft", SCHEMA_URIS)
@pytest.mark.usefixtures("narrow")
def test_rows_past_a_limit_are_narrower_and_never_stuck(draft: int) -> None:
    """With tiny limits walks still end, in valid texts."""
    assert walk_seeds(draft, range(25)) > 5


@pytest.mark.long
@pytest.mark.parametrize("draft", SCHEMA_URIS)
@pytest.mark.usefixtures("narrow")
def test_many_rows_past_a_limit_are_narrower_and_never_stuck(draft: int) -> None:
    """The same on hundreds of seeds."""
    assert walk_seeds(draft, range(25, 400)) > 100
