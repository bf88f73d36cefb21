"""Masks under history constraints: equal to reading every token, for tokens of one byte to several elements."""

from __future__ import annotations

import json
import random
from functools import cache

import constraint_lab as lab
import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.constraint.matcher import Matcher
from stcon.errors import DecodingError
from stcon.grammar import compile_json_schema
from stcon.grammar.grammar import Grammar
from stcon.grammar.history import EMPTY, History, observe
from stcon.grammar.liveness import read
from stcon.grammar.machine import Configuration
from stcon.vocab import Vocabulary

DISTINCT = {"type": "array", "uniqueItems": True}

TOKENS = [
    *("1,1", "1,2", "1,", "1]", ",1]", " 1", "12", "11", "1.0", "0,", "1e0", "-0", "true,", "true,true", "null,null"),
    *(
        '","',
        '","a","',
        '"a"',
        '"b"',
        'a",',
        'a"',
        'b"',
        '"a","a"',
        '"]',
        '"],["',
        '"],["a"',
        "aa",
        "ab",
        '"aa',
        '["a",',
    ),
    *(
        '":',
        '":1',
        '":1,',
        '":1}',
        'a":1,"a',
        'a":1,"',
        '"a":1,"a":1',
        '{"a":1,"a"',
        '{"a":1,"b":',
        '":1,"b":',
        '":"",',
    ),
    *(
        '{"a":1},{"a":',
        '"a":1},',
        '},{"',
        "}]",
        '"}',
        '":""',
        '":"","',
        'b":',
        "],",
        "],[",
        "],[1",
        "[1",
        "[1,",
        "[1,1",
    ),
    *(
        "[[1],[1]",
        "[1],",
        "[2],[1],",
        "[]",
        "{}",
        "[[],[]",
        "{},{}",
        "[true,",
        " ,",
        ", ",
        ",\n",
        '\n"',
        '9"',
        "é",
        "true",
    ),
    *("\\u0061", '\\"', "\\n", "\\u00", "61", 'n"', '1f"', '1F":', 'u001F"', '\\n"'),
]


@cache
def vocabulary() -> Vocabulary:
    """Every byte, and tokens that span ends and beginnings of elements, names and collections. Token 0 ends."""
    pieces = (
        [bytes((byte,)) for byte in range(256)] + [text.encode() for text in TOKENS] + [b"\xc3", b'\xa9"', b'\xa9\\n"']
    )
    return Vocabulary.from_bytes([None, *pieces], end_ids=[0])


SCHEMAS = [
    DISTINCT,
    {**DISTINCT, "items": {"type": "integer"}},
    {**DISTINCT, "items": {"type": "string"}},
    {**DISTINCT, "items": {"type": "string", "maxLength": 2}},
    {**DISTINCT, "items": {"type": "string", "pattern": "^[ab]{1,6}$"}, "minItems": 3},
    {**DISTINCT, "items": {"type": ["number", "boolean"]}},
    {**DISTINCT, "items": {"type": "integer", "minimum": 1, "maximum": 100}},
    {**DISTINCT, "items": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2}},
    {**DISTINCT, "items": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 2}},
    {**DISTINCT, "items": {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "integer"}}},
    {**DISTINCT, "prefixItems": [{"type": "integer"}, {"const": 1}], "items": {"enum": [1, 2]}, "minItems": 2},
    {"type": "array", "items": {**DISTINCT, "items": {"type": "integer"}, "minItems": 1}},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"b": {}}},
    {"type": "object", "patternProperties": {"^[ab]$": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"enum": ["a", "b", "aa"]}},
    {
        "type": "object",
        "patternProperties": {"^[ab]+$": {"type": "string"}},
        "additionalProperties": False,
        "minProperties": 2,
    },
    {"type": "string"},
]


@cache
def grammar(index: int, whitespace: str, escapes: str) -> Grammar:
    options = {"whitespace": whitespace, "escapes": escapes, "max_whitespace": 2}
    return compile_json_schema(SCHEMAS[index], key_order="any", closed=False, **options)  # type: ignore[arg-type]


def by_reading(built: Grammar, config: Configuration, history: History) -> set[int]:
    """The mask from its definition: every token read."""
    machine, vocab = built.machine, vocabulary()
    admitted = {
        token for token in range(1, vocab.size) if read(machine, config, history, vocab.token_bytes(token) or b"")
    }
    return admitted | ({0} if machine.accepts(config) else set())


def likely(tokens: list[int], rng: random.Random) -> int:
    """One of `tokens`; those that make short documents are preferred."""
    short = {b"a", b"b", b"1", b"0", b"2", b'"', b",", b"[", b"{", b":", b"]", b"}", *(t.encode() for t in TOKENS)}
    preferred = [token for token in tokens if (vocabulary().token_bytes(token) or b"") in short]
    return rng.choice(preferred if preferred and rng.random() < 0.93 else tokens)


SETTINGS = st.tuples(
    st.integers(0, len(SCHEMAS) - 1),
    st.sampled_from(["compact", "json", "flexible"]),
    st.sampled_from(["minimal", "any"]),
)


@settings(max_examples=40, deadline=None)
@given(SETTINGS, st.integers(3, 14), st.randoms(use_true_random=False))
def test_bitmask_equals_reading_every_token(setting: tuple[int, str, str], steps: int, rng: random.Random) -> None:
    """At every step of a random output, for tokens that end, begin, repeat and close several elements at once."""
    built = grammar(*setting)
    matcher = Matcher(built, vocabulary())
    config, history = built.machine.initial(), EMPTY
    for _ in range(steps):
        admitted = lab.admitted(matcher.bitmask())
        assert set(admitted) == by_reading(built, config, history), matcher.text
        refused = rng.choice([token for token in range(vocabulary().size) if token not in admitted])
        assert not matcher.accept(refused)
        token = likely(admitted, rng) if admitted else 0
        if token == 0:
            return
        assert matcher.accept(token)
        reached = read(built.machine, config, history, vocabulary().token_bytes(token) or b"")
        assert reached is not None
        config, history = reached


def test_bitmask_of_containers_that_differ_in_whitespace() -> None:
    """An item that agrees with an earlier one but for whitespace is given up as early as any other."""
    schema = {**DISTINCT, "items": {"type": "array", "items": {"const": "a"}, "maxItems": 1}}
    built = compile_json_schema(schema, whitespace="flexible", max_whitespace=2)
    matcher = Matcher(built, vocabulary())
    assert matcher.accept_bytes(b'[ [ "a"],\n[')
    admitted = set(lab.admitted(matcher.bitmask()))
    reached = read(built.machine, built.machine.initial(), EMPTY, matcher.text)
    assert reached is not None
    assert admitted == by_reading(built, *reached)
    assert vocabulary().encode("\n")[0] in admitted
    assert vocabulary().encode('\n"')[0] not in admitted


@pytest.mark.parametrize(
    "text", ['{"ab":1,"a\\', '{"a\\n":1,"a', '{"a\\n":1,"a\\', '{"\\u001f":1,"\\u00', '{"\\né":1,"\\n']
)
def test_bitmask_inside_escapes_and_characters(text: str) -> None:
    """Names are compared by what they spell, wherever a token begins."""
    built = compile_json_schema({"type": "object"}, key_order="any", closed=False)
    matcher = Matcher(built, vocabulary())
    assert matcher.accept_bytes(text.encode())
    reached = read(built.machine, built.machine.initial(), EMPTY, matcher.text)
    assert reached is not None
    assert set(lab.admitted(matcher.bitmask())) == by_reading(built, *reached)


@settings(max_examples=40, deadline=None)
@given(SETTINGS, st.randoms(use_true_random=False))
def test_accept_equals_observing_bytes(setting: tuple[int, str, str], rng: random.Random) -> None:
    """The compiled trace of whole tokens leads to the history of reading byte by byte, however the text is cut."""
    built = grammar(*setting)
    matcher = Matcher(built, vocabulary())
    for _ in range(12):
        admitted = lab.admitted(matcher.bitmask())
        if admitted in ([], [0]):
            break
        matcher.accept(likely([token for token in admitted if token], rng))
    reached = observe(built.machine, built.machine.initial(), EMPTY, matcher.text)
    assert reached is not None
    assert np.array_equal(matcher.config, reached[0].pack())
    assert shape(matcher.history) == shape(reached[1])
    parts = Matcher(built, vocabulary())
    at = 0
    while at < len(matcher.text):
        size = rng.randint(1, 9)
        if not parts.accept_bytes(matcher.text[at : at + size]):
            return  # cut where the text could not have stopped
        at += size
    assert shape(parts.history) == shape(reached[1])


def shape(history: History) -> object:
    return [(s.depth, s.names, s.text, s.named, s.elements.values()) for s in history.scopes]


def test_rollback_fork_and_reset_carry_the_history() -> None:
    """What is taken back may be written again; forks do not see each other; after `reset` nothing is remembered."""
    matcher = Matcher(grammar(1, "compact", "minimal"), vocabulary())
    assert matcher.accept_bytes(b"[1,2")
    assert not matcher.accept_bytes(b",1]")
    other = matcher.fork()
    assert other.accept_bytes(b",3]")
    assert matcher.accept_bytes(b",3,")
    assert not matcher.accept_bytes(b"3]")
    matcher.rollback()
    assert matcher.accept_bytes(b",3]")
    assert matcher.is_complete
    matcher.rollback(2)
    assert matcher.accept_bytes(b"[2,1]")
    matcher.reset()
    assert matcher.accept_bytes(b"[1]")
    assert other.text == b"[1,2,3]"


def test_can_continue_ends_where_values_do() -> None:
    """Nothing may follow where each way on repeats a name."""
    matcher = Matcher(grammar(14, "compact", "minimal"), vocabulary())
    assert matcher.accept_bytes(b'{"a":1,"b":2')
    assert matcher.can_continue
    assert not matcher.accept_bytes(b",")
    assert matcher.accept_bytes(b"}")
    assert not matcher.can_continue


EMPTY_ARRAY = {"type": "array", "maxItems": 0}
REPEATING = {  # one value at two places, not seen beside nine others
    **DISTINCT,
    "prefixItems": [EMPTY_ARRAY, EMPTY_ARRAY, *({"const": i} for i in range(9)), {"type": "string"}],
    "items": False,
    "minItems": 12,
}


def test_forced_text_stops_before_a_repeat() -> None:
    """Where the machine forces two equal items, only the first is forced text, and decoding then says it is stuck."""
    matcher = Matcher(compile_json_schema(REPEATING), vocabulary())
    assert b"[[],[]".startswith(matcher.forced_bytes())
    assert not matcher.forced_bytes().startswith(b"[[],[]")
    with pytest.raises(DecodingError):
        matcher.plan()


DECODED = [
    {**DISTINCT, "items": {"type": "integer", "minimum": 1, "maximum": 70}, "minItems": 2, "maxItems": 4},
    {**DISTINCT, "items": {"type": "string", "pattern": "^(the|then|there|ab)*$"}, "minItems": 3, "maxItems": 5},
    {**DISTINCT, "items": {"enum": ["red", "reddish", "blue", 1, True]}, "minItems": 4},
    {"type": "object", "additionalProperties": {"enum": ["ab", "the"]}, "minProperties": 2, "maxProperties": 3},
    {
        "properties": {
            "names": {**DISTINCT, "items": {"type": "object", "additionalProperties": {"const": 1}}, "maxItems": 3}
        },
        "required": ["names"],
        "type": "object",
    },
]


@pytest.mark.parametrize("policy", ["canonical", "any", "none"])
@pytest.mark.parametrize("schema", DECODED)
def test_decoding_ends_in_valid_texts(schema: dict, policy: str) -> None:
    """A chooser at random under the planner never gets stuck, and what it writes is valid."""
    vocab = lab.vocabulary("qwen")
    built = compile_json_schema(schema, whitespace="json")
    planner = lab.planner_for(built.machine, vocab, policy=policy)
    finished = 0
    for seed in range(12):
        output = lab.generate(planner, lab.at_random(random.Random(seed), vocab), limit=80)
        if output.is_ended:
            finished += 1
            text = vocab.decode(output.tokens)
            assert built.accepts(text), text
            assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), text
    assert finished >= 6


def test_a_machine_without_marks_costs_nothing() -> None:
    """Regular languages and closed objects of declared names keep the empty history."""
    matcher = Matcher(lab.language("person"), lab.vocabulary("qwen"))
    assert matcher.accept_bytes(b'{"name":"a')
    assert matcher.history is EMPTY
