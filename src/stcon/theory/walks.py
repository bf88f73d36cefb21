"""Walks and their numbers: N(u, v), exact, bounded in length, or capped.

A walk follows edges and may repeat vertices; the empty walk is one walk from every vertex to itself, and parallel edges
give different walks. N(u, v) is infinite exactly when a directed cycle is reachable from u and reaches v; it is then
`math.inf`, which compares correctly with integers of every size.

Source: Definitions 1 and 2.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from stcon.theory.graph import Digraph

Count = int | float  # an exact integer, or math.inf; never another float
Walk = tuple[int, ...]  # the indices of its edges, in order


def count_walks(graph: Digraph, source: int, target: int, *, max_length: int | None = None) -> Count:
    """N(source, target), or N^{≤ max_length}(source, target): how many walks there are.

    Cost: that of `walk_counts` or `bounded_counts`.
    Source: Definition 1.
    """
    if max_length is None:
        return walk_counts(graph, source)[target]
    return bounded_counts(graph, source, max_length)[target]


def walk_counts(graph: Digraph, source: int) -> tuple[Count, ...]:
    """N(source, v) for every vertex v.

    Cost: O(n + m) additions of integers of up to min(n, m) · log₂ m bits.
    Source: Definition 1.
    """
    reached = graph.descendants(source)
    counts: list[Count] = [math.inf if v in reached else 0 for v in graph.vertices]
    for vertex in acyclic_part(graph, source):
        inner = sum(counts[tail] for tail in graph.predecessors(vertex) if tail in reached)
        counts[vertex] = inner + (vertex == source)
    return tuple(counts)


def acyclic_part(graph: Digraph, source: int) -> tuple[int, ...]:
    """The vertices that finitely many walks from `source` reach, in topological order.

    What a cycle reachable from `source` reaches keeps a predecessor for ever and is left out.

    Cost: O(n + m).
    """
    reached = graph.descendants(source)
    waiting = {v: sum(tail in reached for tail in graph.predecessors(v)) for v in reached}
    ready = deque([source] if not waiting[source] else [])
    order: list[int] = []
    while ready:
        vertex = ready.popleft()
        order.append(vertex)
        for head in graph.successors(vertex):
            waiting[head] -= 1
            if not waiting[head]:
                ready.append(head)
    return tuple(order)


def bounded_counts(graph: Digraph, source: int, max_length: int) -> tuple[int, ...]:
    """N^{≤ max_length}(source, v) for every vertex v, exact on every graph.

    Cost: O(max_length · m) additions of integers of up to max_length · log₂ m bits; less where all walks are shorter.
    """
    return capped_counts(graph, source, max_length, None)


def capped_counts(graph: Digraph, source: int, max_length: int, cap: int | None) -> tuple[int, ...]:
    """min{N^{≤ max_length}(source, v), cap} for every vertex v; no cap if it is None.

    Cost: O(max_length · m) additions; with a cap, of integers of log₂ cap bits.
    """
    totals = [0] * graph.order
    layer = {source: 1}
    for _ in range(max_length + 1):
        for vertex, count in layer.items():
            totals[vertex] = _saturated(totals[vertex] + count, cap)
        following: dict[int, int] = {}
        for vertex, count in layer.items():
            for head in graph.successors(vertex):
                following[head] = _saturated(following.get(head, 0) + count, cap)
        layer = following
        if not layer:
            break
    return tuple(_saturated(total, cap) for total in totals)


def _saturated(count: int, cap: int | None) -> int:
    return count if cap is None else min(count, cap)


def enumerate_walks(graph: Digraph, source: int) -> Iterator[tuple[Walk, int]]:
    """Every walk from `source` with its last vertex, shorter ones first; endless where a cycle is reachable.

    Cost: the walks not yet extended are kept.
    """
    waiting: deque[tuple[Walk, int]] = deque([((), source)])
    while waiting:
        walk, end = waiting.popleft()
        yield walk, end
        for edge in graph.out_edges(end):
            waiting.append(((*walk, edge), graph.edges[edge][1]))


def is_strongly_few(graph: Digraph, cap: int) -> bool:
    """Whether N(u, v) ≤ cap for every ordered pair of vertices.

    Cost: O(n (n + m)) additions.
    Source: Definition 2.
    """
    return all(count <= cap for source in graph.vertices for count in walk_counts(graph, source))


def is_reach_few(graph: Digraph, source: int, cap: int) -> bool:
    """Whether N(source, v) ≤ cap for every vertex v.

    Cost: O(n + m) additions.
    Source: Definition 2.
    """
    return all(count <= cap for count in walk_counts(graph, source))
