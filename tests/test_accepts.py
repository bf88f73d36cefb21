"""`stcon.testing.accepts`: the verdict of the machine, the place where a text leaves it, and words for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import stcon
from stcon.errors import InvalidOption
from stcon.grammar.expected import json_place
from stcon.testing import accepts
from stcon.vocab.vocabulary import Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "inner": {"$ref": "#"},
    },
    "required": ["name", "age"],
}
STRICT = stcon.compile(SCHEMA)
LOOSE = stcon.compile(SCHEMA, whitespace="flexible", key_order="any", closed=False)
PATTERN = stcon.compile_regex(r"[0-9]{3}-[a-f]+")
GRAMMARS = {"strict": STRICT, "loose": LOOSE, "pattern": PATTERN}

VALID = (
    '{"name":"x","age":3,"kind":"red","tags":["a","b"],"inner":{"name":"é","age":130}}',
    '{"name":"","age":0}',
    "123-abc",
)


def small_tokenizer() -> Tokenizer:
    """A byte-level BPE trained on the valid texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(VALID * 4, trainer)
    return tokenizer


TOKENIZER = small_tokenizer()
VOCABULARY = Vocabulary.from_tokenizer(TOKENIZER)


@pytest.mark.parametrize(
    ("grammar", "text", "column", "reason"),
    [
        (STRICT, '{"name":"x"}', 12, """expected ',' and then "age", found '}', at #"""),
        (STRICT, '{"name":"x","age":"old"}', 19, 'expected a number, found "old", at #/age'),
        (STRICT, '{"name":"x","age":200}', 21, "in '200': expected ',' or '}' after '20', at #/age"),
        (STRICT, '{"nmae":"x"}', 4, 'expected "name", found "nmae", at #'),
        (STRICT, '{"name":"toolong"', 15, """in "toolong": expected '","age":' after '"toolo', at #/name"""),
        (LOOSE, '{"name":"x","age":1,"kind":"blue"}', 29, 'expected "green" or "red", found "blue", at #/kind'),
        (LOOSE, '{"name":"x","age":1,"kind":"gre', 32, 'expected "green" or "red", found the end of the text'),
        (LOOSE, '{"name":"x","age":1,"tags":["a","a"]}', 35, 'the item "a" is there a second time, at #/tags/1'),
        (LOOSE, '{"name":"x","name":"y"}', 18, 'the name "name" may not come here: it is there already'),
        (LOOSE, '{"inner":{"name":"a","age":tru}}', 28, "expected a number, found 'tru', at #/inner/age"),
        (LOOSE, "[]", 1, "expected an object, found '[', at #"),
        (LOOSE, "", 1, "expected an object, found the end of the text"),
        (STRICT, '{"name":"x","age":1} x', 21, "expected the end, found ' '"),
        (PATTERN, "123-xyz", 5, "expected 'a' to 'f', found 'xyz'"),
        (PATTERN, "123", 4, "expected '-', found the end of the text"),
    ],
)
def test_reasons(grammar: stcon.Grammar, text: str, column: int, reason: str) -> None:
    """A refusal says where the text goes wrong, what was expected there and what is there."""
    refusal = accepts(grammar, None, text).refusal
    assert refusal is not None
    assert refusal.reason.startswith(reason)
    assert (refusal.line, refusal.column) == (1, column)
    assert str(refusal) == f"line 1, column {column}: {refusal.reason}"


def test_lines_and_columns_count_characters() -> None:
    """Lines are counted, and columns in characters, while offsets are bytes."""
    refusal = accepts(LOOSE, None, '{\n "name": "é", "kind": 3}').refusal
    assert refusal is not None
    assert (refusal.line, refusal.column, refusal.offset) == (2, 23, 25)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(GRAMMARS)), st.sampled_from(VALID), st.data())
def test_place_of_a_refusal(name: str, text: str, data: st.DataObject) -> None:
    """However a text is spoiled: the verdict is the grammar's, and the offset the first that no text goes on from."""
    grammar = GRAMMARS[name]
    spoiled = bytearray(text.encode())
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(spoiled)))
        kept = spoiled[at + data.draw(st.integers(0, 2)) :]
        spoiled[at:] = data.draw(st.binary(max_size=2) | st.sampled_from([b'"', b",", b"}", b"1", b" "])) + kept
    verdict = accepts(grammar, None, bytes(spoiled))
    assert bool(verdict) == grammar.accepts(bytes(spoiled))
    if verdict.refusal is not None:
        offset, machine = verdict.refusal.offset, grammar.machine
        before = machine.run(machine.initial(), spoiled[:offset])
        assert before is not None
        assert verdict.refusal.reason
        if offset == len(spoiled):
            assert not machine.accepts(before)
        elif "second time" not in verdict.refusal.reason:
            assert machine.step(before, spoiled[offset]) is None


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=12,
    ),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_json_place_points_into_the_document(value: object, indent: int | None, ascii_only: bool) -> None:
    """At every place of a document the pointer is one of it, and every scalar is pointed at while it is read."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    pointers = dict(walk(value))
    seen = set()
    for end in range(len(text.encode()) + 1):
        place = json_place(text.encode()[:end])
        assert place.pointer in pointers
        if place.token is not None and not place.is_name:
            seen.add(place.pointer)
    assert {pointer for pointer, leaf in pointers.items() if leaf} == seen


def walk(value: object, pointer: str = "") -> list[tuple[str, bool]]:
    """Every pointer into a document, and whether a scalar is there."""
    if isinstance(value, dict):
        inner = [(key.replace("~", "~0").replace("/", "~1"), member) for key, member in value.items()]
    elif isinstance(value, list):
        inner = [(str(index), member) for index, member in enumerate(value)]
        if not value:
            return [(pointer, False), (f"{pointer}/0", False)]  # where an item could come
    else:
        return [(pointer, True)]
    return [(pointer, False), *(found for key, member in inner for found in walk(member, f"{pointer}/{key}"))]


def test_deep_nesting() -> None:
    """Past the bound of nesting the reason is that."""
    refusal = accepts(LOOSE, None, '{"inner":' * 100).refusal
    assert refusal is not None
    assert "nested too deeply" in refusal.reason


# ------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("tokenizer", [TOKENIZER, VOCABULARY], ids=["tokenizer", "vocabulary"])
def test_tokens_of_accepted_texts(tokenizer: object) -> None:
    """An accepted text is accepted token by token, and the tokens are the tokenizer's."""
    for text, grammar in zip(VALID, (STRICT, STRICT, PATTERN), strict=True):
        verdict = accepts(grammar, tokenizer, text)
        assert verdict
        assert list(verdict.tokens or ()) == TOKENIZER.encode(text).ids


def test_ids_of_a_model() -> None:
    """A model's ids are read as the text that they spell, an end token at their end left out."""
    ids = VOCABULARY.encode("123-abc")
    assert accepts(PATTERN, VOCABULARY, [*ids, 0])
    refusal = accepts(PATTERN, VOCABULARY, [*ids, ids[0]]).refusal
    assert refusal is not None
    assert refusal.offset == 7
    assert not accepts(PATTERN, VOCABULARY, [0, *ids])
    with pytest.raises(InvalidOption, match="tokenizer"):
        accepts(PATTERN, None, ids)
    with pytest.raises(InvalidOption, match="not in"):
        accepts(PATTERN, VOCABULARY, [99_999])


def test_text_that_no_tokens_spell() -> None:
    """A text with a byte that the vocabulary lacks is refused with that reason."""
    few = Vocabulary.from_bytes([None, *(bytes((byte,)) for byte in b"0123456789-")], end_ids=(0,))
    verdict = accepts(PATTERN, few, "123-abc")
    assert "no tokens" in str(verdict)
    assert accepts(stcon.compile_regex("[0-9-]+"), few, "12-3")


def test_schemas_as_grammars() -> None:
    """A schema is compiled; anything else is refused."""
    assert accepts({"type": "integer"}, None, "34")
    assert not accepts({"type": "integer"}, None, "3.5")
    with pytest.raises(InvalidOption, match="compile it first"):
        accepts(3, None, "")
