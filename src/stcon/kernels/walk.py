"""The compiled loops over `stepping.step`: over a trie (a mask), over a text (advance), along a forced chain.

None of them can build a row. On meeting one that is not built each stops, says which, and can be called again with
what it returned: no byte is read twice.

Source: the paper's Theorem 18 (ii), on a trie in preorder so that tokens share their prefixes' steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import DEAD, UNBOUNDED
from stcon.kernels.stepping import (
    ALIVE,
    CAP,
    DIED,
    FIRST_PUSH,
    NEEDS_ROW,
    Arrays,
    Int32,
    Int64,
    accepting,
    close_nodes,
    open_nodes,
    step,
)

Trie = tuple[Any, ...]
"""The arrays of a `TokenTrie` as a plain tuple."""

# columns of `frames`, the configurations along the current path of the trie
STATE, COUNTER, RELATIVE, TOP, END = range(5)
FRAME_WORDS = 5

UInt8 = NDArray[np.uint8]


@njit
def open_walk(config: Int32, frames: Int64, nodes: Int32, seen: Int64) -> None:
    """Put `config` at the root of a walk."""
    state, counter, top = open_nodes(config, nodes, seen)
    frames[0, STATE], frames[0, COUNTER], frames[0, RELATIVE] = state, counter, 1
    frames[0, TOP], frames[0, END] = top, FIRST_PUSH


@njit
def walk(
    tables: Arrays, trie: Trie, begin: int, frames: Int64, nodes: Int32, seen: Int64, out: Int32
) -> tuple[int, int]:
    """Set the bit of every token whose whole path is alive, from node `begin` on.

    Args:
        frames: int64[longest token + 1, FRAME_WORDS]; row 0 holds the root, as `open_walk` leaves it.
        nodes: int32[FIRST_PUSH + CAP · (longest token + 1), 3].
        out: int32[W], or-ed into.

    Returns:
        (number of trie nodes, -1) when done, else (node to go on from, state whose row is needed).

    Cost: one step for each live node and each child of one; about 5 ns where the edge is plain.
    """
    byte_class, delta, label, flags, lo, hi = tables[0], tables[1], tables[2], tables[3], tables[4], tables[5]
    byte, depth, skip, first, tokens = trie
    num_nodes = len(byte)
    i = begin
    while i < num_nodes:
        d = depth[i]
        k = wide(byte_class[byte[i]])
        state, counter = frames[d - 1, STATE], frames[d - 1, COUNTER]
        relative, top, end = frames[d - 1, RELATIVE], frames[d - 1, TOP], frames[d - 1, END]
        edge = wide(delta[state, k])
        if edge >= 0 and flags[edge] == 0 and lo[edge] == 0 and hi[edge] == UNBOUNDED:
            state = edge  # what `step` would do, without the call
        elif edge == DEAD and label[state] < 0:  # this too
            i = skip[i]
            continue
        else:
            status, state, counter, relative, top, end = step(
                tables, nodes, seen, k, state, counter, relative, top, end
            )
            if status == NEEDS_ROW:
                return i, state
            if status == DIED:
                i = skip[i]
                continue
        frames[d, STATE], frames[d, COUNTER], frames[d, RELATIVE] = state, counter, relative
        frames[d, TOP], frames[d, END] = top, end
        for j in range(first[i], first[i + 1]):
            out[tokens[j] >> 5] |= 1 << (tokens[j] & 31)
        i += 1
    return num_nodes, -1


@njit
def set_end_tokens(tables: Arrays, end_ids: Int32, frames: Int64, nodes: Int32, seen: Int64, out: Int32) -> None:
    """Set the bits of `end_ids` iff the root of the walk accepts, else clear them."""
    done = accepting(tables, nodes, seen, frames[0, STATE], frames[0, TOP])
    for token in end_ids:
        bit = 1 << (token & 31)
        out[token >> 5] = (out[token >> 5] | bit) if done else (out[token >> 5] & ~bit)


@njit
def accepts(tables: Arrays, config: Int32, nodes: Int32, seen: Int64) -> bool:
    """`Machine.accepts` of a flat configuration."""
    state, _, top = open_nodes(config, nodes, seen)
    return accepting(tables, nodes, seen, state, top)


@njit
def advance(
    tables: Arrays, config: Int32, data: bytes, begin: int, work: Int32, nodes: Int32, seen: Int64
) -> tuple[int, int]:
    """Read ``data[begin:]``.

    Args:
        config: int32[CONFIG_WORDS], overwritten with the configuration after `data` on success, else left alone.
        work: int32[CONFIG_WORDS], the configuration at `begin` unless that is 0; holds the place between calls.
        nodes: int32[:, 3] with room for several times `CAP`.

    Returns:
        (`ALIVE` or `DIED`, -1), or (`NEEDS_ROW`, state) with the place to go on from in ``seen[0]``.
    """
    byte_class = tables[0]
    if begin == 0:
        work[:] = config
    state, counter, top = open_nodes(work, nodes, seen)
    end = FIRST_PUSH
    for i in range(begin, len(data)):
        if end + CAP > len(nodes):
            close_nodes(state, counter, top, nodes, work)
            state, counter, top = open_nodes(work, nodes, seen)
            end = FIRST_PUSH
        k = wide(byte_class[data[i]])
        status, after, count, _, below, used = step(tables, nodes, seen, k, state, counter, 1, top, end)
        if status == NEEDS_ROW:
            close_nodes(state, counter, top, nodes, work)
            seen[0] = i
            return NEEDS_ROW, after
        if status == DIED:
            return DIED, -1
        state, counter, top, end = after, count, below, used
    close_nodes(state, counter, top, nodes, config)
    return ALIVE, -1


@njit
def live_classes(tables: Arrays, num_classes: int, config: Int32, nodes: Int32, seen: Int64, live: UInt8) -> int:
    """Set ``live[k]`` (uint8[256]) to 1 for the classes k on which a step is defined, else 0.

    Returns:
        -1, or the state whose row is needed.
    """
    state, counter, top = open_nodes(config, nodes, seen)
    delta, label = tables[1], tables[2]
    for k in range(num_classes):
        if delta[state, k] == DEAD and label[state] < 0:  # what `step` would find, without the call
            live[k] = 0
            continue
        status, after, _, _, _, _ = step(tables, nodes, seen, k, state, counter, 1, top, FIRST_PUSH)
        if status == NEEDS_ROW:
            return after
        live[k] = status == ALIVE
    return -1


@njit
def forced(
    tables: Arrays,
    class_size: Int32,
    class_byte: UInt8,
    work: Int32,
    nodes: Int32,
    seen: Int64,
    chain: UInt8,
    length: int,
) -> tuple[int, int]:
    """Follow the only live byte while the configuration `work` does not accept, appending to `chain`.

    Args:
        class_size, class_byte: int32[K], uint8[K]: bytes in each class, and one of them.
        work: int32[CONFIG_WORDS], moved along.
        chain: uint8[limit], of which `length` are written already.

    Returns:
        (length of the chain, -1), or (length so far, state whose row is needed).

    Source: the paper's Definition 7.
    """
    delta, label = tables[1], tables[2]
    while length < len(chain):
        state, counter, top = open_nodes(work, nodes, seen)
        if accepting(tables, nodes, seen, state, top):
            break
        only = -1
        for k in range(len(class_size)):
            if delta[state, k] == DEAD and label[state] < 0:
                continue
            status, after, _, _, _, _ = step(tables, nodes, seen, k, state, counter, 1, top, FIRST_PUSH)
            if status == NEEDS_ROW:
                return length, after
            if status == ALIVE:
                if only >= 0 or class_size[k] > 1:
                    return length, -1
                only = k
        if only < 0:
            break
        _, state, counter, _, top, _ = step(tables, nodes, seen, only, state, counter, 1, top, FIRST_PUSH)
        close_nodes(state, counter, top, nodes, work)
        chain[length] = class_byte[only]
        length += 1
    return length, -1
