"""Certificates, built once a decider knows its answer.

A decider brings what it computed: its counts for a yes, the source at which it saw a budget broken for a no. What it
cannot bring from logarithmic space (the walks themselves) is found here by ordinary search.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from stcon.theory.budgets import Requirements
from stcon.theory.certificates import Certificate, Cycle, Fits, TooManyCounted, TooManyWalks, Unreachable
from stcon.theory.graph import Digraph
from stcon.theory.walks import Walk, acyclic_part, enumerate_walks, walk_counts

MAX_LISTED = 10_000  # edges in an explicit list of walks; past it their numbers are given


def confirm(asked: Requirements, counts: Mapping[int, Sequence[int]]) -> Fits | Unreachable:
    """The certificate where every budget holds: a yes, or the set that keeps the source from its targets.

    Args:
        asked: the instance.
        counts: the decider's walk numbers, a row for each bounded source.

    Cost: O(n + m).
    """
    walk = shortest_walk(asked.graph, asked.source, asked.targets)
    if walk is None:
        return Unreachable(asked.graph.descendants(asked.source))
    return Fits({source: tuple(row) for source, row in counts.items()}, walk)


def refute(asked: Requirements, source: int) -> Certificate:
    """The certificate of a broken budget: some vertex ends more walks from `source` than it may.

    Args:
        asked: the instance.
        source: a bounded source with a broken budget; a decider that names one without is at fault.

    Cost: O(n + m) additions, and the size of the certificate.
    """
    graph, budgets = asked.graph, asked.budgets[source]
    cycle = _cycle_from(graph, source)
    if cycle is not None:
        return cycle
    counts = walk_counts(graph, source)
    over = [v for v in graph.vertices if counts[v] > budgets[v]]
    assert over, f"no budget of source {source} is broken"
    if (sum(budgets) + 1) * graph.order <= MAX_LISTED:
        return _listed(graph, source, budgets)
    order = acyclic_part(graph, source)
    return TooManyCounted(source, over[0], order, tuple(int(counts[v]) for v in order))


def shortest_walk(graph: Digraph, source: int, targets: frozenset[int]) -> Walk | None:
    """A walk of least length from `source` to one of `targets`; None if none is reached.

    Cost: O(n + m).
    """
    last_edge: dict[int, int | None] = {source: None}
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        if vertex in targets:
            return _traced(graph, last_edge, vertex)
        for edge in graph.out_edges(vertex):
            head = graph.edges[edge][1]
            if head not in last_edge:
                last_edge[head] = edge
                queue.append(head)
    return None


def _traced(graph: Digraph, last_edge: Mapping[int, int | None], vertex: int) -> Walk:
    walk: list[int] = []
    while (edge := last_edge[vertex]) is not None:
        walk.append(edge)
        vertex = graph.edges[edge][0]
    return tuple(reversed(walk))


def _cycle_from(graph: Digraph, source: int) -> Cycle | None:
    """A cycle that `source` reaches, with a walk to it.

    Every vertex reached but not in the acyclic part has a predecessor of the same kind; going back n times repeats one.
    """
    cyclic = graph.descendants(source) - set(acyclic_part(graph, source))
    if not cyclic:
        return None
    vertex = min(cyclic)
    seen: dict[int, int] = {}
    edges: list[int] = []
    while vertex not in seen:
        seen[vertex] = len(edges)
        edge = next(e for e in graph.in_edges(vertex) if graph.edges[e][0] in cyclic)
        edges.append(edge)
        vertex = graph.edges[edge][0]
    cycle = tuple(reversed(edges[seen[vertex] :]))
    approach = shortest_walk(graph, source, frozenset([vertex]))
    assert approach is not None
    return Cycle(source, approach, cycle)


def _listed(graph: Digraph, source: int, budgets: Sequence[int]) -> TooManyWalks:
    """The first κ(v) + 1 walks to the first v that has so many; among B + 1 walks there is such a v."""
    found: dict[int, list[Walk]] = defaultdict(list)
    for walk, end in enumerate_walks(graph, source):
        found[end].append(walk)
        if len(found[end]) > budgets[end]:
            return TooManyWalks(source, end, tuple(found[end]))
    raise AssertionError("fewer walks than counted")
