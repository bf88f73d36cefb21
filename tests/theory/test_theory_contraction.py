"""Contraction decides reach-unambiguous reachability, on a tape that shrinks as levels are grouped."""

import itertools
import random

import pytest
from theory_cases import all_digraphs

from stcon.theory.contraction import contract
from stcon.theory.graph import Digraph
from stcon.theory.program import Program, configuration_graph
from stcon.theory.walks import is_reach_few

SHAPES = {
    "path": lambda rng, v: v - 1,
    "binary": lambda rng, v: (v - 1) // 2,
    "star": lambda rng, v: 0,
    "caterpillar": lambda rng, v: max(0, v - 1 - rng.randrange(2)),
    "random": lambda rng, v: rng.randrange(v),
}


def reach_unambiguous(rng, order, shape):
    """A tree from vertex 0, and as many vertices again that are not reached, with any edges, into the tree too."""
    edges = [(SHAPES[shape](rng, v), v) for v in range(1, order)]
    edges += [(order + rng.randrange(order), rng.randrange(2 * order)) for _ in range(2 * order)]
    rng.shuffle(edges)
    return Digraph(2 * order, edges)


@pytest.mark.parametrize("group", [1, 2, 3, 5])
def test_all_small_trees(group):
    """Every tree of at most five vertices with increasing numbers, every target."""
    for order in range(1, 6):
        for parents in itertools.product(*(range(v) for v in range(1, order))):
            graph = Digraph(order + 1, [(parent, v) for v, parent in enumerate(parents, 1)])
            for target in graph.vertices:
                assert contract(graph, 0, target, group=group).reachable == (target < order)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("group", [None, 2, 3])
def test_larger_graphs(shape, group):
    """Trees of up to sixty vertices, deep and broad, among cycles and confluences that the root does not reach."""
    rng = random.Random(shape)
    for order in (7, 20, 60):
        graph = reach_unambiguous(rng, order, shape)
        for target in rng.sample(range(2 * order), 4):
            assert contract(graph, 0, target, group=group).reachable == (target in graph.descendants(0))


@pytest.mark.parametrize("group", [1, 2])
def test_no_wrong_answer_without_the_promise(group):
    """On all graphs of three vertices: an answer where the promise holds, and never a wrong one elsewhere."""
    for graph in all_digraphs(3):
        for target in graph.vertices:
            found = contract(graph, 0, target, group=group).reachable
            assert found in (None, target in graph.descendants(0))
            assert found is not None or not is_reach_few(graph, 0, 1)


def test_grouping_shrinks_the_tape():
    """More levels a frame: fewer frames, and on graphs of hundreds of vertices less tape in all; tables stay small."""
    graph = reach_unambiguous(random.Random(1), 150, "random")
    found = [contract(graph, 0, 149, group=group) for group in (1, 2, 3)]
    assert [one.frames for one in found] == [-(-found[0].levels // group) for group in (1, 2, 3)]
    assert found[0].tape_bits > found[1].tape_bits > found[2].tape_bits
    assert all(one.largest_table <= 2 * 3**one.group for one in found)


def test_it_simulates_a_reach_unambiguous_machine():
    """The configuration graph of a machine that checks each guess at once, decided without a guess."""
    text = """
    loop:   if i = n goto yes
            guess g 1
            read b i
            if g != b goto no
            add i 1
            goto loop
    yes:    read b 0
            if b = 1 goto one
    no:     reject
    one:    accept
    """
    program = Program.parse(text, bound=lambda n: n, clock=lambda n: 6 * n + 4)
    for word in itertools.product((0, 1), repeat=3):
        built = configuration_graph(program, word)
        assert is_reach_few(built.graph, built.start, 1)
        found = {contract(built.graph, built.start, target).reachable for target in built.accepting}
        assert (True in found) == (word[0] == 1)
