"""Theorem 11: the branch kernel and its inequalities, on all small graphs, random ones and the extremal ones."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from structure_graphs import FAMILIES, all_digraphs, random_digraphs

from stcon.theory import check_structure
from stcon.theory.branch_kernel import BranchKernel, branch_kernel, forced_walk
from stcon.theory.certificates import Unreachable
from stcon.theory.check_structure import check_cyclic_walk, check_kernel, check_terminal
from stcon.theory.families import chain_kernel, diamond_chain, nested_kernel, parallel_paths
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.terminal import CyclicWalk, TerminalDag, trim
from stcon.theory.walks import count_walks, is_strongly_few


def check_every_pair(graphs: Iterable[Digraph]) -> None:
    for graph in graphs:
        for source in graph.vertices:
            for target in graph.vertices:
                kernel = branch_kernel(graph, source, target)
                count = count_walks(graph, source, target)
                if isinstance(kernel, BranchKernel):
                    assert check_kernel(graph, kernel)
                    assert kernel.terminal.num_paths == count
                elif isinstance(kernel, CyclicWalk):
                    assert check_cyclic_walk(graph, source, target, kernel)
                    assert count == float("inf")
                else:
                    assert count == 0
                    assert isinstance(kernel, Unreachable)
                    assert source in kernel.closed
                    assert target not in kernel.closed


def test_branch_kernel_of_all_small_graphs() -> None:
    """Every pair of every graph on at most three vertices gets a kernel, a cyclic walk or a cut; all verified."""
    for order in (1, 2, 3):
        check_every_pair(all_digraphs(order))


def test_branch_kernel_of_random_and_extremal_graphs() -> None:
    """The same on random graphs with parallel edges, and on the paper's families."""
    check_every_pair(random_digraphs(11, 300))
    check_every_pair(FAMILIES)


@pytest.mark.long
def test_branch_kernel_of_all_graphs_on_four_vertices() -> None:
    """The same on all 65,536 labelled digraphs on four vertices."""
    check_every_pair(all_digraphs(4))


@pytest.mark.long
def test_branch_kernel_of_many_random_graphs() -> None:
    """The same on thousands of random graphs."""
    check_every_pair(random_digraphs(12, 5_000, largest=12))


@pytest.mark.parametrize("c", range(1, 7))
def test_branch_kernel_bounds_are_attained(c: int) -> None:
    """r = 2^c, r = c + 1, 2r vertices, 3r − 2 edges and c = r − 1 branch vertices all occur."""
    kernel = branch_kernel(chain_kernel(c), 0, 2 * c + 1)
    assert isinstance(kernel, BranchKernel)
    assert kernel.terminal.cyclomatic_number == c
    assert (kernel.terminal.num_paths, len(kernel.vertices), len(kernel.chains)) == (2**c, 2 * c + 2, 3 * c + 1)
    kernel = branch_kernel(nested_kernel(c), 0, 2 * c + 1)
    assert isinstance(kernel, BranchKernel)
    r = kernel.terminal.num_paths
    assert r == c + 1
    assert is_strongly_few(nested_kernel(c), r)
    assert (len(kernel.vertices), len(kernel.chains), len(kernel.branch_vertices)) == (2 * r, 3 * r - 2, r - 1)


def test_branch_kernel_contracts_long_chains() -> None:
    """Parallel paths of any length have a kernel of two vertices, whose edges spell the paths out."""
    kernel = branch_kernel(parallel_paths(3, 5), 0, 1)
    assert isinstance(kernel, BranchKernel)
    assert kernel.vertices == (0, 1)
    assert [len(chain) for chain in kernel.chains] == [5, 5, 5]
    assert kernel.multigraph.edges == ((0, 1),) * 3


def test_branch_kernel_of_a_vertex_with_itself() -> None:
    """The empty walk: one vertex, no edge, r = 1 and c = 0."""
    kernel = branch_kernel(Digraph(2, [(0, 1)]), 0, 0)
    assert isinstance(kernel, BranchKernel)
    assert (kernel.vertices, kernel.chains, kernel.terminal.num_paths) == ((0,), (), 1)


def test_branch_kernel_refuses_what_is_no_vertex() -> None:
    """A terminal outside the graph is an error that names it."""
    with pytest.raises(GraphError, match="7 is no vertex"):
        branch_kernel(Digraph(2, [(0, 1)]), 0, 7)
    assert isinstance(branch_kernel(Digraph(2), 0, 1), Unreachable)


def test_kernel_of_a_long_path_is_found_without_recursion() -> None:
    """Graphs deeper than the interpreter's stack are no problem."""
    order = 20_000
    kernel = branch_kernel(Digraph(order, [(v, v + 1) for v in range(order - 1)]), 0, order - 1)
    assert isinstance(kernel, BranchKernel)
    assert len(kernel.chains) == 1


def test_terminal_paths_are_all_the_walks() -> None:
    """`TerminalDag.paths` lists each of N(s, t) walks once, in order."""
    for graph in (diamond_chain(4), nested_kernel(4)):
        terminal = trim(graph, 0, graph.order - 1)
        assert isinstance(terminal, TerminalDag)
        paths = list(terminal.paths())
        assert len(set(paths)) == len(paths) == terminal.num_paths
        assert paths == sorted(paths)


def test_forced_walk_follows_while_there_is_one_way() -> None:
    """It ends where nothing, or more than one thing, follows; round a cycle it is endless."""
    ways = {0: 1, 1: 2, 2: None, 3: 4, 4: 5, 5: 4}
    assert list(forced_walk(0, ways.__getitem__)) == [1, 2]
    assert list(forced_walk(2, ways.__getitem__)) == []
    assert list(itertools.islice(forced_walk(3, ways.__getitem__), 5)) == [4, 5, 4, 5, 4]


def test_check_kernel_refuses_what_is_wrong() -> None:
    """A kernel of another graph, with a chain lost, doubled or broken up, or a vertex too many, is refused."""
    graph = diamond_chain(2)
    kernel = branch_kernel(graph, 0, 6)
    assert isinstance(kernel, BranchKernel)
    chains = kernel.chains
    assert check_kernel(graph, kernel)
    for wrong in (
        dataclasses.replace(kernel, chains=chains[1:]),
        dataclasses.replace(kernel, chains=(*chains, chains[0])),
        dataclasses.replace(kernel, chains=(chains[0][:1], chains[0][1:], *chains[1:])),
        dataclasses.replace(kernel, chains=(chains[0][::-1], *chains[1:])),
        dataclasses.replace(kernel, vertices=(*kernel.vertices, 1)),
        dataclasses.replace(kernel, terminal=dataclasses.replace(kernel.terminal, target=3)),
    ):
        assert not check_kernel(graph, wrong)
    assert not check_kernel(Digraph(7, graph.edges[:-1]), kernel)
    assert not check_terminal(graph, dataclasses.replace(kernel.terminal, vertices=kernel.terminal.vertices[::-1]))
    assert not check_cyclic_walk(graph, 0, 6, CyclicWalk(chains[0] + chains[2]))


def test_the_structure_checker_imports_nothing_that_computes() -> None:
    """What it imports of the theory it imports for annotations only."""
    tree = ast.parse(Path(check_structure.__file__).read_text())
    imported = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported
    assert not any(module.startswith("stcon") for module in imported)
