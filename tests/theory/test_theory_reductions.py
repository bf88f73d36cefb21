"""The completeness reductions preserve answers."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import acyclic_digraphs, all_digraphs, brute_counts, digraphs, random_digraph

from stcon.theory.deciders import ROOT, STRONGLY_FEW, decide
from stcon.theory.graph import GraphError
from stcon.theory.program import Program, configuration_graph
from stcon.theory.reductions import (
    TwoCones,
    capped_pair,
    few_path_machine,
    layered_dag,
    majority_gadget,
    multiplied_root,
    recognition,
    recognition_to_two_cones,
    root_few,
    unreachability_to_capped_pair,
)


def answer(instance):
    return decide(instance).answer


@settings(deadline=None)
@given(digraphs(max_order=5), st.integers(1, 3), st.integers(0, 4))
def test_a_multiplied_root_multiplies(graph, cap, target):
    """RootFew_1 at the old root iff RootFew_k at the new one, and the counts are k-fold."""
    target %= graph.order
    multiplied, root = multiplied_root(graph, 0, cap)
    counts, before = brute_counts(multiplied)[root], brute_counts(graph)[0]
    assert counts[: graph.order] == [cap * count for count in before]
    assert answer(root_few(multiplied, root, target, cap)) == answer(root_few(graph, 0, target, 1))


def test_layers_make_a_dag_with_the_same_answer():
    """STCON_ru on every graph of three vertices, cyclic or not, and its layered DAG agree; k-fold too."""
    for graph in all_digraphs(3):
        dag, source, target = layered_dag(graph, 0, 2)
        assert dag.topological_order() is not None
        expected = answer(root_few(graph, 0, 2, 1))
        assert answer(root_few(dag, source, target, 1)) == expected
        multiplied, root = multiplied_root(dag, source, 2)
        assert answer(root_few(multiplied, root, target, 2)) == expected


@settings(deadline=None)
@given(digraphs(max_order=5), st.integers(1, 3))
def test_recognition_is_two_cones(graph, cap):
    """⟨G, s⟩ is rooted k-few iff ⟨H, r, z⟩ is in FBFew_{k,1}, with any decider of root budgets."""
    cones = recognition_to_two_cones(graph, 0, cap)
    verdicts = cones.decide("logdcfl")
    assert all(verdict.answer for verdict in verdicts) == answer(recognition(graph, 0, cap))


@settings(deadline=None)
@given(digraphs(max_order=5), st.integers(1, 3), st.integers(1, 3))
def test_two_cones_by_definition(graph, forward, backward):
    """FBFew_{k,ℓ} bounds the walks out of s by k and into t by ℓ."""
    counts = brute_counts(graph)
    target = graph.order - 1
    expected = max(counts[0]) <= forward and max(row[target] for row in counts) <= backward and counts[0][target] >= 1
    verdicts = TwoCones(graph, 0, target, forward, backward).decide()
    assert all(verdict.answer for verdict in verdicts) == expected


@settings(deadline=None)
@given(acyclic_digraphs(), st.integers(0, 3))
def test_unreachability_is_a_capped_pair(graph, cap):
    """On a DAG, t is unreachable iff the new pair has at most k walks."""
    target = graph.order - 1
    capped, root, end = unreachability_to_capped_pair(graph, 0, target, cap)
    assert capped_pair(capped, root, end, cap) == (target not in graph.descendants(0))


@settings(deadline=None)
@given(digraphs(max_order=5), st.integers(0, 4))
def test_a_capped_pair_by_definition(graph, cap):
    """A DAG with at most k walks from the first vertex to the last; a cyclic graph never is."""
    cyclic = graph.topological_order() is None
    assert capped_pair(graph, 0, graph.order - 1, cap) == (not cyclic and brute_counts(graph)[0][-1] <= cap)


FEW = """
        guess i n
        read b i
        if b != 1 goto no
        guess j 1
        set j 0
        accept
no:     reject
"""


@pytest.mark.parametrize("method", STRONGLY_FEW)
def test_few_path_machines_reduce_to_the_language(method):
    """Theorem 7: the machine (at most 2n paths between configurations) accepts iff the instance is in STCON_sf."""
    program = Program.parse(FEW, bound=lambda n: n + 1, clock=lambda n: 10)
    for word in itertools.product((0, 1), repeat=2):
        built = configuration_graph(program, word)
        instance = few_path_machine(built, 4)
        assert instance.graph.is_simple
        if method == "nl" and sum(word) == 2:
            continue  # q₀ ≈ 5,000 points, seconds
        assert decide(instance, method).answer == any(word)


def coin_program(rng, flips):
    """p coin flips into a register, then acceptance of a random set of outcomes; deterministic in between."""
    lines = []
    for index in range(flips):
        lines += ["guess c 1", f"if c = 0 goto zero{index}", f"add r {2**index}", f"zero{index}: set c 0"]
    accepted = rng.sample(range(2**flips), rng.randint(0, 2**flips))
    lines += [f"if r = {value} goto yes" for value in accepted]
    lines += ["reject", "yes: accept"]
    return Program.parse("\n".join(lines), bound=lambda n: 2**flips, clock=lambda n: 100), len(accepted)


@pytest.mark.parametrize("flips", [1, 2, 3, 4])
def test_the_majority_gadget(flips):
    """Theorem 6(ii): the instance with binary k holds iff at most half of the coin paths accept."""
    rng = random.Random(flips)
    seen = set()
    for _ in range(12):
        program, accepted = coin_program(rng, flips)
        instance = majority_gadget(configuration_graph(program, ()), flips)
        expected = accepted <= 2 ** (flips - 1)
        seen.add(expected)
        assert answer(instance) == expected, (flips, accepted)
        # no other pair comes near the threshold
        counts = brute_counts(instance.graph) if instance.graph.order < 40 else []
        others = [c for u, row in enumerate(counts) for v, c in enumerate(row) if (u, v) != (0, instance.target)]
        assert all(count <= 2 ** (flips + 1) for count in others)
    assert seen == {True, False}


def test_the_majority_gadget_needs_a_flip():
    """Half of one path is no number."""
    program, _ = coin_program(random.Random(0), 1)
    with pytest.raises(GraphError):
        majority_gadget(configuration_graph(program, ()), 0)


@pytest.mark.parametrize("method", ROOT)
def test_rooted_hardness_instances_for_every_decider(method):
    """Reduced instances of random graphs are decided alike by every root decider."""
    rng = random.Random(3)
    for _ in range(12):
        graph = random_digraph(rng, 4)
        multiplied, root = multiplied_root(graph, 0, 2)
        instance = root_few(multiplied, root, graph.order - 1, 2)
        assert decide(instance, method).answer == answer(root_few(graph, 0, graph.order - 1, 1))
