"""A token trie level by level, as walks over arrays read it: the children of a node lie side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from stcon.vocab.trie import TokenTrie

Int64 = NDArray[np.int64]


class Levels(NamedTuple):
    """A trie's nodes by level.

    Attributes:
        num_roots: nodes of the first level.
        byte: int64[M].
        child, num_children: int64[M], the first child of each node and how many there are.
        token, num_tokens: int64[M], the first of its tokens in `tokens` and how many there are.
        tokens: int64[N].
    """

    num_roots: int
    byte: Int64
    child: Int64
    num_children: Int64
    token: Int64
    num_tokens: Int64
    tokens: Int64


def levels_of(trie: TokenTrie) -> Levels:
    """`trie` by level. Cost: one sort of its nodes."""
    depth = trie.depth.astype(np.int64)
    by_level = np.argsort(depth, kind="stable")
    place = np.empty(len(depth), np.int64)
    place[by_level] = np.arange(len(depth))
    parent = np.full(len(depth), -1, np.int64)
    last = np.full(int(depth.max(initial=0)) + 1, -1, np.int64)
    for node, d in enumerate(depth.tolist()):
        parent[node] = last[d - 1] if d > 1 else -1
        last[d] = node
    has_parent = by_level[parent[by_level] >= 0]
    num_children = np.bincount(place[parent[has_parent]], minlength=len(depth))
    num_roots = int((depth == 1).sum())
    child = num_roots + np.cumsum(num_children) - num_children
    counts = np.diff(trie.first)[by_level]
    arrays = (trie.byte[by_level], child, num_children, trie.first[by_level], counts, trie.tokens)
    return Levels(num_roots, *(np.asarray(array, np.int64) for array in arrays))
