"""Space: Savitch's algorithm with its tape metered, the bound that the paper goes below.

Going below it, DSPACE(log² M / log log M), composes STCON_sf ∈ ReachUL (Theorem 9: `lift`, `oracle_free`) with the
space bound of ReachUL, a cited theorem that `contraction` reconstructs and meters. Cook's simulation, which puts
LOGDCFL into SC², is cited and not implemented; `pushdown` gives the automaton that it simulates, with its steps, work
tape and stack measured.

Source: Theorem 2, Appendix B.10.
"""

from __future__ import annotations

from dataclasses import dataclass

from stcon.theory.graph import Digraph
from stcon.theory.meters import Meters, bits


@dataclass(frozen=True)
class Savitch:
    """What Savitch's algorithm found and used.

    Args:
        reachable: whether a walk leads from source to target.
        steps: pairs tested.
        frames: the deepest recursion, at most ⌈log₂ n⌉ + 1.
        tape_bits: frames times (three vertices and a phase), at most (⌈log₂ n⌉ + 1)(3⌈log₂ n⌉ + 4).
    """

    reachable: bool
    steps: int
    frames: int
    tape_bits: int


def savitch(graph: Digraph, source: int, target: int, *, max_steps: int | None = None) -> Savitch:
    """Reachability by midpoints: a walk of at most 2^{i+1} edges is two of at most 2^i.

    Args:
        graph: any graph; the time is n^{O(log n)}, so a small one.
        source: s.
        target: t.
        max_steps: refuse past so many tested pairs; None: never.

    Raises:
        TooMuchWork: past `max_steps`.
    Cost: O(log² n) space on a Turing machine; n^{O(log n)} time.
    Source: cited in Theorem 2 as the classical bound.
    """
    meters = Meters(max_steps)
    adjacent = {(u, v) for u, v in graph.edges} | {(v, v) for v in graph.vertices}
    levels = (graph.order - 1).bit_length()

    def joined(tail: int, head: int, level: int) -> bool:
        """Whether a walk of at most 2^level edges leads from tail to head."""
        meters.spend(1)
        meters.peak("frames", levels - level + 1)
        if level == 0:
            return (tail, head) in adjacent
        return any(joined(tail, middle, level - 1) and joined(middle, head, level - 1) for middle in graph.vertices)

    reachable = joined(source, target, levels)
    frames = meters.values["frames"]
    used = frames * (3 * bits(graph.order - 1) + 1)
    assert frames <= levels + 1
    return Savitch(reachable, meters.values["steps"], frames, used)
