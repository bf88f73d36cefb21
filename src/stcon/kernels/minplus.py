"""The arithmetic of token costs: least fixpoints and stack vectors, compiled.

A **value** is ``cost << 8 | height``: fewest tokens, and among the ways with so few the lowest stack on the way. Costs
add and heights take the maximum, so the least value of a whole is made of least values of its parts. `INF` is no way.

Source: the weighted pushdown systems of Reps, Schwoon, Jha and Melski (2005): pre* over the min-plus semiring.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.kernels.stepping import Int32

INF = 1 << 28
UNKNOWN = 1 << 29
SHIFT = 8
TOKEN = 1 << SHIFT
LOW = TOKEN - 1

# what `follow` says of a symbol and an exit instead of a point
NO_WAY = -1
NOT_ASKED = -2

Int8 = NDArray[np.int8]


@njit
def joined(first: int, second: int, lift: int) -> int:
    """Two ways one after the other, the second on a stack `lift` higher. Both are less than `INF`."""
    height = max(first & LOW, (second & LOW) + lift)
    return ((first >> SHIFT) + (second >> SHIFT)) << SHIFT | min(height, LOW)


@njit
def settle(
    value: Int32,
    stacked: Int32,
    follow: Int32,
    links: Int32,
    link_start: Int32,
    calls: Int32,
    call_start: Int32,
    call_point: Int32,
    call_symbols: Int32,
    symbol_start: Int32,
    changed: Int32,
    asked: Int8,
) -> None:
    """Lower `value` to the least fixpoint.

    Args:
        value: int32[P, E], the least value from each point to each exit; direct exits and earlier results are in it.
        stacked: int32[C, E], the same for a point under the symbols that a token pushed.
        follow: int32[R, E], the point where a symbol continues after an exit, or `NO_WAY`, `NOT_ASKED`.
        links: int32[:, 2], point and height of each token that ends without a push; of point p, those from
            ``link_start[p]`` to ``link_start[p + 1]``.
        calls: int32[:, 2], likewise for those that push: row of `stacked`, and height.
        call_point, call_symbols, symbol_start: the point of each row of `stacked`, and its symbols, top last.
        changed: int32[P], 1 where `value` differs from what its dependants have seen; zeroed.
        asked: int8[R, E], set where `follow` says `NOT_ASKED` and would have mattered.

    Cost: passes · (links + calls · exits) · E where something has changed; most links are looked at once or twice.
    """
    num_points = len(value)
    moved = np.zeros(num_points, np.int64)
    done = np.full(num_points, -1, np.int64)
    called = np.zeros(len(call_point), np.int64)
    for point in range(num_points):
        if changed[point]:
            moved[point] = 1
    changed[:] = 0
    clock = 1
    active = True
    while active:
        active = False
        clock += 1
        for call in range(len(call_point)):
            if push_through(value, stacked, follow, call, call_point, call_symbols, symbol_start, asked):
                called[call] = clock
                active = True
        for number in range(num_points):
            point = num_points - 1 - number if clock & 1 else number
            lowered = False
            last = done[point]
            done[point] = clock
            for at in range(link_start[point], link_start[point + 1]):
                target, height = links[at, 0], links[at, 1]
                if moved[target] >= last:
                    lowered |= lower(value[point], value[target], height)
            for at in range(call_start[point], call_start[point + 1]):
                call, height = calls[at, 0], calls[at, 1]
                if called[call] >= last:
                    lowered |= lower(value[point], stacked[call], height)
            if lowered:
                moved[point] = clock
                active = True


@njit
def lower(row: Int32, target: Int32, height: int) -> bool:
    """Lower `row` to what one token to `target`, over a stack of `height`, gives."""
    lowered = False
    for exit in range(len(row)):
        there = target[exit]
        if there < INF:
            here = there + TOKEN
            if here & LOW < height:
                here += height - (here & LOW)
            if here < row[exit]:
                row[exit] = here
                lowered = True
    return lowered


@njit
def push_through(
    value: Int32,
    stacked: Int32,
    follow: Int32,
    call: int,
    call_point: Int32,
    call_symbols: Int32,
    symbol_start: Int32,
    asked: Int8,
) -> bool:
    """Lower a row of `stacked` to the min-plus product along its symbols."""
    num_exits = value.shape[1]
    begin, end = symbol_start[call], symbol_start[call + 1]
    now = np.full(num_exits, INF, np.int32)
    for exit in range(num_exits):
        there = wide(value[call_point[call], exit])
        if there < INF:
            now[exit] = joined(0, there, end - begin)
    for place in range(end - 1, begin - 1, -1):
        symbol = call_symbols[place]
        below = np.full(num_exits, INF, np.int32)
        for exit in range(num_exits):
            if now[exit] >= INF:
                continue
            point = follow[symbol, exit]
            if point == NOT_ASKED:
                asked[symbol, exit] = 1
            if point < 0:
                continue
            for final in range(num_exits):
                there = wide(value[point, final])
                if there < INF:
                    below[final] = min(below[final], joined(wide(now[exit]), there, place - begin))
        now = below
    lowered = False
    for exit in range(num_exits):
        if now[exit] < stacked[call, exit]:
            stacked[call, exit] = now[exit]
            lowered = True
    return lowered


@njit
def frame_vector(value: Int32, follow: Int32, symbol: int, below: Int32, height: int, out: Int32) -> None:
    """The cost to complete after each exit into the caller of `symbol`: that of its stack, pushed down by one frame.

    Args:
        below: int32[E], the vector of the stack below, heights counted from its bottom.
        height: symbols below.
        out: int32[E].
    """
    for exit in range(len(out)):
        point = follow[symbol, exit]
        best = INF
        if point == NOT_ASKED:
            best = UNKNOWN
        elif point >= 0:
            best = completed(value[point], below, height)
        out[exit] = best


@njit
def completed(row: Int32, vector: Int32, height: int) -> int:
    """The least value of a point's row with the vector of the stack below it, of `height` symbols."""
    best = INF
    for exit in range(len(row)):
        here, after = wide(row[exit]), wide(vector[exit])
        if here < INF and after != INF:
            if after == UNKNOWN:
                return UNKNOWN
            best = min(best, joined(after, here, height))
    return best
