"""Meters stay within their bounds, the constructions' own evidence is verified, and false certificates are refused."""

import ast
import dataclasses
import importlib
import math
import random
import re
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import all_digraphs, brute_counts, complete, cycle, diamonds, digraphs, random_digraph

import stcon.theory
from stcon.theory import check, fingerprints, lift, oracle_free, pushdown, signed
from stcon.theory.budgets import PairBudget, RootBudget, StronglyFew
from stcon.theory.certificates import Cycle, Fits, TooManyCounted, TooManyWalks, Unreachable
from stcon.theory.check import check_certificate, check_fingerprints, check_gap, check_verdict
from stcon.theory.deciders import METHODS, decide
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.meters import Meters
from stcon.theory.space import savitch
from stcon.theory.walks import capped_counts


def tree(order):
    return Digraph(order, [((v - 1) // 2, v) for v in range(1, order)])


def test_the_pushdown_is_polynomial_and_logarithmic():
    """Theorem 8's bounds, measured: steps of n + n² capped traversals, nk stack frames, work-tape bits."""
    for graph in [tree(15), diamonds(4), cycle(6), complete(5)]:
        for cap in (1, 3, 16):
            instance = StronglyFew(graph, 0, graph.order - 1, cap)
            meters = pushdown.decide_strongly_few(instance).meters
            n, budget = graph.order, graph.order * cap
            degree = max(len(graph.successors(v)) for v in graph.vertices)
            assert meters["steps"] <= (n + n * n) * (budget + 1) * (degree + 1)
            assert meters["nodes"] <= (n + n * n) * (budget + 1)
            assert meters["stack_frames"] <= budget
            assert meters["work_tape_bits"] <= 13 * math.ceil(math.log2(instance.input_length + 1))


def test_a_bad_input_costs_no_more_than_the_first_pass():
    """2^20 walks: the traversal is aborted at node nk + 1, before any recount."""
    graph = diamonds(20)
    verdict = pushdown.decide_strongly_few(StronglyFew(graph, 0, 60, 2))
    assert not verdict.answer
    assert verdict.meters["nodes"] == 2 * 61 + 1


def test_traversal_of_a_cycle_overflows_at_the_budget():
    """A source on a cycle has a walk of every length, so exactly one node past the budget is entered."""
    traversal = pushdown.traverse(cycle(3), 0, 10, max_depth=10)
    assert (traversal.overflow, traversal.nodes) == (True, 11)


def test_traversal_counts_the_walk_tree():
    """In target mode a traversal that ends has counted the walks to the target."""
    traversal = pushdown.traverse(diamonds(3), 0, 100, target=9, max_hits=8)
    assert (traversal.overflow, traversal.hits) == (False, 8)
    assert traversal.nodes == sum(brute_counts(diamonds(3))[0])
    assert pushdown.traverse(diamonds(3), 0, 100, target=9, max_hits=7).overflow


@settings(deadline=None, max_examples=60)
@given(digraphs(max_order=5, max_size=7), st.integers(1, 3))
def test_the_lifts_evidence(graph, cap):
    """The least certifying point, its prime and the fibre counts, recomputed from walks listed by hand."""
    instance = RootBudget(graph, 0, (cap,) * graph.order, frozenset([0]))
    verdict = lift.decide_root(instance)
    if not verdict.answer:
        return
    evidence = verdict.evidence
    fibres = list(evidence["fibres"])
    claim = {"prime": evidence["prime"], "point": evidence["point"]}
    asked = instance.requirements
    assert check_fingerprints(asked, 0, **claim, fibres=fibres)
    assert not check_fingerprints(asked, 0, **claim, fibres=[*fibres[:-1], fibres[-1] + 1])
    assert evidence["prime"] > max(graph.size, instance.total * graph.order * cap * (cap - 1) // 2, 2)
    assert all(evidence["prime"] % divisor for divisor in range(2, evidence["prime"]))


def test_the_checker_refuses_colliding_points():
    """At α = 0 only the last edge counts: the walks that share it collide, and the claim is refused."""
    graph = Digraph(4, [(0, 1), (0, 1), (1, 2), (2, 3)])
    instance = RootBudget(graph, 0, (2,) * 4, frozenset([3]))
    evidence = lift.decide_root(instance).evidence
    claim = {"prime": evidence["prime"], "fibres": evidence["fibres"]}
    assert evidence["point"] == 1
    assert not check_fingerprints(instance.requirements, 0, point=0, **claim)
    assert not check_fingerprints(instance.requirements, 0, point=2, **claim)  # separates, but is not the least
    assert check_fingerprints(instance.requirements, 0, point=2, least_point=False, **claim)


@settings(deadline=None, max_examples=60)
@given(digraphs(max_order=4, max_size=6), st.integers(1, 2))
def test_stopping_early_changes_no_answer(graph, cap):
    """The controller to the letter and the one that stops at a fibre over its budget agree; Algorithm 2 likewise."""
    instance = StronglyFew(graph, 0, graph.order - 1, cap)
    rooted = instance.pairs().row(0)
    assert lift.decide_root(rooted, early=False).answer == lift.decide_root(rooted).answer
    simple = StronglyFew(graph, 0, 0, 1)
    if graph.order <= 3:
        literal = oracle_free.decide_strongly_few(simple, early=False).answer
        assert literal == oracle_free.decide_strongly_few(simple).answer


def test_a_diamond_needs_the_budget_comparison():
    """A separating lift of the diamond exists whatever the budget; only the exact fibre count of two refuses one."""
    instance = RootBudget(diamonds(1), 0, (1, 1, 1, 1), frozenset([3]))
    verdict = lift.decide_root(instance, early=False)
    assert not verdict.answer
    assert verdict.evidence["point"] is not None


@settings(deadline=None)
@given(digraphs(max_order=4), st.integers(0, 3))
def test_the_gap_is_the_sum_that_the_checker_computes(graph, cap):
    """Theorem 10's integer, from the counts; it is zero exactly on members, and one more is refused."""
    instance = StronglyFew(graph, 0, graph.order - 1, cap)
    verdict = signed.decide_strongly_few(instance)
    gap, counts = verdict.evidence["gap"], verdict.evidence["counts"]
    asked = instance.requirements
    assert check_gap(asked, counts, gap)
    assert not check_gap(asked, counts, gap + 1)
    assert (gap == 0) == asked.hold()
    assert gap == signed.gap_pair(instance.pairs())


def test_vanishing_products():
    """f (f − 1) ⋯ (f − κ) is zero for f ≤ κ only; without the first factor zero is excluded."""
    for budget in range(4):
        for count in range(8):
            assert (signed.vanishing(count, budget) == 0) == (count <= budget)
            assert (signed.vanishing(count, budget, positive=True) == 0) == (1 <= count <= budget)


@settings(deadline=None, max_examples=60)
@given(digraphs(max_order=4, max_size=6), st.integers(1, 3), st.integers(1, 4))
def test_averaged_fingerprints_count_exactly(graph, cap, depth):
    """Lemma 11: min{N^{≤ B}, K + 1} = min{⌈D / q₀⌉, K + 1}, on cyclic graphs too."""
    average = fingerprints.Average(graph, 0, depth, cap)
    assert fingerprints.averaged_counts(average) == capped_counts(graph, 0, depth, cap + 1)


@settings(deadline=None, max_examples=60)
@given(digraphs(max_order=4, max_size=6), st.integers(0, 4), st.integers(0, 4), st.data())
def test_walks_at_least_a_threshold(graph, threshold, length, data):
    """Theorem 6(i): whether a number of walks into a set reaches a polynomial threshold."""
    targets = data.draw(st.frozensets(st.integers(0, graph.order - 1)))
    exact = sum(capped_counts(graph, 0, length, None)[v] for v in targets)
    assert fingerprints.walks_at_least(graph, 0, targets, threshold, length) == (exact >= threshold)


def test_savitch_is_within_log_squared_space():
    """Midpoints decide reachability with at most ⌈log₂ n⌉ + 1 frames of three vertices and a bit."""
    rng = random.Random(2)
    for _ in range(40):
        graph = random_digraph(rng, 7)
        levels = math.ceil(math.log2(graph.order))
        for target in graph.vertices:
            found = savitch(graph, 0, target)
            assert found.reachable == (target in graph.descendants(0))
            assert found.frames <= levels + 1
            assert found.tape_bits <= (levels + 1) * (3 * levels + 4)


CERTIFIED = StronglyFew(diamonds(1), 0, 3, 2)
FALSE = [
    Fits(dict.fromkeys(range(4), (0, 0, 0, 0)), (0, 2)),
    Fits({0: (1, 1, 1, 2)}, (0, 2)),
    Unreachable(frozenset([0])),
    Unreachable(frozenset([0, 1, 2, 3])),
    Cycle(0, (), (0, 2)),
    Cycle(0, (), ()),
    TooManyWalks(0, 3, ((0, 2), (1, 3))),
    TooManyWalks(0, 3, ((0, 2), (1, 3), (0, 2))),
    TooManyWalks(0, 3, ((0, 2), (1, 3), (0,))),
    TooManyWalks(0, 9, ()),
    TooManyWalks(0, 3, ((0, -1), (1, 3), (1, 99))),
    TooManyCounted(0, 3, (0, 1, 2, 3), (1, 1, 1, 3)),
    TooManyCounted(0, 3, (0, 3, 1, 2), (1, 3, 1, 1)),
    TooManyCounted(0, 3, (0, 1, 3), (1, 1, 3)),
    TooManyCounted(0, 3, (), ()),
    TooManyCounted(0, 3, (0, 1, 2, 3), (1,)),
]


@pytest.mark.parametrize("certificate", FALSE, ids=[f"{i}-{type(c).__name__}" for i, c in enumerate(FALSE)])
def test_false_certificates_are_refused(certificate):
    """What proves nothing, or is malformed, is refused without a crash."""
    assert not check_certificate(CERTIFIED.requirements, certificate)


def test_a_certificate_of_another_answer_is_refused():
    """A true certificate does not carry the opposite answer."""
    verdict = decide(CERTIFIED)
    assert check_verdict(CERTIFIED.requirements, verdict)
    assert not check_verdict(CERTIFIED.requirements, dataclasses.replace(verdict, answer=False))


def test_certificates_of_bad_inputs_prove_only_bad_inputs():
    """No certificate of a no is accepted for any graph that is in the language: all graphs of three vertices."""
    noes = []
    for graph in all_digraphs(3, loops=False):
        verdict = decide(StronglyFew(graph, 0, 2, 1))
        if not verdict.answer:
            noes.append(verdict.certificate)
    members = [g for g in all_digraphs(3, loops=False) if decide(StronglyFew(g, 0, 2, 1)).answer]
    assert members
    for graph in members:
        asked = StronglyFew(graph, 0, 2, 1).requirements
        assert not any(check_certificate(asked, certificate) for certificate in set(noes))


@pytest.mark.parametrize("method", METHODS)
def test_one_vertex(method):
    """The smallest graph: s = t by the empty walk; k = 0 forbids even that; a loop is a cycle."""
    single, loop = Digraph(1), Digraph(1, [(0, 0)])
    assert decide(StronglyFew(single, 0, 0, 1), method).answer
    assert not decide(StronglyFew(single, 0, 0, 0), method).answer
    assert not decide(StronglyFew(loop, 0, 0, 5), method).answer


def test_methods_are_refused_where_they_do_not_apply():
    """A name that is no method, and Algorithm 2 for other budgets, are errors."""
    with pytest.raises(GraphError, match="no method"):
        decide(CERTIFIED, "guess")
    with pytest.raises(GraphError, match="STCON_sf only"):
        decide(PairBudget(Digraph(1), ((1,),), 0, 0), "oracle-free")


def test_the_lift_explores_little_on_any_input():
    """Stopping early, one exploration sees at most B + 1 states, whatever the graph."""
    instance = RootBudget(complete(5), 0, (2,) * 5, frozenset([1]))
    prime = lift.lift_prime(instance)
    for point in range(prime):
        meters = Meters()
        lift.explore(lift.Lift(instance.graph, 0, instance.total, prime, point), instance.budgets, meters)
        assert meters.values["states"] <= instance.total + 1


def test_the_package_docstring_runs():
    """The example that opens the package does what it says."""
    example = stcon.theory.__doc__.split("::\n")[1]
    names = {}
    exec(textwrap.dedent(example), names)
    assert names["verdict"].certificate == TooManyWalks(0, 3, ((0, 2), (1, 3)))


def test_theory_imports_nothing_else_of_stcon():
    """Every module of the theory imports the standard library and the theory alone, and networkx to convert."""
    for path in Path(stcon.theory.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert name.startswith("stcon.theory") or top in sys.stdlib_module_names or name == "networkx", (
                    path,
                    name,
                )


def test_the_checker_shares_no_code_with_deciders():
    """The checker imports the containers of instances and certificates, and nothing that computes."""
    tree = ast.parse(Path(check.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name.startswith("stcon")} == {
        "stcon.theory.budgets",
        "stcon.theory.certificates",
    }
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not any(name[0].islower() for name in names if name != "annotations")


def test_the_documented_functions_exist():
    """Every `module.name` in the theorem table of docs/theory.md is there, and so is every test file named."""
    root = Path(__file__).parents[2]
    section = (root / "docs" / "theory.md").read_text().partition("## Deciders")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in section.splitlines() if row.startswith("| ") and row.count("|") == 5]
    assert len(rows) > 15
    for _, _, _, functions, tests, _ in rows[1:]:
        for module, name in re.findall(r"`([a-z_]+)\.(\w+)`", functions):
            assert hasattr(importlib.import_module(f"stcon.theory.{module}"), name), (module, name)
        for name in re.findall(r"`(test_\w+)`", tests):
            assert (Path(__file__).parent / f"{name}.py").exists(), name
