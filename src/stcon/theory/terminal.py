"""Two-terminal DAGs: what of a graph lies on walks from s to t, and how many walks there are.

Section B.4 restricts a graph to the vertices and edges on some s–t path. `trim` does so for any graph: it answers a
`TerminalDag`, or says why there is none: `Unreachable` or `CyclicWalk`.
Vertices and edges keep the host graph's numbers, so every certificate speaks about the graph that was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from stcon.theory.certificates import Cycle, Unreachable
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.walks import Walk
from stcon.theory.witness import shortest_walk


@dataclass(frozen=True)
class CyclicWalk:
    """Infinitely many walks lead from s to t: `walk`, the indices of its edges, is one that visits a vertex twice."""

    walk: Walk


@dataclass(frozen=True)
class TerminalDag:
    """The vertices and edges of `graph` on walks from `source` to `target`, which form an acyclic graph H.

    Attributes:
        graph: the host.
        source, target: s and t; the only vertices of H without a predecessor and without a successor in H.
        vertices: of H, in a topological order.
        edges: indices of H's edges in the host, ascending.
    """

    graph: Digraph = field(repr=False)
    source: int
    target: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]

    @cached_property
    def out_edges(self) -> dict[int, tuple[int, ...]]:
        """H's edges out of each of its vertices."""
        kept = frozenset(self.edges)
        return {v: tuple(e for e in self.graph.out_edges(v) if e in kept) for v in self.vertices}

    @cached_property
    def in_edges(self) -> dict[int, tuple[int, ...]]:
        """H's edges into each of its vertices."""
        kept = frozenset(self.edges)
        return {v: tuple(e for e in self.graph.in_edges(v) if e in kept) for v in self.vertices}

    @cached_property
    def walks_to(self) -> dict[int, int]:
        """N(s, v) of each vertex v of H. Cost: O(m) additions of integers of up to m bits."""
        return _counts(self.vertices, self.source, self.in_edges, lambda e: self.graph.edges[e][0])

    @cached_property
    def walks_from(self) -> dict[int, int]:
        """N(v, t) of each vertex v of H. Cost: as `walks_to`."""
        return _counts(self.vertices[::-1], self.target, self.out_edges, lambda e: self.graph.edges[e][1])

    @property
    def num_paths(self) -> int:
        """r = N(s, t)."""
        return self.walks_to[self.target]

    @property
    def cyclomatic_number(self) -> int:
        """c(H) = |E| − |V| + 1."""
        return len(self.edges) - len(self.vertices) + 1

    def paths(self) -> Iterator[Walk]:
        """Every s–t path as edge indices, in lexicographic order, one at a time. Cost: O(n) a path, memory O(n)."""
        path: list[int] = []
        pending = [iter(self.out_edges[self.source])]
        if self.source == self.target:
            yield ()
        while pending:
            edge = next(pending[-1], None)
            if edge is None:
                pending.pop()
                if path:
                    path.pop()
                continue
            path.append(edge)
            head = self.graph.edges[edge][1]
            if head == self.target:
                yield tuple(path)
                path.pop()
            else:
                pending.append(iter(self.out_edges[head]))


def trim(graph: Digraph, source: int, target: int) -> TerminalDag | Unreachable | CyclicWalk:
    """The part of `graph` on walks from `source` to `target`.

    Raises:
        GraphError: a terminal is no vertex.

    Cost: O(n + m).

    Source: Section B.4.
    """
    kept = relevant(graph, source, target)
    if isinstance(kept, Unreachable):
        return kept
    order, cycle = order_or_cycle(graph, kept)
    if cycle:
        there, back = (
            shortest_walk(graph, tail, frozenset([head]))
            for tail, head in ((source, graph.edges[cycle[0]][0]), (graph.edges[cycle[-1]][1], target))
        )
        assert there is not None
        assert back is not None
        return CyclicWalk(there + cycle + back)
    edges = tuple(e for e, (tail, head) in enumerate(graph.edges) if tail in kept and head in kept)
    return TerminalDag(graph, source, target, order, edges)


def relevant(graph: Digraph, source: int, target: int) -> frozenset[int] | Unreachable:
    """The vertices on walks from `source` to `target`. Cost: O(n + m)."""
    for vertex in (source, target):
        if not 0 <= vertex < graph.order:
            raise GraphError(f"{vertex} is no vertex of a graph with {graph.order} vertices")
    reached = graph.descendants(source)
    return reached & graph.ancestors(target) if target in reached else Unreachable(reached)


def order_or_cycle(graph: Digraph, kept: Container[int]) -> tuple[tuple[int, ...], Walk]:
    """Of the subgraph on `kept`: (a topological order, ()), or ((), the edges of a directed cycle). Cost: O(n + m).

    Depth-first search: a vertex met again while it is on the search path closes a cycle.
    """
    finished: dict[int, None] = {}
    for root in graph.vertices:
        if root in finished or root not in kept:
            continue
        path, position = [root], {root: 0}
        edges: list[int] = []
        pending = [iter(graph.out_edges(root))]
        while pending:
            edge = next((e for e in pending[-1] if graph.edges[e][1] in kept), None)
            if edge is None:
                pending.pop()
                done = path.pop()
                del position[done]
                finished[done] = None
                del edges[-1:]
                continue
            head = graph.edges[edge][1]
            if head in position:
                return (), (*edges[position[head] :], edge)
            if head not in finished:
                position[head] = len(path)
                path.append(head)
                edges.append(edge)
                pending.append(iter(graph.out_edges(head)))
    return tuple(reversed(finished)), ()


def find_cycle(graph: Digraph) -> Cycle | None:
    """A directed cycle of `graph`, if it has one, from one of its own vertices. Cost: O(n + m)."""
    _, cycle = order_or_cycle(graph, graph.vertices)
    return Cycle(graph.edges[cycle[0]][0], (), cycle) if cycle else None


def _counts(
    order: tuple[int, ...], first: int, edges: dict[int, tuple[int, ...]], other_end: Callable[[int], int]
) -> dict[int, int]:
    """Walks between `first` and each vertex, along `order`."""
    counts: dict[int, int] = {}
    for vertex in order:
        counts[vertex] = sum(counts[other_end(e)] for e in edges[vertex]) + (vertex == first)
    return counts
