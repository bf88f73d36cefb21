"""What the tokens do from one place: the distinct rules of a machine over a vocabulary, each found once.

A token's run from a state needs at most a few facts: where it ends, what it has pushed, or where it first *leaves* the
callee that it began in. Thousands of tokens share a handful of such facts, so `collect` walks a trie and records each
but once. The caller's stack is unknown: a walk begins with an empty one, and where it would pop there it stops and
records an **exit**: the state that ended, and which tokens may still be going on (the trie node). What follows depends
on the symbol popped; it is walked from there, once for each place where a caller goes on.

Source: the paper's Theorem 22 (decision tree over exposed symbols), whose leaves are the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import COUNT as COUNTS
from stcon.grammar.machine import DEAD, FINAL, RESET, UNBOUNDED
from stcon.kernels.stepping import ALIVE, DIED, FIRST_PUSH, Arrays, Int32, Int64, enter, open_nodes, step, within
from stcon.kernels.walk import Trie

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

# columns of an end: state and counter after a token, highest stack on its way, symbols pushed (start, count), and
# whether the counter is the place's with what was counted since
STATE, COUNTER, HEIGHT, START, PUSHED, RELATIVE = range(6)
END_WORDS = 6

# columns of an exit: its kind and twice the highest stack, the state that ended, counter, subtree below, byte (only of
# `BEFORE`), and whether the counter is relative
KIND, ENDED, COUNT, SUBTREE, BYTE, IS_RELATIVE = range(6)
EXIT_WORDS = 6

AFTER = 0  # the callee ended with the node's byte
BEFORE = 1  # it ends because the node's byte is not its own
BOUNDARY = 2  # it may end where a token has ended

# columns of `frames`
F_STATE, F_COUNTER, F_RELATIVE, F_TOP, F_END, F_HEIGHT = range(6)
FRAME_WORDS = 6

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
        How many ends and exits; -1, -1 if there was no room. ``seen`` says from which other counters the same happens
        (`stepping`), those facts that are relative with their counters moved along.

    Cost: that of `walk.walk`.
    """
    byte_class, delta, label, flags, lo, hi = tables[0], tables[1], tables[2], tables[3], tables[4], tables[5]
    byte, depth, skip, first, _ = trie
    known_ends = np.full((_FILTER, END_WORDS), -1, np.int64)
    known_exits = np.full((_FILTER, EXIT_WORDS), -1, np.int64)
    known_flat = np.full(_FILTER, -1, np.int64)
    num_ends = num_exits = num_symbols = 0
    i = begin
    while i < end:
        d = depth[i]
        read = first_byte if i == begin and first_byte >= 0 else wide(byte[i])
        k = wide(byte_class[read])
        before = frames[d - 1, F_STATE]
        edge = wide(delta[before, k])
        if edge == DEAD and label[before] < 0:
            i = skip[i]
            continue
        counter, relative, top = frames[d - 1, F_COUNTER], frames[d - 1, F_RELATIVE], frames[d - 1, F_TOP]
        used, height = frames[d - 1, F_END], frames[d - 1, F_HEIGHT]
        if edge >= 0 and not flags[edge] & FINAL:  # what `step` would do: a call counts references to its arrays
            status, state, after = ALIVE, edge, used
            if flags[edge] & RESET:
                counter, relative = 0, 0
            elif flags[edge] & COUNTS:
                counter += 1
            if lo[edge] > 0 or hi[edge] < UNBOUNDED:
                status = ALIVE if within(seen, counter, relative, wide(lo[edge]), wide(hi[edge])) else DIED
                counter = counter if status == ALIVE else -1
        else:
            status, state, counter, relative, top, after = step(
                tables, nodes, seen, k, before, counter, relative, top, used
            )
            if after > used:
                height = max(height, wide(nodes[after - 1, 2]))
        leaves = -1
        if status == ALIVE and flags[state] & FINAL and top == 0:
            leaves = AFTER
        elif status != ALIVE and counter >= 0 and top == 0 and label[state] >= 0 and delta[state, k] == DEAD:
            leaves = BEFORE
        if leaves >= 0:
            if num_exits == len(exits):
                return -1, -1
            shown = read if leaves == BEFORE else 0
            fact = (leaves + 2 * height, state, counter, wide(subtree[i]), shown, relative)
            num_exits += note(fact, known_exits, exits, num_exits)
        if leaves >= 0 or status != ALIVE:
            i = skip[i]
            continue
        frames[d, F_STATE], frames[d, F_COUNTER], frames[d, F_RELATIVE] = state, counter, relative
        frames[d, F_TOP], frames[d, F_END], frames[d, F_HEIGHT] = top, after, height
        if first[i + 1] > first[i]:
            key = (state << 34) + (counter << 1) + relative
            slot = (state * 31 + counter) & (_FILTER - 1)
            if top == 0 and height == 0:
                if known_flat[slot] == key:
                    i += 1
                    continue
                known_flat[slot] = key
            pushed = wide(nodes[top, 2]) if top > 0 else 0
            if num_ends == len(ends) or num_symbols + pushed > len(symbols):
                return -1, -1
            fact = (state, counter, height, stack_hash(nodes, top), pushed, relative)
            if note(fact, known_ends, ends, num_ends):
                ends[num_ends, START] = num_symbols
                num_symbols = write_stack(nodes, top, num_symbols + pushed, symbols)
                num_ends += 1
        i += 1
    return num_ends, num_exits


@njit
def note(fact: tuple[int, int, int, int, int, int], known: Int64, out: Int32, line: int) -> int:
    """Write a fact to ``out[line]`` unless it is among the `known` (int64[_FILTER, 6], the last met); 1 if written."""
    slot = (fact[0] * 7 + fact[1] * 31 + fact[2] * 3 + fact[3] * 131 + fact[4] + fact[5]) & (_FILTER - 1)
    same = True
    for i in range(len(fact)):
        same = same and known[slot, i] == fact[i]
    if same:
        return 0
    for i in range(len(fact)):
        known[slot, i] = fact[i]
        out[line, i] = fact[i] & 0x7FFFFFFF
    return 1


@njit
def stack_hash(nodes: Int32, top: int) -> int:
    """A number that stacks share only if they are almost certainly equal; 0 for the empty one."""
    mixed = 0
    while top > 0:
        mixed = mixed * 1000003 + nodes[top, 0] + 1
        top = wide(nodes[top, 1])
    return mixed


@njit
def write_stack(nodes: Int32, top: int, end: int, symbols: Int32) -> int:
    """Write a stack, bottom first, so that it ends at `end`; returns that."""
    place = end
    while top > 0:
        place -= 1
        symbols[place] = nodes[top, 0]
        top = wide(nodes[top, 1])
    return end


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
            ends[count, :] = 0
            ends[count, STATE], ends[count, COUNTER] = state, counter
            count += 1
        if repeats:
            break
    return count


@njit
def open_place(config: Int32, depth: int, frames: Int64, nodes: Int32, seen: Int64) -> None:
    """Put a state and counter (a packed configuration with an empty stack) at a depth of the trie."""
    state, counter, _ = open_nodes(config, nodes, seen)
    frames[depth, F_STATE], frames[depth, F_COUNTER], frames[depth, F_RELATIVE] = state, counter, 1
    frames[depth, F_TOP] = 0
    frames[depth, F_END], frames[depth, F_HEIGHT] = FIRST_PUSH, 0
