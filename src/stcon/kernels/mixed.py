"""Masks where plain characters lead to different places: text under a pattern, the names of an open object.

A walk over all tokens would visit most of the vocabulary to find that nearly all of it is allowed. Two facts spare it
(`safe`): where the state takes any n characters, the tokens of at most n are allowed at once; and in a walk over the
others, whole subtrees are, below each node whose state takes as many characters as the longest token there still has.

The tokens are taken by their first byte, so that a byte that leads into free text costs nothing for each of its tokens:
after the opening quote of a name, say, where only the first letters of declared names lead elsewhere. Tokens that are
not plain are walked as always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import DEAD, UNBOUNDED
from stcon.kernels.safe import GROUPS, LETTERS, MOST, PHASES, PLAIN, SAFE, WORD, WORD_GROUPS, explore, next_phase, stays
from stcon.kernels.stepping import DIED, NEEDS_ROW, Arrays, Int32, Int64, step, within
from stcon.kernels.walk import COUNTER, END, RELATIVE, STATE, TOP, Trie
from stcon.vocab.trie import build_trie

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

UInt8 = NDArray[np.uint8]

# what becomes of the plain tokens that begin with a byte; of `FEW` and `MANY` some are allowed, to be found by a walk
# that sets the bits of these, or clears those of the others: more or less work, the same mask
NONE = 0
FEW = 1
MANY = 2
ALL = 3


class PlainTrie:
    """The trie of a vocabulary's plain tokens.

    Attributes:
        arrays: the `TokenTrie` as a plain tuple.
        phase: uint8[M], the phase (`safe`) after the bytes to a node.
        reach: int32[M], the characters of the longest token at or below a node.
        height: int32[M], of those, how many are still to complete.
        groups: int64[M], the groups (`safe.GROUPS`) of the bytes below a node.
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
        self.phase, self.reach, self.height, self.groups = measure(self.arrays)


@njit
def measure(trie: Trie) -> tuple[UInt8, Int32, Int32, Int64]:
    """`phase`, `reach`, `height` and `groups` of a `PlainTrie`. Cost: two passes over the nodes."""
    byte, depth, _, first, _ = trie
    size = len(byte)
    phase, chars = np.zeros(size, np.uint8), np.zeros(size, np.int32)
    longest = 0
    for i in range(size):
        longest = max(longest, depth[i])
    at_depth = np.zeros(longest + 2, np.int64)
    for i in range(size):
        d = depth[i]
        above = at_depth[d - 1] if d > 1 else -1
        before = wide(phase[above]) if above >= 0 else 0
        phase[i] = next_phase(before, wide(byte[i]))
        chars[i] = (chars[above] if above >= 0 else 0) + (1 if phase[i] == 0 else 0)
        at_depth[d] = i
    reach, below = np.zeros(size, np.int32), np.zeros(longest + 2, np.int32)
    groups, held = np.zeros(size, np.int64), np.zeros(longest + 2, np.int64)
    for i in range(size - 1, -1, -1):
        d = depth[i]
        groups[i] = held[d + 1]
        held[d + 1] = 0
        held[d] |= groups[i] | GROUPS[byte[i]]
        reach[i] = max(below[d + 1], chars[i] if first[i + 1] > first[i] else 0)
        below[d + 1] = 0
        below[d] = max(below[d], reach[i])
    return phase, reach, reach - chars, groups


Memos = tuple[Int32, Int32, Int64]
"""What is known of a machine's states (`safe`): for `PLAIN`, for `WORD`, and for `stays`."""


@njit
def safe_length(tables: Arrays, memos: Memos, state: int, counter: int, seen: Int64) -> int:
    """How many plain characters can be read from a state between characters, whichever they are; `seen` is updated."""
    memo, node = memos[0], state * PHASES
    if memo[node, SAFE] < 0:
        explore(tables, PLAIN, memo, state, 0)
    length = min(wide(memo[node, SAFE]), wide(memo[node, MOST]) - counter)
    if length > 0:
        within(seen, counter, 1, 0, wide(memo[node, MOST]) - length)
    return max(length, 0)


@njit
def takes(
    tables: Arrays,
    alphabet: UInt8,
    memo: Int32,
    state: int,
    phase: int,
    counter: int,
    relative: int,
    length: int,
    seen: Int64,
) -> bool:
    """Whether every text over `alphabet` that completes `length` characters can be read; `seen` is updated if so."""
    node = state * PHASES + phase
    if memo[node, SAFE] < 0:
        explore(tables, alphabet, memo, state, phase)
    if memo[node, SAFE] < length or memo[node, MOST] - length < counter:
        return False
    return within(seen, counter, relative, 0, wide(memo[node, MOST]) - length)


@njit
def takes_all(
    tables: Arrays,
    memos: Memos,
    state: int,
    phase: int,
    counter: int,
    relative: int,
    length: int,
    groups: int,
    seen: Int64,
) -> bool:
    """Whether every text of at most `length` characters, of `groups` after the one begun, can be read."""
    if takes(tables, PLAIN, memos[0], state, phase, counter, relative, length, seen):
        return True
    if phase != 0:
        return False
    if groups & ~WORD_GROUPS == 0 and takes(tables, WORD, memos[1], state, 0, counter, relative, length, seen):
        return True
    room = wide(tables[5][state]) - length
    if counter > room or groups & ~stays(tables, memos[2], state) != 0:
        return False
    return within(seen, counter, relative, 0, room)


@njit
def sort_roots(
    tables: Arrays,
    memos: Memos,
    trie: Trie,
    phase: UInt8,
    height: Int32,
    groups: Int64,
    roots: Int32,
    begin: int,
    frames: Int64,
    nodes: Int32,
    seen: Int64,
    verdict: UInt8,
) -> tuple[int, int]:
    """Fill `verdict` (uint8[R]): which of the tokens below each root are allowed: `NONE`, `FEW`, `MANY` or `ALL`.

    Returns:
        (number of roots, -1), or (root to go on from, state whose row is needed).
    """
    byte_class, byte = tables[0], trie[0]
    for r in range(begin, len(roots)):
        node = roots[r]
        k = wide(byte_class[byte[node]])
        status, state, counter, relative, _, _ = step(
            tables, nodes, seen, k, frames[0, STATE], frames[0, COUNTER], 1, frames[0, TOP], frames[0, END]
        )
        if status == NEEDS_ROW:
            return r, state
        verdict[r] = NONE
        if status != DIED:
            p, length, held = wide(phase[node]), wide(height[node]), wide(groups[node])
            if takes_all(tables, memos, state, p, counter, relative, length, held, seen):
                verdict[r] = ALL
                continue
            between = state if p == 0 else frames[0, STATE]
            many = memos[0][state * PHASES + p, SAFE] > 0 or stays(tables, memos[2], between) & LETTERS == LETTERS
            verdict[r] = MANY if many else FEW
    return len(roots), -1


@njit
def set_below(trie: Trie, node: int, value: bool, out: Int32) -> None:
    """Set or clear the bits of all tokens at or below `node`. Cost: about 1 ns each."""
    skip, first, tokens = trie[2], trie[3], trie[4]
    for j in range(first[node], first[skip[node]]):
        bit = 1 << (tokens[j] & 31)
        word = out[tokens[j] >> 5]
        out[tokens[j] >> 5] = (word | bit) if value else (word & ~bit)


@njit
def set_roots(trie: Trie, roots: Int32, verdict: UInt8, value: bool, out: Int32) -> None:
    """`set_below` for the roots of which most or all (value), or few or none (not value), are allowed."""
    for r in range(len(roots)):
        if (verdict[r] >= MANY) == value:
            set_below(trie, roots[r], value, out)


@njit
def walk_below(
    tables: Arrays,
    memos: Memos,
    trie: Trie,
    phase: UInt8,
    reach: Int32,
    height: Int32,
    groups: Int64,
    done: int,
    inverted: bool,
    begin: int,
    end: int,
    frames: Int64,
    nodes: Int32,
    seen: Int64,
    out: Int32,
) -> tuple[int, int]:
    """`walk.walk` over nodes `begin` … `end` of the plain trie; whole subtrees at once where the text is safe.

    Args:
        done: tokens of at most so many characters are in `out` already.
        inverted: all of the tokens are in `out` already, and those that are not allowed are taken out.

    Returns:
        (end, -1), or (node to go on from, state whose row is needed).
    """
    byte_class, delta, label, flags, lo, hi = tables[0], tables[1], tables[2], tables[3], tables[4], tables[5]
    byte, depth, skip, first, tokens = trie
    plain_memo, word_memo, loop_memo = memos
    i = begin
    while i < end:
        if reach[i] <= done:
            i = skip[i]
            continue
        d = depth[i]
        k = wide(byte_class[byte[i]])
        state, counter = frames[d - 1, STATE], frames[d - 1, COUNTER]
        relative, top, used = frames[d - 1, RELATIVE], frames[d - 1, TOP], frames[d - 1, END]
        edge = wide(delta[state, k])
        if edge >= 0 and flags[edge] == 0 and lo[edge] == 0 and hi[edge] == UNBOUNDED:
            state = edge  # what `step` would do, without the call
        elif edge == DEAD and label[state] < 0:  # this too
            if inverted:
                set_below(trie, i, False, out)
            i = skip[i]
            continue
        else:
            status, state, counter, relative, top, used = step(
                tables, nodes, seen, k, state, counter, relative, top, used
            )
            if status == NEEDS_ROW:
                return i, state
            if status == DIED:
                if inverted:
                    set_below(trie, i, False, out)
                i = skip[i]
                continue
        # `takes_all`, without a call where it is known
        p, length = wide(phase[i]), wide(height[i])
        node = state * PHASES + p
        if plain_memo[node, SAFE] < 0:
            explore(tables, PLAIN, plain_memo, state, p)
        admitted, room = plain_memo[node, SAFE] >= length, wide(plain_memo[node, MOST]) - length
        if not admitted and p == 0:
            held = wide(groups[i])
            if held & ~WORD_GROUPS == 0:
                if word_memo[node, SAFE] < 0:
                    explore(tables, WORD, word_memo, state, 0)
                admitted, room = word_memo[node, SAFE] >= length, wide(word_memo[node, MOST]) - length
            if not admitted:
                loops = wide(loop_memo[state])
                if loops < 0:
                    loops = stays(tables, loop_memo, state)
                admitted, room = held & ~loops == 0, wide(hi[state]) - length
        if admitted and counter <= room and within(seen, counter, relative, 0, room):
            if not inverted:
                set_below(trie, i, True, out)
            i = skip[i]
            continue
        frames[d, STATE], frames[d, COUNTER], frames[d, RELATIVE] = state, counter, relative
        frames[d, TOP], frames[d, END] = top, used
        for j in range(first[i], first[i] if inverted else first[i + 1]):
            out[tokens[j] >> 5] |= 1 << (tokens[j] & 31)
        i += 1
    return end, -1
