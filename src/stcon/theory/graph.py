"""Finite directed graphs with numbered vertices and numbered edges: what every construction of the theory reads.

A vertex is an integer 0 … n−1; names are labels for people and files. An edge is an *occurrence*: its index in `edges`
is what the paper calls eᵢ, so parallel edges are two edges and give two walks. Graphs are values: immutable, hashable,
compared by their vertices, their edges in order, and their names.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

Edge = tuple[int, int]


class GraphError(ValueError):
    """The graph, a vertex of it or a number beside it is not what the construction can take; one line."""


class Digraph:
    """An immutable directed graph, parallel edges and loops allowed.

    Args:
        order: the number n of vertices.
        edges: (tail, head) pairs of vertices; the i-th is edge i.
        names: one distinct name a vertex; None names vertex v by the number v.

    Raises:
        GraphError: an endpoint is no vertex, or the names are not n distinct ones.

    Cost: O(n + m).
    """

    def __init__(self, order: int, edges: Iterable[Edge] = (), names: Sequence[Hashable] | None = None) -> None:
        self._order = order
        self._edges = tuple((tail, head) for tail, head in edges)
        self._names: tuple[Hashable, ...] = tuple(range(order)) if names is None else tuple(names)
        if order < 0:
            raise GraphError(f"a graph cannot have {order} vertices")
        for tail, head in self._edges:
            if not (0 <= tail < order and 0 <= head < order):
                raise GraphError(f"the edge ({tail}, {head}) leaves the vertices 0 … {order - 1}")
        if len(self._names) != order:
            raise GraphError(f"{len(self._names)} names for {order} vertices")
        if len(self._indices) != order:
            twice = next(name for name, count in Counter(self._names).items() if count > 1)
            raise GraphError(f"two vertices are named {twice!r}")

    @property
    def order(self) -> int:
        """The number n of vertices."""
        return self._order

    @property
    def size(self) -> int:
        """The number m of edges, parallel ones counted each."""
        return len(self._edges)

    @property
    def vertices(self) -> range:
        """0 … n−1."""
        return range(self._order)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """(tail, head) of every edge, by edge index."""
        return self._edges

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The name of every vertex."""
        return self._names

    @cached_property
    def _indices(self) -> dict[Hashable, int]:
        return {name: index for index, name in enumerate(self._names)}

    @cached_property
    def _out(self) -> tuple[tuple[int, ...], ...]:
        return _buckets(self._order, (tail for tail, _ in self._edges))

    @cached_property
    def _in(self) -> tuple[tuple[int, ...], ...]:
        return _buckets(self._order, (head for _, head in self._edges))

    @cached_property
    def _successors(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self._edges[e][1] for e in out) for out in self._out)

    @cached_property
    def _predecessors(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self._edges[e][0] for e in into) for into in self._in)

    @cached_property
    def _multiplicities(self) -> Counter[Edge]:
        return Counter(self._edges)

    def successors(self, vertex: int) -> tuple[int, ...]:
        """The heads of `vertex`'s edges, one for every edge, in edge order."""
        return self._successors[vertex]

    def predecessors(self, vertex: int) -> tuple[int, ...]:
        """The tails of the edges into `vertex`, one for every edge, in edge order."""
        return self._predecessors[vertex]

    def out_edges(self, vertex: int) -> tuple[int, ...]:
        """The indices of the edges out of `vertex`, in order; parallel to `successors`."""
        return self._out[vertex]

    def in_edges(self, vertex: int) -> tuple[int, ...]:
        """The indices of the edges into `vertex`, in order; parallel to `predecessors`."""
        return self._in[vertex]

    def multiplicity(self, tail: int, head: int) -> int:
        """How many edges lead from `tail` to `head`."""
        return self._multiplicities[(tail, head)]

    @property
    def is_simple(self) -> bool:
        """Whether no two edges are parallel (a loop is allowed)."""
        return len(self._multiplicities) == len(self._edges)

    def vertex(self, name: Hashable) -> int:
        """The vertex called `name`.

        Raises:
            GraphError: there is none.
        """
        try:
            return self._indices[name]
        except KeyError:
            raise GraphError(f"the graph has no vertex named {name!r}") from None

    def topological_order(self) -> tuple[int, ...] | None:
        """The vertices with every edge pointing forward; None if there is a directed cycle.

        Cost: O(n + m).
        """
        waiting = [len(into) for into in self._in]
        ready = deque(v for v in self.vertices if not waiting[v])
        order: list[int] = []
        while ready:
            vertex = ready.popleft()
            order.append(vertex)
            for head in self._successors[vertex]:
                waiting[head] -= 1
                if not waiting[head]:
                    ready.append(head)
        return tuple(order) if len(order) == self._order else None

    def descendants(self, source: int) -> frozenset[int]:
        """The vertices that a walk from `source` reaches, `source` among them.

        Cost: O(n + m).
        """
        return _closure(self._successors, source)

    def ancestors(self, target: int) -> frozenset[int]:
        """The vertices from which a walk reaches `target`, `target` among them.

        Cost: O(n + m).
        """
        return _closure(self._predecessors, target)

    def reversed(self) -> Digraph:
        """Every edge turned round, with its index and the names kept."""
        return Digraph(self._order, ((head, tail) for tail, head in self._edges), self._names)

    def induced(self, vertices: Iterable[int]) -> Digraph:
        """The subgraph on `vertices`, renumbered in increasing order; names go along, edges keep their order."""
        kept = sorted(set(vertices))
        new = {old: index for index, old in enumerate(kept)}
        edges = ((new[tail], new[head]) for tail, head in self._edges if tail in new and head in new)
        return Digraph(len(kept), edges, [self._names[v] for v in kept])

    def without_parallel_edges(self) -> Digraph:
        """The second and later of parallel edges get a private vertex in their middle.

        Walks between old vertices keep their numbers, and a new vertex x on an edge u → w has N(a, x) = N(a, u) and
        N(x, b) = N(w, b), so the graph is k-strongly few as before. New vertices are numbered from n on.

        Source: Appendix B.10 ("parallel transitions are replaced by private two-edge paths").
        """
        seen: set[Edge] = set()
        edges: list[Edge] = []
        names = list(self._names)
        for index, (tail, head) in enumerate(self._edges):
            if (tail, head) in seen:
                middle = len(names)
                names.append(("edge", index))
                edges += [(tail, middle), (middle, head)]
            else:
                seen.add((tail, head))
                edges.append((tail, head))
        return Digraph(len(names), edges, names)

    @classmethod
    def from_networkx(cls, graph: Any) -> Digraph:
        """A networkx `DiGraph` or `MultiDiGraph`; nodes become names, in the graph's order.

        Raises:
            GraphError: the graph is undirected.
        """
        if not graph.is_directed():
            raise GraphError("the networkx graph is undirected; give graph.to_directed() if you mean both directions")
        names = list(graph.nodes())
        index = {name: i for i, name in enumerate(names)}
        return cls(len(names), ((index[tail], index[head]) for tail, head in graph.edges()), names)

    def to_networkx(self) -> Any:
        """The graph as a networkx `MultiDiGraph` over the names; an edge's key is its index."""
        import networkx

        graph = networkx.MultiDiGraph()
        graph.add_nodes_from(self._names)
        for index, (tail, head) in enumerate(self._edges):
            graph.add_edge(self._names[tail], self._names[head], key=index)
        return graph

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digraph):
            return NotImplemented
        return (self._order, self._edges, self._names) == (other._order, other._edges, other._names)

    def __hash__(self) -> int:
        return hash((self._order, self._edges))

    def __repr__(self) -> str:
        return f"Digraph({self._order}, {list(self._edges)!r})"


def _buckets(order: int, ends: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """The edge indices by the given end of each edge."""
    lists: list[list[int]] = [[] for _ in range(order)]
    for edge, end in enumerate(ends):
        lists[end].append(edge)
    return tuple(map(tuple, lists))


def _closure(neighbours: Sequence[Sequence[int]], start: int) -> frozenset[int]:
    found = {start}
    stack = [start]
    while stack:
        for vertex in neighbours[stack.pop()]:
            if vertex not in found:
                found.add(vertex)
                stack.append(vertex)
    return frozenset(found)
