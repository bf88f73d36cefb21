"""Text that a pattern or a name tells apart: admitting whole subtrees gives the masks that reading all tokens gives."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.grammar import compile_json_schema
from stcon.grammar.machine import Configuration
from stcon.kernels import reference, safe
from stcon.kernels.cpu import CpuKernel
from stcon.vocab.vocabulary import Vocabulary

# pieces of every kind: runs of letters, spaces and digits of many lengths, marks, characters of 2, 3 and 4 bytes
PIECES = (
    [w * n for w in ("a", "f", "g", "A", "G", "7", " ", "-", ".", "é", "世", "😀", " ", "߿") for n in (1, 2, 3, 5, 9)]
    + ["ab", "abc", "name", "names", "na", " the", " word", "two words", "a b c d", "x-1", "2024", "2024-01-01", "T12"]
    + ["a.b", "a@b", "http://", "/path", "%20", "é", "aé", "éa", "世a", "a世界", "😀!", "~", "\x7f", "{", "}"]
    + ['"', '",', '":', '"}', 'a"', 'é"', 'name"', "\\", "\\n", '\\"', "\\u", "00", 'a b"', ": ", ", ", "[", "]"]
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """Every piece, every byte, and the halves of characters."""
    data = sorted(
        {p.encode() for p in PIECES} | {bytes((b,)) for b in range(256)} | {b"\xe4\xb8", b"\x96a", b"\xf0\x9f"}
    )
    return Vocabulary.from_bytes([*data, None], end_ids=[len(data)])


SCHEMAS: list[Any] = [
    {"type": "string", "pattern": r"^(?:\S+\s+){0,6}\S+$"},
    {"type": "string", "pattern": r"^(?:\S+\s+){0,6}\S+$", "maxLength": 9},
    {"type": "string", "pattern": "^[a-f0-9]*$"},
    {"type": "string", "pattern": "^[a-g0-9. -]{2,7}$", "minLength": 3},
    {"type": "string", "pattern": "世|a{3}"},
    {"type": "string", "not": {"pattern": "na|é"}, "maxLength": 6},
    {"type": "string", "pattern": "^.{5}[^😀]*$"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "email", "maxLength": 12},
    {
        "properties": {"name": {}, "names": {}, "世界": {}, "a b": {"const": 1}},
        "additionalProperties": {"type": "null"},
    },
    {"properties": {"na": {"const": 1}}, "patternProperties": {"^a+$": {"const": 2}}, "additionalProperties": False},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
@pytest.mark.parametrize("key_order", ["schema", "any"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_masks_are_the_reference_s(schema: Any, key_order: Any, vocabulary: Vocabulary, data: st.DataObject) -> None:
    """Along a walk of tokens, with and without kept rows, every bit is `Machine.run`'s answer."""
    machine = compile_json_schema(schema, key_order=key_order, closed=False).machine
    kernel = CpuKernel(machine, vocabulary)
    config = machine.initial().pack()
    mask = np.zeros(vocabulary.num_words, np.int32)
    for _ in range(8):
        expected = reference.mask(machine, Configuration.unpack(config), vocabulary)
        for _ in range(2):
            kernel.mask(config, mask)
            np.testing.assert_array_equal(mask, expected)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: vocabulary.size]
        tokens = [t for t in np.flatnonzero(bits).tolist() if t not in vocabulary.end_ids]
        if not tokens:
            break
        text = vocabulary.token_bytes(data.draw(st.sampled_from(tokens)))
        assert text is not None
        assert kernel.advance(config, text)


def test_a_state_is_safe_for_as_many_characters_as_any_text_may_have(vocabulary: Vocabulary) -> None:
    """Six words of one letter and a space each are the shortest text after which a character is refused."""
    machine = compile_json_schema({"type": "string", "pattern": r"^(?:\S+\s+){0,6}\S+$"}).machine
    config = machine.run(machine.initial(), b'"a')
    assert config is not None
    kernel = CpuKernel(machine, vocabulary)
    kernel.mask(config.pack(), np.zeros(vocabulary.num_words, np.int32))
    value, _ = kernel._safe[0][config.state * safe.PHASES].tolist()
    assert value == 12  # " b c d e f g" may be read whatever it is, and then no space
