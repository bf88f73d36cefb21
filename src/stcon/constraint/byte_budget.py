"""Budgets of grammars that are not deterministic (`stcon.grammar.cfg.stacks`): bytes in place of tokens.

Each byte of a completion can be a token of its own, so a text that b bytes complete is completed by at most b tokens:
what is admitted under this bound can be completed within the limit. It may refuse what longer tokens would complete,
which `Budget` knows for deterministic machines.

Source: the paper's Proposition 2.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon._numba import njit
from stcon.constraint.budget import Budget, bits
from stcon.errors import Unsupported
from stcon.grammar.cfg.stacks import UNREACHABLE, StackSetMachine
from stcon.grammar.machine import DEAD, UNBUILT

if TYPE_CHECKING:
    from stcon.kernels.cpu import CpuKernel

Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]

_DONE, _NEEDS_ROW, _NEEDS_COST = range(3)
_UNKNOWN = -1


class ByteBudget(Budget):
    """What fits into so many tokens, where each byte may take one.

    Args:
        kernel: of a `StackSetMachine`.

    Raises:
        Unsupported: the vocabulary lacks a token for a byte that the grammar reads.
    """

    def __init__(self, kernel: CpuKernel) -> None:
        machine = kernel.machine
        assert isinstance(machine, StackSetMachine), "the other machines have exact budgets"
        self.machine, self.vocabulary, self._lock = machine, kernel.vocabulary, kernel.lock
        self._stacks = machine
        missing = self.vocabulary.missing_bytes & machine.bytes_read()
        if missing:
            raise Unsupported(
                f"a limit of tokens with a vocabulary that has no token for byte {min(missing):#04x}",
                advice="decode without a budget",
            )
        self.end_words = bits(self.vocabulary.num_words, self.vocabulary.end_ids)
        self._costs = np.full(64, _UNKNOWN, np.int32)

    def need(self, config: Int32) -> int | None:
        """Bytes of a shortest completion; None where none was found."""
        with self._lock:
            cost = self._cost(int(config[0]))
        return None if cost >= UNREACHABLE else cost

    def worst(self, config: Int32) -> int:
        """A number of tokens that is always enough to choose any next token and complete the text."""
        with self._lock:
            enough = self._stacks.enough_bytes(int(config[0]))
            # a token of n bytes raises what is enough n times
            return sys.maxsize if enough is None else enough * (1 + self.vocabulary.longest)

    def most(self, depth: int) -> int:
        """As `Budget.most`. Which stacks a configuration has its depth does not tell, so no number is always enough."""
        return sys.maxsize

    def restrict(self, config: Int32, remaining: int, out: Int32) -> bool:
        """As `Budget.restrict`."""
        if remaining >= self.worst(config):
            return False
        before = out.copy()
        if remaining <= 0:
            out[:] = 0
        else:
            with self._lock:
                self._walk(int(config[0]), remaining - 1, out)
        return bool((before != out).any())

    def _walk(self, state: int, limit: int, out: Int32) -> None:
        vocabulary = self.vocabulary
        path = np.zeros(vocabulary.longest + 1, np.int32)
        path[0] = state
        place = 0
        while True:
            tables = self.machine.tables()
            if len(self._costs) < len(tables.label):
                grown = np.full(len(tables.label), _UNKNOWN, np.int32)
                grown[: len(self._costs)] = self._costs
                self._costs = grown
            place, status, missing = _restrict(
                tables.byte_class, tables.delta, vocabulary.data, vocabulary.offsets, vocabulary.order,
                self._costs, path, place, limit, out,
            )  # fmt: skip
            if status == _DONE:
                return
            if status == _NEEDS_ROW:
                self.machine.build(missing)
            else:
                self._cost(missing)

    def _cost(self, state: int) -> int:
        needed = self._stacks.needed_bytes(state)
        cost = UNREACHABLE if needed is None else needed
        if state < len(self._costs):
            self._costs[state] = cost
        return cost


@njit
def _restrict(
    byte_class: UInt8,
    delta: Int32,
    data: UInt8,
    offsets: Int32,
    order: Int32,
    costs: Int32,
    path: Int32,
    place: int,
    limit: int,
    out: Int32,
) -> tuple[int, int, int]:
    """Take the tokens of `out` behind which more than `limit` bytes are needed, from place `place` of the order on.

    Tokens are in the order of their bytes: `path` holds the states along the last one.

    Returns:
        The place reached, why, and the state whose row or cost is missing.
    """
    known = 0
    while place < len(order):
        token = order[place]
        if not out[token >> 5] >> (token & 31) & 1:
            place += 1
            known = 0
            continue
        begin, end = offsets[place], offsets[place + 1]
        at = known if place > 0 else 0
        if at > 0:
            earlier, size = offsets[place - 1], offsets[place] - offsets[place - 1]
            common = 0
            while common < size and common < end - begin and data[earlier + common] == data[begin + common]:
                common += 1
            at = min(at, common)
        while at < end - begin:
            target = delta[path[at], byte_class[data[begin + at]]]
            if target == UNBUILT:
                return place, _NEEDS_ROW, path[at]
            if target == DEAD:
                break
            at += 1
            path[at] = target
        known = at
        cost = costs[path[at]]
        if cost == _UNKNOWN:
            return place, _NEEDS_COST, path[at]
        if cost > limit:
            out[token >> 5] &= ~np.int32(1 << (token & 31))
        place += 1
    return place, _DONE, 0
