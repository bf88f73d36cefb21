"""The tokens after which a text can still be completed within a limit: a walk that asks for the cost of each end.

Stacks are known by number (a *frame*): the symbol on top, the frame below, and the vector of costs to complete after
each exit from it. A frame is made when a token pushes it and kept, so that asking again is a look-up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import DEAD, UNBOUNDED
from stcon.kernels.minplus import INF, LOW, SHIFT, completed, frame_vector
from stcon.kernels.stepping import ALIVE, CAP, FIRST_PUSH, Arrays, Int32, Int64, open_nodes, step
from stcon.kernels.walk import Trie

# columns of `links` of a frame
SYMBOL, BELOW, HEIGHT, FIRST_ABOVE, NEXT = range(5)
LINK_WORDS = 5

NO_ROOM = -1
NEVER = INF

_MEMO = 4096

# base, from_low, representative, top: what turns a state and counter into a point (`NeedTable.points`)
Points = tuple[Int64, Int64, Int64, Int64]


@njit
def frame_above(
    value: Int32, follow: Int32, links: Int32, vectors: Int32, count: Int64, symbol: int, below: int
) -> int:
    """The frame of `symbol` on top of `below`, made if need be; `NO_ROOM` where that is not possible."""
    frame = wide(links[below, FIRST_ABOVE])
    while frame >= 0:
        if links[frame, SYMBOL] == symbol:
            return frame
        frame = wide(links[frame, NEXT])
    frame = wide(count[0])
    if frame == len(links):
        return NO_ROOM
    count[0] = frame + 1
    height = links[below, HEIGHT]
    links[frame, SYMBOL], links[frame, BELOW], links[frame, HEIGHT] = symbol, below, height + 1
    links[frame, FIRST_ABOVE], links[frame, NEXT] = -1, links[below, FIRST_ABOVE]
    links[below, FIRST_ABOVE] = frame
    frame_vector(value, follow, symbol, vectors[below], height, vectors[frame])
    return frame


@njit
def frame_of(value: Int32, follow: Int32, links: Int32, vectors: Int32, count: Int64, config: Int32) -> int:
    """The frame of a configuration's stack, or `NO_ROOM`."""
    frame = 0
    for place in range(config[1]):
        frame = frame_above(value, follow, links, vectors, count, wide(config[3 + place]), frame)
        if frame < 0:
            return NO_ROOM
    return frame


@njit
def needed(points: Points, value: Int32, links: Int32, vectors: Int32, state: int, counter: int, frame: int) -> int:
    """Fewest tokens from a state and counter on a frame; `NEVER` (or more) where there is no way under the cap."""
    base, from_low, representative, top = points
    low = from_low[state]
    kept = min(counter, top[state])
    if kept >= low:
        kept = max(kept, representative[state]) - representative[state] + low
    best = completed(value[base[state] + kept], vectors[frame], links[frame, HEIGHT])
    if best >= INF:
        return best
    return NEVER if (best & LOW) > CAP else best >> SHIFT


@njit
def walk_within(
    tables: Arrays,
    trie: Trie,
    points: Points,
    value: Int32,
    follow: Int32,
    links: Int32,
    vectors: Int32,
    count: Int64,
    config: Int32,
    frame: int,
    limit: int,
    frames: Int64,
    nodes: Int32,
    held: Int32,
    seen: Int64,
    out: Int32,
) -> int:
    """Set the bit of every token after which at most `limit` more complete the text.

    Args:
        frame: of the stack of `config`.
        frames: int64[longest + 1, 4]: state, counter, top node, end of nodes.
        held: int32[len(nodes)]: the frame of each node, written on the way.
        out: int32[W], or-ed into.

    Returns:
        0, or `NO_ROOM`.
    """
    byte_class, delta, label, flags, lo, hi = tables[0], tables[1], tables[2], tables[3], tables[4], tables[5]
    byte, depth, skip, first, tokens = trie
    state, counter, top = open_nodes(config, nodes, seen)
    for node in range(top, -1, -1):
        held[node] = frame
        frame = wide(links[frame, BELOW])
    frames[0, 0], frames[0, 1], frames[0, 2], frames[0, 3] = state, counter, top, FIRST_PUSH
    memo = np.full((_MEMO, 4), -1, np.int64)
    i = 0
    while i < len(byte):
        d = depth[i]
        k = wide(byte_class[byte[i]])
        state, used = frames[d - 1, 0], frames[d - 1, 3]
        if delta[state, k] == DEAD and label[state] < 0:
            i = skip[i]
            continue
        edge = wide(delta[state, k])
        counter, top, end = frames[d - 1, 1], frames[d - 1, 2], used
        if edge >= 0 and flags[edge] == 0 and lo[edge] == 0 and hi[edge] == UNBOUNDED:
            state = edge  # what `step` would do: a call counts references to its arrays
        else:
            status, state, counter, _, top, end = step(tables, nodes, seen, k, state, counter, 0, top, used)
            if status != ALIVE:
                i = skip[i]
                continue
            for node in range(used, end):
                symbol, below = wide(nodes[node, 0]), wide(held[nodes[node, 1]])
                held[node] = frame_above(value, follow, links, vectors, count, symbol, below)
                if held[node] < 0:
                    return NO_ROOM
        frames[d, 0], frames[d, 1], frames[d, 2], frames[d, 3] = state, counter, top, end
        if first[i + 1] > first[i]:
            row = memo[(state * 31 + counter * 7 + held[top]) & (_MEMO - 1)]
            if row[0] != state or row[1] != counter or row[2] != held[top]:
                row[0], row[1], row[2] = state, counter, held[top]
                row[3] = needed(points, value, links, vectors, state, counter, wide(held[top]))
            if row[3] <= limit:
                for j in range(first[i], first[i + 1]):
                    out[tokens[j] >> 5] |= 1 << (tokens[j] & 31)
        i += 1
    return 0


@njit
def plain_lengths_within(
    points: Points,
    value: Int32,
    links: Int32,
    vectors: Int32,
    following: Int32,
    counts: Int32,
    state: int,
    counter: int,
    frame: int,
    run: int,
    limit: int,
    fits: NDArray[np.bool_],
) -> None:
    """Set ``fits[n]`` (bool[longest + 1]) where n plain characters lead to a place that `limit` tokens complete.

    Args:
        following: int32[Q], where a plain character leads.
        counts: int32[Q], 1 where entering the state counts a character.
        run: plain characters that can be read in a row.
    """
    for length in range(1, run + 1):
        before_state, before_counter = state, counter
        state = wide(following[state])
        counter += counts[state]
        fits[length] = needed(points, value, links, vectors, state, counter, frame) <= limit
        if state == before_state and counter == before_counter:
            fits[length:] = fits[length]
            break
