"""The cycle space of a biconnected block: its directed paths and cycles, by listing 2^c edge sets.

Over GF(2), the edge sets in which every vertex has even degree are spanned by c = |E| − |V| + 1 fundamental cycles, one
for each edge outside a spanning tree. A directed path from a to b is the tree's path between them plus one of them. So
c bits select a candidate, and looking at degrees and connectivity tells whether it is a path.

Source: Appendix B.16.
"""

from __future__ import annotations

from collections.abc import Iterator

from stcon.theory.graph import Digraph
from stcon.theory.meters import Meters


class BlockSpace:
    """A block of `graph`, given by its edges. Edge sets are bit masks over the block's own numbering.

    Attributes:
        vertices: of the block, ascending.
        rank: c.
    """

    def __init__(self, graph: Digraph, edges: tuple[int, ...]) -> None:
        self._ends = [graph.edges[e] for e in edges]
        self.vertices = tuple(sorted({v for ends in self._ends for v in ends}))
        self.rank = len(edges) - len(self.vertices) + 1
        self._out = dict.fromkeys(self.vertices, 0)
        self._in = dict.fromkeys(self.vertices, 0)
        for index, (tail, head) in enumerate(self._ends):
            self._out[tail] |= 1 << index
            self._in[head] |= 1 << index
        self._to_root = self._spanning_tree()
        self._cycles = [
            cycle
            for index, (tail, head) in enumerate(self._ends)
            if (cycle := self._to_root[tail] ^ self._to_root[head] ^ (1 << index))
        ]
        assert len(self._cycles) == self.rank
        self._counted: dict[tuple[int, int], int] = {}

    def find_cycle(self, meters: Meters) -> bool:
        """Whether the block has a directed cycle. Cost: 2^c vectors."""
        return any(self._is_walk(selected, None, None) for selected in self._even_sets(0, meters) if selected)

    def count_paths(self, source: int, target: int, limit: int, meters: Meters) -> int:
        """The number of directed simple paths between two different vertices, counted to `limit`. Cost: 2^c vectors."""
        key = (source, target)
        if key not in self._counted:
            count = 0
            for selected in self._even_sets(self._to_root[source] ^ self._to_root[target], meters):
                count += self._is_walk(selected, source, target)
                if count == limit:
                    break
            self._counted[key] = count
        return self._counted[key]

    def _even_sets(self, first: int, meters: Meters) -> Iterator[int]:
        """`first` plus every vector of the cycle space, each from the last by one fundamental cycle (Gray code)."""
        selected = first
        for number in range(1, (1 << self.rank) + 1):
            meters.add("vectors")
            meters.spend(len(self.vertices))
            yield selected
            if number < 1 << self.rank:
                selected ^= self._cycles[(number & -number).bit_length() - 1]

    def _is_walk(self, selected: int, source: int | None, target: int | None) -> bool:
        """Whether `selected` is a directed path between the two (None: a directed cycle)."""
        for vertex in self.vertices:
            leaving, entering = (selected & self._out[vertex]).bit_count(), (selected & self._in[vertex]).bit_count()
            if leaving > 1 or entering > 1 or leaving - entering != (vertex == source) - (vertex == target):
                return False
            if leaving and vertex == target:
                return False
        start = source if source is not None else self._ends[(selected & -selected).bit_length() - 1][0]
        return self._length(selected, start) == selected.bit_count()

    def _length(self, selected: int, start: int) -> int:
        """Edges of the walk from `start` through `selected`, each vertex having at most one way on."""
        length, vertex = 0, start
        while edge := selected & self._out[vertex]:
            vertex = self._ends[edge.bit_length() - 1][1]
            length += 1
            if vertex == start:
                break
        return length

    def _spanning_tree(self) -> dict[int, int]:
        """The edges of the tree's path from each vertex to the first one."""
        root = self.vertices[0]
        to_root = {root: 0}
        neighbours: dict[int, list[tuple[int, int]]] = {v: [] for v in self.vertices}
        for index, (tail, head) in enumerate(self._ends):
            neighbours[tail].append((head, index))
            neighbours[head].append((tail, index))
        pending = [root]
        while pending:
            vertex = pending.pop()
            for other, index in neighbours[vertex]:
                if other not in to_root:
                    to_root[other] = to_root[vertex] ^ (1 << index)
                    pending.append(other)
        return to_root
