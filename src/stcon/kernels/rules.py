"""What the tokens do from one place: the distinct rules of a machine over a vocabulary, each found once.

A token's run from a state needs at most a few facts: where it ends, what it has pushed, or where it first *leaves* the
callee that it began in. Thousands of tokens share a handful of such facts, so `collect` walks a trie and records each
but once. The caller's stack is unknown: a walk begins with an empty one, and where it would pop there it stops and
records an **exit**: the state that ended, and which tokens may still be going on (the trie node). What follows depends
on the symbol popped; it is walked from there, once for each place where a caller goes on.

Source: the paper's Theorem 22 (decision tree over exposed symbols), whose leaves are the records.
"""

# ruff: noqa: PLR0917 (kernels take their arrays by position: numba resolves keywords slowly)

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import DEAD, FINAL
from stcon.kernels.stepping import ALIVE, FIRST_PUSH, Arrays, Int32, Int64, enter, open_nodes, step
from stcon.kernels.walk import Trie

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

# columns of an end: state and counter after a token, highest stack on its way, symbols pushed (start, count)
STATE, COUNTER, HEIGHT, START, PUSHED = range(5)
END_WORDS = 5

# columns of an exit: its kind, the state that ended, counter, subtree below, byte (only of `BEFORE`)
KIND, ENDED, COUNT, SUBTREE, BYTE = range(5)
EXIT_WORDS = 5

AFTER = 0  # the callee ended with the node's byte
BEFORE = 1  # it ends because the node's byte is not its own
BOUNDARY = 2  # it may end where a token has ended

# columns of `frames`
F_STATE, F_COUNTER, F_TOP, F_END, F_HEIGHT = range(5)
FRAME_WORDS = 5

_FILTER = 256

UInt64 = NDArray[np.uint64]


class Subtrees:
    """The subtrees of a vocabulary's tries, equal ones under one number.

    Attributes:
        full, rest: int32[M]: the subtree below each node of ``vocabulary.trie`` and ``vocabulary.rest``: whether a
            token ends at the node, and what follows.
        in_rest, node: [S] for each subtree, a node that has it: in which of the two tries, and its number there.

    Equality is that of two 64-bit hashes. Cost: 0.3 s for 248k tokens, once a vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        hashes = [_subtree_hashes(tuple(trie)) for trie in (vocabulary.trie, vocabulary.rest)]
        both = np.concatenate(hashes)
        pairs = both[:, 0] ^ (both[:, 1] << np.uint64(1))
        _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        split = len(hashes[0])
        self.full = inverse[:split].astype(np.int32)
        self.rest = inverse[split:].astype(np.int32)
        self.in_rest = first >= split
        self.node = np.where(self.in_rest, first - split, first).astype(np.int64)


@njit
def _mixed(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit
def _subtree_hashes(trie: Trie) -> UInt64:
    """uint64[M, 2]: two hashes of (does a token end here, the children's bytes and hashes) for each node."""
    byte, _, skip, first, _ = trie
    num_nodes = len(byte)
    hashes = np.zeros((num_nodes, 2), np.uint64)
    for node in range(num_nodes - 1, -1, -1):
        ends = np.uint64(first[node + 1] > first[node])
        one, two = _mixed(ends + np.uint64(0x1234567)), _mixed(ends + np.uint64(0x9876543210))
        child = node + 1
        while child < skip[node]:
            label = np.uint64(byte[child]) + np.uint64(1)
            one = _mixed(one + _mixed(hashes[child, 0] + label))
            two = _mixed(two * np.uint64(3) + _mixed(hashes[child, 1] ^ (label << np.uint64(32))))
            child = wide(skip[child])
        hashes[node, 0], hashes[node, 1] = one, two
    return hashes


@njit
def collect(
    tables: Arrays,
    trie: Trie,
    subtree: Int32,
    begin: int,
    end: int,
    first_byte: int,
    frames: Int64,
    nodes: Int32,
    seen: Int64,
    ends: Int32,
    exits: Int32,
    symbols: Int32,
) -> tuple[int, int]:
    """Walk the nodes from `begin` to `end` and record what their tokens do.

    Args:
        subtree: int32[M], of `Subtrees`.
        first_byte: read instead of the byte of node `begin`; -1: its own.
        frames: int64[longest + 1, FRAME_WORDS]; the row of `begin`'s depth less one holds the place.
        ends: int32[:, END_WORDS], exits: int32[:, EXIT_WORDS], symbols: int32[:], written to; few repeat.

    Returns:
        How many ends and exits; -1, -1 if there was no room.

    Cost: that of `walk.walk`.
    """
    byte_class, delta, label, flags = tables[0], tables[1], tables[2], tables[3]
    byte, depth, skip, first, _ = trie
    known_ends = np.full((_FILTER, 4), -1, np.int64)
    known_exits = np.full((_FILTER, 5), -1, np.int64)
    num_ends = num_exits = num_symbols = 0
    i = begin
    while i < end:
        d = depth[i]
        read = first_byte if i == begin and first_byte >= 0 else wide(byte[i])
        k = wide(byte_class[read])
        before, counter, top, used = (
            frames[d - 1, F_STATE],
            frames[d - 1, F_COUNTER],
            frames[d - 1, F_TOP],
            frames[d - 1, F_END],
        )
        height = frames[d - 1, F_HEIGHT]
        if delta[before, k] == DEAD and label[before] < 0:
            i = skip[i]
            continue
        status, state, counter, _, top, after = step(tables, nodes, seen, k, before, counter, 0, top, used)
        if after > used:
            height = max(height, wide(nodes[after - 1, 2]))
        leaves = -1
        if status == ALIVE:
            if flags[state] & FINAL and top == 0:
                leaves = AFTER
        else:
            pops = counter >= 0 and top == 0 and label[state] >= 0 and delta[state, k] == DEAD
            if not pops:
                i = skip[i]
                continue
            leaves = BEFORE
        if leaves >= 0:
            if num_exits == len(exits):
                return -1, -1
            held = wide(subtree[i])
            shown = read if leaves == BEFORE else 0
            slot = (held * 31 + state * 7 + counter * 3 + shown + height) & (_FILTER - 1)
            row = known_exits[slot]
            if (
                row[0] != held
                or row[1] != state
                or row[2] != counter
                or row[3] != shown
                or row[4] != height * 2 + leaves
            ):
                row[0], row[1], row[2], row[3], row[4] = held, state, counter, shown, height * 2 + leaves
                out = exits[num_exits]
                out[KIND], out[ENDED], out[COUNT], out[SUBTREE], out[BYTE] = (
                    leaves + 2 * height,
                    state,
                    counter,
                    held,
                    shown,
                )
                num_exits += 1
            i = skip[i]
            continue
        frames[d, F_STATE], frames[d, F_COUNTER], frames[d, F_TOP], frames[d, F_END] = state, counter, top, after
        frames[d, F_HEIGHT] = height
        if first[i + 1] > first[i]:
            pushed = wide(nodes[top, 2]) if top > 0 else 0
            if num_ends == len(ends) or num_symbols + pushed > len(symbols):
                return -1, -1
            hashed = 0
            node = top
            while node > 0:
                hashed = hashed * 1000003 + nodes[node, 0] + 1
                node = wide(nodes[node, 1])
            slot = (state * 31 + counter * 7 + height + hashed) & (_FILTER - 1)
            line = known_ends[slot]
            if line[0] != state or line[1] != counter or line[2] != height or line[3] != hashed:
                line[0], line[1], line[2], line[3] = state, counter, height, hashed
                fact = ends[num_ends]
                fact[STATE], fact[COUNTER], fact[HEIGHT], fact[START], fact[PUSHED] = (
                    state,
                    counter,
                    height,
                    num_symbols,
                    pushed,
                )
                node, place = top, num_symbols + pushed
                while node > 0:
                    place -= 1
                    symbols[place] = nodes[node, 0]
                    node = wide(nodes[node, 1])
                num_symbols += pushed
                num_ends += 1
        i += 1
    return num_ends, num_exits


@njit
def plain_ends(
    tables: Arrays, following: Int32, occurring: NDArray[np.bool_], state: int, counter: int, run: int, ends: Int32
) -> int:
    """Record where the plain tokens lead: after each number of plain characters that some token has, up to `run`.

    Args:
        following: int32[Q], where a plain character leads (`plain.NEXT`), known for every state on the way.
        occurring: bool[longest + 1].

    Returns:
        How many ends.
    """
    count = 0
    for length in range(1, run + 1):
        target = wide(following[state])
        after, _ = enter(tables, np.zeros(8, np.int64), target, counter, 0)
        repeats = target == state and after == counter
        state, counter = target, after
        if occurring[length] or repeats:
            fact = ends[count]
            fact[STATE], fact[COUNTER], fact[HEIGHT], fact[START], fact[PUSHED] = state, counter, 0, 0, 0
            count += 1
        if repeats:
            break
    return count


@njit
def open_place(config: Int32, depth: int, frames: Int64, nodes: Int32, seen: Int64) -> None:
    """Put a state and counter (a packed configuration with an empty stack) at a depth of the trie."""
    state, counter, _ = open_nodes(config, nodes, seen)
    frames[depth, F_STATE], frames[depth, F_COUNTER], frames[depth, F_TOP] = state, counter, 0
    frames[depth, F_END], frames[depth, F_HEIGHT] = FIRST_PUSH, 0
