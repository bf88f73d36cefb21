"""Crossings and blocks: the vertices that every walk visits exactly once, and the independent pieces between them.

`crossings` is the definition of a cut vertex for the whole project, on any graph, with cycles or without: between two
crossings a walk may do what it likes, and choices on either side of a crossing are independent. On a two-terminal DAG
they are the entries and exits of the biconnected blocks (`block_product`); on the configurations of a control machine
they are the cut states of `stcon.grammar.cuts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stcon.theory.biconnected import biconnected_blocks
from stcon.theory.certificates import Unreachable
from stcon.theory.graph import Digraph
from stcon.theory.terminal import CyclicWalk, TerminalDag, relevant, trim
from stcon.theory.witness import shortest_walk


@dataclass(frozen=True)
class Crossings:
    """The vertices that every s–t walk visits exactly once.

    Attributes:
        vertices: in the order in which every walk visits them.
        positions: the certificate: 2i + 1 for crossing i; 0 for what comes before the first, 2i + 2 for what comes
            after crossing i and before the next. Only vertices on s–t walks have a position. Every edge between such
            vertices stays at an even position or goes to the next position, or from one odd to the next odd: so no
            walk can pass a crossing by, or come back to it.
    """

    vertices: tuple[int, ...]
    positions: Mapping[int, int] = field(repr=False)


def crossings(graph: Digraph, source: int, target: int) -> Crossings | Unreachable:
    """The vertices that every walk from `source` to `target` visits exactly once.

    They are the dominators of `target` that lie on no cycle, among the vertices on walks between the two.

    Raises:
        GraphError: a terminal is no vertex.

    Cost: O(n + m).

    Source: Theorem 12 (the entry and exit vertices of the blocks) and Lemma 12 (cut states).
    """
    kept = relevant(graph, source, target)
    if isinstance(kept, Unreachable):
        return kept
    recurrent = _on_cycles(graph, kept)
    found = tuple(v for v in _dominators(graph, kept, source, target) if v not in recurrent)
    return Crossings(found, _positions(graph, kept, source, found))


def _dominators(graph: Digraph, kept: frozenset[int], source: int, target: int) -> list[int]:
    """The vertices on every walk from `source` to `target`, in order.

    Along one shortest walk: vertex i is on every walk iff what was reached without it, from the vertices before it,
    lies before it. Everything is expanded once.
    """
    edges = shortest_walk(graph, source, frozenset([target]))
    assert edges is not None
    walk = (source, *(graph.edges[e][1] for e in edges))
    index = {vertex: i for i, vertex in enumerate(walk)}
    farthest, seen = 0, set(walk)
    dominators: list[int] = []
    for i, vertex in enumerate(walk):
        if farthest == i:
            dominators.append(vertex)
        pending = [vertex]
        while pending:
            for head in graph.successors(pending.pop()):
                farthest = max(farthest, index.get(head, 0))
                if head in kept and head not in seen:
                    seen.add(head)
                    pending.append(head)
    return dominators


def _on_cycles(graph: Digraph, kept: frozenset[int]) -> frozenset[int]:
    """The vertices of `kept` on directed cycles: strongly connected components by Kosaraju's two searches."""
    finished: dict[int, None] = {}
    for root in kept:
        if root in finished:
            continue
        entered, pending = {root}, [(root, iter(graph.successors(root)))]
        while pending:
            vertex, following = pending[-1]
            head = next((w for w in following if w in kept and w not in finished and w not in entered), None)
            if head is None:
                pending.pop()
                finished[vertex] = None
            else:
                entered.add(head)
                pending.append((head, iter(graph.successors(head))))
    component: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for root in reversed(finished):
        if root in component:
            continue
        component[root], stack = root, [root]
        while stack:
            for tail in graph.predecessors(stack.pop()):
                if tail in kept and tail not in component:
                    component[tail] = root
                    stack.append(tail)
    for root in component.values():
        sizes[root] = sizes.get(root, 0) + 1
    return frozenset(v for v in kept if sizes[component[v]] > 1 or graph.multiplicity(v, v))


def _positions(graph: Digraph, kept: frozenset[int], source: int, found: tuple[int, ...]) -> dict[int, int]:
    positions = {vertex: 2 * i + 1 for i, vertex in enumerate(found)}
    starts = [(vertex, 2 * i + 2) for i, vertex in enumerate(found)]
    if source not in positions:
        positions[source] = 0
        starts.append((source, 0))
    for start, position in starts:
        pending = [start]
        while pending:
            for head in graph.successors(pending.pop()):
                if head in kept and head not in positions:
                    positions[head] = position
                    pending.append(head)
    return positions


# ------------------------------------------------------------------------------------------------- blocks of a DAG


@dataclass(frozen=True)
class Block:
    """One biconnected block of a two-terminal DAG.

    Attributes:
        entry, exit: the first and the last vertex of every path through it.
        edges: edge indices of the host graph, ascending.
        num_paths: N(entry, exit).
        cyclomatic_number: c = |E| − |V| + 1.
    """

    entry: int
    exit: int
    edges: tuple[int, ...]
    num_paths: int
    cyclomatic_number: int


@dataclass(frozen=True)
class BlockProduct:
    """A two-terminal DAG as the sequence of its blocks: a path is an independent choice of one path in each.

    Attributes:
        terminal: the DAG H.
        blocks: from s to t; each begins where the one before ends.
    """

    terminal: TerminalDag
    blocks: tuple[Block, ...]

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The vertices on every path, in order: s, the cut vertices, t."""
        return (self.terminal.source, *(block.exit for block in self.blocks))


def block_product(graph: Digraph, source: int, target: int) -> BlockProduct | Unreachable | CyclicWalk:
    """The blocks between two vertices of any graph.

    r is the product of the blocks' numbers of paths and c(H) the sum of theirs; if r ≤ k, at most ⌊log₂ k⌋ blocks have
    more than one path. The boundaries are exactly the `crossings`.

    Raises:
        GraphError: a terminal is no vertex.

    Cost: O(n + m), the counts apart (integers of up to m bits).

    Source: Theorem 12.
    """
    terminal = trim(graph, source, target)
    if not isinstance(terminal, TerminalDag):
        return terminal
    position = {vertex: i for i, vertex in enumerate(terminal.vertices)}
    underlying = Digraph(graph.order, (graph.edges[e] for e in terminal.edges))
    blocks = [_block(terminal, tuple(terminal.edges[i] for i in part)) for part in biconnected_blocks(underlying)]
    return BlockProduct(terminal, tuple(sorted(blocks, key=lambda block: position[block.entry])))


def _block(terminal: TerminalDag, edges: tuple[int, ...]) -> Block:
    """In a trimmed DAG a block has one vertex that none of its edges enters, and one that none leaves."""
    ends = [terminal.graph.edges[e] for e in edges]
    tails, heads = {tail for tail, _ in ends}, {head for _, head in ends}
    (entry,), (exit_,) = tails - heads, heads - tails
    # every path passes the entry and the exit, so N(s, exit) = N(s, entry) · N(entry, exit)
    num_paths = terminal.walks_to[exit_] // terminal.walks_to[entry]
    return Block(entry, exit_, edges, num_paths, len(edges) - len(tails | heads) + 1)
