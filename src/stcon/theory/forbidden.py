"""Forbidden subdivisions: the finitely many small witnesses, one of which every graph with too many walks contains.

A *core* for k is a two-terminal acyclic multigraph (vertex 0 is its source, the last one its sink) with more than k
terminal paths, any edge of which is needed for that, without vertices of one way in and one way out, and whose source
and sink are branchings. `forbidden_basis` lists them all; `forbidden_subdivision` finds one in a graph, in polynomial
time for every k, by deleting edges until each is needed; `find_subdivision` searches a graph for a given core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, permutations

from stcon.theory.branch_kernel import contract
from stcon.theory.certificates import Cycle, TooManyWalks
from stcon.theory.graph import Digraph, Edge, GraphError
from stcon.theory.mangroves import path_count_matrix
from stcon.theory.terminal import TerminalDag, trim

MAX_LISTED = 3


@dataclass(frozen=True)
class Subdivision:
    """A directed subdivision of `core` in a graph.

    Attributes:
        core: a two-terminal multigraph; vertex 0 is its source and the last vertex its sink.
        vertices: [core vertex] the graph's vertex that stands for it.
        chains: [core edge] the graph's edges (indices, in order) that stand for it; two chains share no inner vertex.
    """

    core: Digraph
    vertices: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]


# ------------------------------------------------------------------------------------------------- in a graph


def forbidden_subdivision(graph: Digraph, k: int) -> Subdivision | Cycle | None:
    """Why `graph` is not k-strongly few: a cycle, or a subdivision of a core; None iff it is.

    Raises:
        GraphError: k < 1.

    Cost: O(n·m), and where there are too many walks O(m²) more.

    Source: Theorem 13.
    """
    if k < 1:
        raise GraphError(f"k = {k}: forbidden subdivisions are defined for k ≥ 1")
    refuted = path_count_matrix(graph, k)
    if isinstance(refuted, Cycle):
        return refuted
    if not isinstance(refuted, TooManyWalks):
        return None
    kept = set(range(graph.size))
    terminal = _within(graph, kept, refuted.source, refuted.target)
    for chain in contract(terminal).chains:  # the edges of a forced chain are needed together or not at all
        kept = set(terminal.edges)
        if kept.issuperset(chain):
            without = trim(_subgraph(graph, kept.difference(chain)), terminal.source, terminal.target)
            if isinstance(without, TerminalDag) and without.num_paths > k:
                terminal = _within(graph, kept.difference(chain), terminal.source, terminal.target)
    return _core_of(graph, terminal)


def _within(graph: Digraph, kept: set[int], source: int, target: int) -> TerminalDag:
    """The two-terminal DAG of the edges `kept`, in the numbers of `graph`."""
    indices = sorted(kept)
    terminal = trim(_subgraph(graph, kept), source, target)
    assert isinstance(terminal, TerminalDag)
    return TerminalDag(graph, source, target, terminal.vertices, tuple(indices[e] for e in terminal.edges))


def _subgraph(graph: Digraph, kept: set[int]) -> Digraph:
    return Digraph(graph.order, (graph.edges[e] for e in sorted(kept)))


def _core_of(graph: Digraph, terminal: TerminalDag) -> Subdivision:
    """The kernel of an edge-minimal violation, without the chains to its first and from its last branching."""
    first = next(v for v in terminal.vertices if len(terminal.out_edges[v]) > 1)
    last = next(v for v in reversed(terminal.vertices) if len(terminal.in_edges[v]) > 1)
    kernel = contract(_within(graph, set(terminal.edges), first, last))
    core = kernel.multigraph
    return Subdivision(Digraph(core.order, core.edges), kernel.vertices, kernel.chains)


# ------------------------------------------------------------------------------------------------- the basis


@cache
def forbidden_basis(k: int) -> tuple[Digraph, ...]:
    """F_k: every core for k, one of each isomorphism class, by vertices, edges and form.

    A graph is k-strongly few iff it has no directed cycle and no directed subdivision of a member. Every member has
    between k + 1 and 2k terminal paths, at most 2k vertices and at most 3k − 1 edges.

    Args:
        k: 1 … `MAX_LISTED`; |F_k| grows like 2^O(k log k).

    Raises:
        GraphError: k is out of this range.

    Cost: a second for k = 3.

    Source: Theorem 13.
    """
    if not 1 <= k <= MAX_LISTED:
        raise GraphError(f"the basis is listed for k = 1 … {MAX_LISTED}, not for {k}")
    found = {
        (order, len(edges), canonical_edges(order, edges))
        for order in range(2, 2 * k + 1)
        for edges in _candidates(order, k)
        if _is_core(order, edges, k)
    }
    return tuple(Digraph(order, edges) for order, _, edges in sorted(found))


def _candidates(order: int, k: int) -> Iterator[tuple[Edge, ...]]:
    """Acyclic multigraphs on 0 … order − 1 whose sinks' paths are k + 1 … 2k and whose cyclomatic number is at most k.

    Vertex by vertex, each with its edges from earlier ones; the cyclomatic number is the sum of in-degrees less one.
    """

    def extend(edges: tuple[Edge, ...], paths: tuple[int, ...], spare: int) -> Iterator[tuple[Edge, ...]]:
        vertex = len(paths)
        if vertex == order:
            if k < paths[-1] <= 2 * k:
                yield edges
            return
        for degree in range(1, spare + 2):
            for tails in combinations_with_replacement(range(vertex), degree):
                count = sum(paths[tail] for tail in tails)
                if count <= 2 * k:
                    more = tuple((tail, vertex) for tail in tails)
                    yield from extend(edges + more, (*paths, count), spare + 1 - degree)

    return extend((), (1,), k)


def _is_core(order: int, edges: Sequence[Edge], k: int) -> bool:
    """Branching terminals, no unary vertex, no dead end, and every edge needed for more than k paths."""
    out_degree, in_degree = [0] * order, [0] * order
    before, after = [1, *[0] * (order - 1)], [*[0] * (order - 1), 1]
    for tail, head in edges:  # by head, ascending: every edge into a tail has been seen
        out_degree[tail] += 1
        in_degree[head] += 1
        before[head] += before[tail]
    for tail, head in sorted(edges, reverse=True):
        after[tail] += after[head]
    if out_degree[0] < 2 or in_degree[-1] < 2:
        return False
    if any(out_degree[v] == 0 or in_degree[v] == out_degree[v] == 1 for v in range(1, order - 1)):
        return False
    return all(before[-1] - before[tail] * after[head] <= k for tail, head in edges)


def canonical_edges(order: int, edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """The least sorted edge list over all numberings of the inner vertices 1 … order − 2; isomorphic cores share it.

    Cost: (order − 2)! · m log m.
    """
    return min(
        tuple(sorted(((0, *inner, order - 1)[tail], (0, *inner, order - 1)[head]) for tail, head in edges))
        for inner in permutations(range(1, order - 1))
    )


# ------------------------------------------------------------------------------------------------- searching for a core


def find_subdivision(core: Digraph, graph: Digraph) -> Subdivision | None:
    """A directed subdivision of `core` in `graph`, by trying everything; for small graphs and as an oracle.

    Cost: exponential.
    """
    return next(_Search(core, graph).solutions(), None)


class _Search:
    """Edge by edge of the core: every path of the graph that keeps clear of what is used already."""

    def __init__(self, core: Digraph, graph: Digraph) -> None:
        self.core, self.graph = core, graph
        self.order = _breadth_first_edges(core)
        self.image: dict[int, int] = {}
        self.used_vertices: set[int] = set()
        self.used_edges: set[int] = set()
        self.chains: dict[int, tuple[int, ...]] = {}

    def solutions(self) -> Iterator[Subdivision]:
        for vertex in self.graph.vertices:
            self.image, self.used_vertices = {0: vertex}, {vertex}
            yield from self._place(0)

    def _place(self, index: int) -> Iterator[Subdivision]:
        if index == len(self.order):
            vertices = tuple(self.image[v] for v in self.core.vertices)
            yield Subdivision(self.core, vertices, tuple(self.chains[e] for e in range(self.core.size)))
            return
        edge = self.order[index]
        tail, head = self.core.edges[edge]
        for chain in self._paths(self.image[tail], self.image.get(head)):
            end = self.graph.edges[chain[-1]][1]
            inner = {self.graph.edges[e][1] for e in chain[:-1]}
            is_new = head not in self.image
            added = inner | ({end} if is_new else set())
            if is_new:
                self.image[head] = end
            self.used_vertices |= added
            self.used_edges.update(chain)
            self.chains[edge] = chain
            yield from self._place(index + 1)
            self.used_vertices -= added
            self.used_edges.difference_update(chain)
            if is_new:
                del self.image[head]

    def _paths(self, start: int, end: int | None) -> Iterator[tuple[int, ...]]:
        """Paths of unused edges from `start` through unused vertices to `end`, or to any unused vertex."""
        pending: list[tuple[int, tuple[int, ...], frozenset[int]]] = [(start, (), frozenset())]
        while pending:
            vertex, path, passed = pending.pop()
            for edge in self.graph.out_edges(vertex):
                head = self.graph.edges[edge][1]
                if edge in self.used_edges:
                    continue
                fresh = head not in self.used_vertices and head not in passed
                if head == end or (end is None and fresh):
                    yield (*path, edge)
                if head != end and fresh:
                    pending.append((head, (*path, edge), passed | {head}))


def _breadth_first_edges(core: Digraph) -> list[int]:
    """The edges of a core so that the tail of each is the source or the head of an earlier one."""
    order = core.topological_order()
    assert order is not None
    return [e for v in order for e in core.out_edges(v)]
