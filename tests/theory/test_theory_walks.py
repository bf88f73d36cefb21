"""Walk numbers, Lemma 1 and Lemma 2, against powers of the adjacency matrix."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import acyclic_digraphs, all_digraphs, brute_counts, complete, cycle, diamonds, digraphs

from stcon.theory.budgets import (
    UNIVERSAL_ROOT,
    PairBudget,
    RootBudget,
    StronglyFew,
    respects,
    respects_truncated,
    universal_source,
    universal_vertex,
)
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.walks import (
    bounded_counts,
    capped_counts,
    count_walks,
    enumerate_walks,
    is_reach_few,
    is_strongly_few,
    walk_counts,
)


@settings(deadline=None)
@given(digraphs())
def test_walk_counts_are_matrix_sums(graph):
    """N(u, v) is the sum of the powers of the adjacency matrix, infinite where a cycle lies between."""
    assert [list(walk_counts(graph, u)) for u in graph.vertices] == brute_counts(graph)


@settings(deadline=None)
@given(acyclic_digraphs(), st.integers(0, 7), st.integers(0, 4))
def test_bounded_and_capped_counts_are_of_the_walks_enumerated(graph, length, cap):
    """N^{≤ L} and min{N^{≤ L}, cap} are the numbers of walks listed one by one."""
    for u in graph.vertices:
        ends = [end for walk, end in enumerate_walks(graph, u) if len(walk) <= length]
        exact = tuple(ends.count(v) for v in graph.vertices)
        assert bounded_counts(graph, u, length) == exact
        assert capped_counts(graph, u, length, cap) == tuple(min(count, cap) for count in exact)


def test_bounded_counts_on_a_complete_graph():
    """The complete graph with loops has n^i walks of length i from a vertex, spread evenly."""
    assert bounded_counts(complete(3), 0, 4) == (1 + 1 + 3 + 9 + 27, 1 + 3 + 9 + 27, 1 + 3 + 9 + 27)


def test_counts_are_exact_past_every_word():
    """A chain of 200 diamonds has 2^200 walks, counted exactly; a cycle has infinitely many."""
    assert count_walks(diamonds(200), 0, 600) == 2**200
    assert count_walks(cycle(5), 0, 3) == math.inf
    assert count_walks(cycle(5), 0, 3, max_length=13) == 3


@settings(deadline=None)
@given(digraphs(max_order=4), st.integers(1, 4))
def test_few_paths_by_definition(graph, cap):
    """`is_strongly_few` asks all pairs, `is_reach_few` one row."""
    counts = brute_counts(graph)
    assert is_strongly_few(graph, cap) == all(count <= cap for row in counts for count in row)
    assert is_reach_few(graph, 0, cap) == all(count <= cap for count in counts[0])


@settings(deadline=None)
@given(digraphs(max_order=5), st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_truncation_loses_nothing(graph, budgets):
    """Lemma 1: walks of length at most B = Σκ decide whether all budgets hold."""
    row = tuple(budgets[: graph.order])
    assert respects_truncated(graph, 0, row) == respects(graph, 0, row)


@pytest.mark.parametrize("order", [1, 2, 3, 7])
def test_truncation_depth_is_tight(order):
    """A cycle on B vertices with unit budgets respects them up to length B − 1 and breaks one at length B."""
    graph = cycle(order)
    assert max(bounded_counts(graph, 0, order - 1)) == 1
    assert max(bounded_counts(graph, 0, order)) == 2
    assert not respects_truncated(graph, 0, (1,) * order)


@settings(deadline=None)
@given(digraphs(max_order=4))
def test_universal_source_keeps_every_pair(graph):
    """Lemma 2: N_{U(G)}(ρ, (a, v)) = N_G(a, v) for all a and v, and one walk ends at ρ."""
    universal = universal_source(graph)
    counts = walk_counts(universal, UNIVERSAL_ROOT)
    assert counts[UNIVERSAL_ROOT] == 1
    expected = brute_counts(graph)
    for a in graph.vertices:
        assert [counts[universal_vertex(graph, a, v)] for v in graph.vertices] == expected[a]


def test_the_three_problems_agree():
    """STCON_sf, its PairBudget and its RootBudget on U(G) are one question, on all graphs of three vertices."""
    for graph in all_digraphs(3, loops=False):
        for cap in (0, 1, 2):
            instance = StronglyFew(graph, 0, 2, cap)
            answers = {instance.requirements.hold(), instance.pairs().rooted().requirements.hold()}
            answers.add(all(instance.pairs().row(a).requirements.hold() for a in graph.vertices))
            assert len(answers) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda graph: StronglyFew(graph, 0, 2, 1),
        lambda graph: StronglyFew(graph, -1, 0, 1),
        lambda graph: StronglyFew(graph, 0, 1, -1),
        lambda graph: RootBudget(graph, 0, (1,), frozenset()),
        lambda graph: RootBudget(graph, 0, (1, -1), frozenset()),
        lambda graph: RootBudget(graph, 0, (1, 1), frozenset([5])),
        lambda graph: PairBudget(graph, ((1, 1),), 0, 1),
    ],
)
def test_malformed_instances_are_refused(make):
    """A vertex that is none, a budget missing or negative, a negative k are errors, not answers."""
    with pytest.raises(GraphError):
        make(Digraph(2, [(0, 1)]))
