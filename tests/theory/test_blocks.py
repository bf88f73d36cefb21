"""Theorem 12: blocks multiply; and crossings, the one definition of a cut vertex, on any graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import networkx
import pytest
from structure_graphs import FAMILIES, all_digraphs, random_digraphs

from stcon.theory.biconnected import biconnected_blocks
from stcon.theory.blocks import BlockProduct, Crossings, block_product, crossings
from stcon.theory.certificates import Unreachable
from stcon.theory.check_structure import check_blocks, check_crossings
from stcon.theory.families import diamond_chain
from stcon.theory.graph import Digraph


def check_every_pair(graphs: Iterable[Digraph]) -> None:
    for graph in graphs:
        for source in graph.vertices:
            for target in graph.vertices:
                found = crossings(graph, source, target)
                product = block_product(graph, source, target)
                if isinstance(found, Unreachable):
                    assert found == product
                    continue
                assert check_crossings(graph, source, target, found)
                if isinstance(product, BlockProduct):
                    assert check_blocks(graph, product)
                    assert product.boundaries == found.vertices


def test_blocks_of_all_small_graphs() -> None:
    """On every pair: crossings verified by deleting each vertex; on acyclic ones they are the blocks' boundaries."""
    for order in (1, 2, 3):
        check_every_pair(all_digraphs(order))


def test_blocks_of_random_and_extremal_graphs() -> None:
    """The same on random graphs with parallel edges, and on the paper's families."""
    check_every_pair(random_digraphs(21, 300))
    check_every_pair(FAMILIES)


@pytest.mark.long
def test_blocks_of_all_graphs_on_four_vertices() -> None:
    """The same on all labelled digraphs on four vertices."""
    check_every_pair(all_digraphs(4))


@pytest.mark.long
def test_blocks_of_many_random_graphs() -> None:
    """The same on thousands of random graphs."""
    check_every_pair(random_digraphs(22, 5_000, largest=12))


@pytest.mark.parametrize("length", range(7))
def test_diamond_chain_attains_the_number_of_branching_blocks(length: int) -> None:
    """With r = k = 2^length, exactly ⌊log₂ k⌋ blocks have more than one path."""
    product = block_product(diamond_chain(length), 0, 3 * length)
    assert isinstance(product, BlockProduct)
    assert [block.num_paths for block in product.blocks] == [2] * length
    assert product.terminal.num_paths == 2**length


def test_crossings_of_a_graph_with_cycles() -> None:
    """A vertex on a cycle is not crossed exactly once, though every walk visits it."""
    graph = Digraph(6, [(0, 1), (1, 2), (2, 1), (2, 3), (3, 4), (3, 4), (4, 4), (4, 5)])
    found = crossings(graph, 0, 5)
    assert isinstance(found, Crossings)
    assert found.vertices == (0, 3, 5)
    assert [found.positions[v] for v in range(6)] == [1, 2, 2, 3, 4, 5]


def test_crossings_where_the_terminals_are_on_cycles() -> None:
    """Neither end need be a crossing."""
    graph = Digraph(3, [(0, 0), (0, 1), (1, 2), (2, 2)])
    found = crossings(graph, 0, 2)
    assert isinstance(found, Crossings)
    assert found.vertices == (1,)
    assert dict(found.positions) == {0: 0, 1: 1, 2: 2}


def test_check_crossings_refuses_what_is_wrong() -> None:
    """A crossing left out, added or misplaced, or a false position, is refused."""
    graph = diamond_chain(2)
    found = crossings(graph, 0, 6)
    assert isinstance(found, Crossings)
    assert found.vertices == (0, 3, 6)
    wrong = [Crossings(v, found.positions) for v in ((0, 6), (0, 1, 3, 6), (0, 6, 3), (0, 0, 3, 6))]
    wrong += [Crossings(found.vertices, {**found.positions, v: p}) for v, p in ((1, 4), (4, 2), (3, 4), (1, 3))]
    wrong.append(Crossings(found.vertices, {v: p for v, p in found.positions.items() if v != 1}))
    for each in wrong:
        assert not check_crossings(graph, 0, 6, each)
    assert check_crossings(graph, 0, 6, found)


def test_check_blocks_refuses_what_is_wrong() -> None:
    """Blocks merged, split, reordered, with a false count or of another graph are refused."""
    graph = diamond_chain(2)
    product = block_product(graph, 0, 6)
    assert isinstance(product, BlockProduct)
    first, second = product.blocks
    merged = dataclasses.replace(first, exit=6, edges=first.edges + second.edges, num_paths=4, cyclomatic_number=2)
    for blocks in (
        (second, first),
        (first,),
        (merged,),
        (dataclasses.replace(first, num_paths=3), second),
        (dataclasses.replace(first, cyclomatic_number=2), second),
        (dataclasses.replace(first, exit=1), second),
    ):
        assert not check_blocks(graph, BlockProduct(product.terminal, blocks))
    assert not check_blocks(Digraph(7, graph.edges[1:]), product)


def test_biconnected_blocks_agree_with_networkx() -> None:
    """On simple graphs the blocks are networkx's biconnected components; parallel edges and loops never split."""
    for graph in itertools.chain(random_digraphs(23, 300, largest=12), FAMILIES):
        blocks = biconnected_blocks(graph)
        assert sorted(e for block in blocks for e in block) == list(range(graph.size))
        simple = networkx.Graph(edge for edge in graph.edges if edge[0] != edge[1])
        wanted = {frozenset(part) for part in networkx.biconnected_components(simple)}
        found = [frozenset(v for e in block for v in graph.edges[e]) for block in blocks]
        assert {part for part in found if len(part) > 1} == wanted
        assert sum(len(part) > 1 for part in found) == len(wanted)
