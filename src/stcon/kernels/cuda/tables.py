"""A machine's tables as the device keeps them (``source/machine.cuh``, struct ``Grammar``), in one block of bytes.

Two things differ from `Machine.export`. An edge to a state with something to do on entry (a counter, bounds, `FINAL`)
becomes an action that pushes nothing, so that a plain edge needs no second look. And every state says where it takes
plain characters (`stcon.kernels.plain`), so that free text is decided by its length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit
from stcon.errors import InvalidOption, TooLarge
from stcon.grammar.machine import ACTION, COUNT, DEAD, FINAL, RESET, UNBOUNDED, UNBUILT, Machine
from stcon.kernels import plain
from stcon.kernels.stepping import Arrays

Array = NDArray[np.generic]
Int32 = NDArray[np.int32]

TEXT, BOUNDED, FREE = 8, 16, 32
MIXED = -2
# columns of ``struct Action``
TARGET, BEGIN, END, ENTRY = range(4)
ACTION_WORDS = 8

ALIGNMENT = 16
NARROW = 2**15

# the pointers of `struct Grammar`, in its order; four int32 follow
FIELDS = (
    "byte_class",
    "live",
    "first_edge",
    "edges",
    "label",
    "plain",
    "flags",
    "bound",
    "bounds",
    "actions",
    "symbols",
    "resume_start",
    "resume",
    "need",
)
STRUCT_WORDS = len(FIELDS) + 2


class DeviceTables(NamedTuple):
    """One machine, packed.

    Attributes:
        data: uint8[], the arrays one after the other, each aligned.
        offsets: where each of `FIELDS` begins in it; -1: null.
        num_classes: K.
        is_wide: whether edges, labels and ``plain`` are int32, not int16.
    """

    data: NDArray[np.uint8]
    offsets: tuple[int, ...]
    num_classes: int
    is_wide: bool

    def struct(self, address: int) -> NDArray[np.int64]:
        """int64[STRUCT_WORDS]: ``struct Grammar`` for data at `address`."""
        pointers = [0 if offset < 0 else address + offset for offset in self.offsets]
        live_words = -(-self.num_classes // 64)
        numbers = np.array([self.num_classes, live_words, self.is_wide, len(self.data)], np.int32)
        return np.concatenate([np.array(pointers, np.int64), numbers.view(np.int64)])


class _States(NamedTuple):
    """Of each state: its flags, where plain characters lead, and which of the distinct bounds it has."""

    flags: NDArray[np.uint8]
    plain: Int32
    bounds: Int32
    bound: Int32


class TableBuilder:
    """Tables of one machine, which may grow in between.

    Args:
        machine: the machine.
        need: int32[Q], fewest tokens from each state to an accepted text (`UNBOUNDED`: none), for machines without
            calls and bounds that are built whole; None: budgets are the host's.

    Cost of `build`: O(Q·K), vectorised; and once a state, a look at where plain characters lead.
    """

    def __init__(self, machine: Machine, need: Int32 | None = None) -> None:
        if need is not None and not _is_automaton(machine, len(need)):
            raise InvalidOption("a need table has a number for each state of a machine without calls and bounds")
        self.machine = machine
        self.need = need
        self._memo = plain.new_memo(0)

    def build(self) -> DeviceTables:
        """The tables as they are now. Hold the machine's lock."""
        machine = self.machine
        tables, n = machine.tables(), machine.num_states
        states = self._states()
        delta, actions = _simple_edges(machine)
        live, first_edge, edges = _sparse(delta)
        targets = actions[:, TARGET]
        actions[:, ENTRY] = states.flags[targets] | tables.label[targets] << 8
        actions[:, ENTRY + 1 :] = states.bounds[states.bound[targets]]
        is_wide = max(n + len(actions), int(tables.label[:n].max(initial=0))) >= NARROW
        width = np.int32 if is_wide else np.int16
        arrays: dict[str, Array | None] = {
            "byte_class": tables.byte_class,
            "live": live,
            "first_edge": first_edge,
            "edges": edges.astype(width),
            "label": tables.label[:n].astype(width),
            "plain": states.plain.astype(width),
            "flags": states.flags,
            "bound": states.bound.astype(width),
            "bounds": states.bounds,
            "actions": actions,
            "symbols": tables.action_symbols[: tables.action_start[machine.num_actions]],
            "resume_start": tables.resume_start[: machine.num_symbols],
            "resume": tables.resume[: _num_resumes(machine)],
            "need": self.need,
        }
        return DeviceTables(*_packed([arrays[name] for name in FIELDS]), machine.num_classes, is_wide)

    def _states(self) -> _States:
        """What is kept of each state beside its edges."""
        tables, n = self.machine.tables(), self.machine.num_states
        lo, hi = tables.counter_lo[:n], tables.counter_hi[:n]
        memo = self._classified(tuple(tables), n)
        following = np.where(memo[:, plain.NEXT] >= plain.NEXT_DEAD, memo[:, plain.NEXT], MIXED).astype(np.int32)
        inside_lo = np.where(following >= 0, memo[:, plain.INSIDE_LOW], 0)
        inside_hi = np.where(following >= 0, memo[:, plain.INSIDE_HIGH], UNBOUNDED)
        is_text = following == np.arange(n)
        is_bounded = (lo != 0) | (hi != UNBOUNDED)
        is_free = is_text & ~is_bounded & (inside_lo <= 0) & (inside_hi == UNBOUNDED)
        flags = tables.flags[:n] | (is_text * TEXT | is_bounded * BOUNDED | is_free * FREE).astype(np.uint8)
        every = np.stack([lo, hi, inside_lo, inside_hi], axis=1)
        bounds, bound = np.unique(every, axis=0, return_inverse=True)
        return _States(flags, following, bounds.astype(np.int32), bound.reshape(-1).astype(np.int32))

    def _classified(self, arrays: Arrays, num_states: int) -> Int32:
        """The memo of `plain` for every state whose rows tell; grown with the machine."""
        if len(self._memo) < len(arrays[2]):
            self._memo = plain.new_memo(len(arrays[2]), self._memo)
        classify_all(arrays, self._memo, num_states)
        return self._memo[:num_states]


def _is_automaton(machine: Machine, num_states: int) -> bool:
    """Whether the state alone tells what may follow, and there are `num_states`, all built."""
    tables, n = machine.tables(), machine.num_states
    is_bounded = (tables.counter_lo[:n] != 0).any() or (tables.counter_hi[:n] != UNBOUNDED).any()
    is_built = (tables.delta[:n, 0] != UNBUILT).all()
    return bool(n == num_states and is_built and not is_bounded and not machine.num_actions)


def _simple_edges(machine: Machine) -> tuple[Int32, Int32]:
    """delta[Q, K] with an action wherever more than a jump is needed, and ``struct Action`` of each, less its entry."""
    tables, n, k = machine.tables(), machine.num_states, machine.num_classes
    delta = tables.delta[:n, :k].copy()
    simple = (tables.flags[:n] & (FINAL | RESET | COUNT) == 0) & (tables.counter_lo[:n] == 0)
    simple &= tables.counter_hi[:n] == UNBOUNDED
    jumps = np.where(delta >= 0, delta, 0)
    entered = (delta >= 0) & ~simple[jumps]
    targets = np.unique(jumps[entered])
    number = np.zeros(n, np.int32)
    number[targets] = machine.num_actions + np.arange(len(targets))
    delta[entered] = ACTION - number[jumps[entered]]
    old = machine.num_actions
    actions = np.zeros((old + len(targets), ACTION_WORDS), np.int32)
    actions[:, TARGET] = np.concatenate([tables.action_target[:old], targets])
    actions[:old, BEGIN] = tables.action_start[:old]
    actions[:old, END] = tables.action_start[1 : old + 1]
    return delta, actions


def _sparse(delta: Int32) -> tuple[NDArray[np.uint64], Int32, Int32]:
    """The live edges of delta[Q, K]: bits [Q, ceil(K / 64)] of their classes, where each row's begin, and the edges."""
    num_states, num_classes = delta.shape
    is_live = delta != DEAD
    unbuilt = (delta == UNBUILT).any(axis=1)
    is_live[unbuilt] = False
    padded = np.zeros((num_states, -(-num_classes // 64) * 64), np.uint8)
    padded[:, :num_classes] = is_live
    bits = np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    counts = is_live.sum(axis=1)
    first = (np.cumsum(counts) - counts).astype(np.int32)
    first[unbuilt] = UNBUILT
    return bits, first, delta[is_live]


def _num_resumes(machine: Machine) -> int:
    """Entries of ``resume``."""
    if not machine.num_symbols:
        return 0
    last = machine.num_symbols - 1
    return int(machine.tables().resume_start[last]) + len(machine.resume_targets(last))


def _packed(arrays: list[Array | None]) -> tuple[NDArray[np.uint8], tuple[int, ...]]:
    """The arrays in one block, each aligned, and where each begins."""
    offsets, end = [], 0
    for array in arrays:
        offsets.append(-1 if array is None else end)
        end += 0 if array is None else -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    if end >= 2**31:
        raise TooLarge("bytes of a grammar on the device", given=end, limit=2**31 - 1)
    data = np.zeros(end, np.uint8)
    for array, offset in zip(arrays, offsets, strict=True):
        if array is not None:
            data[offset : offset + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return data, tuple(offsets)


@njit
def classify_all(arrays: Arrays, memo: Int32, num_states: int) -> None:
    """`plain.classify` for every state not known yet, where no row is missing for it."""
    delta = arrays[1]
    for state in range(num_states):
        if memo[state, plain.NEXT] == plain.NEXT_UNKNOWN and delta[state, 0] != UNBUILT:
            plain.classify(arrays, memo, state)
