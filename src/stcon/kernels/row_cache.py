"""A bounded cache of mask rows, each shared by all the configurations that provably have it.

A row serves every configuration with the same state and the same exposed stack symbols whose counter and stack depth
lie in the intervals that its walk recorded (`stepping`, "What was looked at"). Rows of a machine never change, so none
is ever stale.

Source: the paper's Theorem 22.
"""

from __future__ import annotations

import numpy as np

from stcon._numba import njit
from stcon.grammar.machine import STACK_CAP, UNBOUNDED
from stcon.kernels.stepping import COUNTER_HIGH, COUNTER_LOW, DEPTH_HIGH, DEPTH_LOW, EXPOSED, Int32, Int64

# columns of `keys`; the exposed symbols follow, top first
_STATE, _NEXT, _COUNTER_LOW, _COUNTER_HIGH, _DEPTH_LOW, _DEPTH_HIGH, _EXPOSED, _SYMBOLS = range(8)
_KEY_WORDS = _SYMBOLS + STACK_CAP
_MAX_ROWS = 4096


class RowCache:
    """Rows of int32[W] by configuration, least recently used out first.

    Args:
        num_words: W.
        limit_bytes: for rows and keys together; 0 keeps nothing.

    Attributes:
        hits, misses: calls of `find`.

    Cost: a hit copies 4·W bytes; a search visits the rows kept for the state, recent ones first.
    """

    def __init__(self, num_words: int, limit_bytes: int) -> None:
        capacity = min(_MAX_ROWS, limit_bytes // (4 * (num_words + _KEY_WORDS)))
        self._rows = np.empty((capacity, num_words), np.int32)  # the system gives pages as they are written
        self._keys = np.empty((capacity, _KEY_WORDS), np.int32)
        self._used = np.zeros(capacity + 1, np.int64)  # when each was last used; the last entry is the clock
        self._head = np.full(64, -1, np.int32)
        self._num_rows = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return self._num_rows

    @property
    def capacity(self) -> int:
        """The most rows kept at a time."""
        return len(self._rows)

    def find(self, config: Int32, out: Int32) -> bool:
        """Copy the row of `config` (int32[CONFIG_WORDS]) to `out`, if there is one."""
        if find(config, self._head, self._keys, self._used, self._rows, out):
            self.hits += 1
            return True
        self.misses += 1
        return False

    def keep(self, config: Int32, seen: Int64, row: Int32) -> None:
        """Keep `row`, computed at `config` by a walk that recorded `seen`."""
        if not len(self._rows):
            return
        state = int(config[0])
        if state >= len(self._head):
            grown = np.full(max(state + 1, 2 * len(self._head)), -1, np.int32)
            grown[: len(self._head)] = self._head
            self._head = grown
        slot = self._num_rows
        if slot < len(self._rows):
            self._num_rows += 1
        else:
            slot = evict(self._head, self._keys, self._used)
        keep(slot, config, seen, row, self._head, self._keys, self._used, self._rows)


@njit
def find(config: Int32, head: Int32, keys: Int32, used: Int64, rows: Int32, out: Int32) -> bool:
    """Copy the row of `config` to `out` and move it to the front of its state's list."""
    state, depth, counter = config[0], config[1], config[2]
    if state >= len(head):
        return False
    previous, slot = -1, head[state]
    while slot >= 0:
        if _serves(keys[slot], config, depth, counter):
            if previous >= 0:
                keys[previous, _NEXT] = keys[slot, _NEXT]
                keys[slot, _NEXT] = head[state]
                head[state] = slot
            used[-1] += 1
            used[slot] = used[-1]
            out[:] = rows[slot]
            return True
        previous, slot = slot, keys[slot, _NEXT]
    return False


@njit
def _serves(key: Int32, config: Int32, depth: int, counter: int) -> bool:
    if not (key[_COUNTER_LOW] <= counter <= key[_COUNTER_HIGH] and key[_DEPTH_LOW] <= depth <= key[_DEPTH_HIGH]):
        return False
    exposed = key[_EXPOSED]
    if exposed > depth:
        return False
    for i in range(exposed):  # noqa: SIM110 (numba has no generators in all())
        if key[_SYMBOLS + i] != config[2 + depth - i]:
            return False
    return True


@njit
def evict(head: Int32, keys: Int32, used: Int64) -> int:
    """Take the least recently used row out of its list; returns its slot. Cost: O(rows)."""
    slot = int(np.argmin(used[:-1]))
    state = keys[slot, _STATE]
    if head[state] == slot:
        head[state] = keys[slot, _NEXT]
        return slot
    previous = head[state]
    while keys[previous, _NEXT] != slot:
        previous = keys[previous, _NEXT]
    keys[previous, _NEXT] = keys[slot, _NEXT]
    return slot


@njit
def keep(slot: int, config: Int32, seen: Int64, row: Int32, head: Int32, keys: Int32, used: Int64, rows: Int32) -> None:
    """Fill `slot` and put it at the front of its state's list."""
    state, depth = config[0], config[1]
    keys[slot, _STATE] = state
    keys[slot, _NEXT] = head[state]
    keys[slot, _COUNTER_LOW] = max(seen[COUNTER_LOW], 0)
    keys[slot, _COUNTER_HIGH] = min(seen[COUNTER_HIGH], UNBOUNDED)
    keys[slot, _DEPTH_LOW] = seen[DEPTH_LOW]
    keys[slot, _DEPTH_HIGH] = seen[DEPTH_HIGH]
    keys[slot, _EXPOSED] = seen[EXPOSED]
    for i in range(seen[EXPOSED]):
        keys[slot, _SYMBOLS + i] = config[2 + depth - i]
    head[state] = slot
    used[-1] += 1
    used[slot] = used[-1]
    rows[slot] = row
