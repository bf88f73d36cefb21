"""Sessions, driven as vLLM drives them: our own engine's text, exact ways back, drafts that are always accepted."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from vllm_lab import END, OTHER_END, Decoded, decode, vocabulary

import stcon
from stcon.errors import InvalidOption, LimitTooSmall, TooLarge
from stcon.integrations.vllm.session import Session, Stops
from stcon.models.fake import FakeModel

VOCABULARY = vocabulary()
STOPS = Stops(VOCABULARY, [END])
PROMPT = [65, 66]

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"v": {"enum": ["a", "b"]}, "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
    "required": ["v"],
}
UNIQUE = {"type": "array", "items": {"enum": ["a", "ab", "abc", "b", "c"]}, "uniqueItems": True, "minItems": 4}
SCHEMAS: dict[str, Any] = {"person": PERSON, "tree": TREE, "unique": UNIQUE}
GRAMMARS = {name: stcon.compile(schema) for name, schema in SCHEMAS.items()} | {
    "regex": stcon.compile_regex("(abc|ab?)+c"),
    "gbnf": stcon.compile_grammar('root ::= "[" (root ("," root)*)? "]"', syntax="gbnf"),
}
KNOWN_NEED = {name: stcon.Matcher(grammar, VOCABULARY, policy="none").need() for name, grammar in GRAMMARS.items()}
MODES = ("mask", "any", "canonical")


def session(name: str, mode: str = "canonical", limit: int | None = None, **options: Any) -> Session:
    """A session of one of the grammars."""
    return Session(GRAMMARS[name], VOCABULARY, STOPS, mode=mode, limit=limit, **options)  # type: ignore[arg-type]


def text_of(decoded: Decoded) -> bytes:
    """The text of an output."""
    return VOCABULARY.decode(decoded.tokens)


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("mode", ["mask", "any"])
def test_texts_are_our_engines(name: str, mode: str) -> None:
    """Under a limit, the loop that vLLM runs writes what our own engine writes, in every mode that heals nothing."""
    for seed in range(6):
        model = FakeModel(VOCABULARY, seed)
        own = model.generate("AB", GRAMMARS[name], 40, mode=mode, raw=True)
        one = Session(GRAMMARS[name], VOCABULARY, Stops(VOCABULARY, VOCABULARY.end_ids), mode=mode, limit=40)  # type: ignore[arg-type]
        found = decode(one, model, PROMPT, 40, drafts=8)
        assert text_of(found) == own.text.encode()


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("mode", MODES)
def test_drafts_change_nothing_but_the_number_of_steps(name: str, mode: str) -> None:
    """With drafts, an output has the same tokens in fewer steps, and every draft is accepted."""
    for seed in range(4):
        model = FakeModel(VOCABULARY, seed)
        plain = decode(session(name, mode, 60), model, PROMPT, 60)
        assert plain.steps == len(plain.tokens)
        for drafts in (1, 3, 16):
            found = decode(session(name, mode, 60), model, PROMPT, 60, drafts=drafts)
            assert found.tokens == plain.tokens
            assert found.num_accepted == found.num_drafted
            is_cut = END not in found.tokens  # then the token after the last draft is drawn for nothing
            assert 0 <= found.steps - (plain.steps - found.num_accepted) <= is_cut
    if name == "person" and mode != "mask":
        assert found.steps < plain.steps


@settings(deadline=None)
@given(st.sampled_from(list(SCHEMAS)), st.sampled_from(MODES), st.integers(0, 60), st.integers(0, 1 << 30))
def test_outputs_are_valid_under_every_limit(name: str, mode: str, more: int, seed: int) -> None:
    """Every limit is kept with a valid output, whatever the model, or refused as too small at the start."""
    need = KNOWN_NEED[name]
    assert need is not None
    limit = need + more
    try:
        started = session(name, mode, limit)
    except LimitTooSmall:
        assert name == "unique"  # the only one whose need is a lower bound
        return
    found = decode(started, FakeModel(VOCABULARY, seed), PROMPT, limit, drafts=seed % 5)
    assert not found.is_refused
    assert Draft202012Validator(SCHEMAS[name]).is_valid(json.loads(text_of(found)))


@settings(deadline=None)
@given(st.sampled_from(list(GRAMMARS)), st.sampled_from(MODES), st.integers(0, 1 << 30))
def test_speculation_of_any_kind_changes_nothing(name: str, mode: str, seed: int) -> None:
    """With drafts from elsewhere, right, wrong and inadmissible ones, the output is as without."""
    model, chance = FakeModel(VOCABULARY, seed), random.Random(seed)
    plain = decode(session(name, mode, 50), model, PROMPT, 50)

    def speculator(written: list[int]) -> list[int]:
        right = plain.tokens[len(written) : len(written) + chance.randrange(6)]
        return [token if chance.random() < 0.8 else chance.randrange(VOCABULARY.size) for token in right]

    found = decode(session(name, mode, 50), model, PROMPT, 50, speculator=speculator)  # type: ignore[arg-type]
    assert found.tokens == plain.tokens


@settings(deadline=None)
@given(st.sampled_from(list(GRAMMARS)), st.sampled_from(MODES), st.integers(0, 1 << 30))
def test_rollback_is_exact(name: str, mode: str, seed: int) -> None:
    """After any accepts taken back, the masks that follow are those of a session that never took them."""
    chance = random.Random(seed)
    moved, straight = session(name, mode, 60), session(name, mode, 60)
    for _ in range(20):
        if straight.is_finished:
            break
        taken = 0
        for _ in range(chance.randrange(4)):
            if not moved.is_finished and moved.accept(_some_token(moved, chance)):
                taken += 1
        moved.rollback(taken)
        assert moved.num_accepted == straight.num_accepted
        np.testing.assert_array_equal(mask(moved), mask(straight))
        token = _some_token(straight, chance)
        assert moved.accept(token) == straight.accept(token)
    assert moved.is_finished == straight.is_finished


def mask(of: Session) -> np.ndarray:
    """The mask of a session."""
    out = np.zeros(VOCABULARY.num_words, np.int32)
    of.fill(out)
    return out


def _some_token(of: Session, chance: random.Random) -> int:
    bits = np.unpackbits(mask(of).view(np.uint8), bitorder="little")
    return int(chance.choice(np.flatnonzero(bits)))


def test_only_the_engines_end_tokens_end() -> None:
    """End tokens at which the engine does not stop never come; those at which it does, where the text is complete."""
    one = session("regex", "mask")
    for data in (b"ab", b"c"):
        out = mask(one)
        assert not _has(out, END)
        assert not _has(out, OTHER_END)
        assert all(one.accept(byte) for byte in data)
    assert _has(mask(one), END)
    assert not _has(mask(one), OTHER_END)
    assert not one.accept(OTHER_END)
    assert one.accept(END)
    assert one.is_finished
    assert not one.accept(END)


def test_a_forced_output_is_one_draft_and_its_end() -> None:
    """Text that is forced to its end is drafted up to the end token, which the same step draws."""
    one = Session(stcon.compile({"const": "ab"}), VOCABULARY, STOPS)
    drafted = one.drafts(8)
    assert VOCABULARY.decode(drafted) == b'"ab"'
    assert END not in drafted
    found = decode(one, FakeModel(VOCABULARY, 1), PROMPT, 20, drafts=8)
    assert found.tokens == [*drafted, END]
    assert found.steps == 2


def test_several_end_tokens_are_all_right_ends() -> None:
    """Where the engine stops at several tokens, each may end the output; where nothing else may follow, the first."""
    stops = Stops(VOCABULARY, [OTHER_END, END])
    one = Session(GRAMMARS["regex"], VOCABULARY, stops, mode="mask")
    assert all(one.accept(byte) for byte in b"abc")
    assert _has(mask(one), END)
    assert _has(mask(one), OTHER_END)
    whole = Session(stcon.compile({"const": 1}), VOCABULARY, stops)
    assert whole.accept(ord("1"))
    assert np.flatnonzero(np.unpackbits(mask(whole).view(np.uint8), bitorder="little")).tolist() == [OTHER_END]


@pytest.mark.parametrize(("ids", "reason"), [((), "no end token"), ((END, ord("a")), "'a'"), ((9_999,), "no token")])
def test_stops_that_cannot_be_are_refused(ids: tuple[int, ...], reason: str) -> None:
    """End tokens that are missing, stand for text or do not exist are refused with the reason."""
    with pytest.raises(InvalidOption, match=reason):
        Stops(VOCABULARY, ids)


def test_wider_rows_are_cleared() -> None:
    """A row of the engine's that is wider than the vocabulary has no bits there."""
    row = np.full(VOCABULARY.num_words + 3, -1, np.int32)
    session("person").fill(row)
    assert not row[VOCABULARY.num_words :].any()


def test_work_without_end_is_ended() -> None:
    """A session that has used up its time refuses every token with the reason, and its mask is never empty."""
    one = session("person", "mask", max_seconds=-1.0)
    assert mask(one).any()
    assert not one.accept(ord("{"))
    assert "took too long" in str(one.error)
    assert one.drafts(4) == []


def test_states_past_the_limit_end_the_output() -> None:
    """A machine that runs out of states while an output is written refuses the token, and says why."""
    names = {f"{a}{b}": {"type": "integer"} for a in "abcdefghij" for b in "klmnopqrst"}
    grammar = stcon.compile({"type": "object", "properties": names}, key_order="any", max_states=1_500)
    one = Session(grammar, VOCABULARY, STOPS, mode="mask")
    tokens = b"{" + b",".join(b'"%s":1' % name.encode() for name in names)
    assert not all(one.accept(byte) for byte in tokens)
    assert isinstance(one.error, TooLarge)


def test_rollback_past_what_is_kept_is_refused() -> None:
    """No more accepts are taken back than are kept, and nothing changes then."""
    one = session("person", "mask", max_rollback=2)
    assert all(one.accept(byte) for byte in b'{"n')
    with pytest.raises(InvalidOption, match="2 are kept"):
        one.rollback(3)
    assert one.num_accepted == 3
    one.rollback(2)
    assert one.num_accepted == 1


def test_restart_counts_from_another_limit() -> None:
    """A session that starts again under a smaller limit keeps that one; one too small changes nothing."""
    one = session("person", "canonical", 60)
    need = KNOWN_NEED["person"]
    assert need is not None
    one.restart(need + 1)
    assert decode(one, FakeModel(VOCABULARY, 3), PROMPT, need + 1).is_refused is False
    one.restart(60)
    before = mask(one)
    with pytest.raises(LimitTooSmall):
        one.restart(need - 1)
    np.testing.assert_array_equal(mask(one), before)


def _has(words: np.ndarray, token: int) -> bool:
    return bool(words[token >> 5] >> (token & 31) & 1)
