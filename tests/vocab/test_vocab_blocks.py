"""Blocks: they are what the tokenizer spells one by one, and what is said to be certain stays."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from vocab_cases import BUILDERS, OLD_TEXTS

from stcon.vocab import Vocabulary
from stcon.vocab.blocks import PreTokenSplitter, WholeSplitter
from stcon.vocab.locality import check_locality

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
LOCAL = {
    "qwen2": True,
    "llama3": True,
    "deepseek": True,
    "gpt2": False,
    "smollm": False,
    "gpt4o": False,
    "tekken": False,
}


@SHARED
@given(text=OLD_TEXTS)
def test_block_starts_spelled_apart(vocabulary, text):
    """Blocks cover the text, begin between characters, and encoded one by one give the tokens of the whole."""
    data = text.encode()
    starts = vocabulary.block_starts(text)
    assert starts == sorted(set(starts))
    assert starts[:1] == ([0] if text else [])
    blocks = [data[a:b].decode() for a, b in pairwise([*starts, len(data)])]
    assert [token for block in blocks for token in vocabulary.encode(block)] == vocabulary.encode(text)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(text=OLD_TEXTS, more=OLD_TEXTS)
@example(text="a'r", more="e")
@example(text="don'", more="t")
@example(text="中A", more="b")
@example(text="x   <tool_cal", more="l>")
@example(text="a \n ", more="\n")
def test_certain_blocks_stay(vocabulary, text, more):
    """Assumption 1, or the policy in its place: blocks up to `certain_length` are blocks of every longer text."""
    certain = vocabulary.certain_length(text)
    before = [start for start in vocabulary.block_starts(text) if start <= certain]
    after = vocabulary.block_starts(text + more)
    assert after[: len(before)] == before


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(text=OLD_TEXTS, more=OLD_TEXTS)
@example(text="\r\n{", more="")
def test_certain_tokens_stay(vocabulary, text, more):
    """Theorem 20(i): the tokens of the certain blocks begin the tokens of every longer text."""
    committed = vocabulary.encode_prefix(text, vocabulary.certain_length(text))
    assert vocabulary.encode(text + more)[: len(committed)] == committed


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(text=OLD_TEXTS, more=OLD_TEXTS)
@example(text='{"a":1', more=",")
@example(text="a<", more="tool_call>")
@example(text="12", more="\u0663")
def test_tail_is_stable_holds(vocabulary, text, more):
    """Theorem 20(ii): with a stable tail, all tokens of the text begin those of the longer one."""
    if more and vocabulary.tail_is_stable(text, [more.encode()[0]]):
        committed = vocabulary.encode(text)
        assert vocabulary.encode(text + more)[: len(committed)] == committed


@pytest.mark.parametrize(
    ("text", "next_bytes", "stable"),
    [
        ('{"a":true', b",}", True),
        ('{"a":true', b"s", False),
        ('{"a":true', b",}s", False),
        ('{"a":true ', b",}", False),
        ("", b"a", False),
        ('{"a":1', b",}", True),
        ('"name', b'"', True),
        ('{"name"', b":", False),
        ("abc", bytes([0xC3]), False),
        ("abc", bytes([0x80]), False),
        ("abc", bytes([0xFF]), False),
    ],
)
def test_tail_is_stable_known(text, next_bytes, stable):
    """The stable-tail test on cases whose answer is seen by eye, under Qwen's pre-tokenizer."""
    vocabulary = Vocabulary.from_tokenizer(BUILDERS["qwen2"]())
    assert vocabulary.tail_is_stable(text, next_bytes) is stable


def test_tail_is_stable_lead_bytes():
    """A digit of its own block is final before any character; before a non-ASCII letter a word is not."""
    vocabulary = Vocabulary.from_tokenizer(BUILDERS["qwen2"]())
    lead = range(0xC2, 0xF5)
    assert vocabulary.tail_is_stable("a 7", lead)
    assert not vocabulary.tail_is_stable("a seven", lead)


def test_tail_is_stable_repeated(qwen35):
    """Asked again in the same place it answers from memory: 1,000 askings take well under a second each way."""
    lead = frozenset(range(0x20, 0x7F)) | frozenset(range(0xC2, 0xF5))
    qwen35.tail_is_stable("x 7", lead)
    start = time.perf_counter()
    for _ in range(1000):
        qwen35.tail_is_stable("x 7", lead)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("name", sorted(LOCAL))
def test_is_local_known(name):
    """Which pre-tokenizers satisfy Assumption 1; the note says what is done for the others."""
    vocabulary = Vocabulary.from_tokenizer(BUILDERS[name]())
    assert vocabulary.is_local is LOCAL[name]
    assert ("held back" in vocabulary.locality_note) is not LOCAL[name]


def test_is_local_real(smollm2, qwen35):
    """The paper's finding for Qwen3.5 holds; SmolLM2, with GPT-2's pattern, is not local and says so."""
    assert qwen35.is_local
    assert not smollm2.is_local
    assert "'el'" in smollm2.locality_note


@pytest.mark.parametrize("name", ["llama2", "gemma", "unsplit"])
def test_is_local_without_pre_tokenizer(name):
    """Without a pre-tokenizer, cuts lie where no token crosses: local by construction, and not just one block."""
    vocabulary = Vocabulary.from_tokenizer(BUILDERS[name]())
    assert vocabulary.is_local
    assert len(vocabulary.block_starts('{"name":"Ada","zip":"12"}')) > 3


def test_check_locality_hopeless():
    """A splitter whose every cut depends on the text's length gets one block, and says so."""

    def pieces(text):
        return sorted({0, len(text) // 2}) if text else []

    locality = check_locality(PreTokenSplitter(pieces))
    assert isinstance(locality.splitter, WholeSplitter)
    assert not locality.is_local
    assert locality.certain_length("some text") == 0
    assert not locality.tail_is_stable("some text", frozenset(b"a"))


def test_check_locality_looks_back():
    """A splitter that does not restart at its blocks is still asked about the whole text."""

    def pieces(text):  # digits are blocks, but only in a text that begins with a letter
        cuts = [i for i, c in enumerate(text) if c.isdigit() and text[0].isalpha()]
        return [0, *cuts] if text else []

    locality = check_locality(PreTokenSplitter(pieces))
    assert locality.is_local
    assert not locality.restarts
    assert locality.tail_is_stable("a7", frozenset(b"7"))
    assert not locality.tail_is_stable("7", frozenset(b"7"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen2", "llama3", "gpt2", "smollm", "gpt4o", "tekken", "deepseek"])
def test_certain_blocks_stay_sweep(name):
    """The paper's test of Assumption 1, at its scale in all: 100,000 random pairs for each pre-tokenizer."""
    vocabulary = Vocabulary.from_tokenizer(BUILDERS[name]())
    rng = random.Random(name)
    alphabet = list("\"'{}[]:,.-_\\/ \n\t\r09aeltrsvmdxABÉéſ中あアё\u0301\u00a0😀<>")
    for _ in range(100_000):
        text = "".join(rng.choices(alphabet, k=rng.randint(1, 10)))
        longer = text + "".join(rng.choices(alphabet, k=rng.randint(1, 3)))
        certain = vocabulary.certain_length(text)
        before = [start for start in vocabulary.block_starts(text) if start <= certain]
        assert vocabulary.block_starts(longer)[: len(before)] == before, (text, longer)


def test_block_starts_ascii_and_not():
    """Offsets are in bytes, not characters."""
    vocabulary = Vocabulary.from_tokenizer(BUILDERS["qwen2"]())
    assert vocabulary.block_starts("ab 12") == [0, 2, 3, 4]
    assert vocabulary.block_starts("éb 12") == [0, 3, 4, 5]


@given(st.text(max_size=12))
def test_pair_splitter_any_text(text):
    """Greedy spelling never crosses a cut of the pair splitter."""
    vocabulary = Vocabulary.from_bytes(
        [*(bytes([b]) for b in range(256)), b"ab", b"b\xc3", b"\xc3\xa9", b"bc"], end_ids=[]
    )
    text = "".join(c for c in text if not "\ud800" <= c <= "\udfff") + "abébc"
    edges = {0}
    for token in vocabulary.encode(text):
        edges.add(max(edges) + len(vocabulary.token_bytes(token)))
    assert set(vocabulary.block_starts(text)) <= edges
