"""The walk by plain operations of mlx, on any of its devices: level by level, by gathers.

As `stcon.kernels.torch` has it, but for what mlx does not have: no boolean indexing, so which nodes live is read by the
host after each level and the nodes themselves are its numpy arrays. On unified memory that is no copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from stcon.grammar.machine import ACTION, CONFIG_WORDS, COUNT, DEAD, FINAL, RESET, STACK_CAP, UNBUILT

if TYPE_CHECKING:
    from stcon.grammar.machine import Machine
    from stcon.kernels.levels import Levels

Array = Any  # of mlx, which has no types
Int32 = NDArray[np.int32]
FRAMES = STACK_CAP + 1  # arena entries of a row's own stack; the first is the empty stack


class MissingRows(Exception):
    """States whose rows of edges are not built and were met."""

    def __init__(self, states: list[int]) -> None:
        super().__init__(states)
        self.states = states


class Tables:
    """A machine's tables as mlx arrays, as they are now. Hold the machine's lock."""

    def __init__(self, machine: Machine) -> None:
        tables, n, k = machine.tables(), machine.num_states, machine.num_classes
        self.num_classes, self.num_symbols = k, machine.num_symbols
        self.byte_class = _array(tables.byte_class)
        self.delta = _array(tables.delta[:n, :k].reshape(-1))
        self.label, self.flags = _array(tables.label[:n]), _array(tables.flags[:n])
        self.lo, self.hi = _array(tables.counter_lo[:n]), _array(tables.counter_hi[:n])
        self.action_target, self.action_start = _array(tables.action_target), _array(tables.action_start)
        self.action_symbols = _array(tables.action_symbols)
        self.resume_start, self.resume = _array(tables.resume_start), _array(tables.resume)


@dataclass
class Readers:
    """Configurations that are read on side by side, one an element of each int32[n].

    Attributes:
        state, counter, height: its configuration; `height` symbols on its stack.
        top: the arena entry of the top symbol.
        symbol, below: the arena: a push adds entries, a pop is a gather.
    """

    state: Array
    counter: Array
    height: Array
    top: Array
    symbol: Array
    below: Array

    @classmethod
    def at(cls, configs: Int32) -> Readers:
        """One for each of `configs` (int32[n, CONFIG_WORDS])."""
        count = len(configs)
        symbol = np.zeros((count, FRAMES), np.int32)
        symbol[:, 1:] = configs[:, 3:]
        top = np.arange(count) * FRAMES + configs[:, 1]
        parts = (configs[:, 0], configs[:, 2], configs[:, 1], top, symbol.reshape(-1), np.arange(count * FRAMES) - 1)
        return cls(*map(_array, parts))

    def select(self, index: NDArray[np.int64]) -> Readers:
        """Those at `index`, on the same arena."""
        where = _array(index)
        parts = (self.state[where], self.counter[where], self.height[where], self.top[where])
        return Readers(*parts, self.symbol, self.below)

    def read(self, tables: Tables, byte: Array) -> Array:
        """Read one byte each (int32[n]); bool[n], where the step is defined. Raises `MissingRows`.

        Source: `Machine.step`, its three parts in order.
        """
        k = tables.byte_class[byte]
        edge = tables.delta[self.state * tables.num_classes + k]
        alive = mx.ones(edge.shape, mx.bool_)
        while is_any(returning := alive & (edge == DEAD)):
            alive = alive & (~returning | ((tables.label[self.state] >= 0) & (self.height > 0)))
            alive = alive & self._return(tables, returning & alive)
            edge = mx.where(returning & alive, tables.delta[self.state * tables.num_classes + k], edge)
        if is_any(unbuilt := alive & (edge == UNBUILT)):
            raise MissingRows(np.unique(np.array(self.state)[np.array(unbuilt)]).tolist())
        alive = alive & self._push(tables, mx.where(alive, edge, 0))
        alive = alive & self._enter(tables, alive)
        while is_any(ended := alive & (tables.flags[self.state] & FINAL != 0) & (self.height > 0)):
            alive = alive & self._return(tables, ended)
        return alive

    def accepts(self, tables: Tables) -> Array:
        """bool[n]: `Machine.accepts`. Uses the stacks up."""
        going = tables.label[self.state] >= 0
        done = going & (self.height == 0)
        while is_any(going := going & (self.height > 0)):
            resumed = self._pop(tables, going)
            going = going & (resumed != DEAD)
            self.state = mx.where(going, resumed, self.state)
            going = going & (tables.label[self.state] >= 0)
            done = done | (going & (self.height == 0))
        return done

    def pack(self) -> Int32:
        """int32[n, CONFIG_WORDS], the inverse of `at`."""
        state, height, counter, top, symbol, below = map(
            np.array, (self.state, self.height, self.counter, self.top, self.symbol, self.below)
        )
        out = np.zeros((len(state), CONFIG_WORDS), np.int32)
        out[:, 0], out[:, 1], out[:, 2] = state, height, counter
        for row in range(len(state)):
            entry = top[row]
            for place in range(height[row] - 1, -1, -1):
                out[row, 3 + place] = symbol[entry]
                entry = below[entry]
        return out

    def _pop(self, tables: Tables, where: Array) -> Array:
        """Take the top symbol off `where`; where it continues."""
        start = tables.resume_start[mx.where(where, self.symbol[self.top], 0)]
        place = mx.where(where, start + tables.label[self.state], 0)
        self.top = mx.where(where, self.below[self.top], self.top)
        self.height = self.height - where.astype(mx.int32)
        return tables.resume[place]

    def _return(self, tables: Tables, where: Array) -> Array:
        """Pop and enter; bool[n], False where that is not allowed."""
        if not tables.num_symbols:
            return ~where
        resumed = self._pop(tables, where)
        entered = where & (resumed != DEAD)
        self.state = mx.where(entered, resumed, self.state)
        return ~where | (entered & self._enter(tables, entered))

    def _enter(self, tables: Tables, where: Array) -> Array:
        """Count on entering the present state, then test; bool[n], True outside `where`."""
        flags = tables.flags[self.state]
        counted = mx.where(flags & RESET != 0, 0, self.counter + (flags & COUNT != 0).astype(mx.int32))
        self.counter = mx.where(where, counted, self.counter)
        return ~where | ((tables.lo[self.state] <= self.counter) & (self.counter <= tables.hi[self.state]))

    def _push(self, tables: Tables, edge: Array) -> Array:
        """Take `edge`: push its symbols and move to its target; False past the cap."""
        is_action = edge <= ACTION
        if not is_any(is_action):
            self.state = edge
            return mx.ones(edge.shape, mx.bool_)
        action = mx.where(is_action, ACTION - edge, 0)
        begin = tables.action_start[action]
        count = mx.where(is_action, tables.action_start[action + 1] - begin, 0)
        fits = self.height + count <= STACK_CAP
        for i in range(int(np.array(count).max())):
            pushed = np.flatnonzero(np.array(fits & (i < count)))
            if not len(pushed):
                break
            where = _array(pushed)
            entries = _array(self.symbol.size + np.arange(len(pushed)))
            self.symbol = mx.concatenate([self.symbol, tables.action_symbols[begin[where] + i]])
            self.below = mx.concatenate([self.below, self.top[where]])
            self.top = mx.put_along_axis(self.top, where, entries, axis=0)
        self.height = self.height + mx.where(fits, count, 0)
        self.state = mx.where(is_action, tables.action_target[action], edge)
        return fits


def walk(tables: Tables, trie: Levels, configs: Int32, size: int) -> NDArray[np.bool_]:
    """bool[n, size]: the tokens of `trie` whose bytes can be read from each of `configs` (int32[n, CONFIG_WORDS]).

    Raises:
        MissingRows: rows of edges have to be built first.
    """
    allowed = np.zeros((len(configs), size), np.bool_)
    row = np.repeat(np.arange(len(configs)), trie.num_roots)
    node = np.tile(np.arange(trie.num_roots), len(configs))
    readers = Readers.at(configs)
    owner = row
    while len(node):
        readers = readers.select(owner)
        alive = np.flatnonzero(np.array(readers.read(tables, _array(trie.byte[node]))))
        row, node = row[alive], node[alive]
        of, token = spread(trie.token[node], trie.num_tokens[node])
        allowed[row[of], trie.tokens[token]] = True
        of, node = spread(trie.child[node], trie.num_children[node])
        row, owner = row[of], alive[of]
    return allowed


def spread(first: NDArray[np.int64], count: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For ranges ``first[i] … first[i] + count[i] − 1``: the number i and the member, range after range."""
    owner = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    return owner, first[owner] + within


def is_any(mask: Array) -> bool:
    """Whether one of bool[n] is set. Waits for the device."""
    return bool(mask.any().item())


def _array(values: NDArray[Any]) -> Array:
    return mx.array(np.ascontiguousarray(values).astype(np.int32))
