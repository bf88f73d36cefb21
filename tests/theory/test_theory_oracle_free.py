"""The oracle-free machine has one path to every configuration, on every input, and accepts STCON_sf."""

import random
from typing import NamedTuple

import pytest
from theory_cases import all_digraphs, complete, cycle, diamonds, random_digraph

from stcon.theory.budgets import StronglyFew
from stcon.theory.configurations import check_unambiguous
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.meters import TooMuchWork
from stcon.theory.oracle_free import HashedUnfolding, OracleFreeMachine, decide_strongly_few


def assert_unambiguous(instance, prime=None):
    report = check_unambiguous(OracleFreeMachine(instance, prime))
    assert report.ambiguous is None, (instance, prime)
    assert len(report.verdicts) == 1, (instance, prime)
    return report.verdicts[0]


@pytest.mark.parametrize("order, cap", [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)])
def test_the_machine_decides_unambiguously(order, cap):
    """All digraphs with loops on at most two vertices, all s, t: one path to every configuration, the right verdict."""
    for graph in all_digraphs(order):
        for s in graph.vertices:
            for t in graph.vertices:
                instance = StronglyFew(graph, s, t, cap)
                assert assert_unambiguous(instance) == instance.requirements.hold()


@pytest.mark.parametrize(
    "graph", [Digraph(3, [(0, 1), (1, 2)]), cycle(3), diamonds(1)], ids=["path", "cycle", "diamond"]
)
def test_the_machine_on_named_graphs(graph):
    """A path is accepted; a cycle and a diamond, which break k = 1, are refused without ambiguity."""
    instance = StronglyFew(graph, 0, graph.order - 1, 1)
    assert assert_unambiguous(instance) == instance.requirements.hold()


@pytest.mark.long
def test_the_machine_on_all_digraphs_of_three_vertices():
    """All 512 digraphs with loops on three vertices at k = 1, s and t in turn; on two vertices also k = 2."""
    for index, graph in enumerate(all_digraphs(3)):
        instance = StronglyFew(graph, index % 3, index // 3 % 3, 1)
        assert assert_unambiguous(instance) == instance.requirements.hold()
    for index, graph in enumerate(all_digraphs(2)):
        instance = StronglyFew(graph, index % 2, index // 2 % 2, 2)
        assert assert_unambiguous(instance) == instance.requirements.hold()


def small_primes(number, seed):
    rng = random.Random(seed)
    for _ in range(number):
        graph = random_digraph(rng, 4).without_parallel_edges()
        cap, prime = rng.choice([(1, 2), (1, 3), (1, 5), (2, 2), (2, 3)])
        instance = StronglyFew(graph, rng.randrange(graph.order), rng.randrange(graph.order), cap)
        accepted = assert_unambiguous(instance, prime)
        assert not accepted or instance.requirements.hold()


def test_collisions_never_make_the_machine_ambiguous():
    """Over a prime far too small most points collide: the machine may refuse good inputs, but never turns ambiguous."""
    small_primes(25, seed=5)


@pytest.mark.long
def test_collisions_never_make_the_machine_ambiguous_on_many():
    """The same on six hundred inputs."""
    small_primes(600, seed=6)


class Guess(NamedTuple):
    vertex: int
    steps: int


class GuessingMachine:
    """Guesses a walk of at most n steps; ambiguous wherever two walks of one length meet."""

    def __init__(self, graph, source):
        self.graph, self.source = graph, source

    def start(self):
        return Guess(self.source, 0)

    def successors(self, now):
        if now.steps == self.graph.order:
            return []
        return [Guess(head, now.steps + 1) for head in self.graph.successors(now.vertex)]

    def progress(self, now):
        return now.steps

    def verdict(self, now):
        return None


@pytest.mark.parametrize("graph", [diamonds(1), Digraph(2, [(0, 1), (0, 1)]), complete(2)])
def test_the_checker_finds_ambiguity(graph):
    """The plain guessing machine is caught on a diamond, on parallel edges and on a complete graph."""
    assert check_unambiguous(GuessingMachine(graph, 0)).ambiguous is not None


def test_the_checker_clears_a_tree():
    """On a path and on a cycle one walk of each length leads on; every configuration is generated once."""
    report = check_unambiguous(GuessingMachine(cycle(4), 0))
    assert report.ambiguous is None
    assert report.num_configurations == 5


class Uncertified(OracleFreeMachine):
    """The same machine with certification left out: it counts on whatever the first point gives."""

    def _certification(self, loops):
        return self._counting(loops)


def test_certification_is_what_keeps_the_machine_unambiguous():
    """Without Certify, Parent meets two parents where walks collide."""
    instance = StronglyFew(diamonds(1), 0, 3, 2)
    uncertified = check_unambiguous(Uncertified(instance, 3), max_configurations=200_000)
    assert uncertified.ambiguous is not None


def test_the_checker_watches_progress():
    """A machine whose steps lower its progress is a fault, not an answer."""

    class Falling(GuessingMachine):
        def progress(self, now):
            return -now.steps

    with pytest.raises(AssertionError, match="progress falls"):
        check_unambiguous(Falling(cycle(3), 0))


def test_generation_is_limited_where_asked():
    """Past the limit the check refuses."""
    with pytest.raises(TooMuchWork):
        check_unambiguous(OracleFreeMachine(StronglyFew(cycle(3), 0, 1, 3)), max_configurations=1_000)


def test_parallel_edges_are_not_hashed():
    """The machine refuses a multigraph; the decider gives parallel edges middles and counts both."""
    graph = Digraph(2, [(0, 1), (0, 1)])
    with pytest.raises(GraphError, match="parallel"):
        OracleFreeMachine(StronglyFew(graph, 0, 1, 1))
    assert not decide_strongly_few(StronglyFew(graph, 0, 1, 1)).answer
    assert decide_strongly_few(StronglyFew(graph, 0, 1, 2)).answer


@pytest.mark.parametrize("point", [0, 1, 2, 4])
def test_predecessors_are_those_of_successors(point):
    """In the hashed unfolding u precedes x iff x succeeds u, for all states of two layers and every kind of point."""
    unfolding = HashedUnfolding(Digraph(3, [(0, 1), (1, 2), (0, 2), (2, 2)]), 0, 2, 5, point)
    states = [(v, layer, h) for v in range(3) for layer in range(3) for h in range(5)]
    forward = {(u, x) for u in states for x in unfolding.successors(u)}
    backward = {(u, x) for x in states for u in unfolding.predecessors(x)}
    assert forward == backward
