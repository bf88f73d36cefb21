"""Graphs to decide, and the definition by brute force: powers of the adjacency matrix, nothing else."""

import itertools
import math
import random
from collections.abc import Iterator

from hypothesis import strategies as st

from stcon.theory.graph import Digraph


def all_digraphs(order: int, *, loops: bool = True) -> Iterator[Digraph]:
    """Every labelled simple digraph on `order` vertices: 2^(n²) with loops, 2^(n(n−1)) without."""
    pairs = [(u, v) for u in range(order) for v in range(order) if loops or u != v]
    for mask in range(1 << len(pairs)):
        yield Digraph(order, [pair for index, pair in enumerate(pairs) if mask >> index & 1])


def brute_counts(graph: Digraph) -> list[list[int | float]]:
    """N(u, v) for all pairs.

    Walks of length below n are counted. A pair with infinitely many has one of length n … 2n − 1, since dropping cycles
    from a longer one shortens it by at most n at a time; a pair with a walk so long repeats a vertex, so has infinitely
    many.
    """
    n = graph.order
    adjacency = [[0] * n for _ in range(n)]
    for u, v in graph.edges:
        adjacency[u][v] += 1
    power = [[int(u == v) for v in range(n)] for u in range(n)]
    counts: list[list[int | float]] = [[0] * n for _ in range(n)]
    for length in range(2 * n):
        for u, v in itertools.product(range(n), repeat=2):
            if power[u][v]:
                counts[u][v] = counts[u][v] + power[u][v] if length < n else math.inf
        columns = list(zip(*adjacency, strict=True))
        power = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in power]
    return counts


def brute_strongly_few(graph: Digraph, source: int, target: int, cap: int) -> bool:
    """STCON_sf by definition."""
    counts = brute_counts(graph)
    return counts[source][target] >= 1 and all(count <= cap for row in counts for count in row)


def random_digraph(rng: random.Random, max_order: int = 8) -> Digraph:
    """A graph of one of several kinds: acyclic or not, sparse or dense, with or without parallel edges and loops."""
    n = rng.randint(1, max_order)
    kind = rng.choice(["acyclic", "acyclic", "tree", "any", "ladder", "nearly acyclic"])
    pairs = [(u, v) for u in range(n) for v in range(n)]
    if kind == "tree":
        edges = [(rng.randrange(v), v) for v in range(1, n) if rng.random() < 0.9]
        edges += [pair for pair in pairs if pair[0] < pair[1] and rng.random() < 0.05]
    elif kind == "ladder":
        edges = [(v, v + 1) for v in range(n - 1) for _ in range(rng.choice([1, 1, 2]))]
    else:
        density = rng.choice([0.1, 0.25, 0.5, 0.9]) if kind != "any" else rng.choice([0.05, 0.15, 0.5])
        edges = [(u, v) for u, v in pairs if (kind == "any" or u < v) and rng.random() < density]
        if kind == "nearly acyclic":
            edges.append(rng.choice(pairs))
    if edges and rng.random() < 0.1:
        edges.append(rng.choice(edges))
    names = rng.sample(range(n), n)  # a vertex' number says nothing of its place
    rng.shuffle(edges)
    return Digraph(n, [(names[u], names[v]) for u, v in edges])


@st.composite
def digraphs(draw, max_order: int = 6, max_size: int = 12) -> Digraph:
    """Any multigraph, loops allowed."""
    order = draw(st.integers(1, max_order))
    vertex = st.integers(0, order - 1)
    return Digraph(order, draw(st.lists(st.tuples(vertex, vertex), max_size=max_size)))


@st.composite
def acyclic_digraphs(draw, max_order: int = 6, max_size: int = 10) -> Digraph:
    """Any acyclic multigraph; edges lead to larger numbers."""
    order = draw(st.integers(1, max_order))
    pairs = [(u, v) for u in range(order) for v in range(u + 1, order)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=max_size)) if pairs else []
    return Digraph(order, edges)


def diamonds(number: int) -> Digraph:
    """A chain of diamonds: 2^number walks from vertex 0 to the last."""
    edges = []
    for first in range(0, 3 * number, 3):
        edges += [(first, first + 1), (first, first + 2), (first + 1, first + 3), (first + 2, first + 3)]
    return Digraph(3 * number + 1, edges)


def cycle(order: int) -> Digraph:
    """One directed cycle."""
    return Digraph(order, [(v, (v + 1) % order) for v in range(order)])


def complete(order: int) -> Digraph:
    """Every edge, loops too."""
    return Digraph(order, itertools.product(range(order), repeat=2))
