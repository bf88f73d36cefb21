"""How much plain text a state takes, whatever it is: whole subtrees of a vocabulary are admitted by one comparison.

From most states inside a string every plain character (`plain`) may come, and then any other, for a while: until the
fiftieth word, the end of a date, the last letter of a forbidden name. A state is *safe* for n characters if every text
of n plain characters can be read from it. Where the longest token below a node of the trie has no more of them left
than that, all the tokens below are admitted, and none is walked.

**Nodes.** A byte state inside a character is met with part of the character read. A node is (state, phase), the phase
telling which bytes may continue the character (`PHASES`); phase 0 is between characters. Safety is the greatest
solution of V(node) = min over the bytes that may come of (1 if the byte completes a character) + V(node after it), with
V = 0 where such a byte is refused; by descent from `FOREVER`, over the nodes reachable and not known yet.

Values are lower bounds: 0 where a byte leads into a call or into a state that resets the counter, and where a row is
not built. A bound on the counter is kept beside the value: the least upper bound of all the states on the way.

**Fewer characters.** Where a state refuses some, most tokens may still hold others only. A subtree is admitted whole as
well if its tokens hold only characters that leave the state where it is (`stays`: the letters of a word under a
pattern), or only letters and digits, for which safety is known apart (`WORD`: the labels of a host name).

Source: Theorem 22's question (which part of a state a mask depends on), asked of whole subtrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import COUNT, UNBOUNDED
from stcon.kernels.stepping import Arrays, Int32

UInt8 = NDArray[np.uint8]

PHASES = 8
FOREVER = 30_000
UNKNOWN = -1

# columns of `memo`
SAFE, MOST = range(2)

# phase → least and greatest byte that continues the character, and the phase after it (Unicode, Table 3-7)
_LOW = np.array([0, 0x80, 0x80, 0x80, 0xA0, 0x80, 0x90, 0x80], np.int32)
_HIGH = np.array([0, 0xBF, 0xBF, 0xBF, 0xBF, 0x9F, 0xBF, 0x8F], np.int32)
_AFTER = np.array([0, 0, 1, 2, 1, 1, 2, 2], np.int32)

_MAX_INNER = 64
_MAX_NODES = 1 << 14
_MAX_EDGES = 1 << 17


def _phase_of_byte() -> NDArray[np.int32]:
    """int32[256]: the phase after a byte that begins a character; `UNKNOWN` for bytes that begin none that is plain."""
    phases = np.full(256, UNKNOWN, np.int32)
    phases[0x20:0x80] = 0
    phases[[0x22, 0x5C]] = UNKNOWN
    phases[0xC2:0xE0] = 1
    phases[0xE0:0xF0] = 2
    phases[0xF0:0xF5] = 3
    phases[[0xE0, 0xED, 0xF0, 0xF4]] = 4, 5, 6, 7
    return phases


FIRST_PHASE = _phase_of_byte()


LEADS = (b"\xc2\xdf", b"\xe0\xe1", b"\xe2\xe2", b"\xe3\xe3", b"\xe4\xe9", b"\xea\xed", b"\xee\xef", b"\xf0\xf4")


def _groups() -> NDArray[np.int64]:
    """int64[256]: one bit for each group of characters, at the byte that begins them; 0 for bytes that begin none.

    Letters and digits are in few groups, each other ASCII character is its own, the rest go by their first byte.
    """
    groups = np.zeros(256, np.int64)
    words = (b"abcdef", b"ghijklmnopqrstuvwxyz", b"ABCDEF", b"GHIJKLMNOPQRSTUVWXYZ", b"0123456789")
    others = [bytes((b,)) for b in range(0x20, 0x80) if not chr(b).isalnum()]
    leads = [bytes(range(first, last + 1)) for first, last in LEADS]
    for bit, members in enumerate([*words, *others, *leads]):
        groups[list(members)] = 1 << bit
    return groups


GROUPS = _groups()
WORD_GROUPS = int(np.bitwise_or.reduce(GROUPS[list(b"aAgG0")]))
LETTERS = int(GROUPS[ord("a")] | GROUPS[ord("g")])

# alphabets: the bytes that begin a character
PLAIN = (FIRST_PHASE >= 0).astype(np.uint8)
WORD = ((GROUPS & WORD_GROUPS) != 0).astype(np.uint8)


@njit
def stays(tables: Arrays, memo: NDArray[np.int64], state: int) -> int:
    """The groups (`GROUPS`) of which every character leaves `state` where it is; kept in `memo` (int64[Q]).

    Groups past ASCII are looked at only where there is one in ASCII.
    """
    if memo[state] >= 0:
        return wide(memo[state])
    flags, lo = tables[3], tables[4]
    groups = 0
    if lo[state] <= 0 and (flags[state] == 0 or flags[state] == COUNT):
        others = 0
        for b in range(0x20, 0xF5):
            if FIRST_PHASE[b] >= 0:
                if FIRST_PHASE[b] > 0 and groups == 0:
                    break
                if _returns(tables, state, b):
                    groups |= GROUPS[b]
                else:
                    others |= GROUPS[b]
        groups &= ~others
    memo[state] = groups
    return groups


@njit
def _returns(tables: Arrays, state: int, first: int) -> bool:
    """Whether every character that begins with the byte `first` leads from `state` back to it, unbounded inside."""
    if FIRST_PHASE[first] == 0:
        return bool(tables[1][state, tables[0][first]] == state)
    byte_class, delta, flags, lo, hi = tables[0], tables[1], tables[3], tables[4], tables[5]
    level, below = np.empty(_MAX_INNER, np.int64), np.empty(_MAX_INNER, np.int64)
    level[0], size, phase = wide(delta[state, byte_class[first]]), 1, wide(FIRST_PHASE[first])
    while phase > 0:
        count = 0
        for i in range(size):
            inner = level[i]
            if inner < 0 or flags[inner] != 0 or lo[inner] > 0 or hi[inner] != UNBOUNDED:
                return False
            for b in range(_LOW[phase], _HIGH[phase] + 1):
                edge = wide(delta[inner, byte_class[b]])
                if (count == 0 or edge != below[count - 1]) and edge not in below[:count]:
                    if count == _MAX_INNER:
                        return False
                    below[count] = edge
                    count += 1
        level, below = below, level
        size, phase = count, wide(_AFTER[phase])
    return size == 1 and level[0] == state


def new_memo(num_states: int, known: Int32 | None = None) -> Int32:
    """int32[num_states · PHASES, 2], nothing known yet but what `known` holds: `SAFE` and `MOST` of each node."""
    memo = np.full((num_states * PHASES, 2), UNKNOWN, np.int32)
    if known is not None:
        memo[: len(known)] = known
    return memo


@njit
def next_phase(phase: int, byte: int) -> int:
    """The phase after `byte`; `UNKNOWN` if it does not continue plain text."""
    if phase == 0:
        return wide(FIRST_PHASE[byte])
    return wide(_AFTER[phase]) if _LOW[phase] <= byte <= _HIGH[phase] else -1


@njit
def explore(tables: Arrays, alphabet: UInt8, memo: Int32, state: int, phase: int) -> None:
    """Fill `memo` for (state, phase) and for every node reachable from it by characters of `alphabet`.

    Args:
        alphabet: uint8[256], `PLAIN` or `WORD`; each has a memo of its own.

    Cost: each node once in a machine's life.
    """
    byte_class, delta, flags, lo, hi = tables[0], tables[1], tables[3], tables[4], tables[5]
    node_state, node_phase = np.empty(_MAX_NODES, np.int64), np.empty(_MAX_NODES, np.int64)
    value, most = np.empty(_MAX_NODES, np.int64), np.empty(_MAX_NODES, np.int64)
    first = np.empty(_MAX_NODES + 1, np.int64)
    target, weight = np.empty(_MAX_EDGES, np.int64), np.empty(_MAX_EDGES, np.int64)
    node_state[0], node_phase[0], first[0] = state, phase, 0
    memo[state * PHASES + phase, SAFE] = -2  # -2 - index, while it is in the list
    count, num_edges, i = 1, 0, 0
    while i < count:
        at, p = node_state[i], node_phase[i]
        value[i], most[i] = FOREVER, UNBOUNDED
        low, high = (0x20, 0xF4) if p == 0 else (wide(_LOW[p]), wide(_HIGH[p]))
        begin = num_edges
        for b in range(low, high + 1):
            after = next_phase(p, b)
            if after < 0 or (p == 0 and not alphabet[b]):
                continue
            completes = 1 if after == 0 else 0
            q = wide(delta[at, byte_class[b]])
            if q < 0 or lo[q] > 0 or (flags[q] != 0 and (flags[q] != COUNT or completes == 0)):
                value[i] = 0
                num_edges = begin
                break
            most[i] = min(most[i], wide(hi[q]))
            known = wide(memo[q * PHASES + after, SAFE])
            if known >= 0:  # a constant
                value[i] = min(value[i], known + completes)
                most[i] = min(most[i], wide(memo[q * PHASES + after, MOST]))
                continue
            if known == UNKNOWN:
                if count == _MAX_NODES:
                    _give_up(memo, node_state, node_phase, count)
                    return
                node_state[count], node_phase[count] = q, after
                known = -2 - count
                memo[q * PHASES + after, SAFE] = known
                count += 1
            if num_edges > begin and target[num_edges - 1] == -2 - known:
                continue
            if num_edges == _MAX_EDGES:
                _give_up(memo, node_state, node_phase, count)
                return
            target[num_edges], weight[num_edges] = -2 - known, completes
            num_edges += 1
        i += 1
        first[i] = num_edges
    _descend(value[:count], most[:count], first, target, weight)
    for i in range(count):
        node = node_state[i] * PHASES + node_phase[i]
        memo[node, SAFE], memo[node, MOST] = value[i], most[i]


@njit
def _descend(
    value: NDArray[np.int64],
    most: NDArray[np.int64],
    first: NDArray[np.int64],
    target: NDArray[np.int64],
    weight: NDArray[np.int64],
) -> None:
    """The greatest solution below the given values, by sweeps from the last node found to the first."""
    changed = True
    while changed:
        changed = False
        for i in range(len(value) - 1, -1, -1):
            for e in range(first[i], first[i + 1]):
                v, m = value[target[e]] + weight[e], most[target[e]]
                if v < value[i]:
                    value[i] = v
                    changed = True
                if m < most[i]:
                    most[i] = m
                    changed = True


@njit
def _give_up(memo: Int32, node_state: NDArray[np.int64], node_phase: NDArray[np.int64], count: int) -> None:
    """Too many: nothing is promised of any."""
    for i in range(count):
        memo[node_state[i] * PHASES + node_phase[i], SAFE] = 0
        memo[node_state[i] * PHASES + node_phase[i], MOST] = UNBOUNDED
