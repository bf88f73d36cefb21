"""Shortest completions of a fully built machine: a least fixpoint over calls and labels, and a search where that lies.

The fixpoint ignores the counter and the stack cap, so it is exact for machines without bounds and a lower bound
otherwise; `shortest` tries its text on the machine and, where a bound refuses it, searches configurations with the
fixpoint as the estimate of what is left. Marks (history constraints) are not looked at: `Grammar.shortest` does that.

Source: the paper's Proposition 2 (need⁺), with labels: what a caller needs next depends on how its callee ended. The
fixpoint is Knuth's generalisation of Dijkstra's algorithm (*A generalization of Dijkstra's algorithm*, 1977).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.errors import TooLarge, Unsatisfiable
from stcon.grammar.machine import DEAD, RESET, STACK_CAP, UNBOUNDED, Configuration, Machine

MAX_TEXT_BYTES = 1 << 20
MAX_CONFIGURATIONS = 100_000

_NO_EDGE = np.iinfo(np.int64).min
_READABLE = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Move(NamedTuple):
    """One edge of a state, with one of the bytes that take it."""

    byte: int
    target: int
    symbols: tuple[int, ...]


class _Point(NamedTuple):
    """A state with symbols above the frame in question, the last on top."""

    state: int
    symbols: tuple[int, ...]


class _How(NamedTuple):
    """How a shortest completion begins: by a byte, or by the ending of the callee on top; then from a point."""

    byte: int
    ending: int
    then: _Point


class Completions:
    """For each state and *ending*, the fewest bytes that complete the current callee with that ending.

    An ending is twice a label, plus 1 where the callee ends in a `FINAL` state (and so returns at once): see `label_of`
    and `returns_at_once`.

    Args:
        machine: every row is built first (`Machine.build_all`, within its state budget).

    Cost: time and memory linear in states × distinct edges × endings, times a logarithm.
    """

    def __init__(self, machine: Machine) -> None:
        machine.build_all()
        self.machine = machine
        self._preference = _readable_classes(machine)
        self._cost: dict[_Point, dict[int, int]] = {}
        self._how: dict[tuple[_Point, int], _How | None] = {}
        self._before: dict[_Point, list[tuple[int, int]]] = {}  # point → (state, byte) with an edge to it
        self._calls: dict[int, set[_Point]] = {}  # callee's state → points with symbols, in that state
        self._waiting: dict[_Point, list[tuple[_Point, int, int]]] = {}  # → (caller's point, ending, bytes so far)
        self._heap: list[tuple[int, int, _Point, int, _How | None]] = []
        self._ticket = itertools.count()
        self._needed: dict[tuple[int, tuple[int, ...]], int | None] = {}
        self._collect()
        self._settle_all()

    def endings(self, state: int) -> dict[int, int]:
        """Ending → fewest bytes from `state` to the end of its callee with it; absent where impossible."""
        return self._cost.get(_Point(state, ()), {})

    def moves(self, state: int) -> Iterator[Move]:
        """The distinct edges of `state`."""
        row = self.machine.row(state)[self._preference.classes]
        edges, first = np.unique(row, return_index=True)
        for edge, index in zip(edges.tolist(), first.tolist(), strict=True):
            if edge != DEAD:
                yield Move(int(self._preference.bytes[index]), *self.machine.decode(edge))

    def needed(self, config: Configuration) -> int | None:
        """Fewest bytes from `config` to acceptance, bounds ignored; None if there is no way.

        Cost: O(stack · endings).
        """
        key = (config.state, config.stack)
        if key not in self._needed:
            self._needed[key] = self._sum_over_stack(config)
        return self._needed[key]

    def _sum_over_stack(self, config: Configuration) -> int | None:
        costs = self.endings(config.state)
        for symbol in reversed(config.stack):
            below: dict[int, int] = {}
            for ending, spent in costs.items():
                for after, more in self.endings(_resumed(self.machine, symbol, label_of(ending))).items():
                    below[after] = min(below.get(after, spent + more), spent + more)
            costs = below
        return min(costs.values(), default=None)

    def text(self, state: int, ending: int) -> bytes:
        """A shortest completion from `state` with `ending`.

        Raises:
            TooLarge: longer than `MAX_TEXT_BYTES`.
        """
        length = self.endings(state)[ending]
        if length > MAX_TEXT_BYTES:
            raise TooLarge("bytes of the shortest text", given=length, limit=MAX_TEXT_BYTES)
        text = bytearray()
        todo = [(_Point(state, ()), ending)]
        while todo:
            point, ending = todo.pop()
            how = self._how[point, ending]
            if how is None:
                continue
            todo.append((how.then, ending))
            if point.symbols:
                todo.append((_Point(point.state, ()), how.ending))
            else:
                text.append(how.byte)
        return bytes(text)

    # ------------------------------------------------------------------------------------------------- the fixpoint

    def _collect(self) -> None:
        for state in range(self.machine.num_states):
            for move in self.moves(state):
                point = _Point(move.target, move.symbols)
                self._before.setdefault(point, []).append((state, move.byte))
                self._expect(point)
            if (label := self.machine.label(state)) >= 0:
                self._offer(0, _Point(state, ()), 2 * label + self.machine.is_final(state), None)

    def _expect(self, point: _Point) -> None:
        """Take note of a point with symbols, and of the endings that its callee is known to have."""
        known = self._calls.setdefault(point.state, set())
        if not point.symbols or point in known:
            return
        known.add(point)
        for ending, spent in list(self.endings(point.state).items()):
            self._return(point, ending, spent)

    def _offer(self, cost: int, point: _Point, ending: int, how: _How | None) -> None:
        if ending not in self._cost.get(point, {}):
            heapq.heappush(self._heap, (cost, next(self._ticket), point, ending, how))

    def _settle_all(self) -> None:
        while self._heap:
            cost, _, point, ending, how = heapq.heappop(self._heap)
            costs = self._cost.setdefault(point, {})
            if ending in costs:
                continue
            costs[ending] = cost
            self._how[point, ending] = how
            for state, byte in self._before.get(point, ()):
                self._offer(cost + 1, _Point(state, ()), ending, _How(byte, -1, point))
            for caller, ended, spent in self._waiting.get(point, ()):
                self._offer(spent + cost, caller, ending, _How(-1, ended, point))
            if not point.symbols:
                for caller in list(self._calls.get(point.state, ())):
                    self._return(caller, ending, cost)

    def _return(self, caller: _Point, ending: int, spent: int) -> None:
        """The callee on top of `caller` can end with `ending` after `spent` bytes."""
        state = _resumed(self.machine, caller.symbols[-1], label_of(ending))
        if state == DEAD:
            return
        after = _Point(state, caller.symbols[:-1])
        self._expect(after)
        self._waiting.setdefault(after, []).append((caller, ending, spent))
        for ended, more in list(self._cost.get(after, {}).items()):
            self._offer(spent + more, caller, ended, _How(-1, ending, after))


def label_of(ending: int) -> int:
    """The label of an ending."""
    return ending >> 1


def returns_at_once(ending: int) -> bool:
    """Whether a callee with this ending returns before the next byte is seen."""
    return bool(ending & 1)


class _Preference(NamedTuple):
    """Byte classes, those with a readable byte first, and the byte that stands for each."""

    classes: NDArray[np.int64]
    bytes: NDArray[np.int64]


def shortest(machine: Machine, *, max_configurations: int = MAX_CONFIGURATIONS) -> bytes:
    """A shortest text that `machine` accepts, with readable bytes where there is a choice.

    Args:
        machine: built whole on the way.
        max_configurations: budget of the search where bounds refuse the fixpoint's text.

    Raises:
        Unsatisfiable: no text is accepted.
        TooLarge: the search budget, the state budget or `MAX_TEXT_BYTES` is spent.
    """
    completions = Completions(machine)
    endings = completions.endings(machine.start)
    if not endings:
        raise Unsatisfiable("no text is accepted")
    text = completions.text(machine.start, min(endings, key=lambda ending: endings[ending]))
    end = machine.run(machine.initial(), text)
    if end is not None and machine.accepts(end):
        return text
    return _search(completions, max_configurations)


def _search(completions: Completions, limit: int) -> bytes:
    """A* over configurations: exact under bounds, because what is left is never overestimated."""
    machine = completions.machine
    matters = where_counter_matters(completions)
    start = machine.initial()
    ticket = itertools.count()
    heap = [(completions.needed(start) or 0, next(ticket), 0, start)]
    came: dict[Configuration, tuple[Configuration, int] | None] = {start: None}
    length = {start: 0}
    done: set[Configuration] = set()
    while heap:
        _, _, so_far, config = heapq.heappop(heap)
        if config in done:
            continue
        if machine.accepts(config):
            return _trace(came, config)
        done.add(config)
        if len(done) > limit:
            raise TooLarge("configurations searched for a shortest text", given=len(done), limit=limit)
        for byte, after in steps(completions, config):
            if not matters[after.state]:
                after = after._replace(counter=0)  # noqa: PLW2901 (the same from here on, whatever was counted)
            needed = completions.needed(after)
            if needed is not None and so_far + 1 < length.get(after, so_far + 2):
                length[after] = so_far + 1
                came[after] = (config, byte)
                heapq.heappush(heap, (so_far + 1 + needed, next(ticket), so_far + 1, after))
    raise Unsatisfiable("no text is accepted within the stack cap and the length bounds")


def where_counter_matters(completions: Completions) -> list[bool]:
    """[Q] False where the counter is reset before anything tests it, on every way on."""
    machine = completions.machine
    matters = [False] * machine.num_states
    returns = {target for symbol in range(machine.num_symbols) for target in machine.resume_targets(symbol)} - {DEAD}
    before: dict[int, list[int]] = {}
    accepting = [state for state in range(machine.num_states) if machine.label(state) >= 0]
    for state in range(machine.num_states):
        for move in completions.moves(state):
            before.setdefault(move.target, []).append(state)
    for target in returns:
        before.setdefault(target, []).extend(accepting)
    entered = [s for s in range(machine.num_states) if machine.bounds(s)[1:] != (0, UNBOUNDED)]
    while entered:  # a state whose entry looks at the counter, or hands it on to one that does
        state = entered.pop()
        if machine.bounds(state)[0] == RESET:
            continue
        for previous in before.get(state, ()):
            if not matters[previous]:
                matters[previous] = True
                entered.append(previous)
    return matters


def steps(completions: Completions, config: Configuration) -> Iterator[tuple[int, Configuration]]:
    """Every configuration one byte after `config`, each with one byte that leads there."""
    machine = completions.machine
    classes, representatives = completions._preference
    state, stack = config.state, list(config.stack)
    taken = np.full(len(classes), _NO_EDGE)  # the edge that each class takes, told apart by the state that has it
    for depth in range(len(stack) + 1):
        row = machine.row(state)[classes].astype(np.int64)
        taken = np.where((taken == _NO_EDGE) & (row != DEAD), row * (STACK_CAP + 1) + depth, taken)
        if machine.label(state) < 0 or not stack:
            break
        state = _resumed(machine, stack.pop(), machine.label(state))
        if state == DEAD:
            break
    values, first = np.unique(taken, return_index=True)
    for value, index in zip(values.tolist(), first.tolist(), strict=True):
        after = machine.step(config, int(representatives[index])) if value != _NO_EDGE else None
        if after is not None:
            yield int(representatives[index]), after


def _trace(came: dict[Configuration, tuple[Configuration, int] | None], config: Configuration) -> bytes:
    text = bytearray()
    while (step := came[config]) is not None:
        config, byte = step
        text.append(byte)
    return bytes(reversed(text))


def _resumed(machine: Machine, symbol: int, label: int) -> int:
    """Where `symbol` continues after `label`; `DEAD` too where its list is shorter (`check` reports that)."""
    targets = machine.resume_targets(symbol)
    return targets[label] if label < len(targets) else DEAD


def _readable_classes(machine: Machine) -> _Preference:
    order = np.array([*_READABLE, *sorted(set(range(256)) - set(_READABLE), key=lambda b: (not 32 <= b < 127, b))])
    classes, first = np.unique(machine.byte_class[order], return_index=True)
    ranked = np.argsort(first)
    return _Preference(classes[ranked].astype(np.int64), order[first[ranked]])
