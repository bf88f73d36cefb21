"""Masks where most plain characters lead into free text and a few do not: the names of an open object.

After the opening quote of a name every character may come, but the declared names and those that came before must be
told apart from the others: the first letters of such names lead into a trie, every other character into free text. A
walk over all tokens would visit most of the vocabulary to find that nearly all of it is allowed.

So the plain tokens (`plain`) are taken by their first byte. Where a byte leads into *settled* text (a state that every
plain character leaves where it is, without bounds), all plain tokens that begin with it are allowed, at no cost for
each; only the others are walked, and in them the same holds for each subtree below a settled state. Tokens that are not
plain are walked as always.
"""

# ruff: noqa: PLR0917 (kernels take their arrays by position: numba resolves keywords slowly)

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import DEAD, UNBOUNDED, UNBUILT
from stcon.kernels.plain import INSIDE_HIGH, INSIDE_LOW, LEADS, NEXT, NEXT_UNKNOWN, classify
from stcon.kernels.stepping import DIED, NEEDS_ROW, Arrays, Int32, Int64, step
from stcon.kernels.walk import COUNTER, END, RELATIVE, STATE, TOP, Trie
from stcon.vocab.trie import build_trie

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

UInt8 = NDArray[np.uint8]

# what becomes of the plain tokens that begin with a byte
NONE = 0
SOME = 1
ALL = 2

_MAX_INNER = 64


class PlainTrie:
    """The trie of a vocabulary's plain tokens.

    Attributes:
        arrays: the `TokenTrie` as a plain tuple.
        boundary: uint8[M], whether the bytes to a node are whole characters.
        roots: int32[R], the nodes at depth 1.
        sizes: int64[R], the tokens below each.
        words: int32[W], the bits of all plain tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        order, words = vocabulary.order, vocabulary.plain_words
        trie = build_trie(vocabulary.packed.select((words[order >> 5] >> (order & 31)) & 1 != 0))
        self.arrays: Trie = tuple(trie)
        self.words = words
        self.roots = np.flatnonzero(trie.depth == 1).astype(np.int32)
        self.sizes = (trie.first[trie.skip[self.roots]] - trie.first[self.roots]).astype(np.int64)
        following = np.append(trie.byte[1:], 0)
        leaf = trie.skip == np.arange(1, len(trie.byte) + 1)
        self.boundary = (leaf | ((following & 0xC0) != 0x80)).astype(np.uint8)


@njit
def sort_roots(
    tables: Arrays,
    memo: Int32,
    trie: Trie,
    roots: Int32,
    begin: int,
    frames: Int64,
    nodes: Int32,
    seen: Int64,
    verdict: UInt8,
) -> tuple[int, int]:
    """Fill `verdict` (uint8[R]): which of the tokens below each root are allowed: `NONE`, `ALL`, or `SOME`.

    Returns:
        (number of roots, -1), or (root to go on from, state whose row is needed).
    """
    byte_class, byte = tables[0], trie[0]
    for r in range(begin, len(roots)):
        b = byte[roots[r]]
        k = wide(byte_class[b])
        status, state, _, _, _, _ = step(
            tables, nodes, seen, k, frames[0, STATE], frames[0, COUNTER], 1, frames[0, TOP], frames[0, END]
        )
        if status == NEEDS_ROW:
            return r, state
        verdict[r] = NONE
        if status == DIED:
            continue
        missing, settled = is_settled(tables, memo, state) if b < 0x80 else settles(tables, memo, state, b)
        if missing >= 0:
            return r, missing
        verdict[r] = ALL if settled else SOME
    return len(roots), -1


@njit
def is_settled(tables: Arrays, memo: Int32, state: int) -> tuple[int, bool]:
    """Whether every plain character leaves `state` where it is, without bounds; or the state whose row is needed."""
    flags, lo, hi = tables[3], tables[4], tables[5]
    if memo[state, NEXT] == NEXT_UNKNOWN:
        missing = classify(tables, memo, state)
        if missing >= 0:
            return missing, False
    inside = memo[state, INSIDE_LOW] <= 0 and memo[state, INSIDE_HIGH] == UNBOUNDED
    free = flags[state] == 0 and lo[state] == 0 and hi[state] == UNBOUNDED
    return -1, memo[state, NEXT] == state and inside and free


@njit
def settles(tables: Arrays, memo: Int32, state: int, lead: int) -> tuple[int, bool]:
    """Whether every character that begins with the byte `lead`, read up to `state`, ends in one settled state."""
    byte_class, delta, flags, lo, hi = tables[0], tables[1], tables[3], tables[4], tables[5]
    kind = 0
    while kind < len(LEADS) - 1 and not LEADS[kind, 0] <= lead <= LEADS[kind, 1]:
        kind += 1
    level = np.empty(_MAX_INNER, np.int64)
    below = np.empty(_MAX_INNER, np.int64)
    level[0], size = state, 1
    low, high = LEADS[kind, 2], LEADS[kind, 3]
    for _ in range(LEADS[kind, 4]):
        count = 0
        for i in range(size):
            inner = level[i]
            if flags[inner] != 0 or lo[inner] != 0 or hi[inner] != UNBOUNDED:
                return -1, False
            for b in range(low, high + 1):
                edge = wide(delta[inner, byte_class[b]])
                if edge == UNBUILT:
                    return wide(inner), False
                if edge < 0:  # dead, or a call: not what this is for
                    return -1, False
                known = False
                for j in range(count):
                    known = known or below[j] == edge
                if known:
                    continue
                if count == _MAX_INNER:
                    return -1, False
                below[count] = edge
                count += 1
        level, below = below, level
        size = count
        low, high = 0x80, 0xBF
    if size != 1:
        return -1, False
    return is_settled(tables, memo, level[0])


@njit
def set_below(trie: Trie, node: int, value: bool, out: Int32) -> None:
    """Set or clear the bits of all tokens at or below `node`. Cost: about 1 ns each."""
    skip, first, tokens = trie[2], trie[3], trie[4]
    for j in range(first[node], first[skip[node]]):
        bit = 1 << (tokens[j] & 31)
        word = out[tokens[j] >> 5]
        out[tokens[j] >> 5] = (word | bit) if value else (word & ~bit)


@njit
def set_roots(trie: Trie, roots: Int32, verdict: UInt8, wanted: int, value: bool, out: Int32) -> None:
    """`set_below` for the roots whose verdict is (value) or is not (not value) `wanted`."""
    for r in range(len(roots)):
        if (verdict[r] == wanted) == value:
            set_below(trie, roots[r], value, out)


@njit
def walk_below(
    tables: Arrays,
    memo: Int32,
    trie: Trie,
    boundary: UInt8,
    begin: int,
    end: int,
    frames: Int64,
    nodes: Int32,
    seen: Int64,
    out: Int32,
) -> tuple[int, int]:
    """`walk.walk` over nodes `begin` … `end` of the plain trie; whole subtrees at once below settled states.

    Returns:
        (end, -1), or (node to go on from, state whose row is needed).
    """
    byte_class, delta, label, flags, lo, hi = tables[0], tables[1], tables[2], tables[3], tables[4], tables[5]
    byte, depth, skip, first, tokens = trie
    i = begin
    while i < end:
        d = depth[i]
        k = wide(byte_class[byte[i]])
        state, counter = frames[d - 1, STATE], frames[d - 1, COUNTER]
        relative, top, used = frames[d - 1, RELATIVE], frames[d - 1, TOP], frames[d - 1, END]
        edge = wide(delta[state, k])
        if edge >= 0 and flags[edge] == 0 and lo[edge] == 0 and hi[edge] == UNBOUNDED:
            state = edge  # what `step` would do, without the call
        elif edge == DEAD and label[state] < 0:  # this too
            i = skip[i]
            continue
        else:
            status, state, counter, relative, top, used = step(
                tables, nodes, seen, k, state, counter, relative, top, used
            )
            if status == NEEDS_ROW:
                return i, state
            if status == DIED:
                i = skip[i]
                continue
        if boundary[i] and (memo[state, NEXT] == NEXT_UNKNOWN or memo[state, NEXT] == state):
            missing, settled = is_settled(tables, memo, state)
            if missing >= 0:
                return i, missing
            if settled:
                set_below(trie, i, True, out)
                i = skip[i]
                continue
        frames[d, STATE], frames[d, COUNTER], frames[d, RELATIVE] = state, counter, relative
        frames[d, TOP], frames[d, END] = top, used
        for j in range(first[i], first[i + 1]):
            out[tokens[j] >> 5] |= 1 << (tokens[j] & 31)
        i += 1
    return end, -1
