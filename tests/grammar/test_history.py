"""History constraints: what is accepted is what jsonschema accepts, and what may follow is what can still be ended."""

from __future__ import annotations

import itertools
import json
import random
from decimal import Decimal
from functools import cache

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.errors import GrammarError
from stcon.grammar import compile_json_schema
from stcon.grammar.elements import NO_ELEMENTS, key_of, value_of
from stcon.grammar.grammar import Grammar
from stcon.grammar.history import EMPTY, History, observe, repeats_nothing
from stcon.grammar.liveness import advance, read
from stcon.grammar.machine import Configuration

PLAN = settings(max_examples=60, deadline=None)
DISTINCT = {"type": "array", "uniqueItems": True}


def compiled(schema: object, **options: object) -> Grammar:
    options = {"key_order": "any", "closed": False, **options}
    return compile_json_schema(schema, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- equality

NUMBERS = st.one_of(
    st.integers(-30, 30).map(str),
    st.tuples(st.integers(-9, 9), st.integers(0, 99)).map(lambda p: f"{p[0]}.{p[1]:02}"),
    st.tuples(st.integers(-12, 12), st.sampled_from("eE"), st.integers(-3, 3)).map(lambda p: f"{p[0]}{p[1]}{p[2]:+}"),
    st.sampled_from(["-0", "0.0", "0e5", "1e400", "10e399", "1e-400"]),
)


@given(NUMBERS, NUMBERS)
def test_value_of_numbers(a: str, b: str) -> None:
    """Two number texts have one value iff they are the same decimal."""
    assert (value_of(a.encode()) == value_of(b.encode())) == (Decimal(a) == Decimal(b))


def test_value_of_distinguishes_what_json_schema_does() -> None:
    """Types are kept apart, numbers are not told from equal numbers, key order and escapes do not count."""
    classes = [
        ["1", "1.0", "1e0", "10e-1"],
        ['"1"', '"\\u0031"'],
        ["true"],
        ["null"],
        ["0", "-0", "-0.0e7"],
        ["false"],
        ['""'],
        ["[]"],
        ["{}"],
        ["[1,2]", "[1.0, 2]"],
        ["[2,1]"],
        ['{"a":1,"b":[]}', '{"b":[], "a":1.0}'],
        ['{"a":1}'],
        ['{"a":true}'],
    ]
    for (i, left), (j, right) in itertools.product(enumerate(classes), repeat=2):
        for a, b in itertools.product(left, right):
            assert (value_of(a.encode()) == value_of(b.encode())) == (i == j), (a, b)


def test_value_of_numbers_too_large_to_compare_are_equal() -> None:
    """Exponents past the limit are refused as repeats rather than taken for different; none takes long."""
    far, farther = b"1e" + b"9" * 5_000, b"2e" + b"8" * 6_000
    assert value_of(far) == value_of(farther)
    assert value_of(b"9" * 100_000) != value_of(b"9" * 99_999)


@given(st.text(max_size=6), st.data())
def test_key_of_beginnings_of_strings(text: str, data: st.DataObject) -> None:
    """However a string is escaped, the key of each beginning is a prefix of the key of the whole."""
    whole = key_of(json.dumps(text, ensure_ascii=False).encode())
    spelled = b'"'
    for character in text:
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        escaped = "".join(f"\\u{unit:04x}" for unit in _units(character))
        spelled += data.draw(st.sampled_from([plain, escaped, escaped.upper().replace("\\U", "\\u")])).encode()
    for end in range(1, len(spelled) + 1):
        assert whole.startswith(key_of(spelled[:end]))
    assert key_of(spelled) == key_of(spelled + b'"') == whole


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2)]


@given(NUMBERS, NUMBERS)
def test_key_of_beginnings_of_numbers(a: str, b: str) -> None:
    """If two number texts are equal, the key of each beginning of one is a prefix of the key of the other."""
    if Decimal(a) == Decimal(b):
        for end in range(1, len(a) + 1):
            assert key_of(b.encode()).startswith(key_of(a[:end].encode()))


@given(st.lists(st.integers(0, 300), unique=True, max_size=80))
def test_elements_is_a_set(values: list[int]) -> None:
    """Adding one by one gives a set with all of them, whose keys are found by prefix; earlier sets do not change."""
    grown = [NO_ELEMENTS]
    for value in values:
        grown.append(grown[-1].added(value, str(value).encode()))
    for size, elements in enumerate(grown):
        assert elements.values() == set(values[:size])
        assert len(elements) == size
        assert sorted(elements.starting(b"1")) == sorted(str(v).encode() for v in values[:size] if str(v)[0] == "1")
        assert all((value in elements) == (value in values[:size]) for value in values)


# ------------------------------------------------------------------------------------------------- acceptance

SCALARS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([0.5, 1.5, -2.5]),
    st.text("ab", max_size=2),
    st.booleans(),
    st.none(),
    st.integers(0, 200),
)
ITEM_SCHEMAS = st.one_of(
    st.just({}),
    st.lists(SCALARS, min_size=1, max_size=5).map(lambda values: {"enum": values}),
    st.tuples(st.integers(-2, 3), st.integers(4, 200)).map(
        lambda p: {"type": "integer", "minimum": p[0], "maximum": p[1]}
    ),
    st.integers(0, 3).map(lambda n: {"type": "string", "maxLength": n}),
    st.just({"type": ["number", "boolean", "null"]}),
    st.just({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2}),
    st.just({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    st.just({"type": "object", "additionalProperties": {"type": ["integer", "string"]}}),
    st.just({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}),
    st.just({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^a"}, {"const": True}]}),
)
SCHEMAS = st.one_of(
    st.builds(lambda items, low: {**DISTINCT, "items": items, "minItems": low}, ITEM_SCHEMAS, st.integers(0, 3)),
    st.builds(
        lambda first, rest: {**DISTINCT, "prefixItems": first, "items": rest},
        st.lists(ITEM_SCHEMAS, max_size=2),
        ITEM_SCHEMAS,
    ),
    st.builds(lambda items: {**DISTINCT, "contains": items, "minContains": 2}, ITEM_SCHEMAS),
    st.builds(lambda inner: {"type": "object", "additionalProperties": {**DISTINCT, "items": inner}}, ITEM_SCHEMAS),
    st.builds(
        lambda low, inner: {"type": "object", "minProperties": low, "additionalProperties": inner},
        st.integers(0, 3),
        ITEM_SCHEMAS,
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "ab", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


@PLAN
@given(SCHEMAS, st.lists(st.lists(VALUES, max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_accepts_what_jsonschema_accepts(schema: dict, rows: list[list], rng: random.Random) -> None:
    """Arrays with and without repeats, and objects of them: the verdict is jsonschema's, in any whitespace."""
    try:
        grammar = compiled(schema, whitespace="flexible")
    except GrammarError:
        return
    validator = jsonschema.Draft202012Validator(schema)
    for row in rows:
        items = [*row, *(rng.choice(row) for _ in range(rng.randrange(2)) if row)]
        if "minProperties" in schema or schema["type"] == "object":
            instance: object = {name: items[i:] for i, name in enumerate(["x", "y", "z"][: len(items)])}
        else:
            instance = items
        valid = validator.is_valid(instance)
        for indent in (None, 1):
            assert grammar.accepts(json.dumps(instance, indent=indent)) == valid, (schema, instance)


REPEATED_NAMES = [
    ({"type": "object"}, '{"a":1,"a":1}', False),
    ({"type": "object"}, '{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}', True),
    ({"type": "object"}, '{"a":1,"b":{"c":1,"c":2}}', False),
    ({"type": "object"}, '{"":0,"":0}', False),
    ({"properties": {"a": {}}}, '{"a":1,"b":1,"a":2}', False),
    ({"properties": {"a": {}}}, '{"b":"a","a":"b","ab":"b"}', True),
    ({"propertyNames": {"enum": ["a", "b"]}, "type": "object"}, '{"a":0,"b":0}', True),
    ({"propertyNames": {"enum": ["a", "b"]}, "type": "object"}, '{"a":0,"b":0,"a":0}', False),
    ({"patternProperties": {"^x": {"type": "integer"}}, "type": "object"}, '{"x":0,"y":[],"x1":1}', True),
    ({"patternProperties": {"^x": {"type": "integer"}}, "type": "object"}, '{"x":0,"y":[],"x":1}', False),
    ({"not": {"additionalProperties": {"type": "integer"}}, "type": "object"}, '{"x":"s","x":1}', False),
    ({"minProperties": 2, "type": "object"}, '{"x":1,"x":1}', False),
    ({"minProperties": 2, "type": "object"}, '{"x":1,"y":1}', True),
    ({"maxProperties": 1, "type": "object"}, '{"x":{"x":1}}', True),
    ({"contains": {"additionalProperties": {"type": "integer"}}, "maxContains": 1}, '[{"a":"x","a":1},{"a":1}]', False),
]


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize(("schema", "text", "accepted"), REPEATED_NAMES)
def test_accepts_no_name_twice_in_one_object(schema: dict, text: str, whitespace: str, *, accepted: bool) -> None:
    """A name may come again in another object, never in the same one; conditions that count names see each once."""
    assert compiled(schema, whitespace=whitespace).accepts(text) == accepted


@pytest.mark.parametrize(
    "text", ['{"a":1,"\\u0061":1}', '{"\\u0061":1,"a":1}', '["\\u00e9","é"]', '["\\ud83d\\ude00","😀"]']
)
def test_accepts_no_repeat_behind_an_escape(text: str) -> None:
    """Where every character may be escaped, names and items are compared by what they spell."""
    assert not compiled({"uniqueItems": True}, escapes="any").accepts(text)


def test_accepts_long_arrays() -> None:
    """Ten thousand distinct items are no trouble, and one repeat among them is found."""
    grammar = compiled({**DISTINCT, "items": {"type": "integer"}})
    items = [*range(3_000)]
    assert grammar.accepts(json.dumps(items).replace(" ", ""))
    assert not grammar.accepts(json.dumps([*items, 17]).replace(" ", ""))


def test_repeats_nothing_without_marks() -> None:
    """A machine without marks has no history constraint."""
    machine = compile_json_schema({"type": "string"}).machine
    assert not machine.marks
    assert repeats_nothing(machine, b'"aa"')


# ------------------------------------------------------------------------------------------------- what may follow

SHORT = {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}
TRUTHS = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}


def _documents(values: list[str], low: int) -> list[bytes]:
    rows = (row for size in range(low, len(values) + 1) for row in itertools.permutations(values, size))
    return [f"[{','.join(row)}]".encode() for row in rows]


EXHAUSTIBLE = [
    ({**DISTINCT, "items": SHORT}, _documents(["[]", '["a"]', '["b"]'], 0)),
    ({**DISTINCT, "items": SHORT, "minItems": 3}, _documents(["[]", '["a"]', '["b"]'], 3)),
    (
        {**DISTINCT, "items": TRUTHS, "minItems": 2},
        _documents(["[true,true]", "[true,false]", "[false,true]", "[false,false]"], 2),
    ),
    (
        {**DISTINCT, "prefixItems": [{"enum": ["a", "b"]}, {"const": ["c"]}, SHORT], "items": False, "minItems": 3},
        [f'["{first}",["c"],{last}]'.encode() for first in "ab" for last in ("[]", '["a"]', '["b"]')],
    ),
    (
        {"type": "object", "patternProperties": {"^[ab]{1,2}$": {"const": True}}, "additionalProperties": False},
        [
            json.dumps(dict.fromkeys(row, True), separators=(",", ":")).encode()
            for size in range(4)
            for row in itertools.permutations(["a", "b", "aa", "ab", "ba", "bb"], size)
        ],
    ),
]


@pytest.mark.parametrize(("schema", "documents"), EXHAUSTIBLE)
def test_read_is_defined_on_what_can_be_ended(schema: dict, documents: list[bytes]) -> None:
    """Where values run out: after every beginning of a document the live bytes are those of some document's."""
    machine = compiled(schema).machine
    following: dict[bytes, set[int]] = {}
    for document in documents:
        for end in range(len(document)):
            following.setdefault(document[:end], set()).add(document[end])
    deepest = max(map(len, documents)) if schema["type"] == "array" else 24
    pending: list[tuple[bytes, Configuration, History]] = [(b"", machine.initial(), EMPTY)]
    while pending:
        text, config, history = pending.pop()
        live = {byte: reached for byte in range(256) if (reached := advance(machine, config, history, byte))}
        if len(text) < deepest:
            assert set(live) == following.get(text, set()), text
            pending += [(text + bytes((byte,)), *reached) for byte, reached in live.items()]


SCALAR_ITEMS = [
    {"type": "integer", "minimum": 1, "maximum": 80},
    {"type": "integer"},
    {"type": "number"},
    {"type": "string", "maxLength": 1},
    {"type": "string", "pattern": "^[ab]{1,7}$"},
    {"type": ["boolean", "null", "string"]},
    {"enum": [1, "1", True, 1.5]},
    {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 70}, {"pattern": "^x?$", "type": "string"}]},
]


LAYOUTS = [
    {"whitespace": "compact"},
    {"whitespace": "flexible", "max_whitespace": 1},
    {"whitespace": "pretty"},
    {"whitespace_pattern": r" {2}|\n*"},
]


@pytest.mark.parametrize("items", SCALAR_ITEMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_never_strands_scalar_items(items: dict, layout: dict) -> None:
    """Random walks over scalar items always find a next byte until the array is complete, and end in valid texts."""
    grammar = compiled({**DISTINCT, "items": items, "minItems": 3}, **layout)
    machine, rng = grammar.machine, random.Random(5)
    for _ in range(6):
        config, history, text = machine.initial(), EMPTY, b""
        while not machine.accepts(config):
            choices = _likely(machine.live(config), rng, len(text) > 40)
            byte = next((byte for byte in choices if read(machine, config, history, (byte,))), None)
            assert byte is not None, text
            reached = advance(machine, config, history, byte)
            assert reached is not None
            (config, history), text = reached, text + bytes((byte,))
        assert grammar.accepts(text)
        assert jsonschema.Draft202012Validator(grammar.source).is_valid(json.loads(text)), text


def _likely(live: list[int], rng: random.Random, is_long: bool) -> list[int]:
    """`live` in random order, what occurs in short texts first, and after a while what ends them."""
    rng.shuffle(live)
    ending = rng.choice([b']"', b']"\n', b',]"']) if is_long else b""
    return sorted(live, key=lambda byte: (byte not in ending, byte not in b'"ab12,[]nulltruefs'))


def test_read_whole_equals_read_in_parts() -> None:
    """However a text is cut, configuration and history at its end are the same."""
    machine = compiled({"type": "object", "additionalProperties": {"uniqueItems": True}}).machine
    text = b'{"a":[1,2,{"x":0,"y":[]}],"b":0,"":"","c":{"d":"\\"}"},"e":[[1],[2'
    whole = observe(machine, machine.initial(), EMPTY, text)
    assert whole is not None
    for cut in range(len(text)):
        head = observe(machine, machine.initial(), EMPTY, text[:cut])
        assert head is not None
        tail = observe(machine, *head, text[cut:])
        assert tail is not None
        assert tail[0] == whole[0]
        assert _shape(tail[1]) == _shape(whole[1])


def _shape(history: History) -> object:
    scopes = [(s.depth, s.names, s.text, s.named, s.elements.values()) for s in history.scopes]
    return (scopes, history.quoted)


# ------------------------------------------------------------------------------------------------- short texts


@cache
def _shortest(text: str) -> str:
    return compiled(json.loads(text)).shortest()


@pytest.mark.parametrize(
    ("schema", "length"),
    [
        ({**DISTINCT, "minItems": 2, "items": {"type": "string"}}, len('["","a"]')),
        ({**DISTINCT, "minItems": 3}, len("[0,1,2]")),
        ({**DISTINCT, "minItems": 2, "items": SHORT}, len('[[],["a"]]')),
        (
            {"type": "object", "minProperties": 2, "additionalProperties": {"type": "boolean"}},
            len('{"":true,"a":true}'),
        ),
    ],
)
def test_shortest_repeats_nothing(schema: dict, length: int) -> None:
    """The shortest text has no equal items or names, and is as long as it has to be."""
    text = _shortest(json.dumps(schema))
    assert compiled(schema).accepts(text)
    assert len(text) == length


def test_shortest_of_many_items() -> None:
    """Where a shortest text is too far to search for, a short valid one is given."""
    schema = {**DISTINCT, "minItems": 12, "items": {"type": "integer"}}
    assert compiled(schema).accepts(_shortest(json.dumps(schema)))
