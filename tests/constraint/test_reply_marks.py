"""Masks inside a tool call whose objects take any names: those of the arguments alone."""

import random

import numpy as np
import pytest

from stcon import Matcher
from stcon.grammar.json_schema.compile import compile_json_schema
from stcon.grammar.tools import FORMATS, compile_reply, read_tools
from stcon.vocab.vocabulary import Vocabulary

PIECES = [b'{"', b'":', b'","', b'"}', b"},", b"1, 1", b"[1, ", b" 2]", b'"a', b'a"', b'"b": ', b'"a": ']
TOKENS = [*(bytes([value]) for value in range(256)), *PIECES, None]
SCHEMAS = [
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"properties": {"x": {"type": "array", "items": {"enum": [1, 2, "a"]}, "uniqueItems": True}}, "required": ["x"]},
    {"properties": {"x": {"type": "object", "additionalProperties": {"enum": [1]}, "maxProperties": 3}}},
    {"properties": {"x": {"type": "array", "uniqueItems": True, "items": {"type": "object"}, "maxItems": 3}}},
]


def tokens_of(matcher):
    """The admissible tokens that have bytes."""
    bits = np.unpackbits(matcher.bitmask().view(np.uint8), bitorder="little")
    return {token for token in np.flatnonzero(bits).tolist() if TOKENS[token]}


def ends_inside(matcher, data):
    """Whether the value is complete before the end of `data`."""
    for length in range(1, len(data)):
        fork = matcher.fork()
        if fork.accept_bytes(data[:length]) and fork.is_complete:
            return True
    return False


@pytest.mark.parametrize("schema", SCHEMAS)
def test_masks_in_a_call_are_those_of_its_arguments(schema):
    """At every place of random arguments, in the second of two calls where the first may be empty."""
    vocabulary = Vocabulary.from_bytes(TOKENS, end_ids=(len(TOKENS) - 1,))
    form, draw, compared = FORMATS["hermes"], random.Random(1), 0
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    reply = compile_reply(read_tools([tool]), form, required=True)
    alone = compile_json_schema({"type": "object", **schema}, whitespace="json")
    first = form.call("f", "{}") + form.between if alone.accepts("{}") else ""
    for _ in range(12):
        inside, outside = Matcher(reply, vocabulary), Matcher(alone, vocabulary)
        assert inside.accept_bytes((first + form.head("f")).encode())
        for _ in range(40):
            wanted, found = tokens_of(outside), tokens_of(inside)
            assert wanted <= found
            assert all(ends_inside(outside, TOKENS[token]) for token in found - wanted)
            compared += 1
            likely = [token for token in wanted if token >= 256 or chr(token) in '{}[]",: 12ab']
            token = draw.choice(sorted(likely or wanted))
            assert inside.accept(token)
            assert outside.accept(token)
            if outside.is_complete:
                break
    assert compared > 50
