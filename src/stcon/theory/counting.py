"""The yardstick: exact counts by one pass in topological order. Polynomial in the bits of k, so k may be written in
binary.

No small space and no unambiguity: this is the decider to use, the others are the ones to study. For k in binary the
problem is PL-complete (Theorem 6(ii)); membership rests on the count being a #L function, and here it is just computed.

Source: Definition 1; Theorem 6(ii).
"""

from __future__ import annotations

from stcon.theory.budgets import Instance, PairBudget, Requirements, RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.meters import Meters, bits
from stcon.theory.walks import Count, walk_counts
from stcon.theory.witness import confirm, refute

METHOD = "counts"


def decide(instance: Instance, *, max_steps: int | None = None) -> Verdict:
    """Any of the three problems, by exact walk numbers.

    Args:
        instance: any graph and budgets.
        max_steps: refuse past so many additions; None: run to the end.

    Returns:
        The verdict. Meters: ``steps``, the additions; ``count_bits`` of the largest finite count met.
    Raises:
        TooMuchWork: past `max_steps`.
    Cost: O(n + m) additions a bounded source.
    """
    asked = instance.requirements
    graph, meters = asked.graph, Meters(max_steps)
    counts: dict[int, tuple[int, ...]] = {}
    for source, budgets in asked.budgets.items():
        meters.spend(graph.order + graph.size)
        row = walk_counts(graph, source)
        meters.peak("count_bits", max(_bits(count) for count in row))
        if any(count > budget for count, budget in zip(row, budgets, strict=True)):
            return Verdict(False, METHOD, refute(asked, source), meters=meters.values)
        counts[source] = tuple(map(int, row))
    return _confirmed(asked, counts, meters)


def _confirmed(asked: Requirements, counts: dict[int, tuple[int, ...]], meters: Meters) -> Verdict:
    answer = any(counts[asked.source][target] for target in asked.targets)
    return Verdict(answer, METHOD, confirm(asked, counts), meters=meters.values)


def _bits(count: Count) -> int:
    return bits(count) if isinstance(count, int) else 0


def decide_root(instance: RootBudget, *, max_steps: int | None = None) -> Verdict:
    """RootBudget; see `decide`."""
    return decide(instance, max_steps=max_steps)


def decide_pair(instance: PairBudget, *, max_steps: int | None = None) -> Verdict:
    """PairBudget; see `decide`."""
    return decide(instance, max_steps=max_steps)


def decide_strongly_few(instance: StronglyFew, *, max_steps: int | None = None) -> Verdict:
    """STCON_sf, k in unary or binary; see `decide`."""
    return decide(instance, max_steps=max_steps)
