"""Explored frames to a `Machine`."""

from __future__ import annotations

import numpy as np

from stcon.grammar.cfg.frames import Edge, Frames
from stcon.grammar.cfg.stacks import bytes_of
from stcon.grammar.machine import DEAD, Int32, Machine


def emit(frames: Frames, embedded: list[Machine], max_states: int) -> Machine:
    """The machine whose states are those of `frames`, and those of the embedded machines.

    Raises:
        TooLarge: more than `max_states`.
    """
    return _Emitter(frames, embedded, Machine(max_states=max_states)).run()


class _Emitter:
    def __init__(self, frames: Frames, embedded: list[Machine], machine: Machine) -> None:
        self.frames = frames
        self.embedded = embedded
        self.machine = machine
        self.number: dict[int, int] = {}
        self.symbols: dict[int, int] = {}
        self.copied: dict[int, dict[int, int]] = {}
        self.base: dict[int, int] = {}

    def run(self) -> Machine:
        frames, machine = self.frames, self.machine
        states = [state for state in frames.reachable if state not in frames.embeds]
        rows = {state: frames.row(state) for state in states}
        for state, row in rows.items():
            label = frames.labels[state]
            self.number[state] = machine.new_state(label=label, final=label >= 0 and not row)
        for index in sorted(set(frames.embeds.values())):
            self._copy(index)
        for state, row in rows.items():
            if row or frames.labels[state] < 0:
                machine.set_row(self.number[state], self._row(row))
        machine.start = self.number[frames.start]
        return machine

    def _row(self, row: list[tuple[int, Edge]]) -> Int32:
        edges = np.full(256, DEAD, np.int32)
        for mask, (target, pushes) in row:
            members = bytes_of(mask)
            symbols = [self._symbol(symbol) for symbol in pushes]
            if target in self.frames.embeds:
                for byte in members:
                    edges[byte] = self._embedded_edge(self.frames.embeds[target], byte, symbols)
            else:
                edges[members] = self.machine.action(self.number[target], symbols)
        return edges

    def _symbol(self, symbol: int) -> int:
        found = self.symbols.get(symbol)
        if found is None:
            callee, after = self.frames.symbols[symbol]
            found = self.symbols[symbol] = self.machine.return_symbol(
                [self._target(symbol, label) for label in range(self._num_labels(callee, len(after)))]
            )
        return found

    def _num_labels(self, callee: int, slots: int) -> int:
        if callee in self.frames.lexemes:
            return self.frames.lexer.num_labels(self.frames.lexemes[callee][0])
        if callee in self.frames.embeds:
            machine = self.embedded[self.frames.embeds[callee]]
            return 1 + max(machine.label(state) for state in range(machine.num_states))
        return (1 << slots) - 1

    def _target(self, symbol: int, label: int) -> int:
        """Where a symbol goes on; labels that no frame ends with have no state."""
        return self.number.get(self.frames.resume(symbol, label), DEAD)

    # ------------------------------------------------------------------------------------------------- embedded

    def _copy(self, index: int) -> None:
        """Append an embedded machine, its rows and symbols renumbered.

        Its marks go with its states: collections are told by the depth of the stack, whatever is below them.
        """
        source, machine = self.embedded[index], self.machine
        base = self.base[index] = machine.num_states
        for state in range(source.num_states):
            effect, low, high = source.bounds(state)
            machine.new_state(
                label=source.label(state),
                final=source.is_final(state),
                effect=effect,
                counter_lo=low,
                counter_hi=high,
                mark=source.marks.get(state, 0),
            )
        symbols = self.copied[index] = {}
        for symbol in range(source.num_symbols):
            targets = [DEAD if t == DEAD else t + base for t in source.resume_targets(symbol)]
            # two symbols of the source with equal targets are one here as well
            symbols[symbol] = machine.return_symbol(targets)
        for state in range(source.num_states):
            edges = {
                edge: self._renumbered(index, edge, []) for edge in set(source.row(state).tolist()) if edge != DEAD
            }
            row = np.array([edges.get(edge, DEAD) for edge in source.row(state).tolist()], np.int32)
            machine.set_row(base + state, row[source.byte_class])

    def _embedded_edge(self, index: int, byte: int, below: list[int]) -> int:
        source = self.embedded[index]
        edge = source.edge(source.start, byte)
        return DEAD if edge == DEAD else self._renumbered(index, edge, below)

    def _renumbered(self, index: int, edge: int, below: list[int]) -> int:
        target, pushes = self.embedded[index].decode(edge)
        return self.machine.action(
            target + self.base[index], [*below, *(self.copied[index][symbol] for symbol in pushes)]
        )
