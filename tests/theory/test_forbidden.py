"""Theorem 13: the forbidden subdivisions, listed for k ≤ 3, found in graphs, and searched for by brute force."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import networkx
import pytest
from structure_graphs import FAMILIES, all_digraphs, random_digraphs

from stcon.theory.certificates import Cycle
from stcon.theory.check_structure import check_subdivision
from stcon.theory.families import diamond_chain, parallel_paths
from stcon.theory.forbidden import (
    Subdivision,
    canonical_edges,
    find_subdivision,
    forbidden_basis,
    forbidden_subdivision,
)
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.walks import count_walks, is_strongly_few


def check_all(graphs: Iterable[Digraph], ks: Iterable[int] = (1, 2, 3)) -> None:
    for graph in graphs:
        for k in ks:
            found = forbidden_subdivision(graph, k)
            assert (found is None) == is_strongly_few(graph, k)
            if isinstance(found, Subdivision):
                assert check_subdivision(graph, k, found)
                form = canonical_edges(found.core.order, found.core.edges)
                assert k > 3 or form in {core.edges for core in forbidden_basis(k)}
            elif found is not None:
                walk = [graph.edges[e] for e in found.cycle]
                assert all(a[1] == b[0] for a, b in zip(walk, walk[1:] + walk[:1], strict=True))


def test_forbidden_basis_is_what_can_be_checked_by_hand() -> None:
    """F₁ is a pair of parallel edges; F₂ has seven members; F₃ has 53."""
    assert [core.edges for core in forbidden_basis(1)] == [((0, 1), (0, 1))]
    two = {core.edges for core in forbidden_basis(2)}
    assert ((0, 1),) * 3 in two
    assert ((0, 1), (0, 1), (1, 2), (1, 2)) in two
    assert ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3)) in two
    assert [len(forbidden_basis(k)) for k in (1, 2, 3)] == [1, 7, 53]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_forbidden_basis_members_are_cores_and_attain_the_bounds(k: int) -> None:
    """Every member passes the checker as its own subdivision; 2k vertices and 3k − 1 edges are attained."""
    basis = forbidden_basis(k)
    for core in basis:
        own = Subdivision(core, tuple(core.vertices), tuple((e,) for e in range(core.size)))
        assert check_subdivision(core, k, own)
    assert max(core.order for core in basis) == 2 * k
    assert max(core.size for core in basis) == 3 * k - 1
    counts = {count_walks(core, 0, core.order - 1) for core in basis}
    assert counts == {1: {2}, 2: {3, 4}, 3: {4}}[k]  # 2k is attained for k ≤ 2; for k = 3 no core has 5 or 6 paths


@pytest.mark.parametrize("k", [1, 2, 3])
def test_forbidden_basis_has_no_two_of_a_kind(k: int) -> None:
    """No member is isomorphic to another (networkx), and none is subdivided in another: all are needed."""
    basis = forbidden_basis(k)
    for i, core in enumerate(basis):
        for other in basis[:i]:
            assert not networkx.is_isomorphic(core.to_networkx(), other.to_networkx())
        for other in basis:
            assert other is core or find_subdivision(other, core) is None


def test_forbidden_subdivision_of_all_small_graphs() -> None:
    """On at most three vertices: none iff k-strongly few; a core of the basis otherwise, or a cycle."""
    for order in (1, 2, 3):
        check_all(all_digraphs(order))


def test_forbidden_subdivision_of_random_and_extremal_graphs() -> None:
    """The same on random graphs and the paper's families, with larger k too."""
    check_all(random_digraphs(31, 300), (1, 2, 3, 4, 7))
    check_all(FAMILIES, (1, 2, 3, 5))


@pytest.mark.long
def test_forbidden_subdivision_of_all_graphs_on_four_vertices() -> None:
    """The same on all labelled digraphs on four vertices, and on thousands of random ones."""
    check_all(all_digraphs(4))
    check_all(random_digraphs(32, 5_000, largest=12))


def test_searching_for_every_core_decides_fewness() -> None:
    """The theorem as it stands: k-strongly few iff acyclic and no member of F_k is found by brute force."""
    for graph in [*all_digraphs(3), *random_digraphs(33, 40, largest=6)]:
        for k in (1, 2, 3):
            hits = (find_subdivision(core, graph) for core in forbidden_basis(k))
            found = next((hit for hit in hits if hit is not None), None)
            acyclic = graph.topological_order() is not None
            assert is_strongly_few(graph, k) == (acyclic and found is None)
            assert found is None or check_subdivision(graph, k, found)


def test_forbidden_subdivision_of_exponentially_many_walks() -> None:
    """2^200 walks: a small core is found all the same."""
    found = forbidden_subdivision(diamond_chain(200), 3)
    assert isinstance(found, Subdivision)
    assert check_subdivision(diamond_chain(200), 3, found)


def test_forbidden_subdivision_names_a_cycle_first() -> None:
    """A loop is a cycle of one edge."""
    assert forbidden_subdivision(Digraph(2, [(0, 1), (1, 1)]), 1) == Cycle(1, (), (1,))


@pytest.mark.parametrize("k", [0, 4])
def test_forbidden_basis_refuses_other_k(k: int) -> None:
    """The list grows like 2^O(k log k), so it stops at 3; there is none for k = 0."""
    with pytest.raises(GraphError, match="listed for k = 1 … 3"):
        forbidden_basis(k)


def test_check_subdivision_refuses_what_is_wrong() -> None:
    """Chains that share a vertex, miss their ends or repeat an edge, and cores that are not minimal, are refused."""
    graph = parallel_paths(3, 2)
    found = forbidden_subdivision(graph, 2)
    assert isinstance(found, Subdivision)
    a, b, c = found.chains
    for chains in ((a, b), (a, b, b), (a, b, c[:1]), (a, b, c[::-1]), (a, b, ())):
        assert not check_subdivision(graph, 2, dataclasses.replace(found, chains=chains))
    assert not check_subdivision(graph, 2, dataclasses.replace(found, vertices=(0, 0)))
    assert not check_subdivision(graph, 1, found)
    assert not check_subdivision(graph, 3, found)
    joined = Digraph(4, [(0, 1), (0, 1), (1, 2), (1, 3), (2, 3)])  # vertex-disjointness fails at 1
    core = Digraph(2, [(0, 1)] * 2)
    assert not check_subdivision(joined, 1, Subdivision(core, (0, 3), ((0, 2, 4), (1, 3))))
