"""Biconnected blocks of the undirected graph under a directed one."""

from __future__ import annotations

from stcon.theory.graph import Digraph


def biconnected_blocks(graph: Digraph) -> tuple[tuple[int, ...], ...]:
    """The edges of `graph` by biconnected block, directions forgotten: parallel edges share a block, a loop is one.

    Two blocks share at most one vertex, and the blocks of a connected graph form a tree (the block–cut tree).

    Returns:
        the edge indices of each block, ascending; blocks by their first edge.

    Cost: O(n + m).

    Source: J. Hopcroft, R. Tarjan, *Algorithm 447: efficient algorithms for graph manipulation*, 1973.
    """
    search = _Search(graph)
    for root in graph.vertices:
        if root not in search.depth:
            search.run(root)
    return tuple(sorted(search.blocks))


class _Search:
    """Depth-first search without recursion; an edge stays on `open` until its block is known."""

    def __init__(self, graph: Digraph) -> None:
        self.graph = graph
        self.depth: dict[int, int] = {}
        self.low: dict[int, int] = {}
        self.open: list[int] = []
        self.used = bytearray(graph.size)
        self.blocks: list[tuple[int, ...]] = []

    def run(self, root: int) -> None:
        self.depth[root] = self.low[root] = 0
        path = [root]
        entered: list[int] = []  # how many edges were open before the edge into path[i + 1]
        pending = [iter(self._around(root))]
        while path:
            edge = next(pending[-1], None)
            if edge is not None:
                self._follow(edge, path, entered, pending)
                continue
            pending.pop()
            vertex = path.pop()
            if path:
                self._leave(vertex, path[-1], entered.pop())

    def _around(self, vertex: int) -> tuple[int, ...]:
        return (*self.graph.out_edges(vertex), *self.graph.in_edges(vertex))

    def _follow(self, edge: int, path: list[int], entered: list[int], pending: list) -> None:  # type: ignore[type-arg]
        if self.used[edge]:
            return
        self.used[edge] = True
        vertex = path[-1]
        tail, head = self.graph.edges[edge]
        other = head if tail == vertex else tail
        if other == vertex:
            self.blocks.append((edge,))
        elif other in self.depth:
            self.open.append(edge)
            self.low[vertex] = min(self.low[vertex], self.depth[other])
        else:
            self.depth[other] = self.low[other] = len(path)
            path.append(other)
            entered.append(len(self.open))
            self.open.append(edge)
            pending.append(iter(self._around(other)))

    def _leave(self, vertex: int, parent: int, opened: int) -> None:
        """Nothing below `vertex` reaches above `parent`: what is open since the edge between them is a block."""
        self.low[parent] = min(self.low[parent], self.low[vertex])
        if self.low[vertex] >= self.depth[parent]:
            self.blocks.append(tuple(sorted(self.open[opened:])))
            del self.open[opened:]
