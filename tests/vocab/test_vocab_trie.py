"""The packed order and the trie, against the plain list of token bytes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stcon.errors import InvalidOption
from stcon.vocab import Vocabulary
from stcon.vocab.trie import TokenTrie, build_trie, pack_tokens
from stcon.vocab.vocabulary import bitmask

TOKENS = st.lists(st.none() | st.binary(min_size=1, max_size=6) | st.text("ab", min_size=1, max_size=8).map(str.encode))


def spelled(trie: TokenTrie) -> dict[int, bytes]:
    """Walk every node in preorder, its path kept on a stack; returns the bytes of every token met."""
    path = bytearray()
    found = {}
    for node in range(len(trie.byte)):
        del path[trie.depth[node] - 1 :]
        path.append(trie.byte[node])
        assert len(path) == trie.depth[node]
        for token in trie.tokens[trie.first[node] : trie.first[node + 1]].tolist():
            assert token not in found
            found[token] = bytes(path)
    return found


def skip_by_definition(trie: TokenTrie) -> list[int]:
    """The next node that is no deeper, node by node."""
    depth = trie.depth.tolist()
    return [next((j for j in range(i + 1, len(depth)) if depth[j] <= depth[i]), len(depth)) for i in range(len(depth))]


@given(TOKENS)
def test_build_trie_any_tokens(tokens):
    """The trie spells exactly the tokens, has no two children with one byte, and skips exactly the subtrees."""
    trie = build_trie(pack_tokens(tokens))
    assert spelled(trie) == {token: data for token, data in enumerate(tokens) if data is not None}
    prefixes = {data[:end] for data in tokens if data for end in range(1, len(data) + 1)}
    assert len(trie.byte) == len(prefixes)
    assert trie.skip.tolist() == skip_by_definition(trie)
    assert trie.first[-1] == len(trie.tokens)


@given(TOKENS)
def test_pack_tokens_any_tokens(tokens):
    """Packed tokens are in lexicographic order, ties by id, and each is spelled by its slice."""
    packed = pack_tokens(tokens)
    data = packed.data.tobytes()
    slices = [data[a:b] for a, b in zip(packed.offsets[:-1], packed.offsets[1:], strict=True)]
    expected = sorted((data, token) for token, data in enumerate(tokens) if data is not None)
    assert list(zip(slices, packed.order.tolist(), strict=True)) == expected


@pytest.mark.parametrize("token", [b"", b"x" * 40_000])
def test_pack_tokens_impossible_length(token):
    """An empty token, which would let a walk stand still, and one past the depth's type are refused."""
    with pytest.raises(InvalidOption, match="bytes"):
        pack_tokens([b"a", token])


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 64, 65])
def test_vocabulary_awkward_size(size):
    """W = ceil(V / 32), and bit t % 32 of word t // 32 is token t, at sizes around a word."""
    tokens = [None if t % 5 == 4 else bytes([97 + t % 26, 97 + t // 26]) for t in range(size)]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=[size - 1] if size else [])
    assert vocabulary.num_words == -(-size // 32) == len(vocabulary.plain_words)
    words = vocabulary.plain_words.tolist()
    for token in range(32 * vocabulary.num_words):
        has_bytes = token < size and vocabulary.token_bytes(token) is not None
        assert bool(words[token // 32] >> (token % 32) & 1) == has_bytes
    assert vocabulary.plain_words.dtype == np.int32


@given(st.integers(1, 100).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))))
def test_bitmask_any_set(case):
    """`bitmask` sets exactly the bits of its tokens."""
    size, tokens = case
    words = bitmask(np.array(sorted(tokens), np.int32), size)
    assert {t for t in range(32 * len(words)) if int(words[t // 32]) >> (t % 32) & 1} == tokens


def test_trie_qwen35(qwen35):
    """248k tokens: packed under 4 MB, 0.59 million nodes, every token spelled, built in seconds at worst."""
    start = time.perf_counter()
    trie = build_trie(qwen35.packed)
    assert time.perf_counter() - start < 5, "vectorised, it takes 0.1 s; this bound only catches a loop over nodes"
    assert qwen35.packed_nbytes < 4_000_000
    assert 580_000 < len(trie.byte) < 600_000
    found = spelled(trie)
    assert found == {t: b for t in range(qwen35.size) if (b := qwen35.token_bytes(t)) is not None}


def test_rest_and_plain(vocabulary):
    """Every token with bytes is plain or in `rest`, never both; plain is what the definition says."""
    rest = spelled(vocabulary.rest)
    words = vocabulary.plain_words.tolist()
    longest = 0
    for token in range(vocabulary.size):
        data = vocabulary.token_bytes(token)
        plain = data is not None and _is_plain(data)
        assert bool(words[token // 32] >> (token % 32) & 1) == plain
        assert rest.get(token) == (None if plain else data)
        longest = max(longest, len(data.decode()) if plain else 0)
    assert vocabulary.plain_longest == longest


def _is_plain(data: bytes) -> bool:
    text = data.decode("utf-8", "replace")
    return text.encode() == data and all(c >= " " and c not in '"\\' for c in text)
