"""How many edges a few-path graph can have, and how wide the part between two of its vertices can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import comb

from stcon.theory.certificates import Cycle, TooManyWalks, Unreachable
from stcon.theory.graph import Digraph
from stcon.theory.mangroves import path_count_matrix
from stcon.theory.terminal import CyclicWalk, TerminalDag, trim
from stcon.theory.walks import Walk
from stcon.theory.witness import shortest_walk


def edge_bound(order: int, k: int) -> int:
    """The most edges that Theorem 15 allows a simple k-strongly-few graph: ⌊min{C(n, 2), n²/4 + 3(k − 1)n/4}⌋.

    Attained for k = 1 (a complete bipartite graph with halves as equal as can be) and wherever n ≤ 2 + log₂ k (a
    transitive tournament).
    """
    return min(comb(order, 2), (order * order + 3 * (k - 1) * order) // 4)


@dataclass(frozen=True)
class Density:
    """The edges of a k-strongly-few graph against the bound, and the triangles that prove it.

    Attributes:
        edges: distinct pairs (u, v) with an edge.
        bound: `edge_bound`.
        triangles: {(x, z): the y with x → y → z} of each edge (x, z) that has any: at most k − 1, each a second walk.
    """

    edges: int
    bound: int
    triangles: Mapping[tuple[int, int], frozenset[int]] = field(repr=False)

    @property
    def num_triangles(self) -> int:
        """T ≤ (k − 1)·m, and 3T ≥ 4m²/n − mn: together the bound on m."""
        return sum(map(len, self.triangles.values()))


def density(graph: Digraph, k: int) -> Density | Cycle | TooManyWalks:
    """How close a graph is to the densest k-strongly-few ones; parallel edges count once.

    Raises:
        GraphError: k is negative.

    Cost: O(n·m).

    Source: Theorem 15.
    """
    refuted = path_count_matrix(graph, k)
    if isinstance(refuted, (Cycle, TooManyWalks)):
        return refuted
    following = [frozenset(graph.successors(v)) for v in graph.vertices]
    into = [frozenset(graph.predecessors(v)) for v in graph.vertices]
    pairs = set(graph.edges)
    triangles = {(x, z): middle for x, z in sorted(pairs) if (middle := following[x] & into[z])}
    return Density(len(pairs), edge_bound(graph.order, k), triangles)


# ------------------------------------------------------------------------------------------------- width


@dataclass(frozen=True)
class Interval:
    """What lies between u and v, its width, and paths that cover it.

    Attributes:
        terminal: the interval with its edges.
        antichain: vertices of which none reaches another; as many as `vertex_cover` has paths, so neither can be
            improved and both are the width.
        vertex_cover: u–v paths (edge indices) through all vertices of the interval.
        edge_antichain: edges of which none follows another on a walk; as many as `edge_cover` has paths.
        edge_cover: u–v paths through all edges; at most N(u, v).
    """

    terminal: TerminalDag
    antichain: tuple[int, ...]
    vertex_cover: tuple[Walk, ...]
    edge_antichain: tuple[int, ...]
    edge_cover: tuple[Walk, ...]

    @property
    def width(self) -> int:
        """The size of a largest antichain: at most N(u, v)."""
        return len(self.antichain)


def interval(graph: Digraph, source: int, target: int) -> Interval | Unreachable | CyclicWalk:
    """The reachability interval I(u, v) = {x : u ⇝ x ⇝ v}: width and path covers.

    The width is at most N(u, v), and at most N(u, v) paths cover all vertices and edges. Both covers are smallest
    possible (Dilworth's theorem), and the antichains prove it.

    Raises:
        GraphError: a terminal is no vertex.

    Cost: O(n³) for the vertices, O(m³) for the edges: a matching in the order relation.

    Source: Theorem 15; R. P. Dilworth, 1950; D. R. Fulkerson, 1956 (by matching); D. Kőnig, 1931 (the antichain).
    """
    terminal = trim(graph, source, target)
    if not isinstance(terminal, TerminalDag):
        return terminal
    antichain, chains = _dilworth(terminal.vertices, _above(terminal))
    vertex_cover = tuple(_path_through(graph, source, chain, target) for chain in chains)
    edge_antichain, edge_chains = _dilworth(terminal.edges, _edges_above(terminal))
    edge_cover = tuple(_path_along(graph, source, chain, target) for chain in edge_chains)
    return Interval(terminal, antichain, vertex_cover, edge_antichain, edge_cover or ((),))


def _above(terminal: TerminalDag) -> dict[int, frozenset[int]]:
    """For each vertex of the interval, the others that it reaches in it."""
    above: dict[int, frozenset[int]] = {}
    for vertex in reversed(terminal.vertices):
        heads = [terminal.graph.edges[e][1] for e in terminal.out_edges[vertex]]
        above[vertex] = frozenset(heads).union(*(above[head] for head in heads))
    return above


def _edges_above(terminal: TerminalDag) -> dict[int, frozenset[int]]:
    """For each edge of the interval, those that follow it on a walk."""
    beyond: dict[int, frozenset[int]] = {}
    for vertex in reversed(terminal.vertices):
        edges = terminal.out_edges[vertex]
        beyond[vertex] = frozenset(edges).union(*(beyond[terminal.graph.edges[e][1]] for e in edges))
    return {e: beyond[terminal.graph.edges[e][1]] for e in terminal.edges}


def _dilworth(
    elements: tuple[int, ...], above: Mapping[int, frozenset[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """A largest antichain and as few chains that cover `elements` (listed upwards) of a strict order.

    A matching of each element with the next of its chain, as large as can be, leaves as few chains as can be; Kőnig's
    alternating search from the ends of chains finds the antichain.
    """
    after: dict[int, int] = {}
    before: dict[int, int] = {}
    for element in elements:
        _augment(element, above, after, before)
    free = [x for x in elements if x not in after]
    lower, upper = set(free), set[int]()
    while free:
        for y in above[free.pop()] - upper:
            upper.add(y)
            if before[y] not in lower:
                lower.add(before[y])
                free.append(before[y])
    antichain = tuple(x for x in elements if x in lower and x not in upper)
    chains = []
    for first in elements:
        if first not in before:
            chain = [first]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(tuple(chain))
    return antichain, chains


def _augment(root: int, above: Mapping[int, frozenset[int]], after: dict[int, int], before: dict[int, int]) -> None:
    """Match `root` with an element above it, moving earlier matches along one alternating path if need be."""
    reached: dict[int, int] = {}
    pending = [root]
    while pending:
        x = pending.pop()
        for y in above[x]:
            if y in reached:
                continue
            reached[y] = x
            if y in before:
                pending.append(before[y])
                continue
            end: int | None = y
            while end is not None:
                x = reached[end]
                previous = after.get(x)
                after[x], before[end] = end, x
                end = previous
            return


def _path_through(graph: Digraph, source: int, chain: tuple[int, ...], target: int) -> Walk:
    walk: Walk = ()
    for here, there in pairwise((source, *chain, target)):
        part = shortest_walk(graph, here, frozenset([there]))
        assert part is not None
        walk += part
    return walk


def _path_along(graph: Digraph, source: int, chain: tuple[int, ...], target: int) -> Walk:
    walk: Walk = ()
    at = source
    for edge in chain:
        tail, head = graph.edges[edge]
        walk += (*_path_through(graph, at, (), tail), edge)
        at = head
    return walk + _path_through(graph, at, (), target)
