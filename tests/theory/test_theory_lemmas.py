"""The lemmas behind the deciders, each as it is stated."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import brute_counts, digraphs

from stcon.theory.budgets import RootBudget, StronglyFew
from stcon.theory.graph import Digraph
from stcon.theory.lift import Lift, explore, lift_prime
from stcon.theory.meters import Meters
from stcon.theory.oracle_free import HashedUnfolding, unfolding_prime
from stcon.theory.walks import bounded_counts, is_strongly_few

SMALL = settings(deadline=None, max_examples=60)


def path_numbers(layered):
    """How many paths lead from the start to each state, layer by layer."""
    numbers, layer = Counter(), Counter([layered.start])
    while layer:
        numbers += layer
        following = Counter()
        for state, count in layer.items():
            for successor in layered.successors(state):
                following[successor] += count
        layer = following
    return numbers


def of_length(graph, source, length):
    """N_i(source, v) for every v."""
    upto, before = bounded_counts(graph, source, length), bounded_counts(graph, source, length - 1)
    return [a - b for a, b in zip(upto, before, strict=True)] if length else [int(v == source) for v in graph.vertices]


@SMALL
@given(digraphs(max_order=4, max_size=6), st.integers(1, 4), st.integers(0, 6))
def test_walks_are_root_paths_of_the_lift(graph, depth, point):
    """Lemma 4: paths of H_α over (v, d) are the walks of length d to v, for every α, colliding or not."""
    numbers = path_numbers(Lift(graph, 0, depth, 7, point))
    for length in range(depth + 1):
        fibres = [sum(c for (v, d, _), c in numbers.items() if (v, d) == (w, length)) for w in graph.vertices]
        assert fibres == of_length(graph, 0, length)


@SMALL
@given(digraphs(max_order=4, max_size=6), st.integers(1, 4), st.integers(0, 6))
def test_walks_are_root_paths_of_the_hashed_unfolding(graph, depth, point):
    """Lemma 5, the same for Γ_{a,α} and vertex sequences."""
    simple = graph.without_parallel_edges()
    numbers = path_numbers(HashedUnfolding(simple, 0, depth, 7, point))
    for length in range(depth + 1):
        fibres = [sum(c for (v, d, _), c in numbers.items() if (v, d) == (w, length)) for w in simple.vertices]
        assert fibres == of_length(simple, 0, length)


@SMALL
@given(digraphs(max_order=4, max_size=6), st.integers(1, 4), st.integers(0, 6))
def test_certified_means_one_path_a_state(graph, depth, point):
    """Exploration certifies exactly the lifts in which no state has two paths, and then fibres are N^{≤ B}."""
    lift = Lift(graph, 0, depth, 7, point)
    shown = explore(lift, None, Meters())
    assert shown.certified == (max(path_numbers(lift).values()) == 1)
    if shown.certified:
        assert shown.fibres == bounded_counts(graph, 0, depth)


@SMALL
@given(digraphs(max_order=4, max_size=6), st.integers(1, 3))
def test_few_points_collide(graph, cap):
    """Lemma 3: if all budgets hold, at most (B − 1) S points fail to separate, and (B − 1) S < p."""
    counts = brute_counts(graph)[0]
    if max(counts) > cap:
        return
    instance = RootBudget(graph, 0, (cap,) * graph.order, frozenset())
    total, pairs = instance.total, graph.order * cap * (cap - 1) // 2
    prime = lift_prime(instance)
    lifts = (Lift(graph, 0, total, prime, point) for point in range(min(prime, 500)))
    assert sum(not explore(lift, None, Meters()).certified for lift in lifts) <= (total - 1) * pairs < prime


@settings(deadline=None, max_examples=30)
@given(digraphs(max_order=3, max_size=5), st.integers(1, 2))
def test_few_points_fail_to_certify(graph, cap):
    """Lemma 7: where Σ_v N^{≤ L}(a, v) ≤ nk, at most L (nk)² < p points fail to certify Γ_{a,α}."""
    simple = graph.without_parallel_edges()
    instance = StronglyFew(simple, 0, 0, cap)
    length, prime = instance.source_budget, unfolding_prime(instance)
    if sum(bounded_counts(simple, 0, length)) > length:
        return
    unfoldings = (HashedUnfolding(simple, 0, length, prime, point) for point in range(min(prime, 500)))
    assert sum(not explore(one, None, Meters()).certified for one in unfoldings) <= length**3 < prime


@SMALL
@given(digraphs(max_order=4, max_size=7), st.integers(1, 3))
def test_the_walk_tree_and_the_budget(graph, cap):
    """Lemma 10: the tree of walks of length ≤ nk has ≤ nk nodes on good inputs, more on a cycle; exact if acyclic."""
    budget = graph.order * cap
    counts = brute_counts(graph)
    acyclic = graph.topological_order() is not None
    for source in graph.vertices:
        bounded = bounded_counts(graph, source, budget)
        assert not is_strongly_few(graph, cap) or sum(bounded) <= budget
        assert counts[source][source] == 1 or sum(bounded) >= budget + 1
        assert not acyclic or list(bounded) == counts[source]


def test_copies_are_what_keeps_pairs_apart():
    """Without copies a universal source bounds only Σ_a N(a, v): two sources into one sink look like two walks."""
    graph = Digraph(3, [(0, 2), (1, 2)])
    joined = Digraph(4, [*graph.edges, *((3, v) for v in graph.vertices)])
    assert is_strongly_few(graph, 1)
    assert brute_counts(joined)[3][2] == 3
