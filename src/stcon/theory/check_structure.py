"""The checker of the structure theorems' certificates: from the definitions alone, slow and plain on purpose.

Nothing here is used by a construction, and nothing of the theory is imported here but names for annotations. A graph is
read as its number of vertices and its list of edges. Each check says whether the object is what its theorem promises
for this graph, bounds included; a malformed object is False, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from math import log2, prod
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from stcon.theory.blocks import BlockProduct, Crossings
    from stcon.theory.branch_kernel import BranchKernel
    from stcon.theory.density import Density, Interval
    from stcon.theory.forbidden import Subdivision
    from stcon.theory.graph import Digraph
    from stcon.theory.mangroves import MangroveFactors
    from stcon.theory.terminal import CyclicWalk, TerminalDag

Edges = Sequence[tuple[int, int]]
P = ParamSpec("P")


def _total(check: Callable[P, bool]) -> Callable[P, bool]:
    """A malformed object is refused, whatever it makes `check` stumble over."""

    @wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            return check(*args, **kwargs)
        except (IndexError, KeyError, TypeError, ValueError):
            return False

    return checked


# ------------------------------------------------------------------------------------------------- two terminals


@_total
def check_cyclic_walk(graph: Digraph, source: int, target: int, found: CyclicWalk) -> bool:
    """Whether it is a walk from `source` to `target` that visits a vertex twice."""
    visited = [source, *(graph.edges[e][1] for e in found.walk)]
    return _end(graph.edges, source, found.walk) == target and len(set(visited)) < len(visited)


@_total
def check_terminal(graph: Digraph, terminal: TerminalDag) -> bool:
    """Whether it is all of the graph between its terminals, without cycles, in topological order."""
    order = {v: i for i, v in enumerate(terminal.vertices)}
    between = _between(graph.edges, terminal.source, terminal.target)
    inside = [e for e, (tail, head) in enumerate(graph.edges) if tail in between and head in between]
    return (
        set(order) == between
        and len(order) == len(terminal.vertices)
        and list(terminal.edges) == inside
        and all(order[graph.edges[e][0]] < order[graph.edges[e][1]] for e in inside)
    )


@_total
def check_kernel(graph: Digraph, kernel: BranchKernel) -> bool:
    """Theorem 11: chains are paths that share nothing and run through unary vertices only; all bounds hold."""
    terminal = kernel.terminal
    edges = [graph.edges[e] for e in terminal.edges]
    tails, heads = [tail for tail, _ in edges], [head for _, head in edges]
    unary = {v for v in terminal.vertices if tails.count(v) == heads.count(v) == 1}
    inner = [graph.edges[e][1] for chain in kernel.chains for e in chain[:-1]]
    c, r = len(edges) - len(terminal.vertices) + 1, _count(graph.order, edges, terminal.source, terminal.target)
    ends = (terminal.source, terminal.target)
    contracted = [(graph.edges[chain[0]][0], graph.edges[chain[-1]][1]) for chain in kernel.chains]
    branchings = sum(tails.count(v) > 1 for v in terminal.vertices)
    return (
        check_terminal(graph, terminal)
        and sorted(e for chain in kernel.chains for e in chain) == list(terminal.edges)
        and all(_end(graph.edges, graph.edges[chain[0]][0], chain) is not None for chain in kernel.chains)
        and set(inner) == unary
        and len(inner) == len(unary)
        and set(kernel.vertices) == set(terminal.vertices) - unary
        and _count(graph.order, contracted, *ends) == r == terminal.num_paths
        and _same_multigraph(kernel.multigraph, kernel.vertices, contracted)
        and c == terminal.cyclomatic_number
        and c + 1 <= r <= 2**c
        and branchings == len(kernel.branch_vertices) <= c
        and len(kernel.vertices) <= 2 * c + 2
        and len(kernel.chains) <= 3 * c + 1
    )


@_total
def check_crossings(graph: Digraph, source: int, target: int, found: Crossings) -> bool:
    """Whether the vertices are exactly those that every walk visits exactly once, in this order; and the positions."""
    edges = graph.edges
    between = _between(edges, source, target)
    once = {v for v in between if _is_crossed(edges, source, target, v)}
    positions = found.positions
    steps = {(positions[a], positions[b]) for a, b in edges if a in between and b in between}
    return (
        set(found.vertices) == once
        and len(found.vertices) == len(once)
        and set(positions) == between
        and [positions[v] for v in found.vertices] == list(range(1, 2 * len(once), 2))
        and all(positions[v] % 2 == 0 for v in between - once)
        and all(b - a in ((0, 1) if a % 2 == 0 else (1, 2)) for a, b in steps)
        and positions[source] <= 1
        and positions[target] >= 2 * len(once) - 1
    )


@_total
def check_blocks(graph: Digraph, product: BlockProduct) -> bool:
    """Theorem 12: the blocks share out the edges, are biconnected, meet at cut vertices only, and multiply up."""
    terminal, blocks = product.terminal, product.blocks
    cuts = [terminal.source, *(block.exit for block in blocks)]
    r = _count(graph.order, [graph.edges[e] for e in terminal.edges], terminal.source, terminal.target)
    sets = [{v for e in block.edges for v in graph.edges[e]} for block in blocks]
    for i, block in enumerate(blocks):
        inside = [graph.edges[e] for e in block.edges]
        if block.num_paths != _count(graph.order, inside, block.entry, block.exit) or not _is_biconnected(inside):
            return False
        if block.cyclomatic_number != len(inside) - len(sets[i]) + 1:
            return False
    return (
        check_terminal(graph, terminal)
        and cuts[-1] == terminal.target
        and [block.entry for block in blocks] == cuts[:-1]
        and sorted(e for block in blocks for e in block.edges) == list(terminal.edges)
        and all(a & b <= set(cuts) and len(a & b) <= 1 for i, a in enumerate(sets) for b in sets[:i])
        and prod(block.num_paths for block in blocks) == r
        and sum(block.cyclomatic_number for block in blocks) == len(terminal.edges) - len(terminal.vertices) + 1
        and 2 ** sum(block.num_paths > 1 for block in blocks) <= r
    )


# ------------------------------------------------------------------------------------------------- few walks


@_total
def check_path_counts(graph: Digraph, k: int, matrix: Sequence[Sequence[int]]) -> bool:
    """Theorem 14(i): C = I + AC with entries 0 … k; true proves the graph k-strongly few."""
    n = graph.order
    right = [[int(u == v) for v in range(n)] for u in range(n)]
    for tail, head in graph.edges:
        right[tail] = [a + b for a, b in zip(right[tail], matrix[head], strict=True)]
    return [list(row) for row in matrix] == right and all(0 <= entry <= k for row in matrix for entry in row)


@_total
def check_subdivision(graph: Digraph, k: int, found: Subdivision) -> bool:
    """Theorem 13: a core of the sizes promised, subdivided in the graph; true proves more than k walks."""
    core, last = found.core, found.core.order - 1
    paths = _count(core.order, core.edges, 0, last)
    inner = [graph.edges[e][1] for chain in found.chains for e in chain[:-1]]
    used = [e for chain in found.chains for e in chain]
    return (
        k < paths <= 2 * k
        and core.order <= 2 * k
        and core.size <= 3 * k - 1
        and all(_count(core.order, _without(core.edges, e), 0, last) <= k for e in range(core.size))
        and len(found.chains) == core.size
        and len(used) == len(set(used))
        and len({*inner, *found.vertices}) == len(inner) + core.order
        and all(
            chain and _end(graph.edges, found.vertices[tail], chain) == found.vertices[head]
            for chain, (tail, head) in zip(found.chains, core.edges, strict=True)
        )
    )


@_total
def check_factors(graph: Digraph, k: int, found: MangroveFactors) -> bool:
    """Theorem 14(ii): mangroves whose path counts multiply to the graph's, few of them, from a shallow recursion."""
    n, simple = graph.order, found.graph
    product = _identity(simple.order)
    for factor in found.factors:
        counts = [[_count(simple.order, factor.edges, u, v) for v in range(simple.order)] for u in range(simple.order)]
        if any(entry > 1 for row in counts for entry in row):
            return False
        product = _times(product, counts)
    wanted = [[_count(n, graph.edges, u, v) for v in range(n)] for u in range(n)]
    largest = max((entry for row in product for entry in row), default=1)
    small = k == 1 or (len(found.factors) < 4 * log2(k) and found.depth <= 1 + int(log2(max(1, log2(k)))))
    return (
        [row[:n] for row in product[:n]] == wanted
        and largest <= k
        and len(found.factors) == 2 * len(found.leaves) - 1 <= 2 ** (found.depth + 1) - 1
        and sorted(v for leaf in found.leaves for v in leaf) == list(range(simple.order))
        and all(_is_path_convex(simple.edges, leaf) for leaf in found.leaves)
        and small
    )


# ------------------------------------------------------------------------------------------------- density and width


@_total
def check_density(graph: Digraph, k: int, found: Density) -> bool:
    """Theorem 15 on a graph known to be k-strongly few: triangles as they are, and every inequality of the proof."""
    pairs, n = set(graph.edges), graph.order
    m = len(pairs)
    triangles = {
        (x, z): {y for y in range(n) if (x, y) in pairs and (y, z) in pairs}
        for x, z in pairs
        if any((x, y) in pairs and (y, z) in pairs for y in range(n))
    }
    t = sum(map(len, triangles.values()))
    return (
        found.edges == m
        and found.bound == min(n * (n - 1) // 2, (n * n + 3 * (k - 1) * n) // 4)
        and dict(found.triangles) == triangles
        and all(len(middle) <= k - 1 for middle in triangles.values())
        and t <= (k - 1) * m
        and 3 * t * n >= 4 * m * m - m * n * n
        and m <= found.bound
    )


@_total
def check_interval(graph: Digraph, found: Interval) -> bool:
    """Theorem 15: covers that cover, antichains as large as they, both at most N(u, v)."""
    terminal = found.terminal
    source, target = terminal.source, terminal.target
    r = _count(graph.order, [graph.edges[e] for e in terminal.edges], source, target)
    walked = {v for path in found.vertex_cover for v in (source, *(graph.edges[e][1] for e in path))}
    edge_ends = [(graph.edges[e][1], graph.edges[f][0]) for e in found.edge_antichain for f in found.edge_antichain]
    return (
        check_terminal(graph, terminal)
        and all(_end(graph.edges, source, path) == target for path in (*found.vertex_cover, *found.edge_cover))
        and walked == set(terminal.vertices)
        and {e for path in found.edge_cover for e in path} == set(terminal.edges)
        and len(set(found.antichain)) == len(found.antichain) == len(found.vertex_cover) == found.width <= r
        and all(a == b or b not in _reached(graph.edges, a) for a in found.antichain for b in found.antichain)
        and len(set(found.edge_antichain)) == len(found.edge_antichain)
        and (len(found.edge_antichain) == len(found.edge_cover) <= r or (source == target and not terminal.edges))
        and all(tail not in _reached(graph.edges, head) for head, tail in edge_ends)
    )


# ------------------------------------------------------------------------------------------------- plain means


def _end(edges: Edges, start: int, walk: Iterable[int]) -> int | None:
    """Where the walk from `start` ends; None if it is no walk."""
    for edge in walk:
        if edge < 0 or edges[edge][0] != start:
            return None
        start = edges[edge][1]
    return start


def _reached(edges: Edges, start: int) -> set[int]:
    """By repeating "and the heads of edges from there" until nothing is added."""
    reached, size = {start}, 0
    while len(reached) > size:
        size = len(reached)
        reached |= {head for tail, head in edges if tail in reached}
    return reached


def _between(edges: Edges, source: int, target: int) -> set[int]:
    backwards = [(head, tail) for tail, head in edges]
    between = _reached(edges, source) & _reached(backwards, target)
    return between if target in _reached(edges, source) else set()


def _count(order: int, edges: Edges, source: int, target: int) -> int:
    """N(source, target) by length; a walk of as many edges as vertices means infinitely many, an error here."""
    total, layer = 0, {source: 1}
    for _ in range(order):
        total += layer.get(target, 0)
        following: dict[int, int] = {}
        for tail, head in edges:
            if tail in layer:
                following[head] = following.get(head, 0) + layer[tail]
        layer = following
    if layer:
        raise ValueError("there are walks without end")
    return total


def _is_crossed(edges: Edges, source: int, target: int, vertex: int) -> bool:
    """Without it there is no way; from it no way back to it."""
    without = [(a, b) for a, b in edges if vertex not in (a, b)]
    between = _between(edges, source, target)
    leaving = [head for tail, head in edges if tail == vertex and head in between]
    inside = [(a, b) for a, b in edges if a in between and b in between]
    avoidable = vertex not in (source, target) and target in _reached(without, source)
    return not avoidable and not any(vertex in _reached(inside, head) for head in leaving)


def _is_biconnected(edges: Edges) -> bool:
    """One edge, or in one piece whichever vertex is taken out."""
    vertices = {v for edge in edges for v in edge}
    both = [*edges, *((b, a) for a, b in edges)]
    for removed in vertices if len(vertices) > 2 else ():
        rest = vertices - {removed}
        kept = [(a, b) for a, b in both if removed not in (a, b)]
        if _reached(kept, next(iter(rest))) != rest:
            return False
    return _reached(both, next(iter(vertices))) == vertices


def _same_multigraph(multigraph: Digraph, vertices: Sequence[int], edges: Edges) -> bool:
    """Whether `multigraph`, its vertices read as `vertices`, has exactly `edges`, in this order."""
    return [(vertices[tail], vertices[head]) for tail, head in multigraph.edges] == list(edges)


def _is_path_convex(edges: Edges, part: frozenset[int]) -> bool:
    """Whether walks between two of `part` stay inside it: no walk leaves it and comes back."""
    return all(part.isdisjoint(_reached(edges, head)) for tail, head in edges if tail in part and head not in part)


def _without(edges: Edges, index: int) -> Edges:
    return [edge for i, edge in enumerate(edges) if i != index]


def _identity(order: int) -> list[list[int]]:
    return [[int(u == v) for v in range(order)] for u in range(order)]


def _times(left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]
