"""The paper's extremal graphs: where the inequalities of the structure theorems hold with equality."""

from __future__ import annotations

from itertools import combinations, pairwise

from stcon.theory.graph import Digraph, GraphError


def diamond_chain(length: int) -> Digraph:
    """`length` diamonds in a row, from vertex 0 to the last one: 2^length walks, c = length, blocks of c = 1.

    Attains r = 2^c (Theorem 11), ⌊log₂ k⌋ branching blocks (Theorem 12), r + 1 mangroves at depth ⌈log₂(r + 1)⌉
    (Theorem 14), b(G) = 1 and λ(G) = 1 (Theorem 16). Merge vertex i is 3i.
    """
    edges = [
        edge
        for first in range(0, 3 * length, 3)
        for side in (first + 1, first + 2)
        for edge in ((first, side), (side, first + 3))
    ]
    return Digraph(3 * length + 1, edges)


def parallel_paths(count: int, length: int = 2) -> Digraph:
    """`count` ≥ 1 disjoint paths of `length` ≥ 1 edges from vertex 0 to vertex 1: r = c + 1, and width r if length ≥ 2.

    Attains c + 1 = r (Theorem 11) and the width bound (Theorem 15).
    """
    edges: list[tuple[int, int]] = []
    for path in range(count):
        inner = range(2 + path * (length - 1), 2 + (path + 1) * (length - 1))
        edges += pairwise((0, *inner, 1))
    return Digraph(2 + count * (length - 1), edges)


def chain_kernel(cyclomatic: int) -> Digraph:
    """c parallel pairs of edges in a row, a bridge before, between and behind them; from vertex 0 to the last.

    Its own kernel, with r = 2^c, c branch vertices, 2c + 2 vertices and 3c + 1 edges: Theorem 11's upper bounds.
    """
    edges: list[tuple[int, int]] = []
    for vertex in range(2 * cyclomatic + 1):
        edges += [(vertex, vertex + 1)] * (1 + vertex % 2)
    return Digraph(2 * cyclomatic + 2, edges)


def nested_kernel(cyclomatic: int) -> Digraph:
    """c ≥ 1 branchings in a row, then as many mergings, the i-th last of which takes the i-th branching's way out.

    Its own kernel, with r = c + 1 walks from vertex 0 to the last, hence 2r vertices and 3r − 2 edges: what Theorem 11
    says of k-strongly-few graphs is attained with k = r.
    """
    last = 2 * cyclomatic + 1
    edges = [(vertex, vertex + 1) for vertex in range(last)]
    edges += [(vertex, last - vertex) for vertex in range(1, cyclomatic + 1)]
    return Digraph(last + 1, edges)


def dense_few_path(order: int, k: int) -> Digraph:
    """A → B → C and A → C complete, |B| = k − 1, A and C as equal as can be: k-strongly few and dense.

    Every pair (a, c) has exactly k walks; ⌊(n − k + 1)²/4⌋ + (k − 1)(n − k + 1) edges.

    Raises:
        GraphError: k < 1 or fewer than k − 1 vertices.

    Source: Theorem 15, lower bound. For k = 1 it is the densest mangrove.
    """
    if k < 1 or order < k - 1:
        raise GraphError(f"the construction needs k ≥ 1 and at least k − 1 vertices, not k = {k} and {order}")
    middle = range(k - 1)
    half = (order - k + 1) // 2
    left, right = range(k - 1, k - 1 + half), range(k - 1 + half, order)
    edges = [(a, b) for a in left for b in middle]
    edges += [(b, c) for b in middle for c in right]
    edges += [(a, c) for a in left for c in right]
    return Digraph(order, edges)


def transitive_tournament(order: int) -> Digraph:
    """Every edge (u, v) with u < v: 2^(n − 2) walks from the first vertex to the last, C(n, 2) edges."""
    return Digraph(order, combinations(range(order), 2))


def oriented_cactus(cycles: int) -> Digraph:
    """Undirected cycles, each an edge beside a path of two, glued into a tree: b(G) = 1, whatever the number of cycles.

    Cycle i hangs at vertex ⌈i/2⌉, so the tree branches; the graph is acyclic.
    """
    edges: list[tuple[int, int]] = []
    for i in range(cycles):
        joint, middle, end = (i + 1) // 2, 2 * i + 1, 2 * i + 2
        edges += [(joint, middle), (middle, end), (joint, end)]
    return Digraph(2 * cycles + 1, edges)
