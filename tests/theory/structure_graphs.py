"""Graphs for the structure theorems' tests: all small ones, random ones, and those of the paper."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from stcon.theory.families import (
    chain_kernel,
    dense_few_path,
    diamond_chain,
    nested_kernel,
    oriented_cactus,
    parallel_paths,
    transitive_tournament,
)
from stcon.theory.graph import Digraph

FAMILIES = [
    *(diamond_chain(length) for length in range(6)),
    *(parallel_paths(count, length) for count in range(1, 5) for length in (1, 2, 3)),
    *(chain_kernel(c) for c in range(5)),
    *(nested_kernel(c) for c in range(1, 6)),
    *(dense_few_path(n, k) for n in (4, 7, 9) for k in (1, 2, 3)),
    *(transitive_tournament(n) for n in range(1, 6)),
    *(oriented_cactus(cycles) for cycles in range(5)),
]


def all_digraphs(order: int, *, loops: bool = True) -> Iterator[Digraph]:
    """Every labelled digraph without parallel edges."""
    pairs = [(a, b) for a in range(order) for b in range(order) if loops or a != b]
    for chosen in itertools.product((False, True), repeat=len(pairs)):
        yield Digraph(order, itertools.compress(pairs, chosen))


def random_digraphs(seed: int, count: int, *, largest: int = 9) -> Iterator[Digraph]:
    """Four in five acyclic; parallel edges and loops occur."""
    rng = random.Random(seed)
    for _ in range(count):
        order = rng.randint(1, largest)
        edges = [(rng.randrange(order), rng.randrange(order)) for _ in range(rng.randint(0, int(order * 1.8)))]
        if rng.random() < 0.8:
            edges = [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]]
        names = rng.sample(range(order), order)
        yield Digraph(order, [(names[a], names[b]) for a, b in edges])
