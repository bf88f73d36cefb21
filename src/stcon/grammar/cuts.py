"""Cut states: the configurations that every accepted text visits exactly once, and the independent pieces between them.

Between two cut configurations lies a **segment**. Where its text is forced it needs no model; where it is not, what is
chosen in it constrains nothing outside it: the language is the product of its segments (Lemma 12), the machine's form
of the block product (Theorem 12). A planner drafts the free segments in parallel, each from its `Segment.start`.

**How they are found**, for any machine. The runs of a pushdown form an infinite graph; here a callee is first one
vertex from which edges lead to wherever its caller can continue, by the endings that it can have. Where such a vertex
is itself crossed by every run, so may be vertices inside it: it is opened, together with everything that runs on the
same stack, and the search repeated. So required objects inside each other are flattened, however deep; an array, an
optional key or a choice stays one segment. The cut vertices themselves are `stcon.theory.blocks.crossings`, and the
forced text that of `stcon.grammar.structure`.

**What is not seen.** Counter bounds and the stack cap are ignored, so that a configuration that only they make
unavoidable is not found; all that are found are right. A configuration is also left out where the counter's value
is not known and still matters, as then the pieces would not be independent. Marks (no two equal items) do reach across
segments: `Segment.remembers` says where.

Source: Lemma 12 and Section D.5, which finds the states after keys by rendering two documents; here the machine itself
is asked, so that nothing need be known of the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

import numpy as np

from stcon.errors import TooLarge, Unsatisfiable
from stcon.grammar.completion import Completions, label_of, returns_at_once, where_counter_matters
from stcon.grammar.machine import BEGIN, DEAD, RESET, SCOPE, STACK_CAP, Configuration, Machine
from stcon.grammar.structure import forced_readings, run_graph
from stcon.theory.blocks import Crossings, crossings
from stcon.theory.branch_kernel import BranchKernel, branch_kernel
from stcon.theory.graph import Digraph

MAX_VERTICES = 1 << 16
MAX_TEXT_BYTES = 1 << 16


@dataclass(frozen=True)
class Segment:
    """A piece of every accepted text.

    Attributes:
        start: where it begins; a cut configuration, or where the question began.
        end: the cut configuration where it ends; None: it ends with the text, wherever that is.
        text: what it begins with by force; all of it if `is_forced`.
        is_forced: whether nothing is left to choose in it. (Not looked at any more past `MAX_TEXT_BYTES` of forced text
            in all: what comes then is one segment that is not said to be forced.)
        remembers: whether a collection of elements that must differ is open at `start`, so that what may follow
            depends on what was chosen before.
    """

    start: Configuration
    end: Configuration | None
    text: bytes
    is_forced: bool
    remembers: bool


@dataclass(frozen=True)
class CutStates:
    """The cut configurations of a machine from a place on, and the segments between them.

    Attributes:
        configurations: those at which segments begin and end, in the order in which every run visits them. Those
            inside a forced segment, one after each byte, are left out.
        segments: from the place to the end of the text; each begins where the one before ends. Forced ones are as long
            as can be, free ones as short as can be.
    """

    configurations: tuple[Configuration, ...] = field(repr=False)
    segments: tuple[Segment, ...]

    @property
    def fields(self) -> tuple[Segment, ...]:
        """The segments in which there is something to choose."""
        return tuple(segment for segment in self.segments if not segment.is_forced)


def cut_states(
    machine: Machine,
    start: Configuration | None = None,
    *,
    completions: Completions | None = None,
    max_vertices: int = MAX_VERTICES,
) -> CutStates:
    """The cut states of `machine` and the text between them.

    Args:
        start: where to begin, such as after a discriminator; by default before any byte.
        completions: of `machine`, if known.
        max_vertices: callees are opened while the graph has at most so many vertices.

    Raises:
        Unsatisfiable: no text is accepted from there.
        TooLarge: the machine is past its state budget, or its outermost level past `max_vertices`.

    Cost: linear in the machine's states and edges, times the depth to which callees are opened.
    """
    start = machine.initial() if start is None else start
    known = Completions(machine) if completions is None else completions
    graph, found = _opened(_Frames(known, start), max_vertices)
    places = [vertex for index in found.vertices if isinstance(vertex := graph.vertices[index], _Vertex)]
    cuts = {(place.state, place.stack): None for place in places if place.mode is _Mode.RESTS}
    remembering = graph.remembering()
    segments = tuple(_Segments(known, start, cuts, remembering).all())
    ends = dict.fromkeys((start, *(segment.end for segment in segments if segment.end is not None)))
    return CutStates(tuple(config for config in ends if (config.state, config.stack) in cuts), segments)


def choices(machine: Machine, segment: Segment, *, limit: int) -> BranchKernel | None:
    """What there is to choose in a segment, as the branch kernel of its runs: a path is a text, a branching a decision.

    A segment of r texts costs at most c ≤ r − 1 decisions (Corollary 1), however long the texts are.

    Args:
        limit: configurations to look at.

    Returns:
        None where the texts are endlessly many, or take more configurations than `limit`.

    Cost: a step a byte class of each configuration.
    """
    try:
        runs = run_graph(machine, segment.start, segment.end, limit=limit)
    except TooLarge:
        return None
    kernel = branch_kernel(runs.graph, runs.source, runs.target)
    return kernel if isinstance(kernel, BranchKernel) else None


# ------------------------------------------------------------------------------------------------- the graph of runs


class _Mode(Enum):
    """How a state is entered: the reading rests there; an eager or a lazy return only passes through it."""

    RESTS = "rests"
    EAGER = "eager"
    LAZY = "lazy"


class _Vertex(NamedTuple):
    state: int
    stack: tuple[int, ...]
    mode: _Mode


_END = "end"  # the vertex that stands for the end of the text
_Any = _Vertex | str


class _Frames:
    """The graph of runs, in which only the callees on `opened` stacks are spelled out (a set closed under prefixes)."""

    def __init__(self, completions: Completions, start: Configuration) -> None:
        self.machine = completions.machine
        self.completions = completions
        self.start = _Vertex(start.state, start.stack, _Mode.RESTS)
        self.opened = set(_prefixes(start.stack))
        self.vertices: list[_Any] = []
        self.edges: list[tuple[int, int]] = []

    def build(self, max_vertices: int) -> Digraph | None:
        """The graph as far as it is opened; None past the limit."""
        index: dict[_Any, int] = {self.start: 0, _END: 1}
        self.vertices, self.edges = [self.start, _END], []
        for vertex in self.vertices:  # grows as we go
            for following in self._following(vertex) if isinstance(vertex, _Vertex) else ():
                if following not in index:
                    index[following] = len(self.vertices)
                    self.vertices.append(following)
                self.edges.append((index[vertex], index[following]))
            if len(self.vertices) > max_vertices:
                return None
        return Digraph(len(self.vertices), self.edges)

    def _following(self, vertex: _Vertex) -> Iterator[_Any]:
        state, stack, mode = vertex
        label = self.machine.label(state)
        if not stack and label >= 0:
            yield _END
        if mode is _Mode.EAGER or self.machine.is_final(state):
            yield from self._returned(stack, label, mode) if stack else ()
        elif stack in self.opened:
            yield from self._bytes(state, stack)
            if label >= 0 and stack:
                yield from self._returned(stack, label, _Mode.LAZY)
        else:
            for ending in self.completions.endings(state):
                mode = _Mode.EAGER if returns_at_once(ending) else _Mode.LAZY
                yield from self._returned(stack, label_of(ending), mode)

    def _bytes(self, state: int, stack: tuple[int, ...]) -> Iterator[_Any]:
        for edge in np.unique(self.machine.row(state)).tolist():
            if edge != DEAD:
                target, symbols = self.machine.decode(edge)
                if len(stack) + len(symbols) <= STACK_CAP:
                    yield self._entered(target, stack + symbols)

    def _returned(self, stack: tuple[int, ...], label: int, mode: _Mode) -> Iterator[_Any]:
        target = self.machine.resume_targets(stack[-1])[label]
        if target != DEAD:
            below = stack[:-1]
            yield _Vertex(target, below, _Mode.LAZY) if mode is _Mode.LAZY else self._entered(target, below)

    def _entered(self, state: int, stack: tuple[int, ...]) -> _Vertex:
        passes = stack and self.machine.is_final(state)
        return _Vertex(state, stack, _Mode.EAGER if passes else _Mode.RESTS)

    def remembering(self) -> set[tuple[int, tuple[int, ...]]]:
        """The places inside a collection whose elements must differ: it was opened and its stack not left since."""
        successors: dict[int, list[int]] = {}
        for tail, head in self.edges:
            successors.setdefault(tail, []).append(head)
        found: set[tuple[int, tuple[int, ...]]] = set()
        for index, vertex in enumerate(self.vertices):
            if not isinstance(vertex, _Vertex) or not self.machine.marks.get(vertex.state, 0) & SCOPE:
                continue
            inside = self._above(index, vertex.stack, successors)
            if any(at.stack == vertex.stack and self.machine.marks.get(at.state, 0) & BEGIN for at in inside):
                found.update((at.state, at.stack) for at in inside)
        return found

    def _above(self, index: int, stack: tuple[int, ...], successors: dict[int, list[int]]) -> list[_Vertex]:
        """What is reached from vertex `index` without leaving its stack."""
        inside: list[_Vertex] = []
        pending, seen = [index], {index}
        while pending:
            at = self.vertices[here := pending.pop()]
            if isinstance(at, _Vertex) and at.stack[: len(stack)] == stack:
                inside.append(at)
                pending += (fresh := [w for w in successors.get(here, ()) if w not in seen])
                seen.update(fresh)
        return inside


def _opened(frames: _Frames, max_vertices: int) -> tuple[_Frames, Crossings]:
    """Open callees that every run crosses until there is none left, or the graph would be too large."""
    graph = frames.build(max_vertices)
    if graph is None:
        raise TooLarge("places of the outermost level", given=len(frames.vertices), limit=max_vertices)
    while True:
        found = crossings(graph, 0, 1)
        if not isinstance(found, Crossings):
            raise Unsatisfiable("no text is accepted")
        stacks = {vertex.stack for v in found.vertices if isinstance(vertex := frames.vertices[v], _Vertex)}
        wanted = {prefix for stack in stacks for prefix in _prefixes(stack)} - frames.opened
        if not wanted:
            return frames, found
        larger = _Frames(frames.completions, Configuration(frames.start.state, frames.start.stack))
        larger.opened = frames.opened | wanted
        following = larger.build(max_vertices)
        if following is None:
            closed = [v for v in found.vertices if _is_open(frames, frames.vertices[v])]
            return frames, Crossings(tuple(closed), found.positions)
        frames, graph = larger, following


def _is_open(frames: _Frames, vertex: _Any) -> bool:
    """Whether `vertex` is all that the graph has of its place: a callee not opened may come back to where it began."""
    return isinstance(vertex, _Vertex) and vertex.stack in frames.opened


def _prefixes(stack: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return (stack[:depth] for depth in range(len(stack) + 1))


# ------------------------------------------------------------------------------------------------- segments


_PlaceOf = tuple[int, tuple[int, ...]]


class _Segments:
    """The way from cut to cut: along forced text where there is some, else to the next cut whose counter is known."""

    def __init__(
        self,
        completions: Completions,
        start: Configuration,
        cuts: dict[_PlaceOf, None],
        remembering: set[_PlaceOf],
    ) -> None:
        self.machine = completions.machine
        self.start = start
        self.places = list(cuts)
        self.order = {place: i for i, place in enumerate(cuts)}
        self.budget = MAX_TEXT_BYTES
        self.matters = where_counter_matters(completions)
        self.remembering = remembering

    def all(self) -> Iterator[Segment]:
        at, next_cut = self.start, 0
        while True:
            text, cut, rest, last = self._forced(at)
            if text:
                yield self._segment(at, cut, text, is_forced=True)
            at = cut
            next_cut = self.order.get((at.state, at.stack), next_cut - 1) + 1
            if not rest and self._is_over(at):
                return
            end = self._next_known(next_cut) if self.budget > 0 else self._last_known(next_cut)
            is_forced = end is None and rest != b"" and self._is_over(last)
            yield self._segment(at, end, rest, is_forced=is_forced)
            if end is None or self.budget <= 0:
                return
            at = end

    def _segment(self, start: Configuration, end: Configuration | None, text: bytes, *, is_forced: bool) -> Segment:
        return Segment(start, end, text, is_forced, (start.state, start.stack) in self.remembering)

    def _forced(self, at: Configuration) -> tuple[bytes, Configuration, bytes, Configuration]:
        """(text to the last cut on the chain, that cut, the rest of the chain, where the chain ends)."""
        text, last = bytearray(), at
        done, cut = 0, at
        for reading in islice(forced_readings(self.machine, at), self.budget):
            text.append(reading.byte)
            last = reading.config
            if (last.state, last.stack) in self.order:
                done, cut = len(text), last
        self.budget -= len(text)
        return bytes(text[:done]), cut, bytes(text[done:]), last

    def _is_over(self, config: Configuration) -> bool:
        """Whether the text ends here and nothing may follow."""
        return self.machine.accepts(config) and not self.machine.live(config)

    def _next_known(self, index: int) -> Configuration | None:
        """The first cut from `index` on at which the counter is known, or does not matter."""
        for state, stack in islice(self.places, index, None):
            if not self.matters[state] or self.machine.bounds(state)[0] == RESET:
                return Configuration(state, stack)
        return None

    def _last_known(self, index: int) -> Configuration | None:
        """The last such cut, if it is where the text ends."""
        known = self._next_known(max(index, len(self.places) - 1))
        return known if known is not None and self._is_over(known) else None
