"""Forced chains and the branch kernel: what is left between two vertices once nobody is asked where there is one way.

`forced_walk` is the definition of "forced" for the whole project: follow the only way on for as long as there is just
one. The kernel applies it to the edges of a two-terminal DAG; `stcon.grammar.structure` to the configurations of a
control machine, where the same walk is the text that a decoder writes without asking the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from stcon.theory.certificates import Unreachable
from stcon.theory.graph import Digraph
from stcon.theory.terminal import CyclicWalk, TerminalDag, trim

T = TypeVar("T")


def forced_walk(start: T, only_way_on: Callable[[T], T | None]) -> Iterator[T]:
    """What follows `start` by force, one after another; endless where it comes back to itself.

    Args:
        only_way_on: the one thing that can follow its argument; None where nothing, or more than one thing, can.

    Source: Fig. 2 and Definition 7.
    """
    at = only_way_on(start)
    while at is not None:
        yield at
        at = only_way_on(at)


@dataclass(frozen=True)
class BranchKernel:
    """A two-terminal DAG H with its forced chains contracted.

    Attributes:
        terminal: H.
        vertices: the terminals, and the vertices of H that have not exactly one way in and one way out; in a
            topological order.
        chains: the edges of the kernel, each the tuple of H's edges that it stands for, ordered by their first.
    """

    terminal: TerminalDag
    vertices: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]

    @property
    def multigraph(self) -> Digraph:
        """The kernel by itself: vertex i is ``vertices[i]`` and carries its name; edge j is ``chains[j]``."""
        graph = self.terminal.graph
        index = {vertex: i for i, vertex in enumerate(self.vertices)}
        edges = [(index[graph.edges[chain[0]][0]], index[graph.edges[chain[-1]][1]]) for chain in self.chains]
        return Digraph(len(self.vertices), edges, [graph.names[v] for v in self.vertices])

    @property
    def branch_vertices(self) -> tuple[int, ...]:
        """The vertices with more than one way out: at most c(H) ≤ r − 1."""
        return tuple(v for v in self.vertices if len(self.terminal.out_edges[v]) > 1)


def branch_kernel(graph: Digraph, source: int, target: int) -> BranchKernel | Unreachable | CyclicWalk:
    """The branch kernel between two vertices of any graph.

    With r paths and cyclomatic number c = |E| − |V| + 1 of what lies between the two: c + 1 ≤ r ≤ 2^c; at most c
    branch vertices; a kernel of at most 2c + 2 ≤ 2r vertices and 3c + 1 edges, with the same r paths. Where
    ``source`` is ``target`` the kernel is that vertex.

    Raises:
        GraphError: a terminal is no vertex.

    Cost: O(n + m).

    Source: Theorem 11.
    """
    terminal = trim(graph, source, target)
    return contract(terminal) if isinstance(terminal, TerminalDag) else terminal


def contract(terminal: TerminalDag) -> BranchKernel:
    """The branch kernel of a two-terminal DAG. Cost: O(n + m)."""
    ends = {terminal.source, terminal.target}
    vertices = tuple(
        v for v in terminal.vertices if v in ends or len(terminal.in_edges[v]) != 1 or len(terminal.out_edges[v]) != 1
    )
    kept = set(vertices)

    def only_way_on(edge: int) -> int | None:
        head = terminal.graph.edges[edge][1]
        return None if head in kept else terminal.out_edges[head][0]

    starts = sorted(e for v in vertices for e in terminal.out_edges[v])
    return BranchKernel(terminal, vertices, tuple((e, *forced_walk(e, only_way_on)) for e in starts))
