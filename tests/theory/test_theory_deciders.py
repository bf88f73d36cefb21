"""Every decider against the definition, and its certificate against the independent checker."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import (
    all_digraphs,
    brute_counts,
    brute_strongly_few,
    complete,
    cycle,
    diamonds,
    digraphs,
    random_digraph,
)

from stcon.theory import counting, fingerprints, lift, oracle_free, pushdown, signed
from stcon.theory.budgets import PairBudget, RootBudget, StronglyFew
from stcon.theory.check import check_verdict
from stcon.theory.meters import TooMuchWork

ROOTED = {module.METHOD: module for module in (counting, pushdown, lift, signed, fingerprints)}
DECIDERS = {**ROOTED, oracle_free.METHOD: oracle_free}
HOSTILE = {
    "diamonds": diamonds(12),
    "cycle": cycle(9),
    "complete": complete(7),
    "loop": complete(1),
    "two cycles": cycle(4).__class__(8, [*cycle(4).edges, *((4 + u, 4 + v) for u, v in cycle(4).edges), (0, 4)]),
}


def holds(counts, instance):
    within = all(count <= instance.cap for row in counts for count in row)
    return within and counts[instance.source][instance.target] >= 1


def check_all(graph, *, caps=(0, 1, 2, 3), pairs=None):
    """All deciders on all given questions about one graph."""
    counts = brute_counts(graph)
    for cap in caps:
        for s, t in pairs or [(s, t) for s in graph.vertices for t in graph.vertices]:
            instance = StronglyFew(graph, s, t, cap)
            expected = holds(counts, instance)
            asked = instance.requirements
            for module in DECIDERS.values():
                verdict = module.decide_strongly_few(instance)
                assert verdict.answer == expected, (module.METHOD, graph, s, t, cap)
                assert check_verdict(asked, verdict), (module.METHOD, graph, s, t, cap)


@pytest.mark.parametrize("order", [1, 2])
def test_all_small_digraphs(order):
    """All labelled digraphs with loops on at most two vertices, all s, t, k ≤ 3."""
    for graph in all_digraphs(order):
        check_all(graph)


def test_all_digraphs_on_three_vertices():
    """All labelled digraphs without loops on three vertices, all s, t, k ≤ 3."""
    for graph in all_digraphs(3, loops=False):
        check_all(graph)


@pytest.mark.long
def test_all_digraphs_on_three_vertices_with_loops():
    """All 512 labelled digraphs with loops on three vertices, all s, t, k ≤ 3."""
    for graph in all_digraphs(3):
        check_all(graph)


@pytest.mark.long
def test_all_digraphs_on_four_vertices():
    """All 4,096 labelled digraphs without loops on four vertices, all s, t, k ≤ 3."""
    for graph in all_digraphs(4, loops=False):
        check_all(graph, caps=(1, 2, 3))


@pytest.mark.long
def test_all_digraphs_on_four_vertices_with_loops():
    """All 65,536 labelled digraphs with loops on four vertices, k ≤ 3; of the pairs s, t one a graph in turn."""
    for index, graph in enumerate(all_digraphs(4)):
        check_all(graph, caps=(1, 2, 3), pairs=[(index % 4, index // 4 % 4)])


def random_questions(number, seed):
    rng = random.Random(seed)
    for _ in range(number):
        graph = random_digraph(rng)
        pair = (rng.randrange(graph.order), rng.randrange(graph.order))
        check_all(graph, caps=(rng.choice([0, 1, 1, 2, 2, 3, 4, 6]),), pairs=[pair])


def test_random_digraphs():
    """Four hundred random graphs on at most eight vertices: acyclic, cyclic, sparse, dense, with parallel edges."""
    random_questions(400, seed=11)


@pytest.mark.long
def test_many_random_digraphs():
    """Forty thousand more."""
    random_questions(40_000, seed=12)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("method", DECIDERS)
def test_hostile_graphs_are_refused_with_a_certificate(name, method):
    """Cycles and exponentially many walks end in a certified no, from s = t too."""
    graph = HOSTILE[name]
    for s, t in [(0, graph.order - 1), (0, 0), (graph.order - 1, 0)]:
        instance = StronglyFew(graph, s, t, 2)
        verdict = DECIDERS[method].decide_strongly_few(instance)
        assert not verdict.answer
        assert check_verdict(instance.requirements, verdict)


@st.composite
def root_instances(draw):
    graph = draw(digraphs(max_order=4, max_size=7))
    vertex = st.integers(0, graph.order - 1)
    budgets = draw(st.lists(st.integers(0, 3), min_size=graph.order, max_size=graph.order))
    return RootBudget(graph, draw(vertex), tuple(budgets), draw(st.frozensets(vertex)))


@st.composite
def pair_instances(draw):
    graph = draw(digraphs(max_order=3, max_size=5))
    vertex = st.integers(0, graph.order - 1)
    row = st.lists(st.integers(0, 3), min_size=graph.order, max_size=graph.order).map(tuple)
    rows = draw(st.lists(row, min_size=graph.order, max_size=graph.order))
    return PairBudget(graph, tuple(rows), draw(vertex), draw(vertex))


@pytest.mark.parametrize("method", ROOTED)
@settings(deadline=None)
@given(instance=root_instances())
def test_root_budgets(method, instance):
    """RootBudget with uneven budgets, zero ones and any set of targets, against the definition."""
    counts = brute_counts(instance.graph)[instance.root]
    within = all(count <= budget for count, budget in zip(counts, instance.budgets, strict=True))
    verdict = DECIDERS[method].decide_root(instance)
    assert verdict.answer == (within and any(counts[f] for f in instance.targets))
    assert check_verdict(instance.requirements, verdict)


@pytest.mark.parametrize("method", ROOTED)
@settings(deadline=None)
@given(instance=pair_instances())
def test_pair_budgets(method, instance):
    """PairBudget with uneven budgets, against the definition."""
    counts = brute_counts(instance.graph)
    rows = zip(counts, instance.budgets, strict=True)
    within = all(count <= budget for row, budgets in rows for count, budget in zip(row, budgets, strict=True))
    verdict = DECIDERS[method].decide_pair(instance)
    assert verdict.answer == (within and counts[instance.source][instance.target] >= 1)
    assert check_verdict(instance.requirements, verdict)


@pytest.mark.parametrize("method", sorted(set(DECIDERS) - {counting.METHOD}))
def test_work_is_limited_where_asked(method):
    """With a step limit a decider refuses rather than running on, even at a k that no unary input could hold.

    The count alone needs no more for a large k.
    """
    instance = StronglyFew(complete(6), 0, 5, 10**9)
    with pytest.raises(TooMuchWork):
        DECIDERS[method].decide_strongly_few(instance, max_steps=20_000)


@settings(deadline=None)
@given(digraphs(max_order=5), st.integers(0, 3))
def test_brute_force_is_one_definition(graph, cap):
    """The two spellings of the definition used in these tests agree."""
    counts = brute_counts(graph)
    assert brute_strongly_few(graph, 0, 0, cap) == holds(counts, StronglyFew(graph, 0, 0, cap))
