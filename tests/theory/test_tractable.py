"""Theorem 16: the two tractable regimes decide every instance, within the space they promise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from structure_graphs import FAMILIES, all_digraphs, random_digraphs

from stcon.theory.budgets import StronglyFew
from stcon.theory.check import check_verdict
from stcon.theory.cycle_space import BlockSpace
from stcon.theory.families import dense_few_path, diamond_chain, oriented_cactus, parallel_paths
from stcon.theory.graph import Digraph
from stcon.theory.meters import Meters, TooMuchWork, bits
from stcon.theory.tractable import (
    block_cyclomatic_width,
    decide_by_blocks,
    decide_by_terminal_width,
    terminal_width,
)


def check_all(graphs: Iterable[Digraph], ks: Iterable[int] = (0, 1, 2, 3), *, both_ways: bool = True) -> None:
    for graph in graphs:
        for k in ks:
            for source, target in ((0, graph.order - 1), (graph.order - 1, 0), (0, 0))[: 3 if both_ways else 1]:
                check_instance(StronglyFew(graph, source, target, k))


def check_instance(instance: StronglyFew) -> None:
    """Answers are brute force's, certificates hold, and meters are within the theorem's bounds."""
    graph, n, k = instance.graph, instance.graph.order, instance.cap
    answer = instance.requirements.hold()
    for decide in (decide_by_terminal_width, decide_by_blocks):
        verdict = decide(instance)
        assert verdict.answer == answer
        assert check_verdict(instance.requirements, verdict)
        if decide is decide_by_terminal_width:
            frames = verdict.meters.get("stack_frames", 0)
            assert frames <= max(0, k * terminal_width(graph) - 1)
            assert verdict.meters["stack_bits"] == frames * (2 * bits(n) + bits(graph.size))
            assert verdict.meters.get("nodes", 0) <= (n * n + n) * (n * k + 1)
        else:
            assert verdict.meters["selection_bits"] == block_cyclomatic_width(graph)


def test_tractable_deciders_on_all_small_graphs() -> None:
    """Every graph on at most three vertices, three pairs, k ≤ 3."""
    for order in (1, 2, 3):
        check_all(all_digraphs(order))


def test_tractable_deciders_on_random_and_extremal_graphs() -> None:
    """The same on random graphs with parallel edges and on the paper's families."""
    check_all(random_digraphs(61, 150), (1, 2, 4))
    check_all((graph for graph in FAMILIES if block_cyclomatic_width(graph) <= 6), (1, 2, 5))


@pytest.mark.long
def test_tractable_deciders_on_all_graphs_on_four_vertices() -> None:
    """The same on all labelled digraphs on four vertices (one pair), and on thousands of random ones."""
    check_all(all_digraphs(4), (1, 2, 3), both_ways=False)
    check_all(random_digraphs(62, 3_000, largest=10), (1, 2, 4))


def test_terminal_width_decider_uses_the_smaller_side() -> None:
    """A reversed broom has one sink and many sources; turned round, its walks never branch."""
    instance = StronglyFew(Digraph(6, [(v, 0) for v in range(1, 6)]), 3, 0, 1)
    verdict = decide_by_terminal_width(instance)
    assert verdict.answer
    assert verdict.evidence == {"terminal_width": 1, "reversed": False}
    assert verdict.meters["stack_frames"] == 0
    turned = decide_by_terminal_width(StronglyFew(instance.graph.reversed(), 0, 3, 1))
    assert turned.answer
    assert turned.evidence["reversed"] is True
    assert turned.meters["stack_frames"] == 0


@pytest.mark.parametrize("k", [1, 2, 5])
def test_terminal_width_decider_attains_its_frames(k: int) -> None:
    """A path with a shortcut from each vertex but the last two to the only sink: k walks, kλ − 1 = k − 1 frames."""
    edges = [(v, v + 1) for v in range(k)] + [(v, k) for v in range(k - 1)]
    verdict = decide_by_terminal_width(StronglyFew(Digraph(k + 1, edges), 0, k, k))
    assert verdict.answer
    assert verdict.meters.get("stack_frames", 0) == k - 1


def test_block_widths() -> None:
    """Chains of diamonds and oriented cacti have b = 1 whatever their cycle rank; a dense graph is one block."""
    assert block_cyclomatic_width(diamond_chain(9)) == block_cyclomatic_width(oriented_cactus(9)) == 1
    assert block_cyclomatic_width(parallel_paths(5)) == 4
    dense = dense_few_path(8, 2)
    assert block_cyclomatic_width(dense) == dense.size - dense.order + 1
    assert block_cyclomatic_width(Digraph(3, [(0, 1), (1, 2)])) == 0
    assert block_cyclomatic_width(Digraph(1, [(0, 0)])) == 1


def test_block_decider_is_quick_on_long_chains() -> None:
    """Forty diamonds, 2^40 walks: refused for a small k, at two vectors a pair of a block."""
    graph = diamond_chain(40)
    verdict = decide_by_blocks(StronglyFew(graph, 0, graph.order - 1, 3))
    assert not verdict.answer
    assert verdict.meters["vectors"] <= 2 * 40 * (1 + 4 * 3)


def test_cycle_space_lists_every_even_set_once() -> None:
    """2^c distinct sets, every vertex with even degree in each."""
    graph = dense_few_path(6, 2)
    space = BlockSpace(graph, tuple(range(graph.size)))
    listed = list(space._even_sets(0, Meters()))
    assert len(set(listed)) == len(listed) == 2**space.rank
    for selected in listed:
        for v in graph.vertices:
            around = (*graph.out_edges(v), *graph.in_edges(v))
            assert sum(selected >> e & 1 for e in around) % 2 == 0


@pytest.mark.parametrize("decide", [decide_by_terminal_width, decide_by_blocks])
def test_tractable_deciders_refuse_too_much_work(decide: object) -> None:
    """A limit on steps is kept."""
    assert callable(decide)
    with pytest.raises(TooMuchWork, match="more than 10 steps"):
        decide(StronglyFew(dense_few_path(8, 2), 0, 7, 2), max_steps=10)
