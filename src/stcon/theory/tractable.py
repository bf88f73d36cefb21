"""Two regimes in which STCON_sf is decided in little space: few sources or sinks, and small biconnected blocks.

Both decide every instance. `decide_by_terminal_width` needs little space where the smaller of the numbers of sources
and of sinks, λ(G), is small; `decide_by_blocks` little space and time where b(G), the largest cyclomatic number of a
biconnected block, is.

Source: Theorem 16 and Appendix B.16.
"""

from __future__ import annotations

from dataclasses import dataclass

from stcon.theory.biconnected import biconnected_blocks
from stcon.theory.budgets import StronglyFew, respects
from stcon.theory.certificates import Verdict
from stcon.theory.cycle_space import BlockSpace
from stcon.theory.graph import Digraph
from stcon.theory.meters import Meters, bits
from stcon.theory.witness import confirm, refute


def terminal_width(graph: Digraph) -> int:
    """λ(G): the smaller of the number of sources and the number of sinks. Cost: O(n)."""
    sources = sum(not graph.in_edges(v) for v in graph.vertices)
    sinks = sum(not graph.out_edges(v) for v in graph.vertices)
    return min(sources, sinks)


def block_cyclomatic_width(graph: Digraph) -> int:
    """b(G): the largest |E| − |V| + 1 of a biconnected block of the underlying undirected graph. Cost: O(n + m)."""
    return max((BlockSpace(graph, block).rank for block in biconnected_blocks(graph)), default=0)


# ------------------------------------------------------------------------------------------------- terminal width


@dataclass(frozen=True)
class ChoiceTraversal:
    """How one traversal with choice frames ended: `hits` of the target, or `overflow` of a cap."""

    overflow: bool
    nodes: int
    hits: int
    frames: int


def traverse_choices(
    graph: Digraph, source: int, *, max_nodes: int, max_frames: int, target: int, max_hits: int
) -> ChoiceTraversal:
    """Depth-first traversal of the tree of walks from `source` that remembers only where there still is a choice.

    A tree with L leaves has at most L − 1 branchings, so the stack is short where leaves are few; where there is one
    way on, nothing is stored.

    Args:
        graph: any graph.
        source, target: where walks start, and where their ends are counted.
        max_nodes, max_frames, max_hits: one more is an overflow; so is a walk of n edges, which repeats a vertex.

    Cost: a step a node.
    """
    frames: list[tuple[int, int, int]] = []  # a vertex, its next edge, the length of the walk to it
    vertex, length, nodes, peak = source, 0, 1, 0
    hits = int(source == target)
    while True:
        if nodes > max_nodes or hits > max_hits or length >= graph.order or len(frames) > max_frames:
            return ChoiceTraversal(True, nodes, hits, peak)
        heads = graph.successors(vertex)
        if heads:
            following = 0
        elif frames:
            vertex, following, length = frames.pop()
            heads = graph.successors(vertex)
        else:
            return ChoiceTraversal(False, nodes, hits, peak)
        if following + 1 < len(heads):
            frames.append((vertex, following + 1, length))
        peak = max(peak, min(len(frames), max_frames))
        vertex, length, nodes = heads[following], length + 1, nodes + 1
        hits += vertex == target


def decide_by_terminal_width(instance: StronglyFew, *, max_steps: int | None = None) -> Verdict:
    """STCON_sf with a stack of at most kλ(G) − 1 frames.

    Edges are turned round if that makes the sinks fewer. A graph without sinks has a cycle. On an instance that holds
    no cap triggers, since the walks from a vertex have at most kλ leaves; on any other a cap or a count refuses it.

    Args:
        instance: any graph, any s, t, k.
        max_steps: refuse past so many steps; None: run to the end.

    Returns:
        the verdict. Meters: ``nodes`` ≤ (n² + n)(nk + 1); ``stack_frames`` ≤ max(0, kλ − 1); ``stack_bits``, O(log M) a
        frame; ``work_tape_bits``, O(log M).
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 16, first part.
    """
    graph, cap, width = instance.graph, instance.cap, terminal_width(instance.graph)
    sinks = sum(not graph.out_edges(v) for v in graph.vertices)
    is_reversed = width < sinks
    oriented = graph.reversed() if is_reversed else graph
    meters = Meters(max_steps)
    evidence = {"terminal_width": width, "reversed": is_reversed}
    counts = None if width == 0 else _counts_by_choices(oriented, cap, cap * width - 1, meters)
    frame = 2 * bits(graph.order) + bits(graph.size)
    meters.peak("stack_bits", meters.values.get("stack_frames", 0) * frame)
    meters.peak("work_tape_bits", 4 * bits(graph.order) + bits(graph.size) + 2 * bits(graph.order * cap + 1))
    if counts is None:
        verdict = refute(instance.requirements, _broken_source(instance))
        return Verdict(False, "terminal-width", verdict, evidence, meters.values)
    if is_reversed:
        counts = [list(column) for column in zip(*counts, strict=True)]
    answer = counts[instance.source][instance.target] >= 1
    certificate = confirm(instance.requirements, dict(enumerate(counts)))
    return Verdict(answer, "terminal-width", certificate, evidence, meters.values)


def _counts_by_choices(graph: Digraph, cap: int, max_frames: int, meters: Meters) -> list[list[int]] | None:
    """N(u, v) for all pairs: first every traversal is bounded, then walks are recounted target by target."""
    max_nodes = graph.order * cap
    for recounting in (False, True):
        counts: list[list[int]] = []
        for source in graph.vertices:
            row = []
            for target in graph.vertices if recounting else (source,):
                found = traverse_choices(
                    graph,
                    source,
                    max_nodes=max_nodes,
                    max_frames=max(0, max_frames),
                    target=target,
                    max_hits=cap if recounting else max_nodes,
                )
                meters.add("nodes", found.nodes)
                meters.peak("stack_frames", found.frames)
                meters.spend(found.nodes)
                if found.overflow:
                    return None
                row.append(found.hits)
            counts.append(row)
    return counts


def _broken_source(instance: StronglyFew) -> int:
    row = (instance.cap,) * instance.graph.order
    return next(v for v in instance.graph.vertices if not respects(instance.graph, v, row))


# ------------------------------------------------------------------------------------------------- blocks


def decide_by_blocks(instance: StronglyFew, *, max_steps: int | None = None) -> Verdict:
    """STCON_sf by listing the cycle space of each biconnected block of the underlying undirected graph.

    Every simple cycle lies in one block, and on a DAG the walks between two vertices follow the one route of blocks
    between them: their number is the product over the blocks on it (Theorem 12), saturated at k + 1.

    The machine of the theorem finds the route by undirected connectivity tests (Reingold's algorithm) and recounts a
    block when it needs to; here blocks are found by depth-first search and counts are kept.

    Args:
        instance: any graph, any s, t, k.
        max_steps: refuse past so many vectors and edges looked at; None: run to the end, exponential in b(G).

    Returns:
        the verdict. Meters: ``vectors`` of cycle spaces listed, at most 2^b for each pair of vertices of a block and
        for each block; ``selection_bits``, b; ``counter_bits``, O(log k).
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 16, second part.
    """
    graph, cap = instance.graph, instance.cap
    spaces = [BlockSpace(graph, block) for block in biconnected_blocks(graph)]
    meters = Meters(max_steps)
    width = max((space.rank for space in spaces), default=0)
    meters.peak("selection_bits", width)
    meters.peak("counter_bits", bits(cap + 1))
    evidence = {"block_cyclomatic_width": width, "blocks": len(spaces)}
    broken = None
    if any(space.find_cycle(meters) for space in spaces):
        broken = _broken_source(instance)
    counts: dict[int, list[int]] = {}
    for source in graph.vertices if broken is None else ():
        counts[source] = _counts_along_routes(graph, spaces, source, cap, meters)
        if max(counts[source]) > cap:
            broken = source
            break
    if broken is not None:
        return Verdict(False, "blocks", refute(instance.requirements, broken), evidence, meters.values)
    answer = counts[instance.source][instance.target] >= 1
    return Verdict(answer, "blocks", confirm(instance.requirements, counts), evidence, meters.values)


def _counts_along_routes(graph: Digraph, spaces: list[BlockSpace], source: int, cap: int, meters: Meters) -> list[int]:
    """min{N(source, v), k + 1} of every v, block by block away from `source` in the block–cut tree."""
    around: dict[int, list[BlockSpace]] = {}
    for space in spaces:
        for vertex in space.vertices:
            around.setdefault(vertex, []).append(space)
    counts = [0] * graph.order
    counts[source] = 1
    entered: set[int] = set()
    pending = [source]
    while pending:
        entry = pending.pop()
        for space in around.get(entry, ()):
            if id(space) in entered:
                continue
            entered.add(id(space))
            for vertex in space.vertices:
                if vertex != entry:
                    through = space.count_paths(entry, vertex, cap + 1, meters) if counts[entry] else 0
                    counts[vertex] = min(cap + 1, counts[entry] * through)
                    pending.append(vertex)
    return counts
