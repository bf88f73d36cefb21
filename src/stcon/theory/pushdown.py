"""LOGDCFL: the capped stack traversal, a deterministic auxiliary pushdown automaton that is total.

A depth-first search over walks that keeps only a stack of return points decides few-path reachability where the bound
is promised; on an arbitrary graph it may never stop. Capped at the total budget it always does: either the tree of
walks has at most B nodes, or node B + 1 is entered and the input is refused. Two passes, in this order: first every
source's tree is bounded, then walks are recounted target by target; so no bad input can force an exponentially long
recount.

The work tape holds a constant number of counters; the stack holds frames (a vertex, the index of its next edge). SC²
follows by Cook's simulation of this automaton, which is cited and not implemented; `meters` gives the simultaneous
bounds of the automaton itself (steps, work-tape bits, stack bits), which its stack keeps outside SC².

Source: Algorithm 3, Theorems 8 and 17. We step over a vertex's edges (Theorem 8's "index of its next successor") where
Algorithm 3 tests all n vertices for adjacency, so that parallel edges count and absent ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stcon.theory.budgets import PairBudget, Requirements, RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.graph import Digraph
from stcon.theory.meters import Meters, TooMuchWork, bits
from stcon.theory.witness import confirm, refute

METHOD = "logdcfl"


@dataclass(frozen=True)
class Traversal:
    """How one traversal ended.

    Args:
        overflow: whether it was aborted: too many nodes, or in target mode too many that end at the target.
        nodes: nodes entered, the root included.
        hits: in target mode, nodes entered that end at the target.
        depth: the most frames on the stack.
        steps: iterations of the loop.
    """

    overflow: bool
    nodes: int
    hits: int
    depth: int
    steps: int


def traverse(
    graph: Digraph,
    source: int,
    max_nodes: int,
    *,
    max_depth: int | None = None,
    target: int | None = None,
    max_hits: int = 0,
    max_steps: int | None = None,
) -> Traversal:
    """Depth-first traversal of the tree of walks from `source`, capped.

    Args:
        graph: any graph; on a cyclic one the tree is infinite.
        source: where the walks start.
        max_nodes: the budget; entering one node more is an overflow.
        max_depth: walks of this length are not extended; None: no truncation (Theorem 17).
        target: if given, count the nodes that end here …
        max_hits: … and overflow at one more than this.
        max_steps: refuse past so many steps; None: never.

    Raises:
        TooMuchWork: past `max_steps`.
    Cost: at most max_nodes + 1 nodes and one step for each edge of each, plus one pop a node.
    Source: Algorithm 3.
    """
    current, following = source, 0
    tails: list[int] = []  # the stack's frames, as two columns
    resumes: list[int] = []
    nodes, hits, peak, steps = 1, int(source == target), 0, 0
    if nodes > max_nodes or hits > max_hits:
        return Traversal(True, nodes, hits, peak, steps)
    while True:
        steps += 1
        if max_steps is not None and steps > max_steps:
            raise TooMuchWork(max_steps)
        heads = graph.successors(current)
        if following == len(heads) or len(tails) == max_depth:
            if not tails:
                return Traversal(False, nodes, hits, peak, steps)
            current, following = tails.pop(), resumes.pop()
            continue
        tails.append(current)
        resumes.append(following + 1)
        current, following = heads[following], 0
        nodes += 1
        hits += current == target
        peak = max(peak, len(tails))
        if nodes > max_nodes or hits > max_hits:
            return Traversal(True, nodes, hits, peak, steps)


def decide_strongly_few(instance: StronglyFew, *, max_steps: int | None = None) -> Verdict:
    """STCON_sf by Theorem 8: all n traversals with budget nk, then n² recounts with cap k.

    Args:
        instance: any graph, any s, t, k.
        max_steps: refuse past so many steps; None: run to the end, whatever it takes.

    Returns:
        The verdict. Meters: ``steps`` ≤ (n + n²)(nk + 1)(d + 1) for out-degrees ≤ d; ``nodes`` entered;
        ``stack_frames`` ≤ nk; ``stack_bits`` = frames times a frame's bits; ``work_tape_bits`` = O(log M). Asserted.
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 8.
    """
    graph, cap, budget = instance.graph, instance.cap, instance.source_budget
    meters = _Meters(graph, budget, max_steps)
    asked = instance.requirements
    for source in graph.vertices:
        if meters.traverse(graph, source, budget, max_depth=budget).overflow:
            return Verdict(False, METHOD, refute(asked, source), meters=meters.of_strongly_few(instance))
    counts: dict[int, list[int]] = {}
    for source in graph.vertices:
        counts[source] = []
        for target in graph.vertices:
            recount = meters.traverse(graph, source, budget, max_depth=budget, target=target, max_hits=cap)
            if recount.overflow:
                return Verdict(False, METHOD, refute(asked, source), meters=meters.of_strongly_few(instance))
            counts[source].append(recount.hits)
    answer = counts[instance.source][instance.target] >= 1
    return Verdict(answer, METHOD, confirm(asked, counts), meters=meters.of_strongly_few(instance))


def decide_root(instance: RootBudget, *, max_steps: int | None = None) -> Verdict:
    """RootBudget by Theorem 17: one untruncated traversal with budget B, then one recount a vertex.

    Args:
        instance: any graph and budgets.
        max_steps: refuse past so many steps; None: run to the end.

    Returns:
        The verdict; meters as for `decide_strongly_few`, with n + 1 traversals and B for nk.
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 17.
    """
    meters = _Meters(instance.graph, instance.total, max_steps)
    row = _root_counts(instance, meters)
    return _verdict(instance.requirements, [(instance.root, row)], meters)


def decide_pair(instance: PairBudget, *, max_steps: int | None = None) -> Verdict:
    """PairBudget by Theorem 17 on U(G).

    Args:
        instance: any graph and budgets.
        max_steps: refuse past so many steps; None: run to the end.

    Returns:
        The verdict; meters are those of the traversals of U(G).
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 17 with Lemma 2.
    """
    order = instance.graph.order
    Meters(max_steps).spend(order * (order + instance.graph.size))  # U(G) is built
    rooted = instance.rooted()
    meters = _Meters(rooted.graph, rooted.total, max_steps)
    row = _root_counts(rooted, meters)
    if row is None:
        source = next(a for a in range(order) if _root_counts(instance.row(a), meters) is None)
        return _verdict(instance.requirements, [(source, None)], meters)
    rows = [(a, row[1 + a * order : 1 + (a + 1) * order]) for a in range(order)]
    return _verdict(instance.requirements, rows, meters)


def _root_counts(instance: RootBudget, meters: _Meters) -> list[int] | None:
    """The walk numbers, or None where a budget is broken."""
    graph, total = instance.graph, instance.total
    if meters.traverse(graph, instance.root, total).overflow:
        return None
    counts = []
    for target in graph.vertices:
        recount = meters.traverse(graph, instance.root, total, target=target, max_hits=instance.budgets[target])
        if recount.overflow:
            return None
        counts.append(recount.hits)
    return counts


def _verdict(asked: Requirements, rows: Iterable[tuple[int, list[int] | None]], meters: _Meters) -> Verdict:
    counts: dict[int, list[int]] = {}
    for source, row in rows:
        if row is None:
            return Verdict(False, METHOD, refute(asked, source), meters=meters.checked())
        counts[source] = row
    answer = any(counts[asked.source][target] for target in asked.targets)
    return Verdict(answer, METHOD, confirm(asked, counts), meters=meters.checked())


class _Meters(Meters):
    """Sums over traversals, and the automaton's bounds."""

    def __init__(self, graph: Digraph, budget: int, max_steps: int | None) -> None:
        super().__init__(max_steps)
        self._graph = graph
        self._budget = budget
        self._degree = max((len(graph.successors(v)) for v in graph.vertices), default=0)
        self._traversals = 0

    def traverse(self, graph: Digraph, source: int, max_nodes: int, **modes: Any) -> Traversal:
        try:
            traversal = traverse(graph, source, max_nodes, max_steps=self.allowed, **modes)
        except TooMuchWork as error:  # name the whole limit, not what was left of it
            raise TooMuchWork(error.limit + self.values.get("steps", 0)) from None
        self._traversals += 1
        self.add("nodes", traversal.nodes)
        self.peak("stack_frames", traversal.depth)
        self.spend(traversal.steps)
        assert traversal.nodes <= self._budget + 1
        assert traversal.steps <= (self._budget + 1) * (self._degree + 1)
        return traversal

    def checked(self) -> dict[str, int]:
        """The readings, after the bounds that hold for every input."""
        vertex, index, budget = bits(self._graph.order), bits(self._degree), bits(self._budget + 1)
        self.peak("stack_bits", self.values.get("stack_frames", 0) * (vertex + index))
        # source, target, current; next; depth, total, count
        self.peak("work_tape_bits", 3 * vertex + index + 3 * budget)
        assert self.values.get("stack_frames", 0) <= self._budget
        assert self.values.get("steps", 0) <= self._traversals * (self._budget + 1) * (self._degree + 1)
        return dict(self.values)

    def of_strongly_few(self, instance: StronglyFew) -> dict[str, int]:
        """The same, and that the work tape is logarithmic in the input length of a simple graph."""
        values = self.checked()
        order = instance.graph.order
        assert self._traversals <= order + order * order
        if instance.graph.is_simple:
            assert values["work_tape_bits"] <= 13 * bits(instance.input_length)
        return values
