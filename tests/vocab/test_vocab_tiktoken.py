"""Vocabularies of tiktoken encodings."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from vocab_cases import BUILDERS, OLD_TEXTS

from stcon.errors import InvalidOption
from stcon.vocab import Vocabulary
from stcon.vocab.byte_level import token_bytes
from stcon.vocab.gguf import _GPT4O, _QWEN2

tiktoken = pytest.importorskip("tiktoken", reason="needs tiktoken: pip install 'stcon[tiktoken]'")

CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
PATTERNS = {"cl100k": CL100K, "o200k": _GPT4O, "qwen": _QWEN2}


def small_encoding(name):
    """The trained byte-level tokens as ranks, with a hole before the added tokens."""
    model = json.loads(BUILDERS["qwen2"]().to_str())["model"]
    ranks = {token_bytes(text): token for text, token in model["vocab"].items()}
    added = {"<|endoftext|>": len(ranks) + 3, "<tool_call>": len(ranks) + 4}
    return tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens=added)


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_from_tiktoken_any_text(name):
    """The ids are tiktoken's ordinary ones, they spell the text, and so do the blocks one by one."""
    encoding = small_encoding(name)
    vocabulary = Vocabulary.from_tiktoken(encoding)

    @settings(deadline=None)
    @given(OLD_TEXTS)
    def check(text):
        ids = vocabulary.encode(text)
        assert ids == encoding.encode_ordinary(text)
        assert vocabulary.spells(ids, text.encode())
        cuts = [*vocabulary.block_starts(text), len(text.encode())]
        blocks = [text.encode()[a:b].decode() for a, b in pairwise(cuts)]
        assert [token for block in blocks for token in encoding.encode_ordinary(block)] == ids

    check()


def test_from_tiktoken_tokens():
    """Ordinary tokens have their bytes, holes and special tokens none, text tokens their text."""
    encoding = small_encoding("qwen")
    vocabulary = Vocabulary.from_tiktoken(encoding, size=1000, text_tokens=["<tool_call>"])
    assert vocabulary.size == 1000
    holes = range(encoding.n_vocab - 5, encoding.n_vocab - 2)
    for token in range(encoding.n_vocab - 5):
        assert vocabulary.token_bytes(token) == encoding.decode_single_token_bytes(token)
    assert all(vocabulary.token_bytes(token) is None for token in [*holes, encoding.n_vocab - 2, 999])
    assert vocabulary.end_ids == (encoding.n_vocab - 2,)
    call = encoding.n_vocab - 1
    assert vocabulary.token_bytes(call) == b"<tool_call>"
    assert call in vocabulary.encode("x<tool_call>")
    assert call not in Vocabulary.from_tiktoken(encoding).encode("x<tool_call>")


def test_from_tiktoken_wrong():
    """A size too small and a text token that is none are refused."""
    encoding = small_encoding("qwen")
    with pytest.raises(InvalidOption, match="less than"):
        Vocabulary.from_tiktoken(encoding, size=100)
    with pytest.raises(InvalidOption, match="<nothing>"):
        Vocabulary.from_tiktoken(encoding, text_tokens=["<nothing>"])
