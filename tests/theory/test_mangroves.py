"""Theorem 14: path counts as the bounded fixed point, and as a product of mangroves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from math import ceil, log2

import pytest
from structure_graphs import FAMILIES, all_digraphs, random_digraphs

from stcon.theory.certificates import Cycle, TooManyWalks
from stcon.theory.check_structure import check_factors, check_path_counts
from stcon.theory.families import diamond_chain
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.mangroves import MangroveFactors, is_out_tree, mangrove_factors, path_count_matrix
from stcon.theory.walks import count_walks, is_strongly_few


def check_all(graphs: Iterable[Digraph], ks: Iterable[int] = (1, 2, 3)) -> None:
    for graph in graphs:
        for k in ks:
            matrix, factors = path_count_matrix(graph, k), mangrove_factors(graph, k)
            if is_strongly_few(graph, k):
                assert isinstance(matrix, tuple)
                assert check_path_counts(graph, k, matrix)
                assert isinstance(factors, MangroveFactors)
                assert check_factors(graph, k, factors)
                continue
            assert matrix == factors
            if isinstance(matrix, TooManyWalks):
                assert len(set(matrix.walks)) == k + 1
                assert count_walks(graph, matrix.source, matrix.target) > k
            else:
                assert isinstance(matrix, Cycle)


def test_fixed_point_and_factors_of_all_small_graphs() -> None:
    """On at most three vertices: a solution and a factorisation iff k-strongly few, verified; a reason otherwise."""
    for order in (1, 2, 3):
        check_all(all_digraphs(order))


def test_fixed_point_and_factors_of_random_and_extremal_graphs() -> None:
    """The same on random graphs with parallel edges and on the paper's families."""
    check_all(random_digraphs(41, 200), (1, 2, 4, 9))
    check_all(FAMILIES, (1, 3, 16))


@pytest.mark.long
def test_fixed_point_and_factors_of_all_graphs_on_four_vertices() -> None:
    """The same on all labelled digraphs on four vertices, and on thousands of random ones."""
    check_all(all_digraphs(4))
    check_all(random_digraphs(42, 3_000, largest=11), (1, 2, 5, 20))


def test_fixed_point_is_unique() -> None:
    """Brute force over all matrices with entries 0 … 2: a graph on two vertices has one solution or none."""
    matrices = [((a, b), (c, d)) for a in range(3) for b in range(3) for c in range(3) for d in range(3)]
    for graph in [*all_digraphs(2), Digraph(2, [(0, 1), (0, 1)]), Digraph(2, [(0, 1)] * 3)]:
        solutions = [matrix for matrix in matrices if check_path_counts(graph, 2, matrix)]
        found = path_count_matrix(graph, 2)
        assert solutions == ([found] if is_strongly_few(graph, 2) else [])


@pytest.mark.parametrize("length", range(1, 9))
def test_mangrove_factors_of_diamond_chains_are_optimal(length: int) -> None:
    """A chain of r diamonds needs r + 1 leaves at depth ⌈log₂(r + 1)⌉; exactly so many are used."""
    found = mangrove_factors(diamond_chain(length), 2**length)
    assert isinstance(found, MangroveFactors)
    assert len(found.leaves) == length + 1
    assert found.depth == ceil(log2(length + 1))


def set_partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All ways to share out `items`."""
    if not items:
        yield []
        return
    for rest in set_partitions(items[1:]):
        yield [[items[0]], *rest]
        for i, part in enumerate(rest):
            yield [*rest[:i], [items[0], *part], *rest[i + 1 :]]


@pytest.mark.parametrize("length", [1, 2])
def test_no_decomposition_of_a_diamond_chain_has_fewer_leaves(length: int) -> None:
    """Theorem 14's lower bound, over all partitions into path-convex mangroves: r + 1 parts are fewest."""
    graph = diamond_chain(length)

    def is_convex_mangrove(part: list[int]) -> bool:
        outside = [v for v in graph.vertices if v not in part]
        leaves = any(graph.descendants(u) & {v} and graph.descendants(v) & set(part) for u in part for v in outside)
        return not leaves and is_strongly_few(graph.induced(part), 1)

    sizes = [len(parts) for parts in set_partitions(list(graph.vertices)) if all(map(is_convex_mangrove, parts))]
    assert min(sizes) == length + 1


def test_check_factors_refuses_what_is_wrong() -> None:
    """Factors left out or swapped, one that is no mangrove, or a false depth, are refused."""
    graph = diamond_chain(2)
    found = mangrove_factors(graph, 4)
    assert isinstance(found, MangroveFactors)
    assert check_factors(graph, 4, found)
    for wrong in (
        dataclasses.replace(found, factors=found.factors[:-1]),
        dataclasses.replace(found, factors=found.factors[::-1]),
        dataclasses.replace(found, factors=(graph,), leaves=(frozenset(graph.vertices),)),
        dataclasses.replace(found, depth=5),
        dataclasses.replace(found, leaves=found.leaves[1:]),
    ):
        assert not check_factors(graph, 4, wrong)
    assert not check_factors(graph, 3, found)


def test_check_path_counts_refuses_what_is_wrong() -> None:
    """One entry off, a negative one, or a row missing."""
    matrix = ((1, 2), (0, 1))
    graph = Digraph(2, [(0, 1), (0, 1)])
    assert check_path_counts(graph, 2, matrix)
    assert not check_path_counts(graph, 1, matrix)
    assert not check_path_counts(graph, 2, ((1, 1), (0, 1)))
    assert not check_path_counts(graph, 2, ((1, 2),))


def test_no_graph_with_a_vertex_has_a_budget_of_zero() -> None:
    """The empty walk counts; a negative budget is an error."""
    assert path_count_matrix(Digraph(1), 0) == TooManyWalks(0, 0, ((),))
    assert path_count_matrix(Digraph(0), 0) == ()
    with pytest.raises(GraphError, match="cannot be negative"):
        path_count_matrix(Digraph(1), -1)


def test_out_trees_are_the_mangroves_of_one_root() -> None:
    """An out-tree is what brute force says: from the root exactly one walk to every vertex; and then a mangrove."""
    for graph in (*all_digraphs(3), *random_digraphs(43, 200)):
        counts = [count_walks(graph, 0, v) for v in graph.vertices]
        assert is_out_tree(graph, 0) == (counts == [1] * graph.order)
        assert not is_out_tree(graph, 0) or is_strongly_few(graph, 1)
