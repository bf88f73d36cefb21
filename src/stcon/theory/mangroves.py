"""Path counts as a bounded fixed point, and their factorisation into mangroves.

A graph is a mangrove if at most one walk joins any two vertices. Everything here answers for any graph: where it is
not k-strongly few, `Cycle` or `TooManyWalks` says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from math import isqrt

from stcon.theory.certificates import Cycle, TooManyWalks
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.terminal import TerminalDag, find_cycle, trim

Matrix = tuple[tuple[int, ...], ...]


def path_count_matrix(graph: Digraph, k: int) -> Matrix | Cycle | TooManyWalks:
    """The only solution C of C = I + AC with entries 0 … k, or why there is none.

    It exists iff the graph is k-strongly few, and then C[u][v] = N(u, v): so C is a certificate of fewness, which one
    multiplication verifies.

    Raises:
        GraphError: k is negative.

    Cost: O(n·m); counts stop at k + 1.

    Source: Theorem 14(i).
    """
    if k < 0:
        raise GraphError(f"k = {k}: the number of walks allowed cannot be negative")
    if (cycle := find_cycle(graph)) is not None:
        return cycle
    order = graph.topological_order()
    assert order is not None
    rows: dict[int, tuple[int, ...]] = {}
    for u in reversed(order):
        row = [0] * graph.order
        row[u] = 1
        for w in graph.successors(u):
            row = [a + b for a, b in zip(row, rows[w], strict=True)]
        excess = next((v for v, count in enumerate(row) if count > k), None)
        if excess is not None:
            return many_walks(graph, u, excess, k)
        rows[u] = tuple(row)
    return tuple(rows[u] for u in graph.vertices)


def many_walks(graph: Digraph, source: int, target: int, k: int) -> TooManyWalks:
    """The first k + 1 walks of a pair that has so many, in a graph without cycles. Cost: O(m + k·n)."""
    terminal = trim(graph, source, target)
    assert isinstance(terminal, TerminalDag)
    return TooManyWalks(source, target, tuple(islice(terminal.paths(), k + 1)))


def is_out_tree(graph: Digraph, root: int) -> bool:
    """Whether `root` reaches every vertex along exactly one walk: then the graph is a mangrove. Cost: O(n + m).

    Source: Proposition 1.
    """
    entered = all(len(graph.in_edges(v)) == (v != root) for v in graph.vertices)
    return entered and len(graph.descendants(root)) == graph.order


@dataclass(frozen=True)
class MangroveFactors:
    """Path counts as a product of mangroves' path counts.

    Attributes:
        graph: the graph that is factored; parallel edges of the given one have a vertex in their middle.
        factors: mangroves on the vertices of `graph`, in the order of the product. An odd number: the leaves of the
            recursion, and between any two a bridge.
        leaves: the vertex sets of the leaves, in the same order; each is path-convex.
        depth: of the recursion, 0 for a mangrove.
    """

    graph: Digraph
    factors: tuple[Digraph, ...]
    leaves: tuple[frozenset[int], ...]
    depth: int


def mangrove_factors(graph: Digraph, k: int) -> MangroveFactors | Cycle | TooManyWalks:
    """C = M₁M₂⋯M_r over the non-negative integers, each M_i the path counts of a mangrove.

    For k ≥ 2: r < 4 log₂ k, at depth at most 1 + ⌊log₂ log₂ k⌋. Each step splits the vertices by their largest number
    of walks from anywhere, at the square root of the largest of all (which may be less than k), into a part L and a
    part H that no walk leaves for L; only single edges lead from L to H.

    Raises:
        GraphError: k is negative.

    Cost: O(n·m) a level of the recursion.

    Source: Theorem 14(ii).
    """
    refuted = path_count_matrix(graph, k)
    if isinstance(refuted, (Cycle, TooManyWalks)):
        return refuted
    simple = graph.without_parallel_edges()
    order = simple.topological_order()
    assert order is not None
    factors, leaves, depth = _split(simple, order)
    return MangroveFactors(simple, tuple(factors), tuple(leaves), depth)


def _split(graph: Digraph, order: tuple[int, ...]) -> tuple[list[Digraph], list[frozenset[int]], int]:
    """The factors of the subgraph on the vertices `order` (topologically sorted)."""
    part = frozenset(order)
    most = _most_walks_into(graph, order)
    largest = max(most.values(), default=1)
    if largest <= 1:
        return [_restricted(graph, ((u, v) for u, v in graph.edges if u in part and v in part))], [part], 0
    root = isqrt(largest)
    low, high = (tuple(v for v in order if (most[v] <= root) is wanted) for wanted in (True, False))
    left, right = _split(graph, low), _split(graph, high)
    below, above = frozenset(low), frozenset(high)
    bridge = _restricted(graph, ((u, v) for u, v in graph.edges if u in below and v in above))
    return [*left[0], bridge, *right[0]], left[1] + right[1], 1 + max(left[2], right[2])


def _most_walks_into(graph: Digraph, order: tuple[int, ...]) -> dict[int, int]:
    """μ(v) = max over a of N(a, v), inside the vertices `order`."""
    into: dict[int, dict[int, int]] = {}
    for v in order:
        counts = {v: 1}
        for u in graph.predecessors(v):
            for a, count in into.get(u, {}).items():
                counts[a] = counts.get(a, 0) + count
        into[v] = counts
    return {v: max(counts.values()) for v, counts in into.items()}


def _restricted(graph: Digraph, edges: Iterable[tuple[int, int]]) -> Digraph:
    return Digraph(graph.order, edges, graph.names)
