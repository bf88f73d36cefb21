"""The budget mask M_r: which tokens leave a way to complete the text within r tokens. See ``docs/budgets.md``.

`Budget` answers for one grammar and vocabulary; it is shared and keeps nothing of a stream. Its table is built when it
is first asked for (`NeedTable`).

**Cost.** `worst` says how many tokens are always enough from a configuration: above it nothing is masked, at the price
of a sum along the stack. Below it a mask is one walk over the live part of the vocabulary's trie.

Source: the paper's Theorem 21 and Section C.5; Theorem B1 of ``docs/budgets.md`` for pushdowns.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.need import NeedTable
from stcon.grammar.cfg.stacks import StackSetMachine
from stcon.grammar.machine import COUNT, DEAD, STACK_CAP, Machine
from stcon.kernels import plain, within
from stcon.kernels.minplus import INF, UNKNOWN

if TYPE_CHECKING:
    from stcon.kernels.cpu import CpuKernel

Int32 = NDArray[np.int32]

MAX_FRAMES = 1_024


class Budget:
    """What fits into so many tokens, for one kernel's machine and vocabulary.

    Args:
        kernel: its lock is held while the table is built or asked.

    Attributes:
        table: what it is answered from; has `NeedTable.build_s` and `NeedTable.nbytes`.
        end_words: int32[W], the end tokens.

    Raises:
        TooLarge: the machine, or its table, is past its limits.
        GrammarError: whatever building a row raises.
    """

    def __init__(self, kernel: CpuKernel) -> None:
        self.machine, self.vocabulary, self._lock = kernel.machine, kernel.vocabulary, kernel.lock
        with self._lock:
            self.table = NeedTable(self.machine, self.vocabulary)
            self._walker = self.table.walker
            flags = self.machine.tables().flags
            self._counts = (flags & COUNT != 0).astype(np.int32)
            self._out = np.zeros(self.vocabulary.num_words, np.int32)
            self.end_words = bits(self.vocabulary.num_words, self.vocabulary.end_ids)
            # where a byte that the machine reads is no token, a text may be begun that no tokens end
            missing = _live_bytes(self.machine) & self.vocabulary.missing_bytes
            self._may_be_stuck = bool(missing) or self.table.has_dead_end()
            self._reset_frames()

    @property
    def start(self) -> int | None:
        """Fewest tokens of a whole text, its end token not counted; None if no tokens spell one."""
        return self.need(self.machine.initial().pack())

    def need(self, config: Int32) -> int | None:
        """Fewest tokens from `config` to a complete text (0: it is one); None if there is no way under the stack's cap.

        Cost: O(exits), and O(exits²) for each frame of the stack not met before.
        """
        with self._lock:
            frame = self._frame(config)
            needed = self._needed(config, frame)
            if needed == UNKNOWN:
                self.table.prepare(config)
                self._reset_frames()
                needed = self._needed(config, self._frame(config))
        return None if needed >= INF else needed

    def worst(self, config: Int32) -> int:
        """A number of tokens that is always enough to choose any next token at `config` and complete the text.

        That there is such a number rests on the machine being trim, as compiled grammars are.

        Cost: O(stack).
        """
        if self._may_be_stuck or int(config[1]) + self._worst_height > STACK_CAP:
            return sys.maxsize
        return self._worst_place + int(self._worst_symbol[config[3 : 3 + int(config[1])]].sum())

    def most(self, depth: int) -> int:
        """A number that is at least `worst` of every configuration with a stack of `depth`. Cost: O(1)."""
        if self._may_be_stuck or depth + self._worst_height > STACK_CAP:
            return sys.maxsize
        return self._worst_place + depth * self._largest_symbol

    def restrict(self, config: Int32, remaining: int, out: Int32) -> bool:
        """Take from a mask at `config` (int32[W]) the tokens after which no text is completed within `remaining`.

        End tokens stay if one token remains.

        Returns:
            Whether any was taken.
        """
        if remaining >= self.worst(config):
            return False
        if remaining <= 0:
            taken = bool(out.any())
            out[:] = 0
            return taken
        with self._lock:
            self.need(config)  # makes known what may follow on this stack
            allowed = self._within(config, remaining - 1)
            allowed |= self.end_words
            taken = bool((out & ~allowed).any())
            out &= allowed
        return taken

    # ------------------------------------------------------------------------------------------------- inside

    def _within(self, config: Int32, limit: int) -> Int32:
        out, walker = self._out, self._walker
        while True:
            frame = self._frame(config)
            out[:] = 0
            run = walker.run(config)
            in_rest = run != plain.MIXED
            if in_rest and run:
                self._add_plain(config, frame, run, limit)
            status = within.walk_within(
                walker.arrays, walker.tries[in_rest], self._points, self.table.value, self.table.follow, self._links,
                self._vectors, self._count, config, frame, limit, walker.frames, walker.nodes, self._held, walker.seen,
                out,
            )  # fmt: skip
            if status != within.NO_ROOM:
                return out
            self._reset_frames(room=2 * len(self._links))

    def _add_plain(self, config: Int32, frame: int, run: int, limit: int) -> None:
        tokens = self._walker.plain
        fits = np.zeros(tokens.longest + 1, np.bool_)
        within.plain_lengths_within(
            self._points, self.table.value, self._links, self._vectors, self._walker.following, self._counts,
            int(config[0]), int(config[2]), frame, run, limit, fits,
        )  # fmt: skip
        edges = np.flatnonzero(np.diff(fits.astype(np.int8), append=0))
        for before, last in zip(edges[::2], edges[1::2], strict=True):
            longer, shorter = tokens.row_of_run[last], tokens.row_of_run[before]
            self._out |= tokens.words[longer] & ~tokens.words[shorter]

    def _frame(self, config: Int32) -> int:
        table = self.table
        while True:
            frame = within.frame_of(table.value, table.follow, self._links, self._vectors, self._count, config)
            if frame != within.NO_ROOM:
                return int(frame)
            self._reset_frames(room=2 * len(self._links))

    def _needed(self, config: Int32, frame: int) -> int:
        state, counter = int(config[0]), int(config[2])
        return int(within.needed(self._points, self.table.value, self._links, self._vectors, state, counter, frame))

    def _reset_frames(self, room: int = 64) -> None:
        """Forget all frames; there is room for `room`, `MAX_FRAMES` at most unless one stack needs more."""
        table = self.table
        room = min(room, MAX_FRAMES)
        self._links = np.full((room, within.LINK_WORDS), -1, np.int32)
        self._links[0, within.HEIGHT] = self._links[0, within.BELOW] = 0
        self._vectors = np.zeros((room, table.num_exits), np.int32)
        self._vectors[0] = table.bottom
        self._count = np.ones(1, np.int64)
        self._held = np.zeros(len(self._walker.nodes), np.int32)
        counters = table.counters
        self._points = (table.base, counters.from_low, counters.representative, counters.top)
        self._worst_place, self._worst_height, self._worst_symbol = table.worst_costs()
        self._largest_symbol = int(self._worst_symbol.max(initial=0))


def _live_bytes(machine: Machine) -> frozenset[int]:
    """Every byte that some state reads."""
    live = np.zeros(machine.num_classes, np.bool_)
    for state in range(machine.num_states):
        live |= machine.row(state) != DEAD
    return frozenset(np.flatnonzero(live[machine.byte_class]).tolist())


def bits(num_words: int, tokens: Sequence[int]) -> Int32:
    """int32[W]: a mask of `tokens`."""
    octets = np.zeros(32 * num_words, np.uint8)
    octets[list(tokens)] = 1
    packed: Int32 = np.packbits(octets, bitorder="little").view(np.int32)
    return packed


def _budget(kernel: CpuKernel) -> Budget:
    if isinstance(kernel.machine, StackSetMachine):
        from stcon.constraint.byte_budget import ByteBudget

        return ByteBudget(kernel)
    return Budget(kernel)


_budgets: weakref.WeakKeyDictionary[CpuKernel, Budget] = weakref.WeakKeyDictionary()
_lock = Lock()


def budget_bytes(kernel: CpuKernel) -> int:
    """Bytes of the tables of `kernel`'s budget as far as they are built."""
    with _lock:
        budget = _budgets.get(kernel)
    table = getattr(budget, "table", None)
    return 0 if table is None else int(table.nbytes)


def budget_for(kernel: CpuKernel) -> Budget:
    """The budget of `kernel`, shared by all that ask, as long as the kernel lives."""
    with _lock:
        budget = _budgets.get(kernel)
    if budget is None:
        with kernel.lock:  # held while a table is built: who comes meanwhile finds it
            with _lock:
                budget = _budgets.get(kernel)
            if budget is None:
                budget = _budget(kernel)
                with _lock:
                    _budgets[kernel] = budget
    return budget
