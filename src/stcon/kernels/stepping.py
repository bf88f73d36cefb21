"""`Machine.step` compiled: one byte from a configuration whose own pushes are a linked list over a read-only stack.

**Nodes.** A stack is the number of its top node. ``nodes[i]`` is (symbol, node below, height). Nodes 0 … depth are
the stack that the caller came with (node i has height i, node 0 is the empty stack); later ones, from ``CAP + 1`` on,
are pushes, allocated upwards. A pop moves to the node below and a push never overwrites one that is alive, so a walk
over a trie goes back to any of its prefixes by remembering three numbers: top, end of the nodes in use, state.

**What was looked at.** Every answer depends on part of the configuration only; ``seen`` records which part, so that it
can be given again (Theorem 22, extended by the counter and the stack cap):

* ``COUNTER_LOW, COUNTER_HIGH``: each counter test turns out the same from every start counter in this interval;
* ``DEPTH_LOW, DEPTH_HIGH``: each test of the stack cap and of emptiness turns out the same at these start depths;
* ``EXPOSED``: symbols of the caller's stack that were popped, from the top;
* ``COUNTER, DEPTH``: the start itself.

A counter is *relative* until a `RESET`: it is the start counter plus what was counted since.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit, wide
from stcon.grammar.machine import ACTION, COUNT, DEAD, FINAL, RESET, STACK_CAP, UNBOUNDED, UNBUILT

COUNTER_LOW, COUNTER_HIGH, DEPTH_LOW, DEPTH_HIGH, EXPOSED, COUNTER, DEPTH = range(7)
SEEN_WORDS = 7

CAP = STACK_CAP
FIRST_PUSH = CAP + 1

# status of a step
ALIVE = 0
DIED = -1
NEEDS_ROW = -2

Arrays = tuple[Any, ...]
"""The `Tables` of a machine as a plain tuple, which numba types faster than a named one."""

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

# a step's result: status, state, counter, relative, top, end
Step = tuple[int, int, int, int, int, int]


@njit
def open_nodes(config: Int32, nodes: Int32, seen: Int64) -> tuple[int, int, int]:
    """Lay out the stack of `config` as nodes and begin a record of what is seen of it.

    Args:
        config: int32[CONFIG_WORDS].

    Returns:
        state, counter and top node.
    """
    state, depth, counter = wide(config[0]), wide(config[1]), wide(config[2])
    for i in range(depth + 1):
        nodes[i, 0] = config[2 + i] if i > 0 else 0
        nodes[i, 1] = i - 1
        nodes[i, 2] = i
    seen[COUNTER_LOW], seen[COUNTER_HIGH] = 0, UNBOUNDED
    seen[DEPTH_LOW], seen[DEPTH_HIGH] = 0, CAP
    seen[EXPOSED] = 0
    seen[COUNTER] = counter
    seen[DEPTH] = depth
    return state, counter, depth


@njit
def close_nodes(state: int, counter: int, top: int, nodes: Int32, config: Int32) -> None:
    """Write a configuration back in the flat layout, zero padded."""
    depth = nodes[top, 2]
    config[0], config[1], config[2] = state, depth, counter
    config[3 + depth :] = 0
    while top > 0:
        config[2 + nodes[top, 2]] = nodes[top, 0]
        top = nodes[top, 1]


@njit
def within(seen: Int64, counter: int, relative: int, low: int, high: int) -> bool:
    """Whether `counter` lies in the closed interval, noting for which start counters the answer is the same."""
    if relative:
        start = seen[COUNTER]
        if counter < low:
            seen[COUNTER_HIGH] = min(seen[COUNTER_HIGH], start + low - counter - 1)
        elif counter > high:
            seen[COUNTER_LOW] = max(seen[COUNTER_LOW], start + high - counter + 1)
        else:
            seen[COUNTER_LOW] = max(seen[COUNTER_LOW], start + low - counter)
            seen[COUNTER_HIGH] = min(seen[COUNTER_HIGH], start + high - counter)
    return low <= counter <= high


@njit
def has_room(seen: Int64, height: int, pushed: int) -> bool:
    """Whether `pushed` symbols fit on a stack of `height`, noting at which start depths the answer is the same."""
    last = seen[DEPTH] + CAP - height - pushed  # the largest start depth at which they fit
    if height + pushed > CAP:
        seen[DEPTH_LOW] = max(seen[DEPTH_LOW], last + 1)
        return False
    seen[DEPTH_HIGH] = min(seen[DEPTH_HIGH], last)
    return True


@njit
def is_empty(seen: Int64, top: int) -> bool:
    """Whether the stack is empty; if it is, that holds at this start depth only."""
    if top != 0:
        return False
    seen[DEPTH_LOW] = seen[DEPTH_HIGH] = seen[DEPTH]
    seen[EXPOSED] = seen[DEPTH]
    return True


@njit
def pop(tables: Arrays, nodes: Int32, seen: Int64, state: int, top: int) -> tuple[int, int]:
    """The state where the top symbol continues after `state` (maybe `DEAD`), and the node below."""
    label, resume_start, resume = tables[2], tables[9], tables[10]
    if top < FIRST_PUSH:
        seen[EXPOSED] = max(seen[EXPOSED], seen[DEPTH] - top + 1)
    return wide(resume[resume_start[nodes[top, 0]] + label[state]]), wide(nodes[top, 1])


@njit
def enter(tables: Arrays, seen: Int64, state: int, counter: int, relative: int) -> tuple[int, int]:
    """Counter and its relativity after entering `state`; the counter is -1 if the entry is not allowed."""
    if state == DEAD:
        return -1, relative
    flags, lo, hi = tables[3][state], wide(tables[4][state]), wide(tables[5][state])
    if flags & RESET:
        counter, relative = 0, 0
    elif flags & COUNT:
        counter += 1
    if within(seen, counter, relative, lo, hi):
        return counter, relative
    return -1, relative


@njit
def step(
    tables: Arrays, nodes: Int32, seen: Int64, k: int, state: int, counter: int, relative: int, top: int, end: int
) -> Step:
    """Read one byte of class `k`.

    Args:
        tables: the arrays of `Tables`.
        nodes: int32[:, 3], with room for ``CAP`` more from `end`.
        seen: int64[SEEN_WORDS], updated.
        state, counter, relative, top, end: the configuration before.

    Returns:
        status and the configuration after; with status `NEEDS_ROW`, ``state`` is the one whose row is not built.
    """
    delta, label, flags = tables[1], tables[2], tables[3]
    action_target, action_start, action_symbols = tables[6], tables[7], tables[8]
    edge = wide(delta[state, k])
    while edge == DEAD:  # a lazy return
        if label[state] < 0 or is_empty(seen, top):
            return DIED, state, counter, relative, top, end
        state, top = pop(tables, nodes, seen, state, top)
        counter, relative = enter(tables, seen, state, counter, relative)
        if counter < 0:
            return DIED, state, counter, relative, top, end
        edge = wide(delta[state, k])
    if edge == UNBUILT:
        return NEEDS_ROW, state, counter, relative, top, end
    if edge >= 0:
        state = edge
    else:
        action = ACTION - edge
        begin, stop = wide(action_start[action]), wide(action_start[action + 1])
        height = wide(nodes[top, 2])
        if not has_room(seen, height, stop - begin):
            return DIED, state, counter, relative, top, end
        for i in range(begin, stop):
            height += 1
            nodes[end, 0], nodes[end, 1], nodes[end, 2] = action_symbols[i], top, height
            top = end
            end += 1
        state = wide(action_target[action])
    counter, relative = enter(tables, seen, state, counter, relative)
    while counter >= 0 and flags[state] & FINAL and not is_empty(seen, top):  # an eager return
        state, top = pop(tables, nodes, seen, state, top)
        counter, relative = enter(tables, seen, state, counter, relative)
    return (ALIVE if counter >= 0 else DIED), state, counter, relative, top, end


@njit
def accepting(tables: Arrays, nodes: Int32, seen: Int64, state: int, top: int) -> bool:
    """`Machine.accepts`."""
    label = tables[2]
    while label[state] >= 0:
        if is_empty(seen, top):
            return True
        state, top = pop(tables, nodes, seen, state, top)
        if state == DEAD:
            return False
    return False
