"""The free-text shortcut: tokens made of plain string characters, 98 % of a vocabulary, decided all at once.

A *plain* character is a complete UTF-8 character other than ``"``, ``\\`` and the controls below U+0020. Where a
state takes every plain character to one and the same state, and so on, a plain token lives or dies by its length in
characters alone: it lives iff it has no more of them than can be read in a row (the *run*). So its bit comes from a
table by length, and only the other tokens are walked.

Source: DESIGN §4. We go past it in states with a length bound, which keep the shortcut up to the last character.
"""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import COUNT, DEAD, UNBOUNDED, UNBUILT
from stcon.kernels.stepping import Arrays, Int32, Int64, enter, within

if TYPE_CHECKING:
    from stcon.kernels.mixed import PlainTrie
    from stcon.vocab.vocabulary import Vocabulary

# what `run` answers instead of a length
MIXED = -1
NEEDS_ROW = -2

# columns of `memo`: where every plain character leads (or one of the codes), and the counter interval, common to all
# the states inside a character, in which none of them refuses to be entered
NEXT, INSIDE_LOW, INSIDE_HIGH = range(3)
MEMO_WORDS = 3
NEXT_DEAD = -1
NEXT_MIXED = -2
NEXT_UNKNOWN = -3

# well-formed UTF-8 past ASCII: lead bytes, interval of the second byte, bytes after the lead (Unicode, Table 3-7)
LEADS = np.array(
    [
        (0xC2, 0xDF, 0x80, 0xBF, 1),
        (0xE0, 0xE0, 0xA0, 0xBF, 2),
        (0xE1, 0xEC, 0x80, 0xBF, 2),
        (0xED, 0xED, 0x80, 0x9F, 2),
        (0xEE, 0xEF, 0x80, 0xBF, 2),
        (0xF0, 0xF0, 0x90, 0xBF, 3),
        (0xF1, 0xF3, 0x80, 0xBF, 3),
        (0xF4, 0xF4, 0x80, 0x8F, 3),
    ],
    np.int32,
)
_MAX_INNER = 64  # distinct states inside characters of one kind; past it the state counts as mixed


class PlainTokens:
    """The plain tokens of a vocabulary, by length.

    Attributes:
        longest: characters of the longest.
        words: int32[rows, W]: ``words[row_of_run[n]]`` has the bits of the plain tokens of at most n characters.
        row_of_run: int32[longest + 1].
        trie: the plain tokens by their bytes, for states that tell characters apart (`mixed.PlainTrie`).

    Cost: 4·W bytes for each length that occurs (about 1.5 MB for 248k tokens).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = weakref.ref(vocabulary)
        tokens, lengths = _plain_lengths(vocabulary)
        occurring = np.unique(lengths)
        self.longest = int(occurring[-1]) if len(occurring) else 0
        self.row_of_run = np.searchsorted(occurring, np.arange(self.longest + 1), side="right").astype(np.int32)
        words = np.zeros((len(occurring) + 1, vocabulary.num_words), np.uint32)
        bits = np.uint32(1) << (tokens & 31).astype(np.uint32)
        np.bitwise_or.at(words, (self.row_of_run[lengths], tokens >> 5), bits)
        self.words = np.bitwise_or.accumulate(words, axis=0).view(np.int32)

    @cached_property
    def trie(self) -> PlainTrie:
        """The trie of these tokens, built on first use."""
        from stcon.kernels.mixed import PlainTrie

        vocabulary = self._vocabulary()
        assert vocabulary is not None, "a kernel keeps its vocabulary"
        return PlainTrie(vocabulary)


def _plain_lengths(vocabulary: Vocabulary) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The plain tokens, and the characters in each."""
    order, offsets = vocabulary.order, vocabulary.offsets
    starts = (vocabulary.data & 0xC0) != 0x80
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(starts, dtype=np.int64)])
    lengths = before[offsets[1:]] - before[offsets[:-1]]
    plain = (vocabulary.plain_words[order >> 5] >> (order & 31)) & 1 != 0
    return order[plain], lengths[plain]


@njit
def run(tables: Arrays, memo: Int32, config: Int32, seen: Int64, longest: int) -> tuple[int, int]:
    """How many plain characters can be read in a row from `config`, whichever they are.

    Args:
        memo: int32[Q, MEMO_WORDS], filled on the way.
        longest: counted no further than this.

    Returns:
        (length, -1); (`MIXED`, -1) where that depends on the characters; (`NEEDS_ROW`, state).
    """
    state, counter = wide(config[0]), wide(config[2])
    for length in range(longest):
        if memo[state, NEXT] == NEXT_UNKNOWN:
            missing = classify(tables, memo, state)
            if missing >= 0:
                return NEEDS_ROW, missing
        following = wide(memo[state, NEXT])
        if following == NEXT_MIXED:
            return MIXED, -1
        if following == NEXT_DEAD:
            return length, -1
        after, _ = enter(tables, seen, following, counter, 1)
        if after < 0:
            return length, -1
        # a character of one byte never enters the states inside, so if these refuse, characters differ
        if not within(seen, counter, 1, wide(memo[state, INSIDE_LOW]), wide(memo[state, INSIDE_HIGH])):
            return MIXED, -1
        if following == state and after == counter:
            break
        state, counter = following, after
    return longest, -1


@njit
def classify(tables: Arrays, memo: Int32, state: int) -> int:
    """Fill ``memo[state]``; returns -1, or the state whose row is needed first."""
    byte_class, delta, label, flags = tables[0], tables[1], tables[2], tables[3]
    target = wide(delta[state, byte_class[0x20]])
    if target == UNBUILT:
        return state
    memo[state, NEXT] = NEXT_MIXED
    for b in range(0x20, 0x80):
        if b != 0x22 and b != 0x5C and delta[state, byte_class[b]] != target:  # noqa: PLR1714 (numba)
            return -1
    if target == DEAD:
        if label[state] < 0 and _leads_are_dead(tables, state):
            memo[state, NEXT] = NEXT_DEAD
        return -1
    if target < 0 or flags[target] & ~np.uint8(COUNT):
        return -1
    memo[state, INSIDE_LOW], memo[state, INSIDE_HIGH] = 0, UNBOUNDED
    for kind in range(len(LEADS)):
        verdict = _check_characters(tables, memo, state, kind, target)
        if verdict >= 0:
            memo[state, NEXT] = NEXT_UNKNOWN
            return verdict
        if verdict == NEXT_MIXED:
            return -1
    memo[state, NEXT] = target
    return -1


@njit
def _leads_are_dead(tables: Arrays, state: int) -> bool:
    byte_class, delta = tables[0], tables[1]
    for kind in range(len(LEADS)):
        for b in range(LEADS[kind, 0], LEADS[kind, 1] + 1):
            if delta[state, byte_class[b]] != DEAD:
                return False
    return True


@njit
def _check_characters(tables: Arrays, memo: Int32, state: int, kind: int, target: int) -> int:
    """Whether every character of a kind leads from `state` to `target`, level by level of its bytes.

    Returns:
        `NEXT_DEAD` (-1) if so, `NEXT_MIXED` if not, or the state whose row is needed.
    """
    byte_class, delta, flags, lo, hi = tables[0], tables[1], tables[3], tables[4], tables[5]
    level = np.empty(_MAX_INNER, np.int64)
    below = np.empty(_MAX_INNER, np.int64)
    level[0], size = state, 1
    low, high = LEADS[kind, 0], LEADS[kind, 1]
    num_tails = LEADS[kind, 4]
    for position in range(num_tails + 1):
        count = 0
        for i in range(size):
            for b in range(low, high + 1):
                edge = delta[level[i], byte_class[b]]
                if edge == UNBUILT:
                    return wide(level[i])
                if position == num_tails:
                    if edge != target:
                        return NEXT_MIXED
                    continue
                if edge < 0 or flags[edge] != 0:
                    return NEXT_MIXED
                known = False
                for j in range(count):
                    known = known or below[j] == edge
                if known:
                    continue
                if count == _MAX_INNER:
                    return NEXT_MIXED
                below[count] = edge
                count += 1
                memo[state, INSIDE_LOW] = max(memo[state, INSIDE_LOW], lo[edge])
                memo[state, INSIDE_HIGH] = min(memo[state, INSIDE_HIGH], hi[edge])
        level, below = below, level
        size = count
        low, high = (LEADS[kind, 2], LEADS[kind, 3]) if position == 0 else (0x80, 0xBF)
    return NEXT_DEAD


def new_memo(num_states: int, known: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
    """int32[num_states, MEMO_WORDS], nothing known yet but what `known` holds."""
    memo = np.zeros((num_states, MEMO_WORDS), np.int32)
    memo[:, NEXT] = NEXT_UNKNOWN
    if known is not None:
        memo[: len(known)] = known
    return memo
