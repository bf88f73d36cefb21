"""At the level of text: every spelling of a number has the verdict of its value, and no name is accepted twice."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from _random_schemas import Choices, SchemaMaker
from _schema_oracle import is_valid, parse, repeated_names, spell, validator

from stcon.errors import GrammarError, Unsatisfiable
from stcon.grammar import compile_json_schema

NUMBERS = (
    *("0", "1", "-1", "2", "3", "7", "10", "12", "-12", "99", "100", "0.1", "-0.1", "0.25", "1.5", "2.75", "-3.125"),
    *("0.001", "1e3", "1e-3", "2.5e2", "123456789012345678901", "0.3333333333333333333333"),
)
DIVISORS = ("1", "2", "3", "5", "0.1", "0.01", "0.25", "1.5", "7", "12", "100", "0.75")


def number_schema(choices: Choices, depth: int) -> str:
    """The text of a schema about numbers, exact."""
    parts = []
    for keyword in choices.some(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), 2):
        parts.append(f'"{keyword}": {choices.among(DIVISORS if keyword == "multipleOf" else NUMBERS)}')
    if choices.one_in(3):
        parts.append(f'"enum": [{", ".join(choices.some(NUMBERS, 4) or ["0"])}]')
    if choices.one_in(3):
        parts.append('"type": "integer"')
    if depth and choices.one_in(2):
        keyword = choices.among(("not", "allOf", "anyOf", "oneOf"))
        inner = [number_schema(choices, depth - 1) for _ in range(2)]
        parts.append(f'"not": {inner[0]}' if keyword == "not" else f'"{keyword}": [{", ".join(inner)}]')
    return "{" + ", ".join(parts) + "}"


def holds(schema: Any, value: Fraction) -> bool:
    """The oracle, in rational numbers."""
    checks = {
        "minimum": lambda bound: value >= Fraction(bound),
        "maximum": lambda bound: value <= Fraction(bound),
        "exclusiveMinimum": lambda bound: value > Fraction(bound),
        "exclusiveMaximum": lambda bound: value < Fraction(bound),
        "multipleOf": lambda divisor: (value / Fraction(divisor)).denominator == 1,
        "enum": lambda values: value in map(Fraction, values),
        "type": lambda _: value.denominator == 1,
        "not": lambda inner: not holds(inner, value),
        "allOf": lambda inner: all(holds(part, value) for part in inner),
        "anyOf": lambda inner: any(holds(part, value) for part in inner),
        "oneOf": lambda inner: sum(holds(part, value) for part in inner) == 1,
    }
    return all(checks[keyword](argument) for keyword, argument in schema.items())


def number_texts(source: random.Random) -> list[str]:
    """Spellings of numbers near those of the schemas: canonical ones, then any that JSON's grammar allows."""
    values = [Decimal(text) for text in NUMBERS]
    values += [
        Decimal(source.choice(NUMBERS)) + Decimal(source.choice(("0", "1", "-1", "0.01", "1e-25"))) for _ in "12345"
    ]
    values += [Decimal(source.choice(DIVISORS)) * source.randrange(-40, 40) for _ in "1234567890"]
    texts = [f"{value:f}" for value in values]
    for value in values:
        digits = "".join(map(str, value.as_tuple().digits))
        sign = "-" if value < 0 else ""
        exponent = int(value.as_tuple().exponent)
        texts.append(f"{sign}{digits}{source.choice('eE')}{exponent}")
        texts.append(f"{sign}{digits[0]}.{digits[1:] or '0'}{source.choice(('e', 'e+', 'E-', 'e0'))}{abs(exponent)}")
        texts.append(f"{value:f}" + ("0" if "." in f"{value:f}" else ".0"))
        texts.append(f"{sign}0.{digits}e{exponent + len(digits)}")
    texts += [
        "-0",
        "-0.0",
        "0e5",
        "0.0e-2",
        "1E400",
        "1e-400",
        "5e0",
        "05",
        "+1",
        "1.",
        ".5",
        "1e",
        "--1",
        "0x1",
        "1_0",
    ]
    return texts


def check_numbers(seed: int) -> None:
    """One schema, many texts."""
    source = random.Random(seed)
    text = number_schema(Choices.seeded(seed), 2)
    schema = json.loads(text, parse_float=Decimal)
    try:
        grammar = compile_json_schema(f'{{"type": "number", "allOf": [{text}]}}')
    except Unsatisfiable:
        grammar = None
    except GrammarError:
        return
    for spelled in number_texts(source):
        try:
            valid = holds(schema, Fraction(str(json.loads(spelled, parse_float=str, parse_int=str))))
        except json.JSONDecodeError:
            valid = False
        accepted = grammar is not None and grammar.accepts(spelled)
        assert not accepted or valid, f"{text} accepts {spelled}"
        plain = not set("eE") & set(spelled) and not (spelled.endswith("0") and "." in spelled) and spelled != "-0"
        assert not valid or accepted or not plain, f"{text} refuses {spelled}"


def test_numbers_have_the_verdict_of_their_value() -> None:
    """Bounds, divisors, lists, integers and their boolean combinations, against rational arithmetic."""
    for seed in range(120):
        check_numbers(seed)


@pytest.mark.long
def test_numbers_of_many_schemas_have_the_verdict_of_their_value() -> None:
    """The same for thousands of schemas."""
    for seed in range(1_000, 9_000):
        check_numbers(seed)


def with_repeated_name(value: Any, source: random.Random) -> str | None:
    """A text of `value` in which one object has one of its names twice; None if no object has a name."""
    text = spell(value, "compact")
    starts = [i for i, character in enumerate(text) if character == "{" and text[i + 1] == '"' and _outside(text, i)]
    if not starts:
        return None
    at = source.choice(starts)
    decoder = json.JSONDecoder()
    members = decoder.raw_decode(text, at)[0]
    name = source.choice(list(members))
    extra = f"{spell(name, 'compact')}:{spell(source.choice(list(members.values())), 'compact')}"
    end = decoder.raw_decode(text, at)[1]
    if source.random() < 0.5:
        return f"{text[: at + 1]}{extra},{text[at + 1 :]}"
    return f"{text[: end - 1]},{extra}{text[end - 1 :]}"


def _outside(text: str, index: int) -> bool:
    """Whether `index` is outside strings."""
    inside, i = False, 0
    while i < index:
        if inside and text[i] == "\\":
            i += 1
        elif text[i] == '"':
            inside = not inside
        i += 1
    return not inside


@pytest.mark.parametrize("options", [{}, {"key_order": "any", "closed": False}, {"escapes": "any", "closed": False}])
def test_no_name_is_accepted_twice(options: dict[str, Any]) -> None:
    """Whatever a schema says, a text that repeats a name is refused."""
    repeated = 0
    for seed in range(250):
        source = random.Random(seed)
        maker = SchemaMaker(Choices.seeded(seed), 2020)
        schema = maker.root(2)
        try:
            grammar = compile_json_schema(schema, **options)
        except GrammarError:
            continue
        for _ in range(4):
            text = with_repeated_name(maker.near(schema, schema), source)
            if text is not None:
                assert repeated_names(text)
                assert not grammar.accepts(text), f"{schema} accepts {text}"
                repeated += 1
    assert repeated > 50


@pytest.mark.parametrize("escapes", ["minimal", "any"])
def test_escaped_spellings_have_the_verdict_of_their_value(escapes: str) -> None:
    """A text whose strings are escaped at random is accepted only if its value is valid."""
    accepted = 0
    for seed in range(150):
        source = random.Random(seed)
        maker = SchemaMaker(Choices.seeded(10_000 + seed), 2020)
        schema = maker.root(2)
        try:
            grammar = compile_json_schema(schema, escapes=escapes, closed=False, key_order="any")
        except GrammarError:
            continue
        oracle = validator(schema)
        for _ in range(6):
            value = maker.near(schema, schema)
            text = escaped(spell(value, "compact"), source)
            assert parse(text) == parse(spell(value, "compact"))
            verdict = grammar.accepts(text)
            valid = is_valid(oracle, value)
            assert not verdict or valid, f"{schema} accepts {text}"
            accepted += verdict
            if escapes == "any" and valid and "." not in text:
                assert verdict, f"{schema} refuses {text}"
    assert accepted > 20


def escaped(text: str, source: random.Random) -> str:
    """`text` with some characters of its strings written as ``\\uXXXX``."""
    out, i = [], 0
    while i < len(text):
        if text[i] == "\\":
            length = 6 if text[i + 1] == "u" else 2
            out.append(text[i : i + length])
            i += length
            continue
        if text[i] != '"' and not _outside(text, i) and source.random() < 0.2:
            out.append(json.dumps(text[i])[1:-1] if ord(text[i]) > 127 else f"\\u{ord(text[i]):04x}")
        else:
            out.append(text[i])
        i += 1
    return "".join(out)
