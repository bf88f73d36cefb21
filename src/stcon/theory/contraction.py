"""Below log²: reachability in a reach-unambiguous graph in O(log² n / log log n) space, metered.

What a reach-unambiguous graph's root reaches is a tree, so it can be contracted. Every unit (a vertex, its edges taken
two at a time) has a value, whether it reaches the target, and a pointer to a descendant of the same value. Four kinds
of level repeat: *activate* points a unit whose one child is known not to reach at the other child, *square* twice
replaces a pointer by the pointer's pointer, *pebble* takes over the value pointed at. The root is settled after O(log
n) levels.

A deterministic machine recomputes instead of storing. One frame for each level would need log n bits each, log² n in
all. So a frame spans a *group* of g = Θ(log log n) levels: these look at no more than 3^g units, few enough to keep a
table of which points where, in local numbers, in O(log n) bits; a unit's own name is found again by walking to it.
There are O(log n / log log n) frames.

That is our reconstruction of RUSPACE(log n) ⊆ DSPACE(log² n / log log n), which the paper cites from a work of 1998, in
terms of pebbling by pointers and of simulating pointer machines in groups of steps; it follows the bound, not that
text. It bounds space alone. Sizes that can be run have log log n near 3, so the meters show how the tape shrinks as g
grows, not the asymptotics; and they are of this problem, which is complete for ReachUL, not of Algorithm 2's
configurations.

The run is memoised. The space and steps reported are those of the recursion without memory, computed exactly: what a
call uses depends on its arguments alone.

Source: Theorem 2 (DSPACE), Appendix B.10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stcon.theory.graph import Digraph
from stcon.theory.meters import bits

LEFT, RIGHT, JUMP = range(3)
ACTIVATE, _, _, PEBBLE = range(4)  # the two between square


class Unit(NamedTuple):
    """A vertex with its edges from number `first` on, so that every unit has at most two children."""

    vertex: int
    first: int


class State(NamedTuple):
    """What a level knows of a unit.

    Args:
        value: whether the target is reached; None: not settled.
        jump: a descendant with the same value; the unit itself while both children are open.
        tape_bits: of the call that computed it.
        steps: calls that the recursion without memory makes.
    """

    value: bool | None
    jump: Unit
    tape_bits: int
    steps: int


@dataclass(frozen=True)
class Contraction:
    """What was found and used.

    Args:
        reachable: the answer; None: not settled in time, which happens only where the promise fails. An answer is right
            on every graph.
        levels: of the contraction.
        group: g, the levels of a frame.
        frames: the recursion's depth, ⌈levels / g⌉.
        tape_bits: the most bits on the tape at a time.
        largest_table: units in a frame's table, at most.
        steps: frames opened, without memory; O(log n) deep recursion makes it polynomial.
    """

    reachable: bool | None
    levels: int
    group: int
    frames: int
    tape_bits: int
    largest_table: int
    steps: int


def contract(graph: Digraph, source: int, target: int, *, group: int | None = None) -> Contraction:
    """Whether a walk leads from source to target, where every vertex has at most one walk from source.

    Args:
        graph: reach-unambiguous from `source`; on another graph the answer may be None.
        source: s.
        target: t.
        group: levels a frame; None: max{1, ½ log₃ log₂ n}, with which a table of 2 · 3^g units fits in O(log n) bits.

    Cost: see `Contraction`; with memory O(units · levels · 9^g) table look-ups.
    Source: Theorem 2 (DSPACE).
    """
    units = graph.order + graph.size
    levels = 4 * ((units - 1).bit_length() + 1)
    group = group or max(1, int(math.log(max(math.log2(max(units, 2)), 1), 3) / 2))
    run = _Run(graph, target, group)
    frames = -(-levels // group)
    found = run.settle(Unit(source, 0), frames)
    assert run.largest_table <= 2 * 3**group
    assert found.tape_bits <= frames * _frame_bits(run.name_bits, run.largest_table, group)
    return Contraction(found.value, levels, group, frames, found.tape_bits, run.largest_table, found.steps)


def _frame_bits(name_bits: int, table: int, group: int) -> int:
    """Three names; for each unit of the table its way, value and jump; for each level inside the frame, one state."""
    local = bits(table)
    return 3 * name_bits + table * (2 * local + 2 + 2 + 1) + group * (2 * local + 4)


class _Run:
    """One contraction; `settle` is the recursion."""

    def __init__(self, graph: Digraph, target: int, group: int) -> None:
        self.graph = graph
        self.target = target
        self.group = group
        degree = max((len(graph.successors(v)) for v in graph.vertices), default=0)
        self.name_bits = bits(graph.order - 1) + bits(degree)
        self.largest_table = 1
        self._known: dict[tuple[Unit, int], State] = {}

    def settle(self, unit: Unit, frames: int) -> State:
        """The unit's state after frames · g levels."""
        if (unit, frames) not in self._known:
            self._known[unit, frames] = self._start(unit) if frames == 0 else _Frame(self, unit, frames - 1).simulate()
        return self._known[unit, frames]

    def children(self, unit: Unit) -> tuple[Unit | None, Unit | None]:
        """Left and right; None is a child that reaches nothing."""
        heads = self.graph.successors(unit.vertex)[unit.first :]
        if not heads:
            return None, None
        left = Unit(heads[0], 0)
        if len(heads) == 1:
            return left, None
        return left, Unit(heads[1], 0) if len(heads) == 2 else Unit(unit.vertex, unit.first + 1)

    def _start(self, unit: Unit) -> State:
        if unit.vertex == self.target:
            return State(True, unit, 0, 1)
        return State(False if self.children(unit) == (None, None) else None, unit, 0, 1)


class _Frame:
    """g levels above `below` frames, simulated in local numbers; local 0 is the frame's own unit."""

    def __init__(self, owner: _Run, unit: Unit, below: int) -> None:
        self.owner = owner
        self.unit = unit
        self.below = below
        self.ways: list[tuple[int, int]] = [(0, JUMP)]  # how a local unit is found: from which, by which pointer
        self.read: list[tuple[bool | None, int] | None] = [None]  # its value and jump below, once read
        self.tape_bits = 0
        self.steps = 1

    def simulate(self) -> State:
        value, jump = self.after(0, self.owner.group)
        target = self.locate(jump)
        self.owner.largest_table = max(self.owner.largest_table, len(self.ways))
        self.tape_bits = max(self.tape_bits, self._bits())
        return State(value, target, self.tape_bits, self.steps)

    def after(self, local: int, levels: int) -> tuple[bool | None, int]:
        """Value and jump of a local unit, so many levels above the frame's floor."""
        if levels == 0:
            return self._floor(local)
        value, jump = self.after(local, levels - 1)
        if value is not None:
            return value, jump
        phase = (self.below * self.owner.group + levels - 1) % 4
        if phase == ACTIVATE:
            return (None, jump) if jump != local else self._activated(local, levels - 1)
        if phase == PEBBLE:
            return self.after(jump, levels - 1)[0], jump
        return None, self.after(jump, levels - 1)[1]

    def _activated(self, local: int, levels: int) -> tuple[bool | None, int]:
        left, right = (self._child(local, label) for label in (LEFT, RIGHT))
        values = [False if child is None else self.after(child, levels)[0] for child in (left, right)]
        if True in values:
            return True, local
        if values == [False, False]:
            return False, local
        if values[0] is False and right is not None:
            return None, right
        if values[1] is False and left is not None:
            return None, left
        return None, local

    def _child(self, local: int, label: int) -> int | None:
        child = self.owner.children(self.locate(local))[label]
        return None if child is None else self._local(child, local, label)

    def _floor(self, local: int) -> tuple[bool | None, int]:
        known = self.read[local]
        if known is None:
            state = self._call(self.locate(local))
            known = self.read[local] = (state.value, self._local(state.jump, local, JUMP))
        return known

    def locate(self, local: int) -> Unit:
        """A local unit's name, by walking to it; only the name reached is held."""
        labels = []
        while local:
            local, label = self.ways[local]
            labels.append(label)
        unit = self.unit
        for label in reversed(labels):
            child = self._call(unit).jump if label == JUMP else self.owner.children(unit)[label]
            assert child is not None
            unit = child
        return unit

    def _local(self, unit: Unit, parent: int, label: int) -> int:
        """The unit's local number, a new one if no local unit has its name."""
        for local in range(len(self.ways)):
            if self.locate(local) == unit:
                return local
        self.ways.append((parent, label))
        self.read.append(None)
        return len(self.ways) - 1

    def _call(self, unit: Unit) -> State:
        state = self.owner.settle(unit, self.below)
        self.tape_bits = max(self.tape_bits, self._bits() + state.tape_bits)
        self.steps += state.steps
        return state

    def _bits(self) -> int:
        return _frame_bits(self.owner.name_bits, len(self.ways), self.owner.group)
