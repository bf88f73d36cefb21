"""`NeedTable`: the fewest tokens that complete a text, from any configuration, exactly. See ``docs/budgets.md``.

A **point** is where control can stand: a state and counter between two tokens, or inside a token, where it has just
left a callee. An **exit** is how a callee can be left: its label, and how the token that leaves it may still go on. The
table holds, for each point and exit, the least cost to get from one to the other; a symbol continues after an exit at
one point (`_follow`). What is needed in all is a min-plus product along the stack.

Source: the paper's Theorem 21 for automata; for pushdowns its Proposition 2 is a bound, this is exact (Theorem B1 of
``docs/budgets.md``).
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.counters import Counters
from stcon.constraint.token_walks import Found, Walker
from stcon.errors import TooLarge
from stcon.grammar.machine import DEAD, RESET, STACK_CAP, UNBOUNDED, Machine
from stcon.kernels import minplus, rules
from stcon.kernels.minplus import INF, NO_WAY, NOT_ASKED, SHIFT, UNKNOWN
from stcon.kernels.rules import AFTER, BEFORE, BOUNDARY
from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

MAX_POINTS = 60_000
MAX_VALUES = 1 << 24


class Exit(NamedTuple):
    """How a callee is left.

    Attributes:
        kind: `AFTER` a byte, `BEFORE` one, or at a `BOUNDARY` between tokens.
        label: with which it ended.
        counter: then; 0 if no caller looks at it.
        subtree: how the token may go on (`rules.Subtrees`); -1 at a boundary.
        byte: the byte not read yet, for `BEFORE`.
    """

    kind: int
    label: int
    counter: int
    subtree: int = -1
    byte: int = 0


class NeedTable:
    """Fewest tokens from every configuration of `machine` to an accepted text.

    Args:
        machine: is built whole first.
        vocabulary: the tokens; every segmentation counts.

    Raises:
        TooLarge: more than `MAX_POINTS` points or `MAX_VALUES` values.

    Attributes:
        build_s: seconds it took.
        nbytes: of the tables that answers are taken from.

    Not safe to share between threads while one of them asks: hold the kernel's lock.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary) -> None:
        started = time.perf_counter()
        _build(machine)
        self.machine = machine
        self.vocabulary = vocabulary
        self.walker = Walker(machine, vocabulary)
        self.counters = Counters(machine)
        self.base = np.concatenate([[0], np.cumsum(self.counters.size)]).astype(np.int64)
        if self.base[-1] > MAX_POINTS:
            raise _too_large("states and counters", int(self.base[-1]), MAX_POINTS)
        self._exits: dict[Exit, int] = {}
        self._points: dict[tuple[int, ...], int] = {}
        self._calls: dict[tuple[int, tuple[int, ...]], int] = {}
        self._links: list[Int32] = []
        self._pushes: list[list[tuple[int, int]]] = []
        self._direct: list[list[tuple[int, int]]] = []
        self._followers = _followers(machine)
        self._counted = _counted_labels(machine, self.counters)
        self.value = np.zeros((0, 0), np.int32)
        self._stacked = np.zeros((0, 0), np.int32)
        self.follow = np.zeros((machine.num_symbols, 0), np.int32)
        self.bottom = np.zeros(0, np.int32)
        self._expand_states()
        self._settle()
        self.build_s = time.perf_counter() - started

    # ------------------------------------------------------------------------------------------------- questions

    @property
    def num_exits(self) -> int:
        """Exits E."""
        return len(self._exits)

    @property
    def num_points(self) -> int:
        """Points P."""
        return len(self._links)

    @property
    def nbytes(self) -> int:
        """Bytes of the values and of what follows an exit."""
        return self.value.nbytes + self._stacked.nbytes + self.follow.nbytes + self.base.nbytes

    def point(self, state: int, counter: int) -> int:
        """The point of a state and counter between two tokens."""
        return int(self.points(np.array([state]), np.array([counter]))[0])

    def points(self, states: NDArray[np.integer], counters: NDArray[np.integer]) -> Int64:
        """int64[n]: `point` of each."""
        points: Int64 = self.base[states] + self.counters.index(states, counters)
        return points

    def need(self, config: Int32) -> int | None:
        """Fewest tokens from `config` (int32[CONFIG_WORDS]) to an accepted text; None if there is no way.

        Near the cap of the stack it may be None although there is one: ways of the least cost are tried, and of those
        the one that stays lowest.
        """
        row = self.value[self.point(int(config[0]), int(config[2]))]
        value = minplus.completed(row, self.vector(config), int(config[1]))
        if value == UNKNOWN:
            self.prepare(config)
            return self.need(config)
        return None if value >= INF or (value & minplus.LOW) > STACK_CAP else value >> SHIFT

    def vector(self, config: Int32) -> Int32:
        """int32[E]: the cost to complete after each exit from the top frame of `config`."""
        vector = self.bottom
        for height in range(int(config[1])):
            above = np.empty_like(vector)
            minplus.frame_vector(self.value, self.follow, int(config[3 + height]), vector, height, above)
            vector = above
        return vector

    def prepare(self, config: Int32) -> None:
        """Make known what may follow on the stack of `config`, for stacks that no token leads to."""
        while True:
            live = np.flatnonzero(self.value[self.point(int(config[0]), int(config[2]))] < INF)
            missing: list[tuple[int, int]] = []
            for place in range(int(config[1]) - 1, -1, -1):
                symbol = int(config[3 + place])
                points = self.follow[symbol, live]
                missing += [(symbol, int(exit)) for exit in live[points == NOT_ASKED]]
                points = points[points >= 0]
                live = np.flatnonzero((self.value[points] < INF).any(axis=0)) if len(points) else live[:0]
            if not missing:
                return
            self._answer(missing)
            self._settle()

    def worst_costs(self) -> tuple[int, int, Int64]:
        """What is always enough, in tokens and in height: upper bounds of every finite value.

        Returns:
            tokens for a next token and what it began; symbols above the stack on the way; int64[R], tokens for what is
            left of the caller under each symbol.
        """
        states = self.value[: self.base[-1]]
        finite = np.concatenate([states[states < INF], self._stacked[self._stacked < INF]])
        place = int(finite.max(initial=0)) >> SHIFT
        height = int((self.value[self.value < INF] & minplus.LOW).max(initial=0))
        height = max(height, int((finite & minplus.LOW).max(initial=0)))
        symbols = np.zeros(self.machine.num_symbols, np.int64)
        for symbol in range(self.machine.num_symbols):
            rows = self.value[self.follow[symbol][self.follow[symbol] >= 0]]
            symbols[symbol] = int(rows[rows < INF].max(initial=0)) >> SHIFT
        return place + 2, height, symbols

    def has_dead_end(self) -> bool:
        """Whether tokens lead from the start to a state that has no exit at all. Cost: O(links)."""
        seen = np.zeros(self.num_points, np.bool_)
        calls = list(self._calls)
        todo = [self.point(self.machine.start, 0)]
        while todo:
            point = todo.pop()
            if seen[point]:
                continue
            seen[point] = True
            todo += self._links[point][:, 0].tolist()
            for call, _ in self._pushes[point]:
                callee, symbols = calls[call]
                after = self.follow[list(symbols)]
                todo += [callee, *np.unique(after[after >= 0]).tolist()]
        between_tokens = self.value[: self.base[-1]][seen[: self.base[-1]]]
        return bool((between_tokens >= INF).all(axis=1).any())

    # ------------------------------------------------------------------------------------------------- rules

    def _expand_states(self) -> None:
        """Every state with every counter that matters: points 0, 1, …"""
        for state in range(self.machine.num_states):
            for counter in self.counters.values(state):
                point = self._add(self.walker.from_state(state, counter))
                self._direct[point] += self._boundary(state)

    def _add(self, found: Found) -> int:
        """A new point with these rules."""
        ends, exits, symbols = found
        if self.num_points >= MAX_POINTS:
            raise _too_large("points", self.num_points + 1, MAX_POINTS)
        flat = ends[:, rules.PUSHED] == 0
        targets = self.points(ends[flat, rules.STATE], ends[flat, rules.COUNTER])
        links = np.unique(targets << 16 | ends[flat, rules.HEIGHT])
        self._links.append(np.stack([links >> 16, links & 0xFFFF], axis=1).astype(np.int32))
        calls: set[tuple[int, int]] = set()
        for state, counter, height, start, count, _ in ends[~flat].tolist():
            pushed = tuple(symbols[start : start + count].tolist())
            calls.add((self._call(self.point(state, counter), pushed), height))
        self._pushes.append(sorted(calls))
        leaving: dict[int, int] = {}
        for kind, state, counter, subtree, byte, _ in exits.tolist():
            exit = self._exit_of(kind & 1, self.machine.label(state), counter, subtree, byte)
            if exit is not None:
                leaving[exit] = min(leaving.get(exit, kind >> 1), kind >> 1)
        self._direct.append(list(leaving.items()))
        return self.num_points - 1

    def _call(self, point: int, symbols: tuple[int, ...]) -> int:
        return self._calls.setdefault((point, symbols), len(self._calls))

    def _exit(self, exit: Exit) -> int:
        return self._exits.setdefault(exit, len(self._exits))

    def _exit_of(self, kind: int, label: int, counter: int, subtree: int, byte: int) -> int | None:
        """The exit, or None where no caller can go on after it; what no caller can read of the token is left out."""
        follows = self._followers[label]
        if kind == BEFORE:
            if not follows[byte]:
                return None
        else:
            ends, children = self.walker.below(subtree)
            if not follows[children].any():
                if not ends:
                    return None
                subtree = self.walker.leaf
        return self._exit(Exit(kind, label, min(counter, self._counted[label]), subtree, byte))

    def _answer(self, missing: list[tuple[int, int]]) -> None:
        """Fill `follow` for some pairs of symbol and exit."""
        exits = list(self._exits)
        for symbol, number in missing:
            self.follow[symbol, number] = self._point_after(symbol, exits[number])

    def _point_after(self, symbol: int, exit: Exit) -> int:
        targets = self.machine.resume_targets(symbol)
        state = targets[exit.label] if exit.label < len(targets) else DEAD
        if state == DEAD:
            return NO_WAY
        counter = exit.counter
        if exit.kind != BOUNDARY:
            entered = self.machine._counted(state, counter)
            if entered is None:
                return NO_WAY
            counter = min(entered, int(self.counters.top[state]))
        key = (exit.kind, state, counter, exit.subtree, exit.byte)
        if key not in self._points:
            self._points[key] = self._expand_inside(exit, state, counter)
        return self._points[key]

    def _expand_inside(self, exit: Exit, state: int, counter: int) -> int:
        """The point where a caller has entered `state` inside a token, which goes on as `exit` says."""
        if exit.kind == BOUNDARY:
            point = self._add(Found())
            self._direct[point] += self._boundary(state)
            return point
        if exit.kind == AFTER and self.machine.is_final(state):
            return self._add(Found(exits=np.array([(AFTER, state, counter, exit.subtree, 0, 0)], np.int32)))
        return self._add(
            self.walker.from_inside(state, counter, exit.subtree, exit.byte if exit.kind == BEFORE else None)
        )

    def _boundary(self, state: int) -> list[tuple[int, int]]:
        """The exit of a state that accepts, between two tokens."""
        label = self.machine.label(state)
        return [(self._exit(Exit(BOUNDARY, label, 0)), 0)] if label >= 0 else []

    # ------------------------------------------------------------------------------------------------- values

    def _settle(self) -> None:
        """The least fixpoint, asking for what follows an exit as it turns out to matter."""
        settled = 0
        while True:
            settled = self._grow(settled)
            asked = np.zeros(self.follow.shape, np.int8)
            links, link_start = _flat(self._links)
            calls, call_start = _flat([np.array(pushed, np.int32).reshape(-1, 2) for pushed in self._pushes])
            points = np.array([point for point, _ in self._calls], np.int32)
            symbols, symbol_start = _flat([np.array(pushed, np.int32) for _, pushed in self._calls])
            changed = np.ones(self.num_points, np.int32)
            minplus.settle(
                self.value, self._stacked, self.follow, links.reshape(-1, 2), link_start, calls.reshape(-1, 2),
                call_start, points, symbols, symbol_start, changed, asked,
            )  # fmt: skip
            missing = [(int(symbol), int(exit)) for symbol, exit in np.argwhere(asked)]
            if not missing:
                return
            self._answer(missing)

    def _grow(self, settled: int) -> int:
        """Make room for the points and exits found, with the direct exits of those past `settled`."""
        points, exits = self.num_points, self.num_exits
        if points * exits > MAX_VALUES:
            raise _too_large("values", points * exits, MAX_VALUES)
        self.value = _padded(self.value, points, exits, INF)
        self._stacked = _padded(self._stacked, len(self._calls), exits, INF)
        self.follow = _padded(self.follow, self.machine.num_symbols, exits, NOT_ASKED)
        for point in range(settled, points):
            for exit, height in self._direct[point]:
                self.value[point, exit] = min(self.value[point, exit], height)
        self.bottom = np.array([self._at_bottom(exit) for exit in self._exits], np.int32)
        return points

    def _at_bottom(self, exit: Exit) -> int:
        """The cost to complete after an exit under which the stack is empty: the token must end there."""
        if exit.kind == BOUNDARY:
            return 0
        return minplus.TOKEN if exit.kind == AFTER and self.walker.below(exit.subtree)[0] else INF


def _build(machine: Machine) -> None:
    """Build every row, or stop early where there would be too many."""
    state = 0
    while state < machine.num_states:
        machine.build(state)
        state += 1
        if machine.num_states > MAX_POINTS:
            raise _too_large("states", machine.num_states, MAX_POINTS)


def _too_large(what: str, given: int, limit: int) -> TooLarge:
    return TooLarge(
        f"{what} for a limit of tokens to be kept", given=given, limit=limit, advice="decode without it (budget=False)"
    )


def _followers(machine: Machine) -> dict[int, Bool]:
    """Label → bool[256]: the bytes that some caller can read after a callee has ended so."""
    live: dict[int, Bool] = {}
    ending: dict[int, set[int]] = {}
    labels = {machine.label(state) for state in range(machine.num_states)} - {-1}
    for label in labels:
        live[label] = np.zeros(256, np.bool_)
        ending[label] = set()
    for symbol in range(machine.num_symbols):
        for label, state in enumerate(machine.resume_targets(symbol)):
            if state != DEAD and label in labels:
                live[label] |= (machine.row(state) != DEAD)[machine.byte_class]
                ending[label].add(machine.label(state))
    changed = True
    while changed:
        changed = False
        for label in labels:
            before = int(live[label].sum())
            for other in ending[label] - {-1}:
                live[label] |= live[other]
            changed |= int(live[label].sum()) > before
    return live


def _counted_labels(machine: Machine, counters: Counters) -> dict[int, int]:
    """Label → the counter from which on all are the same to every caller after a callee has ended so."""
    counted = {machine.label(state): 0 for state in range(machine.num_states)}
    for symbol in range(machine.num_symbols):
        for label, state in enumerate(machine.resume_targets(symbol)):
            if state != DEAD:
                effect, low, high = machine.bounds(state)
                own = max(low, high + 1 if high < UNBOUNDED else 0, int(counters.top[state]))
                counted[label] = max(counted.get(label, 0), 0 if effect & RESET else own)
    return counted


def _flat(parts: list[Int32]) -> tuple[Int32, Int32]:
    """Arrays one after another, and where each begins."""
    starts = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return (np.concatenate(parts) if parts else np.zeros(0, np.int32)).astype(np.int32), starts


def _padded(array: Int32, rows: int, columns: int, fill: int) -> Int32:
    grown = np.full((rows, columns), fill, np.int32)
    grown[: array.shape[0], : array.shape[1]] = array
    return grown
