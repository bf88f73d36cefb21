"""Hostile schemas end within seconds: in a grammar, or in an error of the right kind. Nothing is refused later."""

from __future__ import annotations

import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _schema_oracle import spell, walk

from stcon.errors import (
    GrammarError,
    InvalidPattern,
    InvalidSchema,
    TooLarge,
    Unsatisfiable,
    Unsupported,
)
from stcon.grammar import Grammar, compile_json_schema

LIMIT_S = 8.0  # of processor time, on a machine that may be busy; alone each ends within 4
LIMIT_KIB = 1 << 20
CHECKING = {"whitespace": "flexible", "key_order": "any", "closed": False}
WRITING: dict[str, Any] = {}


@contextmanager
def bounded() -> Iterator[None]:
    """Fails where the block takes more than `LIMIT_S` of processor time or 1 GiB, and ends it if it hangs."""

    def hang(*_: object) -> None:
        raise TimeoutError("still running after many times the limit")

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    previous = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    spent = time.process_time() - start
    assert spent < LIMIT_S, f"took {spent:.1f} s"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < LIMIT_KIB


def attempt(schema: Any, options: dict[str, Any], texts: tuple[str, ...] = ()) -> Grammar | GrammarError:
    """Compile, then read `texts` and walk: a refusal may come from compiling only."""
    with bounded():
        try:
            grammar = compile_json_schema(schema, **options)
        except GrammarError as error:
            return error
        grammar.machine.live(grammar.machine.initial())
        for text in texts:
            grammar.accepts(text)
        for seed in range(3):
            walk(grammar.machine, random.Random(seed), steps=40, patience=120)
        return grammar


def nested(keyword: str, levels: int, inner: Any, *, in_list: bool = False) -> Any:
    """`inner` below `levels` of one keyword."""
    for _ in range(levels):
        inner = {keyword: [inner] if in_list else inner}
    return inner


def deep_text(levels: int) -> str:
    """A schema nested so deep that parsing it recursively fails."""
    return '{"items":' * levels + "true" + "}" * levels


def endless_items(levels: int) -> Any:
    """Arrays that must have an item, in each other."""
    inner: Any = True
    for _ in range(levels):
        inner = {"type": "array", "items": inner, "minItems": 1}
    return inner


def record(number: int, **keywords: Any) -> dict[str, Any]:
    """An object schema with `number` optional integers."""
    return {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(number)}, **keywords}


def tool(i: int) -> dict[str, Any]:
    """A tool call: a discriminating name, then arguments."""
    arguments = {"x": {"type": "integer"}, f"y{i}": {"type": "string", "enum": ["a", "b", f"c{i}"]}}
    return {
        "type": "object",
        "properties": {
            "name": {"const": f"tool_{i}"},
            "arguments": {"type": "object", "properties": arguments, "required": ["x"], "additionalProperties": False},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def overlapping_map(i: int) -> dict[str, Any]:
    """One of many open recursive maps that overlap."""
    return {"type": "object", "properties": {f"k{i}": {"$ref": "#"}, "x": {"enum": [i, "q"]}}, "required": ["x"]}


def payload_first(i: int) -> dict[str, Any]:
    """An alternative whose payload comes before the name that tells it from the others."""
    payload = {"type": "object", "properties": {f"z{i}": {"type": "string"}}}
    return {
        "type": "object",
        "properties": {"payload": payload, "kind": {"const": i}, "link": {"$ref": "#"}},
        "required": ["payload", "kind"],
    }


RESULT = (Grammar,)
ANY = (Grammar, TooLarge, Unsupported)

COMPILES: dict[str, tuple[Any, str, str]] = {
    # schema, a text to accept, a text to refuse (with CHECKING)
    "enum of 10,000 strings": ({"enum": [f"v{i}" for i in range(10_000)]}, '"v9999"', '"v10000"'),
    "enum of 10,000 numbers": ({"enum": list(range(10_000))}, "9999", "10000"),
    "enum of 100 objects": ({"enum": [{"a": i} for i in range(100)]}, '{"a": 99}', '{"a": 100}'),
    "enum of 100 arrays": ({"enum": [[i, i] for i in range(100)]}, "[99, 99]", "[98, 99]"),
    "enum of everything": ({"enum": [[], {}, 0, "", None, True, [[]], {"": {}}]}, "[[]]", "[{}]"),
    "maxLength 100,000": ({"type": "string", "maxLength": 100_000}, f'"{"a" * 100_000}"', f'"{"a" * 100_001}"'),
    "maxLength beside a pattern": (
        {"type": "string", "maxLength": 100_000, "pattern": "^[a-z]+$"},
        f'"{"a" * 10_000}"',
        f'"{"a" * 100_001}"',
    ),
    "minLength 100,000": ({"type": "string", "minLength": 100_000}, f'"{"é" * 100_000}"', f'"{"é" * 99_999}"'),
    "maxLength past 32 bits": ({"type": "string", "maxLength": 2**31 + 5}, '"abc"', "1"),
    "maxLength past 64 bits": ({"type": "string", "maxLength": 10**30}, '"abc"', "1"),
    "maxItems past 64 bits": ({"type": "array", "maxItems": 10**30}, "[1]", "1"),
    "maxProperties past 64 bits": ({"type": "object", "maxProperties": 10**30}, '{"a": 1}', "1"),
    "minItems 1,000": (
        {"type": "array", "minItems": 1_000, "items": {"type": "integer"}},
        str([1] * 1_000),
        str([1] * 999),
    ),
    "500 optional keys": (record(500), '{"k0": 1, "k499": 2}', '{"k499": "2"}'),
    "500 optional keys, no others": (record(500, additionalProperties=False), '{"k0": 1, "k499": 2}', '{"k500": 2}'),
    "500 required keys": (
        record(500, required=[f"k{i}" for i in range(500)]),
        spell({f"k{i}": i for i in range(500)}, "json"),
        spell({f"k{i}": i for i in range(499)}, "json"),
    ),
    "200 tools, anyOf": (
        {"anyOf": [tool(i) for i in range(200)]},
        '{"name": "tool_7", "arguments": {"x": 1, "y7": "c7"}}',
        '{"name": "tool_7", "arguments": {"x": 1, "y7": "c8"}}',
    ),
    "200 tools, oneOf": (
        {"oneOf": [tool(i) for i in range(200)]},
        '{"name": "tool_199", "arguments": {"x": 1}}',
        '{"name": "tool_200", "arguments": {"x": 1}}',
    ),
    "200 tools in an array": (
        {"type": "array", "items": {"oneOf": [tool(i) for i in range(200)]}},
        '[{"name": "tool_199", "arguments": {"x": 1}}]',
        '[{"name": "tool_199", "arguments": {}}]',
    ),
    "oneOf of 8 overlapping maps": (
        {"oneOf": [overlapping_map(i) for i in range(8)]},
        '{"x": 3, "k1": {"x": 2}}',
        '{"x": "q"}',
    ),
    "contains inside contains": (
        {
            "type": "array",
            "contains": {"contains": {"contains": {"minimum": 3}, "minContains": 2, "maxContains": 3}, "type": "array"},
            "minContains": 2,
        },
        "[[[3, 4]], 7, [[5, 6, 7], []]]",
        "[[[3, 4]], 7, [[5, 6, 7, 8]]]",
    ),
    "12 contains at once": (
        {"type": "array", "allOf": [{"contains": {"const": i}} for i in range(12)]},
        str(list(range(12))),
        str(list(range(11))),
    ),
    "bound of 500 digits": ({"type": "integer", "minimum": 10**500}, f"1{'0' * 500}", "9" * 500),
    "bounds between close decimals": (
        '{"minimum": 0.' + "3" * 300 + ', "maximum": 0.' + "3" * 299 + "4}",
        "0." + "3" * 300,
        "0." + "3" * 299,
    ),
    "pattern of 2**14 states": ({"type": "string", "pattern": "[ab]*a[ab]{13}"}, f'"a{"b" * 13}"', '"b"'),
    "names unlike names": (
        {
            "properties": {"": True, '"': True, "\\": True, "\n": True, "é😀": {"const": 1}, "a/b~c%": {"const": 2}},
            "additionalProperties": False,
        },
        '{"": 0, "\\"": 0, "\\\\": 0, "\\n": 0, "é😀": 1, "a/b~c%": 2}',
        '{"é": 1}',
    ),
    "names that cannot be spelled": ({"properties": {"\ud800": True, "a": True}, "type": "object"}, '{"a": 1}', "1"),
    "required twice": ({"required": ["a", "a"], "type": "object"}, '{"a": 1}', "{}"),
    "key orders in conflict": (
        {
            "type": "object",
            "allOf": [
                {"properties": {"a": {"type": "integer"}, "b": {}}},
                {"properties": {"b": {}, "a": {"minimum": 2}}, "required": ["b", "a"]},
            ],
        },
        '{"b": 0, "a": 2}',
        '{"a": 1, "b": 0}',
    ),
    "reference with a percent sign": (
        {"$ref": "#/properties/a%25b", "properties": {"a%b": {"type": "object"}}},
        '{"a%b": {}}',
        "1",
    ),
    "reference with slash and tilde": ({"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": {"const": 1}}}, "1", "2"),
    "pattern properties that overlap": (
        {"type": "object", "patternProperties": {c: {"minimum": ord(c)} for c in "abcde"}},
        '{"ab": 98}',
        '{"ab": 97}',
    ),
    "dependent chain": (
        {"type": "object", "required": ["k0"], "dependentRequired": {f"k{i}": [f"k{i + 1}"] for i in range(40)}},
        spell({f"k{i}": i for i in range(41)}, "json"),
        '{"k0": 1}',
    ),
    "recursion through every container": (
        {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#"}, "contains": {"$ref": "#"}},
                {
                    "type": "object",
                    "patternProperties": {"^a": {"$ref": "#"}},
                    "additionalProperties": {"not": {"$ref": "#"}},
                },
                {"const": 0},
            ]
        },
        '[0, {"a": [0]}, {"b": 1}]',
        '[{"b": 0}]',
    ),
    "what $ref means where it names no reference": ({"const": {"$ref": "#/nowhere"}}, '{"$ref": "#/nowhere"}', "{}"),
    "a property named $ref": ({"properties": {"$ref": {"type": "string"}}}, '{"$ref": "x"}', '{"$ref": 1}'),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name == "500 required keys" else []) for name in COMPILES]
)
def test_hostile_schema_compiles_and_means_what_it_says(name: str) -> None:
    """Large and odd schemas that have to work, in both settings."""
    schema, good, bad = COMPILES[name]
    grammar = attempt(schema, CHECKING, (good, bad))
    assert isinstance(grammar, Grammar), grammar
    assert grammar.accepts(good)
    assert not grammar.accepts(bad)
    writing = attempt(schema, WRITING)
    assert isinstance(writing, Grammar), writing


ENDS: dict[str, tuple[Any, tuple[type, ...]]] = {
    "10,000 levels": (nested("items", 10_000, True), (TooLarge,)),
    "10,000 levels of text": (deep_text(10_000), (TooLarge,)),
    "100,000 levels of text": (deep_text(100_000), (TooLarge,)),
    "10,000 levels of allOf": (nested("allOf", 10_000, True, in_list=True), (TooLarge,)),
    "10,000 levels of const": ({"const": nested("a", 10_000, 1)}, (TooLarge,)),
    "390 levels of not": (nested("not", 390, {"type": "integer"}), (Grammar, TooLarge)),
    "390 levels of items": (nested("items", 390, {"type": "integer"}), (Grammar, TooLarge)),
    "150 levels of anyOf": (nested("anyOf", 150, {"type": "integer"}, in_list=True), RESULT),
    "chain of 1,000 references": (
        {"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(1_000)} | {"1000": True}},
        (Grammar, TooLarge),
    ),
    "nested counted repeats": ({"type": "string", "pattern": "((a{100}){100}){100}"}, (TooLarge,)),
    "nested stars": ({"type": "string", "pattern": "^((a*)*)*$"}, RESULT),
    "pattern of 2**30 states": ({"type": "string", "pattern": "^[ab]*a[ab]{30}$"}, (TooLarge,)),
    "pattern of many alternatives": ({"type": "string", "pattern": "|".join(f"{i}x" for i in range(5_000))}, ANY),
    "pattern of 5,000 groups": ({"type": "string", "pattern": "(" * 5_000 + ")" * 5_000}, (TooLarge,)),
    "pattern of 100,000 characters": ({"type": "string", "pattern": "ab" * 50_000}, (Grammar, TooLarge)),
    "pattern with a backreference": ({"type": "string", "pattern": r"^(a|b)\1$"}, (Unsupported,)),
    "pattern that is none": ({"type": "string", "pattern": "("}, (InvalidPattern,)),
    "pattern property that is none": ({"patternProperties": {"(": True}}, (InvalidPattern,)),
    "pattern property in an if": ({"if": {"patternProperties": {"[": True}}, "then": True}, (InvalidPattern,)),
    "product of counted patterns": (
        {"type": "string", "allOf": [{"pattern": f"^([^]{{{n}}})*$"} for n in (97, 89, 83, 79)]},
        (TooLarge,),
    ),
    "product inside an optional key": (
        {"properties": {"a": {"type": "string", "minLength": 100_000, "pattern": "^([^]{97})*$"}}},
        ANY,
    ),
    "product of multiples inside an optional key": (
        {"properties": {"a": {"type": "number", "allOf": [{"multipleOf": n} for n in (97, 89, 83, 79, 101)]}}},
        ANY,
    ),
    "product of names": (
        {"patternProperties": {f"^([^]{{{n}}})*$": {"minimum": n} for n in (97, 89, 83, 79)}},
        ANY,
    ),
    "20 alternatives of a value": (
        {
            "type": "object",
            "anyOf": [{"properties": {"a": {"pattern": chr(97 + i)}}, "required": [f"b{i}"]} for i in range(20)],
        },
        ANY,
    ),
    "50 bounds of a value": (
        {"type": "object", "anyOf": [{"properties": {"a": {"minimum": i}}, "required": [f"b{i}"]} for i in range(50)]},
        ANY,
    ),
    "products of labels": (
        {"type": "array", "contains": {"type": "string", "maxLength": 100_000, "pattern": "^a*$"}},
        ANY,
    ),
    "divisors at one place": (
        {
            "type": "object",
            "anyOf": [
                {"properties": {"a": {"multipleOf": 997}}, "required": ["b"]},
                {"properties": {"a": {"multipleOf": 991}}},
            ],
        },
        ANY,
    ),
    "16 patterns of names that overlap": (
        {"type": "object", "patternProperties": {c: {"minimum": ord(c)} for c in "abcdefghijklmnop"}},
        ANY,
    ),
    "patterns of names and values": (
        {"type": "object", "patternProperties": {c: {"pattern": c} for c in "abcdefghij"}},
        ANY,
    ),
    "long names": ({"type": "object", "propertyNames": {"maxLength": 100_000}}, ANY),
    "names of 60,000 characters": ({"type": "object", "propertyNames": {"minLength": 60_000}}, ANY),
    "unique items of itself": ({"items": {"$ref": "#"}, "uniqueItems": True}, RESULT),
    "more unique items than values": (
        {
            "type": "array",
            "minItems": 3,
            "uniqueItems": True,
            "items": {"type": "object", "properties": {"a": {"type": "null"}}, "propertyNames": {"enum": ["a"]}},
        },
        (Unsatisfiable,),
    ),
    "counts in an alternative, names that run out": (
        {
            "type": "object",
            "anyOf": [{"minProperties": 3}, {"required": ["zz"]}],
            "propertyNames": {"pattern": "^[ab]$"},
        },
        (Unsatisfiable,),
    ),
    "unique items that must repeat": (
        {"type": "array", "uniqueItems": True, "enum": [[0, 0, 1], [2]], "unevaluatedItems": {"minimum": 0}},
        RESULT,
    ),
    "minItems 10,000": ({"type": "array", "minItems": 10_000}, (Grammar, TooLarge)),
    "minItems past 64 bits": ({"type": "array", "minItems": 10**30}, (TooLarge, Unsatisfiable)),
    "minItems 10**9": ({"type": "array", "minItems": 10**9}, (Grammar, TooLarge)),
    "minLength past 32 bits": ({"type": "string", "minLength": 2**31 + 5}, (TooLarge,)),
    "minLength past 64 bits": ({"type": "string", "minLength": 10**30}, (TooLarge,)),
    "minProperties 10**6": ({"type": "object", "minProperties": 10**6}, ANY),
    "minContains 10**9": ({"type": "array", "contains": {"const": 1}, "minContains": 10**9}, (Grammar, TooLarge)),
    "12 contains of 2": (
        {"type": "array", "allOf": [{"contains": {"multipleOf": i + 2}, "minContains": 2} for i in range(12)]},
        ANY,
    ),
    "contains over contains, counted": (
        {
            "type": "array",
            "allOf": [{"contains": {"contains": {"const": i}}, "minContains": 3, "maxContains": 9} for i in range(6)],
        },
        ANY,
    ),
    "59 alternatives, payload first": ({"anyOf": [payload_first(i) for i in range(59)]}, ANY),
    "33 by 8 alternatives, payload first": (
        {"oneOf": [{"oneOf": [payload_first(8 * i + j) for j in range(8)]} for i in range(33)]},
        ANY,
    ),
    "oneOf of 30 open maps": (
        {"oneOf": [{"properties": {f"k{i}": {"type": "string"}}, "type": "object"} for i in range(30)]},
        ANY,
    ),
    "oneOf of 8 maps of themselves": (
        {
            "oneOf": [
                {
                    "type": "object",
                    "additionalProperties": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
                    "required": [f"k{i}"],
                }
                for i in range(8)
            ]
        },
        ANY,
    ),
    "counting 200 of 400 keys": (record(400, additionalProperties=False, minProperties=200), ANY),
    "any 3 of 40": (
        {
            "type": "object",
            "properties": dict.fromkeys(map(str, range(40)), True),
            "additionalProperties": False,
            "minProperties": 3,
            "maxProperties": 3,
        },
        ANY,
    ),
    "5,000 required": ({"type": "object", "required": [f"k{i}" for i in range(5_000)]}, ANY),
    "20 tables of dependencies": (
        {"type": "object", "dependentRequired": {f"a{i}": [f"b{j}" for j in range(20)] for i in range(20)}},
        ANY,
    ),
    "20 independent conditions": (
        {
            "type": "object",
            "allOf": [{"if": {"required": [f"a{i}"]}, "then": {"required": [f"b{i}"]}} for i in range(20)],
        },
        ANY,
    ),
    "20 independent conditions on values": (
        {
            "type": "object",
            "allOf": [
                {"if": {"properties": {f"a{i}": {"const": 1}}}, "then": {"properties": {f"b{i}": {"const": 2}}}}
                for i in range(20)
            ],
        },
        ANY,
    ),
    "not of 20 anyOf of 20": (
        {"allOf": [{"not": {"anyOf": [{"required": [f"a{i}", f"b{j}"]} for j in range(20)]}} for i in range(20)]},
        ANY,
    ),
    "16 unevaluated patterns": (
        {"patternProperties": dict.fromkeys("abcdefghijklmnop", True), "unevaluatedProperties": False},
        ANY,
    ),
    "satisfiability of a formula": (
        {
            "type": "object",
            "properties": {f"v{i}": {"type": "boolean"} for i in range(30)},
            "required": [f"v{i}" for i in range(30)],
            "allOf": [
                {
                    "anyOf": [
                        {"properties": {f"v{(i * k + j) % 30}": {"const": (i + j) % 2 == 0}}}
                        for j, k in ((0, 7), (1, 11), (2, 13))
                    ]
                }
                for i in range(120)
            ],
        },
        (Grammar, TooLarge, Unsatisfiable),
    ),
    "200 levels that have to be there, in an optional key": (
        {"type": "object", "properties": {"a": endless_items(200)}},
        (Grammar, TooLarge),
    ),
    "50 outcomes of two required keys": (
        {
            "type": "object",
            "required": ["a", "b"],
            "anyOf": [{"properties": {"a": {"minimum": i}, "b": {"maximum": i}}} for i in range(50)],
        },
        RESULT,
    ),
    "divisors below a recursive key": (
        {
            "type": "object",
            "properties": {
                "below": {"$ref": "#"},
                "list": {
                    "type": "array",
                    "items": {"anyOf": [{"contains": {"multipleOf": 997}}, {"contains": {"multipleOf": 991}}]},
                },
            },
        },
        (TooLarge,),
    ),
    "alternatives of maps by pattern": (
        {
            "type": "object",
            "anyOf": [
                {"patternProperties": {f"^{c}.*x": {"type": "integer"}}, "required": [f"q{c}"]} for c in "abcdefghijkl"
            ],
        },
        ANY,
    ),
    "alternatives of maps by patterns that overlap": (
        {
            "type": "object",
            "anyOf": [
                {"patternProperties": {f"{c}.{{5}}x": {"type": "integer"}}, "required": [f"q{c}"]}
                for c in "abcdefghijkl"
            ],
        },
        ANY,
    ),
    "a length and a pattern as alternatives": (
        {
            "type": "object",
            "anyOf": [{"properties": {"a": {"minLength": 10**6}}}, {"properties": {"a": {"pattern": "^a*$"}}}],
        },
        RESULT,
    ),
    "minLength 10**9 and a pattern": ({"type": "string", "minLength": 10**9, "pattern": "^a*$"}, (TooLarge,)),
    "a name that may or may not have a format": (
        {"type": "object", "propertyNames": {"format": "hostname"}, "properties": {"xn--a": True}},
        (Unsupported,),
    ),
    "a value that may or may not have a format": (
        {
            "type": "object",
            "anyOf": [
                {"properties": {"a": {"enum": ["xn--a", "b"]}}},
                {"properties": {"a": {"format": "hostname"}}, "required": ["c"]},
            ],
        },
        (Grammar, Unsupported),
    ),
    "unique objects with more items than the closed reading has": (
        {
            "type": "array",
            "uniqueItems": True,
            "minItems": 5,
            "items": {"type": "object", "properties": {"a": {"type": "boolean"}}},
        },
        (Grammar, Unsatisfiable),
    ),
    "unique pairs, written in two orders": (
        {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
        RESULT,
    ),
    "unique items that hold one value twice": (
        {"type": "array", "uniqueItems": True, "contains": {"enum": [5]}, "minContains": 2},
        (Unsatisfiable,),
    ),
    "31 unique items of 30 values": (
        {"type": "array", "uniqueItems": True, "prefixItems": [{"enum": list(range(30))}] * 31, "minItems": 31},
        (Unsatisfiable,),
    ),
    "unique items in one alternative": (
        {
            "oneOf": [
                {"type": "array", "minItems": 2, "items": {"type": "object", "propertyNames": False}},
                {"uniqueItems": True, "items": False},
            ]
        },
        RESULT,
    ),
    "800 of 702 names, or a name": (
        {
            "type": "object",
            "anyOf": [{"minProperties": 800}, {"required": ["zz"]}],
            "propertyNames": {"pattern": "^[a-z]{1,2}$"},
        },
        RESULT,
    ),
    "30 kinds by name after the value": (
        {
            "type": "object",
            "properties": {"p": {}, "kind": {"type": "string"}},
            "required": ["kind"],
            "anyOf": [
                *({"properties": {"kind": {"const": f"k{i}"}, "p": {"minimum": i}}} for i in range(30)),
                {"properties": {"kind": {"pattern": "^z"}}},
            ],
        },
        RESULT,
    ),
    "multipleOf a tiny decimal": ('{"multipleOf": 1e-200}', ANY),
    "enum of 2,000 objects": ({"enum": [{"a": i} for i in range(2_000)]}, ANY),
    "enum of 2,000 arrays": ({"enum": [[i, i] for i in range(2_000)]}, ANY),
    "multipleOf 10**500": ({"multipleOf": 10**500}, (Grammar, TooLarge)),
    "multipleOf a large prime": ({"multipleOf": 10**50 + 151}, (TooLarge,)),
    "number past floats": ('{"maximum": 1e400}', RESULT),
    "const past floats": ('{"const": 1e400}', RESULT),
    "exponent past memory": ('{"const": 1e999999999}', (TooLarge,)),
    "negative exponent past memory": ('{"minimum": 1e-999999999}', (TooLarge,)),
    "exponent of a length": ('{"maxLength": 1e999999999}', (Grammar, TooLarge)),
    "integer of 5,000 digits": ('{"minimum": ' + "1" * 5_000 + "}", (Grammar, TooLarge, InvalidSchema)),
    "infinite": ({"minimum": float("inf")}, (InvalidSchema,)),
    "infinite length": ({"maxLength": float("inf")}, (InvalidSchema,)),
    "required name that cannot be spelled": ({"type": "object", "required": ["\ud800"]}, (Unsatisfiable,)),
    "const that cannot be spelled": ({"const": {"a": "\ud800"}}, (Unsatisfiable,)),
    "only names that cannot be spelled": (
        {"type": "object", "propertyNames": {"const": "\udfff"}, "minProperties": 1},
        (Unsatisfiable,),
    ),
    "endless reference": ({"$ref": "#"}, (InvalidSchema,)),
    "endless references": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        (InvalidSchema,),
    ),
    "endless not": ({"not": {"$ref": "#"}}, (InvalidSchema,)),
    "endless if": ({"if": {"$ref": "#"}}, (InvalidSchema,)),
    "endless dependency": ({"dependentSchemas": {"a": {"$ref": "#"}}}, (InvalidSchema,)),
    "endless alternative": ({"anyOf": [{"type": "string"}, {"oneOf": [{"$ref": "#"}]}]}, (InvalidSchema,)),
    "endless object": ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, (Unsatisfiable,)),
    "endless array": ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, (Unsatisfiable,)),
    "endless contains": ({"type": "array", "contains": {"$ref": "#"}}, (Unsatisfiable,)),
    "unevaluated of itself": (
        {"type": "object", "unevaluatedProperties": {"$ref": "#"}, "required": ["a"]},
        (Unsatisfiable,),
    ),
    "property names of itself": ({"propertyNames": {"$ref": "#"}}, RESULT),
    "paradox": ({"type": "array", "items": {"not": {"$ref": "#"}}, "minItems": 1, "maxItems": 1}, RESULT),
    "enum beside an endless reference": ({"enum": [1], "allOf": [{"$ref": "#"}]}, (InvalidSchema,)),
    "nothing": (False, (Unsatisfiable,)),
    "empty enum": ({"enum": []}, (Unsatisfiable,)),
    "numbers that exclude each other": (
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 2, "not": {"const": 1}},
        (Unsatisfiable,),
    ),
    "strings that exclude each other": ({"type": "string", "pattern": "^a", "not": {"minLength": 1}}, (Unsatisfiable,)),
    "reference to a number": ({"$ref": "#/definitions/x", "definitions": {"x": 3}}, (InvalidSchema,)),
    "reference to a list": ({"$ref": "#/allOf", "allOf": [True]}, (InvalidSchema,)),
    "reference to a string": ({"$ref": "#/title", "title": "x"}, (InvalidSchema,)),
    "reference to null": ({"$ref": "#/default", "default": None}, (InvalidSchema,)),
    "reference into a list by name": ({"$ref": "#/allOf/x", "allOf": [True]}, (InvalidSchema,)),
    "reference to an item before the first": ({"$ref": "#/allOf/-1", "allOf": [True]}, (InvalidSchema,)),
    "reference to an item, padded": ({"$ref": "#/allOf/00", "allOf": [True]}, (InvalidSchema,)),
    "two schemas of one identifier": (
        {
            "$ref": "http://x/a",
            "$defs": {"a": {"$id": "http://x/a", "const": 1}, "b": {"$id": "http://x/a", "const": 2}},
        },
        (InvalidSchema,),
    ),
    "one identifier relative to another": (
        {"$id": "http://x/a", "properties": {"p": {"$id": "a", "items": {"$ref": "#"}}}},
        (InvalidSchema,),
    ),
    "one schema written twice": (
        {
            "$ref": "http://x/a",
            "$defs": {"a": {"$id": "http://x/a", "const": 1}, "b": {"$id": "http://x/a", "const": 1}},
        },
        RESULT,
    ),
    "two schemas of one identifier that nothing refers to": (
        {"anyOf": [{"$id": "http://x/a", "const": 1}, {"$id": "http://x/a", "const": 2}]},
        RESULT,
    ),
    "reference past a list": ({"$ref": "#/allOf/1", "allOf": [True]}, (InvalidSchema,)),
    "reference to nowhere": ({"$ref": "#/nowhere"}, (InvalidSchema,)),
    "reference to no anchor": ({"$ref": "#nowhere"}, (InvalidSchema,)),
    "reference elsewhere": ({"$ref": "http://example.com/x"}, (InvalidSchema,)),
    "reference that is no URI": ({"$ref": "http://[::1"}, (InvalidSchema,)),
    "reference that cannot be spelled": ({"$ref": "#/\ud800"}, (InvalidSchema,)),
    "identifier that is no URI": (
        {"$id": "http://[::1", "$ref": "#/$defs/x", "$defs": {"x": True}},
        (Grammar, InvalidSchema),
    ),
    "identifier inside that is no URI": ({"properties": {"a": {"$id": "http://[::1"}}}, (Grammar, InvalidSchema)),
    "identifier in a const": ({"const": {"$id": "http://x/y"}, "not": {"$ref": "http://x/y"}}, (InvalidSchema,)),
    "dialect unknown": ({"$schema": "http://example.com/mine", "type": "string"}, RESULT),
    "dialect inside": (
        {"properties": {"a": {"$id": "http://x/y", "$schema": "http://json-schema.org/draft-07/schema#", "const": 1}}},
        RESULT,
    ),
}


# these take seconds
SLOW = {"patterns of names and values"}

# what to read of a schema that compiles, so that a refusal would come to light
READ = {
    "product of counted patterns": ('"ab"',),
    "product inside an optional key": ('{"a": "ab"}',),
    "product of multiples inside an optional key": ('{"a": 0}',),
    "product of names": ('{"a": 0}',),
    "12 contains of 2": ("[0, 0]",),
    "20 alternatives of a value": ('{"a": "d", "b3": 1}',),
    "products of labels": ('["aaa", 1]',),
    "divisors at one place": ('{"a": 997, "b": 1}',),
    "16 patterns of names that overlap": ('{"a": 98}',),
    "patterns of names and values": ('{"d": "d"}',),
    "200 levels that have to be there, in an optional key": ('{"a": [[[',),
    "alternatives of maps by pattern": ('{"abx": 1}', '{"qa": 1, "kzx": 2}'),
    "a value that may or may not have a format": ('{"a": "xn--a"}', '{"a": "b", "c": 1}'),
    "30 kinds by name after the value": ('{"p": 3, "kind": "k2"}', '{"kind": "zz", "p": "x"}'),
}


def ends() -> Iterator[Any]:
    """Every schema of `ENDS` in both settings."""
    for name in ENDS:
        for setting in ("checking", "writing"):
            marks = [pytest.mark.long] if name in SLOW else []
            yield pytest.param(name, setting, marks=marks, id=f"{name}, {setting}")


@pytest.mark.parametrize(("name", "setting"), list(ends()))
def test_hostile_schema_ends(name: str, setting: str) -> None:
    """A grammar or an error of a kind that is right, in seconds, and no refusal after compiling."""
    schema, expected = ENDS[name]
    options = CHECKING if setting == "checking" else WRITING
    outcome = attempt(schema, options, READ.get(name, ()))
    assert isinstance(outcome, expected), repr(outcome)
    if isinstance(outcome, GrammarError):
        assert outcome.pointer is not None
        assert len(str(outcome)) < 1_000


def test_optional_keys_are_linear_in_states() -> None:
    """Twice the optional keys, about twice the states."""
    sizes = [compile_json_schema(record(number)).build().num_states for number in (60, 120, 240)]
    assert sizes[2] - sizes[1] < 2.6 * (sizes[1] - sizes[0])
    assert sizes[2] < 240 * 60


def test_length_bounds_take_no_states() -> None:
    """A maximum length is a register, not states."""
    sizes = {compile_json_schema({"type": "string", "maxLength": n}).build().num_states for n in (10, 100_000)}
    assert len(sizes) == 1
