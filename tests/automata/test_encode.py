"""Byte automata, against Python's codecs and JSON library."""

from __future__ import annotations

import json

import automata_strategies as strategies
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.automata import (
    ByteDfa,
    CharDfa,
    accepts,
    byte_accepts,
    byte_run,
    compile_pattern,
    encode_json_string,
    encode_utf8,
    everything,
    literals,
    nothing,
)

quick = settings(max_examples=150, deadline=None)
several_texts = st.lists(strategies.scalar_texts, min_size=1, max_size=6)
raw_bytes = st.one_of(
    st.binary(max_size=6),
    st.lists(st.sampled_from([*b'a"\\u/bn0019dDcCefF8', 0xC3, 0xA9, 0xED, 0xA0, 0x80, 0xF0, 0x9F]), max_size=9).map(
        bytes
    ),
)


@given(strategies.char_dfas(), several_texts, raw_bytes)
@quick
def test_utf8_encodes_each_text_and_nothing_else(dfa: CharDfa, texts: list[str], data: bytes) -> None:
    """The label of a text is that of its encoding; bytes that are not UTF-8 (surrogates too) are rejected."""
    encoded = encode_utf8(dfa)
    for text in texts:
        assert byte_accepts(encoded, text.encode()) == accepts(dfa, text)
    try:
        expected = accepts(dfa, data.decode())
    except UnicodeDecodeError:
        expected = -1
    assert byte_accepts(encoded, data) == expected


def spell(text: str, choices: list[int], escapes: str) -> str:
    """One of the JSON spellings of `text`, as `choices` pick."""
    pieces = []
    for index, character in enumerate(text):
        units = character.encode("utf-16-be").hex()
        long = "".join("\\u" + units[i : i + 4] for i in range(0, len(units), 4))
        short = json.dumps(character, ensure_ascii=False)[1:-1]
        options = [short]
        if escapes == "any":
            options += [long, long.upper().replace("U", "u")] + (["\\/"] if character == "/" else [])
        elif short.startswith("\\u"):
            options += [short.upper().replace("U", "u")]
        pieces.append(options[choices[index % len(choices)] % len(options)])
    return "".join(pieces)


@given(
    strategies.char_dfas(), several_texts, st.lists(st.integers(0, 3), min_size=1), st.sampled_from(["minimal", "any"])
)
@quick
def test_json_string_accepts_every_spelling_it_promises(
    dfa: CharDfa, texts: list[str], choices: list[int], escapes: str
) -> None:
    """A text in any spelling of the mode, closed by a quote, has the text's label; without the quote it has none."""
    encoded = encode_json_string(dfa, escapes=escapes)  # type: ignore[arg-type]
    for text in texts:
        spelled = spell(text, choices, escapes)
        assert json.loads('"' + spelled + '"') == text
        assert byte_accepts(encoded, spelled.encode() + b'"') == accepts(dfa, text)
        assert byte_accepts(encoded, spelled.encode()) == -1


@given(strategies.char_dfas(), raw_bytes, st.sampled_from(["minimal", "any"]))
@quick
def test_json_string_accepts_nothing_that_json_would_read_otherwise(dfa: CharDfa, data: bytes, escapes: str) -> None:
    """Whatever is accepted is a JSON string whose value has that label, without lone surrogates."""
    encoded = encode_json_string(dfa, escapes=escapes)  # type: ignore[arg-type]
    label = byte_accepts(encoded, data + b'"')
    try:
        value = json.loads(b'"' + data + b'"')
        value.encode()
    except ValueError:
        assert label == -1
        return
    assert label in (-1, accepts(dfa, value))
    if escapes == "any":
        assert label == accepts(dfa, value)


MINIMAL_REFUSES = [rb"\/", rb"\u0041", rb"\u0022", rb"\u000a", rb"\u0008", rb"\u007f", b"\x01", b"\n", rb"\ud83d\ude00"]


@pytest.mark.parametrize("data", MINIMAL_REFUSES)
def test_minimal_escapes_refuse_other_spellings(data: bytes) -> None:
    """One spelling a character, but for the case of hexadecimal digits."""
    assert byte_accepts(encode_json_string(everything()), data + b'"') == -1


ANY_REFUSES = [rb"\ud83d", rb"\ude00", rb"\ud83d\u0041", rb"\ud83dx", rb"\ud83d\ud83d", b"\x1f", rb"\x41", rb"\U0041"]


@pytest.mark.parametrize("data", ANY_REFUSES)
def test_any_escapes_refuse_lone_surrogates_and_what_is_not_json(data: bytes) -> None:
    """A surrogate stands only in a pair."""
    assert byte_accepts(encode_json_string(everything(), escapes="any"), data + b'"') == -1


def byte_rows(dfa: ByteDfa) -> list[list[int]]:
    """The table with a sink, one column a class."""
    sink = dfa.num_states
    return [*[[sink if t < 0 else t for t in row] for row in dfa.delta.tolist()], [sink] * dfa.delta.shape[1]]


@pytest.mark.parametrize("encode", ["utf8", "minimal", "any"])
@given(dfa=strategies.char_dfas(max_states=5))
@settings(max_examples=60, deadline=None)
def test_encoding_is_trim_and_minimal_and_knows_its_boundaries(encode: str, dfa: CharDfa) -> None:
    """Every state is reachable and can accept, no two are equivalent, and no two byte classes are alike."""
    result = encode_utf8(dfa) if encode == "utf8" else encode_json_string(dfa, escapes=encode)  # type: ignore[arg-type]
    rows = byte_rows(result)
    reached = set(strategies.reachable(rows, result.start)) - {result.num_states}
    assert reached == set(range(result.num_states))
    live = {q for q in range(result.num_states) if result.labels[q] >= 0}
    for _ in range(result.num_states):
        live |= {q for q in reached if live & set(rows[q])}
    assert live == reached or (not live and result.num_states == 1)
    kinds: list[object] = [*zip(result.labels.tolist(), result.boundary.tolist(), strict=True), "sink"]
    if live:
        assert len(set(strategies.naive_blocks(rows, kinds))) == len(rows)
    assert len(np.unique(result.delta, axis=1).T) == result.delta.shape[1]


@given(strategies.scalar_texts.filter(bool), st.booleans())
@quick
def test_boundary_holds_between_whole_characters_only(text: str, as_json: bool) -> None:
    """Inside a character or an escape no state is at a boundary, between them each is."""
    spelled = [json.dumps(c, ensure_ascii=False)[1:-1] if as_json else c for c in text]
    dfa = encode_json_string(everything()) if as_json else encode_utf8(everything())
    data = "".join(spelled).encode()
    ends = {len("".join(spelled[:i]).encode()) for i in range(len(spelled) + 1)}
    for length in range(len(data) + 1):
        state = byte_run(dfa, data[:length])
        assert state is not None
        assert bool(dfa.boundary[state]) == (length in ends)


def test_final_states_have_no_successors_and_one_exists_for_each_label() -> None:
    """After the closing quote nothing follows, and texts with different labels end in different states."""
    dfa = encode_json_string(literals({"a": 0, "b": 1, "c": 1}))
    finals = np.flatnonzero(dfa.labels >= 0)
    assert sorted(dfa.labels[finals].tolist()) == [0, 1]
    assert (dfa.delta[finals] < 0).all()
    assert dfa.boundary[finals].all()


def test_sizes_of_everything() -> None:
    """Free text takes 8 states in UTF-8 and about 20 in a JSON string."""
    assert encode_utf8(everything()).num_states == 8
    assert encode_json_string(everything()).num_states == 15
    assert encode_json_string(everything(), escapes="any").num_states == 21


def test_encoding_of_nothing_is_one_dead_state() -> None:
    """An empty language keeps a start state without edges or label; so does one of lone surrogates only."""
    for dfa in (encode_utf8(nothing()), encode_json_string(nothing()), encode_utf8(compile_pattern(r"\ud800+"))):
        assert dfa.num_states == 1
        assert (dfa.delta < 0).all()
        assert dfa.labels.tolist() == [-1]
