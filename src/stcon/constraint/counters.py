"""Which counter values differ in what may follow: how `stcon.constraint.need` keeps the counter in few values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.machine import DEAD, RESET, UNBOUNDED, Machine

Int64 = NDArray[np.int64]

EXACT_COUNTERS = 48
WINDOW = 24


class Counters:
    """Which counter values differ in what may follow, state by state.

    A value past every bound that can still be asked is as good as the next; where only upper bounds are left and there
    is more room than `WINDOW`, the least room of that kind stands for all of them (a completion that fits in less room
    fits in more, so the cost is never too small).
    """

    def __init__(self, machine: Machine) -> None:
        tables, n = machine.tables(), machine.num_states
        lo, hi = tables.counter_lo[:n].astype(np.int64), tables.counter_hi[:n].astype(np.int64)
        resets = tables.flags[:n] & RESET != 0
        own = np.maximum(np.where(hi < UNBOUNDED, hi + 1, 0), lo)
        source, target = _edges(machine)
        kept = ~resets[target]
        source, target = source[kept], target[kept]
        top = _farthest(source, target, own, n)
        low = _farthest(source, target, lo, n)
        representative = np.where((top > EXACT_COUNTERS) & (top - 1 - WINDOW > low), top - 1 - WINDOW, 0)
        self.from_low = np.where(representative > 0, low, 0)
        self.representative = representative
        self.top = np.where(hi < UNBOUNDED, np.minimum(top, np.maximum(hi, representative)), top)
        at_zero = resets & (self.from_low == 0)
        self.top = np.where(at_zero, representative, self.top)
        self.size = self.from_low + self.top - representative + 1
        self.size[resets & (self.from_low > 0)] = 1

    def index(self, states: NDArray[np.integer], counters: NDArray[np.integer]) -> Int64:
        """int64[n]: which of its state's values each counter counts as."""
        low, first = self.from_low[states], self.representative[states]
        counters = np.minimum(counters.astype(np.int64), self.top[states])
        return np.where(counters < low, counters, np.maximum(counters, first) - first + low)

    def values(self, state: int) -> list[int]:
        """The counters that stand for the values of `state`."""
        low, first = int(self.from_low[state]), int(self.representative[state])
        return [i if i < low else first + i - low for i in range(int(self.size[state]))]


def _edges(machine: Machine) -> tuple[Int64, Int64]:
    """Which state can be entered right after which: along an edge, or by a return from an accepting state."""
    pairs: set[tuple[int, int]] = set()
    by_label: dict[int, set[int]] = {}
    for symbol in range(machine.num_symbols):
        for label, state in enumerate(machine.resume_targets(symbol)):
            if state != DEAD:
                by_label.setdefault(label, set()).add(state)
    for state in range(machine.num_states):
        for edge in set(machine.row(state).tolist()) - {DEAD}:
            pairs.add((state, machine.decode(edge)[0]))
        pairs.update((state, target) for target in by_label.get(machine.label(state), ()))
    array = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _farthest(source: Int64, target: Int64, own: Int64, num_states: int) -> Int64:
    """int64[Q]: the largest of `own` among the states that come after each, along the given pairs."""
    reached = np.zeros(num_states, np.int64)
    while True:
        before = reached.copy()
        np.maximum.at(reached, source, np.maximum(own[target], reached[target]))
        if (before == reached).all():
            return reached
