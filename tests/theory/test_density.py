"""Theorem 15: how dense few-path graphs can be, and how wide their intervals."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from math import comb

import pytest
from structure_graphs import FAMILIES, all_digraphs, random_digraphs

from stcon.theory.check_structure import check_cyclic_walk, check_density, check_interval
from stcon.theory.density import Density, Interval, density, edge_bound, interval
from stcon.theory.families import dense_few_path, parallel_paths, transitive_tournament
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.terminal import CyclicWalk
from stcon.theory.walks import count_walks, is_strongly_few


def check_all(graphs: Iterable[Digraph]) -> None:
    for graph in graphs:
        for k in (1, 2, 3):
            found = density(graph, k)
            assert isinstance(found, Density) == is_strongly_few(graph, k)
            assert not isinstance(found, Density) or check_density(graph, k, found)
        for source in graph.vertices:
            for target in graph.vertices:
                between = interval(graph, source, target)
                if isinstance(between, Interval):
                    assert check_interval(graph, between)
                elif isinstance(between, CyclicWalk):
                    assert check_cyclic_walk(graph, source, target, between)
                else:
                    assert count_walks(graph, source, target) == 0


def test_density_and_width_of_all_small_graphs() -> None:
    """Bounds, triangles, covers and antichains of every pair of every graph on at most three vertices, verified."""
    for order in (1, 2, 3):
        check_all(all_digraphs(order))


def test_density_and_width_of_random_and_extremal_graphs() -> None:
    """The same on random graphs with parallel edges and on the paper's families."""
    check_all(random_digraphs(51, 120))
    check_all(graph for graph in FAMILIES if graph.order < 12)


@pytest.mark.long
def test_density_and_width_of_all_graphs_on_four_vertices() -> None:
    """The same on all labelled digraphs on four vertices, and on thousands of random ones."""
    check_all(all_digraphs(4))
    check_all(random_digraphs(52, 3_000, largest=11))


@pytest.mark.parametrize("order", range(1, 6))
def test_edge_bound_holds_for_the_densest_graphs(order: int) -> None:
    """Over all DAGs on up to five vertices, the most edges of a k-strongly-few one is within the bound; equal for k = 1
    and where the tournament is few."""
    pairs = list(itertools.combinations(range(order), 2))
    most: dict[int, int] = {}
    for chosen in itertools.product((False, True), repeat=len(pairs)):
        graph = Digraph(order, itertools.compress(pairs, chosen))
        for k in (1, 2, 3, 4, 8):
            if graph.size > most.get(k, -1) and is_strongly_few(graph, k):
                most[k] = graph.size
    assert all(edges <= edge_bound(order, k) for k, edges in most.items())
    assert most[1] == edge_bound(order, 1)
    assert all(most[k] == comb(order, 2) == edge_bound(order, k) for k in most if 2 ** max(0, order - 2) <= k)


@pytest.mark.parametrize("order", [5, 8, 13])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_dense_few_path_is_as_dense_as_the_paper_says(order: int, k: int) -> None:
    """⌊(n − k + 1)²/4⌋ + (k − 1)(n − k + 1) edges, exactly k walks from A to C, at most one elsewhere."""
    graph = dense_few_path(order, k)
    assert graph.size == (order - k + 1) ** 2 // 4 + (k - 1) * (order - k + 1)
    counts = [count_walks(graph, u, v) for u in graph.vertices for v in graph.vertices]
    assert set(counts) <= {0, 1, k}
    assert counts.count(k) >= (order - k + 1) ** 2 // 4
    if k == 1:
        assert graph.size == edge_bound(order, 1)
    found = density(graph, k)
    assert isinstance(found, Density)
    assert found.num_triangles == ((order - k + 1) ** 2 // 4) * (k - 1)


@pytest.mark.parametrize("count", range(1, 6))
def test_parallel_paths_attain_the_width(count: int) -> None:
    """Width and both covers are N(u, v)."""
    found = interval(parallel_paths(count, 3), 0, 1)
    assert isinstance(found, Interval)
    assert found.width == len(found.vertex_cover) == len(found.edge_cover) == count


def test_width_can_be_far_below_the_number_of_paths() -> None:
    """A transitive tournament has 2^(n − 2) paths and width 1, yet its edges need ⌊n²/4⌋ paths."""
    found = interval(transitive_tournament(8), 0, 7)
    assert isinstance(found, Interval)
    assert (found.width, len(found.edge_cover), found.terminal.num_paths) == (1, 16, 64)


def test_check_interval_refuses_what_is_wrong() -> None:
    """Covers with a path too few, too many or broken, and chains called antichains, are refused."""
    graph = parallel_paths(2, 3)
    found = interval(graph, 0, 1)
    assert isinstance(found, Interval)
    assert check_interval(graph, found)
    a, b = found.vertex_cover
    for wrong in (
        dataclasses.replace(found, vertex_cover=(a,)),
        dataclasses.replace(found, vertex_cover=(a, a)),
        dataclasses.replace(found, vertex_cover=(a, b[1:])),
        dataclasses.replace(found, antichain=(2, 3)),
        dataclasses.replace(found, antichain=(2, 2)),
        dataclasses.replace(found, edge_cover=(a, b, b)),
        dataclasses.replace(found, edge_antichain=(0, 1)),
    ):
        assert not check_interval(graph, wrong)


def test_dense_few_path_refuses_too_few_vertices() -> None:
    """B alone has k − 1 vertices."""
    with pytest.raises(GraphError, match="at least k − 1 vertices"):
        dense_few_path(2, 5)


def test_check_density_refuses_what_is_wrong() -> None:
    """A false bound, edge count or triangle list, and a k that is too small, are refused."""
    graph = transitive_tournament(4)
    found = density(graph, 4)
    assert isinstance(found, Density)
    assert check_density(graph, 4, found)
    triangles = dict(found.triangles)
    for wrong in (
        dataclasses.replace(found, edges=5),
        dataclasses.replace(found, bound=7),
        dataclasses.replace(found, triangles={}),
        dataclasses.replace(found, triangles={**triangles, (0, 3): frozenset({1})}),
    ):
        assert not check_density(graph, 4, wrong)
    assert not check_density(graph, 1, dataclasses.replace(found, bound=edge_bound(4, 1)))
