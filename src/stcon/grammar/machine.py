"""The control machine: a deterministic pushdown over bytes. `Machine.step` *is* the definition of its meaning.

Every format compiles to this one class; a DFA is the case without calls. Every other implementation of a step (numba,
CUDA, torch) is tested against `Machine.step` bit for bit.

**Configuration**: a state, a stack of return symbols (top last) and one counter.

**Tables** (Q states, K byte classes, R return symbols, A actions):

========================  =============  ==============================================================================
``byte_class``            uint8[256]     class of each byte
``delta``                 int32[Q, K]    the edge taken on a class: a state ≥ 0, `DEAD`, `UNBUILT`, or an action
                                         ``ACTION - a`` for action a
``action_target``         int32[A]       where action a goes ...
``action_start``          int32[A + 1]   ... after pushing ``action_symbols[action_start[a]:action_start[a + 1]]`` in
                                         that order (the last one ends on top)
``label``                 int32[Q]       -1, or the label with which the state accepts
``flags``                 uint8[Q]       `FINAL`: the state accepts and has no successor; `RESET`, `COUNT`: see below
``counter_lo, counter_hi`` int32[Q]      the state can be entered only with the counter in this closed interval
``resume``                int32[]        ``resume[resume_start[r] + l]``: where return symbol r continues after its
                                         callee accepted with label l, or `DEAD`
========================  =============  ==============================================================================

**Entering** a state, by an edge or by a return, first updates the counter (set to 0 if `RESET`, one more if `COUNT`),
then requires it to lie in the state's interval; otherwise the step is undefined. Strings do not nest, so one counter
serves every length bound (in code points) and every bounded run of whitespace, at no cost in states.

**One byte** b in configuration (q, σ, n):

1. while ``delta[q, class(b)]`` is `DEAD`: if q accepts and σ is not empty, pop r, enter ``resume[r, label[q]]`` and
   look again (a *lazy* return: numbers end only when the next byte is not theirs); else the step is undefined;
2. take the edge: push its symbols (never past `STACK_CAP`: there the step is undefined), enter its target;
3. while the state is `FINAL` and σ is not empty: pop r, enter ``resume[r, label]`` (an *eager* return).

A configuration is **accepting** if popping r and moving to ``resume[r, label]`` as long as the state accepts empties
the stack at an accepting state. (No entry test is made here: front ends put no bounds on return states.)

**Marks** are for history constraints, which a finite state cannot hold (no two equal items, no name twice) and which
`stcon.grammar.history` enforces on top: entering a state marked `SCOPE` opens an empty collection at the present
stack depth; `BEGIN` means that an element's text starts with the next byte; `END` that it ended with the last byte
read; `SCARCE` (on a name's `BEGIN` and on states before it) that the names that may come are spelled in more than one
way, or could all be taken. Marks do not change what `step` does.

**Lazy rows.** A row of ``delta`` may hold `UNBUILT` throughout; whoever meets it calls `Machine.build` and looks again.
Rows are built whole and never change, and what is built never depends on the order of building.

Source: the paper's Definition 5, Section C.6 and D.4; DESIGN §2. We depart in the labels (a callee can end with one of
several outcomes), in byte classes, in the counter, and in resolving calls into actions when rows are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.automata.dfa import ByteDfa
from stcon.errors import TooLarge
from stcon.grammar.growing import Growing, grow, narrow

DEAD = -1
UNBUILT = -2
ACTION = -3

FINAL = 1
RESET = 2
COUNT = 4

SCOPE = 1
BEGIN = 2
END = 4
SCARCE = 8

STACK_CAP = 64
CONFIG_WORDS = 3 + STACK_CAP
UNBOUNDED = 2**31 - 1

DEFAULT_MAX_STATES = 200_000

Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]


class Configuration(NamedTuple):
    """Where a reading stands. Immutable; `Machine.step` returns a new one."""

    state: int
    stack: tuple[int, ...] = ()
    counter: int = 0

    def pack(self, out: Int32 | None = None) -> Int32:
        """The kernels' layout: int32[CONFIG_WORDS] = state, stack pointer, counter, stack (bottom first)."""
        out = np.zeros(CONFIG_WORDS, np.int32) if out is None else out
        out[:] = 0
        out[0], out[1], out[2] = self.state, len(self.stack), self.counter
        out[3 : 3 + len(self.stack)] = self.stack
        return out

    @classmethod
    def unpack(cls, words: Int32) -> Configuration:
        """The inverse of `pack`."""
        depth = int(words[1])
        return cls(int(words[0]), tuple(int(r) for r in words[3 : 3 + depth]), int(words[2]))


class Entry(NamedTuple):
    """A marked state entered: its marks, the stack depth then, and whether the step's byte was still unread."""

    mark: int
    depth: int
    before: bool


class Tables(NamedTuple):
    """The machine's arrays as the kernels take them; over-allocated, and valid until `Machine.generation` changes."""

    byte_class: UInt8
    delta: Int32
    label: Int32
    flags: UInt8
    counter_lo: Int32
    counter_hi: Int32
    action_target: Int32
    action_start: Int32
    action_symbols: Int32
    resume_start: Int32
    resume: Int32


class Machine:
    """A deterministic pushdown over bytes, built row by row.

    Args:
        max_states: state budget; one more raises `TooLarge`.
        row_builder: called with a state whose row is `UNBUILT`; must call `set_row` or `set_edges` for it.

    Cost: 4·K + 13 bytes a state while it grows; `export` needs 2·K + 3, and 8 more where counters are bounded.
    """

    def __init__(
        self, *, max_states: int = DEFAULT_MAX_STATES, row_builder: Callable[[int], None] | None = None
    ) -> None:
        self.max_states = max_states
        self.row_builder = row_builder
        self.start = 0
        self.num_states = 0
        self.num_classes = 1
        self.generation = 0
        self._byte_class = np.zeros(256, np.uint8)
        self._members = [256] + [0] * 255
        self.marks: dict[int, int] = {}
        self._delta = np.full((64, 16), UNBUILT, np.int32)
        self._label = np.full(64, -1, np.int32)
        self._flags = np.zeros(64, np.uint8)
        self._lo = np.zeros(64, np.int32)
        self._hi = np.full(64, UNBOUNDED, np.int32)
        self._actions: dict[tuple[int, tuple[int, ...]], int] = {}
        self._action_target = Growing()
        self._action_start = Growing([0])
        self._action_symbols = Growing()
        self._resumes: dict[tuple[int, ...], int] = {}
        self._resume_start = Growing()
        self._resume = Growing()
        self._tables: Tables | None = None
        self._tables_key: tuple[int, ...] = ()

    # ------------------------------------------------------------------------------------------------- building

    def new_state(
        self,
        *,
        label: int = -1,
        final: bool = False,
        effect: int = 0,
        counter_lo: int = 0,
        counter_hi: int = UNBOUNDED,
        mark: int = 0,
    ) -> int:
        """A new state, its row `UNBUILT` (all `DEAD` if `final`).

        Args:
            label: accept label, or -1.
            final: the state accepts and has no successor (requires a label).
            effect: 0, `RESET` or `COUNT`, applied to the counter on entry.
            counter_lo, counter_hi: closed interval in which the counter must lie after that.
            mark: 0, or a union of `SCOPE`, `BEGIN`, `END` and `SCARCE`.

        Raises:
            TooLarge: the state budget is spent.
        """
        assert not final or label >= 0, "a final state accepts"
        state = self._reserve(1)
        self._label[state] = label
        self._flags[state] = effect | (FINAL if final else 0)
        self._lo[state] = counter_lo
        self._hi[state] = counter_hi
        if mark:
            self.marks[state] = mark
        if final:
            self._delta[state, :] = DEAD
        return state

    def action(self, target: int, symbols: Sequence[int]) -> int:
        """The edge that pushes `symbols` (the last ends on top) and goes to state `target`; hash-consed."""
        if not symbols:
            return target
        key = (target, tuple(symbols))
        index = self._actions.get(key)
        if index is None:
            index = self._actions[key] = len(self._actions)
            self._action_target.append(target)
            self._action_symbols.extend(key[1])
            self._action_start.append(len(self._action_symbols))
        return ACTION - index

    def return_symbol(self, targets: Sequence[int]) -> int:
        """The return symbol that continues at ``targets[l]`` (a state or `DEAD`) after label l; hash-consed."""
        key = tuple(targets)
        symbol = self._resumes.get(key)
        if symbol is None:
            symbol = self._resumes[key] = len(self._resumes)
            self._resume_start.append(len(self._resume))
            self._resume.extend(key)
        return symbol

    def decode(self, edge: int) -> tuple[int, tuple[int, ...]]:
        """An edge (not `DEAD`, not `UNBUILT`) as (target, symbols pushed)."""
        if edge >= 0:
            return edge, ()
        action = ACTION - edge
        begin, end = self._action_start[action], self._action_start[action + 1]
        return self._action_target[action], tuple(self._action_symbols[i] for i in range(begin, end))

    def call(self, edge: int, symbol: int) -> int:
        """`edge` of a callee's start state, as the caller takes it: `symbol` is pushed below what `edge` pushes."""
        if edge == DEAD:
            return DEAD
        target, symbols = self.decode(edge)
        return self.action(target, (symbol, *symbols))

    def set_edges(self, state: int, edges: Mapping[int, int]) -> None:
        """Build the row of `state` from single bytes; every other byte is `DEAD`. Cost: O(K + len(edges))."""
        self.isolate(edges)
        row = self._delta[state]
        row[:] = DEAD
        for byte, edge in edges.items():
            row[self._byte_class[byte]] = edge

    def set_row(self, state: int, row: Int32) -> None:
        """Build the row of `state` from its 256 edges, one a byte."""
        self._refine(np.unique(row, return_inverse=True)[1].astype(np.int64))
        self._delta[state, :] = DEAD
        self._delta[state, self._byte_class] = row

    def set_call_row(self, state: int, callee: int, symbol: int | None, edges: Mapping[int, int]) -> None:
        """Build the row of `state` as a call of `callee`, returning to `symbol`, except for the bytes in `edges`.

        Without a symbol nothing is pushed: the row is that of `callee`.
        """
        self.isolate(edges)
        source = self.row(callee)
        row = self._delta[state]
        row[:] = DEAD
        if symbol is None:
            row[: self.num_classes] = source
        else:
            called = {edge: self.call(edge, symbol) for edge in set(source.tolist())}
            row[: self.num_classes] = [called[edge] for edge in source.tolist()]
        for byte, edge in edges.items():
            row[self._byte_class[byte]] = edge

    def copy_row(self, state: int, source: int) -> None:
        """Build the row of `state` as that of `source`."""
        self.build(source)
        self._delta[state] = self._delta[source]

    def isolate(self, data: Iterable[int]) -> None:
        """Give every byte of `data` a class of its own. Cost: a column for each that has none; cheaper all at once."""
        split: dict[int, list[int]] = {}
        for byte in set(data):
            old = int(self._byte_class[byte])
            if self._members[old] > 1:
                split.setdefault(old, []).append(byte)
        parts = []
        for old, members in split.items():
            whole = len(members) == self._members[old]  # one of them keeps the class
            parts += [(old, (byte,)) for byte in members[whole:]]
        if parts:
            self._add_classes(parts)

    def add_chain(self, text: bytes, target: int, beside: Sequence[int] | None = None) -> int:
        """Append one state for each byte of `text`, which leads to the next and the last to `target`; the first state.

        Args:
            text: not empty.
            target: an edge, or `DEAD`.
            beside: for each byte the state whose row the new state has for every other byte; None: `DEAD`.
        """
        self.isolate(text)
        rows = None if beside is None else {state: self.row(state) for state in set(beside)}
        base = self._reserve(len(text))
        end = base + len(text)
        self._delta[base:end] = DEAD
        if rows is not None and beside is not None:
            self._delta[base:end, : self.num_classes] = [rows[state] for state in beside]
        edges = np.arange(base + 1, end + 1)
        edges[-1] = target
        self._delta[np.arange(base, end), self._byte_class[np.frombuffer(text, np.uint8)]] = edges
        return base

    def add_dfa(
        self,
        dfa: ByteDfa,
        *,
        effects: UInt8 | None = None,
        counter_lo: Int32 | None = None,
        counter_hi: Int32 | None = None,
        targets: Mapping[int, int] | None = None,
    ) -> int:
        """Append every state of `dfa`, rows built, labels kept; returns the offset added to its state numbers.

        Args:
            dfa: a partial byte DFA; its accepting states without a successor become `FINAL`.
            effects, counter_lo, counter_hi: [dfa states], as in `new_state`.
            targets: DFA state → existing state of this machine that takes its place as a target.
        """
        self._refine(dfa.byte_class.astype(np.int64))
        n = dfa.num_states
        base = self._reserve(n)
        number = np.arange(base, base + n, dtype=np.int32)
        for old, new in (targets or {}).items():
            number[old] = new
        representative = np.zeros(self.num_classes, np.int64)
        representative[self._byte_class] = np.arange(256)
        rows = dfa.delta[:, dfa.byte_class[representative]]
        self._delta[base : base + n, :] = DEAD
        self._delta[base : base + n, : self.num_classes] = np.where(rows < 0, DEAD, number[rows])
        self._label[base : base + n] = dfa.labels
        stuck = (rows < 0).all(axis=1) & (dfa.labels >= 0)
        self._flags[base : base + n] = stuck.astype(np.uint8) * FINAL | (0 if effects is None else effects)
        if counter_lo is not None:
            self._lo[base : base + n] = counter_lo
        if counter_hi is not None:
            self._hi[base : base + n] = counter_hi
        return base

    def build(self, state: int) -> None:
        """Build the row of `state` if it is not built. Raises whatever the front end's builder refuses."""
        if self._delta[state, 0] == UNBUILT:
            assert self.row_builder is not None, "an unbuilt row in a machine without a builder"
            self.row_builder(state)
            assert self._delta[state, 0] != UNBUILT, "the row builder built another row"

    def build_all(self) -> None:
        """Build every row reachable from built ones. Raises `TooLarge` past the state budget."""
        state = 0
        while state < self.num_states:
            self.build(state)
            state += 1

    @property
    def is_whole(self) -> bool:
        """Whether every row is built. Cost: O(states)."""
        return not (self._delta[: self.num_states, 0] == UNBUILT).any()

    def is_built(self, state: int) -> bool:
        """Whether the row of `state` is built."""
        return bool(self._delta[state, 0] != UNBUILT)

    # ------------------------------------------------------------------------------------------------- meaning

    def initial(self) -> Configuration:
        """The configuration before any byte."""
        return Configuration(self.start)

    def step(self, config: Configuration, byte: int) -> Configuration | None:
        """Read one byte: the definition (see the module's docstring). None where the step is undefined."""
        return self.trace(config, byte, None)

    def trace(self, config: Configuration, byte: int, entered: list[Entry] | None) -> Configuration | None:
        """`step`, appending to `entered` each marked state as it is entered."""
        state, counter = config.state, config.counter
        stack = list(config.stack)
        before = True  # the byte itself has not been read yet

        def enter(target: int, count: int | None) -> int | None:
            if count is None or target == DEAD:
                return None
            if entered is not None and target in self.marks:
                entered.append(Entry(self.marks[target], len(stack), before))
            return self._counted(target, count)

        while (edge := self.edge(state, byte)) == DEAD:
            if self._label[state] < 0 or not stack:
                return None
            state = self._resumed(stack.pop(), state)
            arrived = enter(state, counter)
            if arrived is None:
                return None
            counter = arrived
        before = False
        state, symbols = self.decode(edge)
        stack.extend(symbols)
        if len(stack) > STACK_CAP:
            return None
        arrived = enter(state, counter)
        while arrived is not None and self._flags[state] & FINAL and stack:
            state = self._resumed(stack.pop(), state)
            arrived = enter(state, arrived)
        return None if arrived is None else Configuration(state, tuple(stack), arrived)

    def run(self, config: Configuration | None, data: Iterable[int]) -> Configuration | None:
        """`step` over every byte of `data`; None as soon as one is undefined."""
        for byte in data:
            if config is None:
                return None
            config = self.step(config, byte)
        return config

    def live(self, config: Configuration) -> list[int]:
        """The bytes on which `step` is defined, ascending."""
        return [byte for byte in range(256) if self.step(config, byte) is not None]

    def accepts(self, config: Configuration) -> bool:
        """Whether the text read so far is complete."""
        state, stack = config.state, list(config.stack)
        while self._label[state] >= 0:
            if not stack:
                return True
            state = self._resumed(stack.pop(), state)
            if state == DEAD:
                return False
        return False

    def edge(self, state: int, byte: int) -> int:
        """The edge of `state` on `byte`, built if need be."""
        edge = int(self._delta[state, self._byte_class[byte]])
        if edge == UNBUILT:
            self.build(state)
            edge = int(self._delta[state, self._byte_class[byte]])
        return edge

    def row(self, state: int) -> Int32:
        """The edges of `state`, one a byte class (int32[K], a view), built if need be."""
        self.build(state)
        return self._delta[state, : self.num_classes]

    def label(self, state: int) -> int:
        """The accept label of `state`, or -1."""
        return int(self._label[state])

    def is_final(self, state: int) -> bool:
        """Whether `state` accepts and has no successor."""
        return bool(self._flags[state] & FINAL)

    def bounds(self, state: int) -> tuple[int, int, int]:
        """Counter effect (0, `RESET`, `COUNT`) and closed interval of `state`."""
        return int(self._flags[state]) & (RESET | COUNT), int(self._lo[state]), int(self._hi[state])

    def resume_targets(self, symbol: int) -> tuple[int, ...]:
        """Where return symbol `symbol` continues, by label; states or `DEAD`."""
        begin = self._resume_start[symbol]
        end = self._resume_start[symbol + 1] if symbol + 1 < len(self._resume_start) else len(self._resume)
        return tuple(self._resume[i] for i in range(begin, end))

    # ------------------------------------------------------------------------------------------------- views

    @property
    def num_symbols(self) -> int:
        """Return symbols R."""
        return len(self._resumes)

    @property
    def num_actions(self) -> int:
        """Distinct edges that push."""
        return len(self._actions)

    @property
    def byte_class(self) -> UInt8:
        """uint8[256]: the class of each byte."""
        return self._byte_class

    @property
    def nbytes(self) -> int:
        """Bytes of `export`: what the machine takes where it is not built any more."""
        return sum(array.nbytes for array in self.export())

    def export(self) -> Tables:
        """The arrays as a device keeps them: exact sizes, each in the narrowest type that holds it.

        ``delta`` is int16 below 2^15 states and actions; the counter's intervals are empty where no state has one.
        Rows that are not built yet are `UNBUILT` in it.
        """
        n, k = self.num_states, self.num_classes
        lists = (self._action_target, self._action_start, self._action_symbols, self._resume_start, self._resume)
        bounded = bool((self._lo[:n] != 0).any() or (self._hi[:n] != UNBOUNDED).any())
        none = np.zeros(0, np.int32)
        return Tables(
            self._byte_class,
            narrow(self._delta[:n, :k]),
            narrow(self._label[:n]),
            self._flags[:n].copy(),
            self._lo[:n].copy() if bounded else none,
            self._hi[:n].copy() if bounded else none,
            *[narrow(values.array[: len(values)]) for values in lists],
        )

    def tables(self) -> Tables:
        """The arrays for the kernels. They see rows built later; ask again when `generation` has changed."""
        lists = (self._action_target, self._action_start, self._action_symbols, self._resume_start, self._resume)
        key = (self.generation, *(values.generation for values in lists))
        if self._tables is None or self._tables_key != key:
            arrays = [values.array for values in lists]
            self._tables = Tables(self._byte_class, self._delta, self._label, self._flags, self._lo, self._hi, *arrays)
            self._tables_key = key
        return self._tables

    # ------------------------------------------------------------------------------------------------- inside

    def _counted(self, state: int, counter: int) -> int | None:
        """The counter after entering `state`, or None if the entry is not allowed."""
        flags = self._flags[state]
        if flags & RESET:
            counter = 0
        elif flags & COUNT:
            counter += 1
        return counter if self._lo[state] <= counter <= self._hi[state] else None

    def _resumed(self, symbol: int, state: int) -> int:
        return self._resume[self._resume_start[symbol] + int(self._label[state])]

    def _reserve(self, count: int) -> int:
        """Room for `count` more states; returns the first."""
        first, needed = self.num_states, self.num_states + count
        if needed > self.max_states:
            raise TooLarge(
                "states", given=needed, limit=self.max_states, advice="simplify the schema or raise max_states"
            )
        capacity = len(self._label)
        if needed > capacity:
            grown = max(needed, 2 * capacity)
            self._delta = grow(self._delta, (grown, self._delta.shape[1]), UNBUILT)
            self._label = grow(self._label, (grown,), -1)
            self._flags = grow(self._flags, (grown,), 0)
            self._lo = grow(self._lo, (grown,), 0)
            self._hi = grow(self._hi, (grown,), UNBOUNDED)
            self.generation += 1
        self.num_states = needed
        return first

    def _refine(self, partition: NDArray[np.int64]) -> None:
        """Split classes until each lies inside one part of `partition` (int64[256], part numbers < 512)."""
        pairs = self._byte_class.astype(np.int64) * 512 + partition
        groups, inverse = np.unique(pairs, return_inverse=True)
        if len(groups) == self.num_classes:
            return
        seen: set[int] = set()
        parts: list[tuple[int, Sequence[int]]] = []
        for index, pair in enumerate(groups.tolist()):
            old = pair // 512
            if old in seen:
                parts.append((old, np.flatnonzero(inverse == index).tolist()))
            seen.add(old)
        self._add_classes(parts)

    def _add_classes(self, parts: Sequence[tuple[int, Sequence[int]]]) -> None:
        """For each (class, some of its bytes, not all): move these to a new class whose column is a copy."""
        first, count = self.num_classes, self.num_classes + len(parts)
        if count > self._delta.shape[1]:
            grown = np.full((len(self._label), min(256, max(count, 2 * first))), UNBUILT, np.int32)
            grown[:, :first] = self._delta[:, :first]
            # columns not in use follow the row, so that every entry of a row is UNBUILT or none is
            grown[: self.num_states, first:] = np.where(self._delta[: self.num_states, :1] == UNBUILT, UNBUILT, DEAD)
            self._delta = grown
        self._delta[: self.num_states, first:count] = self._delta[: self.num_states, [old for old, _ in parts]]
        self._byte_class = self._byte_class.copy()
        for new, (old, members) in enumerate(parts, first):
            self._byte_class[list(members)] = new
            self._members[old] -= len(members)
            self._members[new] = len(members)
        self.num_classes = count
        self.generation += 1
