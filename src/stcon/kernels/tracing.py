"""`Machine.trace` compiled: which marked states a text enters, for history constraints (`stcon.grammar.history`).

An event is (bytes of the text read before, mark, stack depth); one with mark 0 says that the byte at that place lets
the stack fall to that depth. They come in the order of `stcon.grammar.history.Event`.

Source: `stcon.kernels.stepping.step`, with what is entered noted down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import ACTION, DEAD, END, FINAL, SCOPE, UNBUILT
from stcon.kernels.stepping import (
    ALIVE,
    CAP,
    DIED,
    FIRST_PUSH,
    NEEDS_ROW,
    Arrays,
    Int32,
    Int64,
    close_nodes,
    enter,
    has_room,
    is_empty,
    open_nodes,
    pop,
)

NEEDS_ROOM = -3

# kinds of tokens: no event; none at which an element ends or a collection begins; one element ends, at the very depth
# that was asked for; more than that
QUIET, MARKED, ENDS, MIXED = range(4)

AT, MARK, DEPTH = range(3)
EVENT_WORDS = 3
MAX_EVENTS_OF_A_BYTE = 2 * CAP + 4

UInt8 = NDArray[np.uint8]
Step = tuple[int, int, int, int, int, int]


@njit
def note(events: Int32, count: int, at: int, mark: int, depth: int) -> int:
    """Append an event; returns their number."""
    events[count, AT], events[count, MARK], events[count, DEPTH] = at, mark, depth
    return count + 1


@njit
def traced_step(
    tables: Arrays,
    marks: UInt8,
    nodes: Int32,
    seen: Int64,
    k: int,
    at: int,
    state: int,
    counter: int,
    top: int,
    end: int,
    events: Int32,
    count: int,
) -> tuple[int, int, int, int, int, int]:
    """`stepping.step`, appending to `events` from `count` on.

    Args:
        marks: uint8[Q], the mark of each state.
        at: bytes read before this one.
        events: int32[:, EVENT_WORDS] with room for `MAX_EVENTS_OF_A_BYTE` more.

    Returns:
        status, state, counter, top, end, number of events; status and state as of `stepping.step`.
    """
    delta, label, flags = tables[1], tables[2], tables[3]
    action_target, action_start, action_symbols = tables[6], tables[7], tables[8]
    before = wide(nodes[top, 2])
    edge = wide(delta[state, k])
    while edge == DEAD:
        if label[state] < 0 or is_empty(seen, top):
            return DIED, state, counter, top, end, count
        state, top = pop(tables, nodes, seen, state, top)
        counter, _ = enter(tables, seen, state, counter, 0)
        if counter < 0:
            return DIED, state, counter, top, end, count
        if marks[state]:
            count = note(events, count, at, marks[state], wide(nodes[top, 2]))
        edge = wide(delta[state, k])
    if edge == UNBUILT:
        return NEEDS_ROW, state, counter, top, end, count
    fall = count  # where the event of a fall goes
    if edge >= 0:
        state = edge
    else:
        action = ACTION - edge
        begin, stop = wide(action_start[action]), wide(action_start[action + 1])
        height = wide(nodes[top, 2])
        if not has_room(seen, height, stop - begin):
            return DIED, state, counter, top, end, count
        for i in range(begin, stop):
            height += 1
            nodes[end, 0], nodes[end, 1], nodes[end, 2] = action_symbols[i], top, height
            top = end
            end += 1
        state = wide(action_target[action])
    counter, _ = enter(tables, seen, state, counter, 0)
    if marks[state]:
        count = note(events, count, at + 1, marks[state], wide(nodes[top, 2]))
    while counter >= 0 and flags[state] & FINAL and not is_empty(seen, top):
        state, top = pop(tables, nodes, seen, state, top)
        counter, _ = enter(tables, seen, state, counter, 0)
        if counter >= 0 and marks[state]:
            count = note(events, count, at + 1, marks[state], wide(nodes[top, 2]))
    if counter < 0:
        return DIED, state, counter, top, end, count
    after = wide(nodes[top, 2])
    if after < before:
        for i in range(count, fall, -1):
            events[i] = events[i - 1]
        note(events, fall, at, 0, after)
        count += 1
    return ALIVE, state, counter, top, end, count


@njit
def trace(
    tables: Arrays,
    marks: UInt8,
    config: Int32,
    data: UInt8,
    begin: int,
    nodes: Int32,
    seen: Int64,
    events: Int32,
    count: int,
) -> tuple[int, int, int, int]:
    """Read ``data[begin:]``, moving `config` along byte by byte.

    Args:
        config: int32[CONFIG_WORDS], where ``data[begin:]`` begins; left where reading stops.
        nodes: int32[:, 3] with room for several times `CAP`.
        events: int32[:, EVENT_WORDS], `count` of them written already.

    Returns:
        (status, state whose row is needed or -1, bytes of data read, number of events); status `NEEDS_ROOM`: `events`
        is full. After `NEEDS_ROW` and `NEEDS_ROOM` go on from what is returned.
    """
    byte_class = tables[0]
    state, counter, top = open_nodes(config, nodes, seen)
    end = FIRST_PUSH
    for i in range(begin, len(data)):
        if end + CAP > len(nodes):
            close_nodes(state, counter, top, nodes, config)
            state, counter, top = open_nodes(config, nodes, seen)
            end = FIRST_PUSH
        if count + MAX_EVENTS_OF_A_BYTE > len(events):
            close_nodes(state, counter, top, nodes, config)
            return NEEDS_ROOM, -1, i, count
        k = wide(byte_class[data[i]])
        status, after, moved, below, used, total = traced_step(
            tables, marks, nodes, seen, k, i, state, counter, top, end, events, count
        )
        if status != ALIVE:
            close_nodes(state, counter, top, nodes, config)
            return status, after, i, count
        state, counter, top, end, count = after, moved, below, used, total
    close_nodes(state, counter, top, nodes, config)
    return ALIVE, -1, len(data), count


@njit
def classify(
    tables: Arrays,
    marks: UInt8,
    config: Int32,
    packed: UInt8,
    offsets: Int32,
    places: Int32,
    begin: int,
    depth: int,
    nodes: Int32,
    seen: Int64,
    events: Int32,
    kinds: UInt8,
    states: Int32,
    heights: Int32,
    ended: Int32,
) -> tuple[int, int]:
    """What the events at stack depth `depth` or less are, for each of some tokens read at `config`.

    Args:
        packed, offsets: the bytes of all tokens and where each begins (uint8[…], int32[N + 1]).
        places: int32[n], the tokens to try, as indices into `offsets`; from ``places[begin]`` on.
        nodes: int32[:, 3] with room for `CAP` more a byte of a token.
        events: scratch for `MAX_EVENTS_OF_A_BYTE` events.
        kinds: uint8[n], `QUIET`, `MARKED`, `ENDS` or `MIXED`.
        states, heights: int32[n], the state that each token leads to, -1 where it cannot be read; the stack's height.
        ended: int32[n], where in an `ENDS` token the element ends: bytes of the token before.

    Returns:
        (n, -1) when done, else (index to go on from, state whose row is needed).
    """
    byte_class = tables[0]
    start, start_counter, start_top = open_nodes(config, nodes, seen)
    for j in range(begin, len(places)):
        state, counter, top, end = start, start_counter, start_top, FIRST_PUSH
        kinds[j] = QUIET
        for i in range(offsets[places[j]], offsets[places[j] + 1]):
            k = wide(byte_class[packed[i]])
            status, state, counter, top, end, count = traced_step(
                tables, marks, nodes, seen, k, i, state, counter, top, end, events, 0
            )
            if status == NEEDS_ROW:
                return j, state
            if status == DIED:
                state = -1
                break
            for e in range(count):
                if events[e, DEPTH] <= depth:
                    if events[e, MARK] & (END | SCOPE) == 0:
                        kind = MARKED
                    elif events[e, MARK] & SCOPE or events[e, DEPTH] < depth or kinds[j] >= ENDS:
                        kind = MIXED
                    else:
                        kind = ENDS
                        ended[j] = events[e, AT] - offsets[places[j]]
                    kinds[j] = max(kinds[j], kind)
        states[j], heights[j] = state, nodes[top, 2]
    return len(places), -1
