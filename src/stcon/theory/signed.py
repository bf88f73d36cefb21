"""C=L: one integer that is zero exactly on good inputs.

For a count f and a budget κ the product f (f − 1) ⋯ (f − κ) vanishes iff 0 ≤ f ≤ κ; leaving out the factor f asks that
f is not zero either. The sum of the squares of all these products is zero iff every one is.

The counts are of walks no longer than the total budget, as a nondeterministic logspace machine has them as accepting
paths; here they are summed layer by layer, and the integer is exact.

Source: Theorem 10, Appendix B.9.
"""

from __future__ import annotations

from math import prod

from stcon.theory.budgets import PairBudget, RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.meters import Meters, bits
from stcon.theory.walks import bounded_counts
from stcon.theory.witness import confirm, refute

METHOD = "c=l"


def vanishing(count: int, budget: int, *, positive: bool = False) -> int:
    """∏_{j=0…budget} (count − j), which is zero iff 0 ≤ count ≤ budget; from j = 1 if `positive`: 1 ≤ count ≤ budget.

    Cost: budget + 1 multiplications.
    """
    return prod(count - j for j in range(int(positive), budget + 1))


def gap_pair(instance: PairBudget, *, max_steps: int | None = None) -> int:
    """g = P_st² + Σ_{(u,v) ≠ (s,t)} P_uv², zero iff the PairBudget instance holds.

    Args:
        instance: any graph and budgets.
        max_steps: refuse past so many additions and multiplications, weighed by 64-bit words; None: never.

    Raises:
        TooMuchWork: past `max_steps`.
    Cost: L·m·n additions, with L the largest total budget of a source, of integers of up to L·log₂ m bits.
    Source: Theorem 10.
    """
    return _gap_of_counts(instance, pair_counts(instance, Meters(max_steps)))


def gap_root(instance: RootBudget, *, max_steps: int | None = None) -> int:
    """g = P_F² + Σ_v P_v², zero iff the RootBudget instance holds; P_F is of Σ_{f ∈ F} f and the budget B.

    Args:
        instance: any graph and budgets.
        max_steps: as for `gap_pair`.

    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 10.
    """
    counts = _row(instance, instance.total, Meters(max_steps))
    return _root_gap(instance, counts)


def decide_pair(instance: PairBudget, *, max_steps: int | None = None) -> Verdict:
    """PairBudget by the zero test.

    Returns:
        The verdict. Evidence: ``gap``, the integer; ``counts``, each pair's truncated walk number.
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 10.
    """
    meters = Meters(max_steps)
    counts = pair_counts(instance, meters)
    gap = _gap_of_counts(instance, counts)
    meters.peak("gap_bits", bits(gap))
    evidence = {"gap": gap, "counts": counts}
    rows = {u: [counts[u, v] for v in instance.graph.vertices] for u in instance.graph.vertices}
    over = [u for u, row in rows.items() if any(c > b for c, b in zip(row, instance.budgets[u], strict=True))]
    asked = instance.requirements
    certificate = refute(asked, over[0]) if over else confirm(asked, rows)
    return Verdict(gap == 0, METHOD, certificate, evidence, meters.values)


def decide_root(instance: RootBudget, *, max_steps: int | None = None) -> Verdict:
    """RootBudget by the zero test; evidence ``gap``.

    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 10.
    """
    meters = Meters(max_steps)
    counts = _row(instance, instance.total, meters)
    gap = _root_gap(instance, counts)
    meters.peak("gap_bits", bits(gap))
    asked = instance.requirements
    over = any(count > budget for count, budget in zip(counts, instance.budgets, strict=True))
    certificate = refute(asked, instance.root) if over else confirm(asked, {instance.root: counts})
    return Verdict(gap == 0, METHOD, certificate, {"gap": gap}, meters.values)


def decide_strongly_few(instance: StronglyFew, *, max_steps: int | None = None) -> Verdict:
    """STCON_sf by the zero test; then L = nk and every product has k + 1 factors, the one of (s, t) k.

    Source: Theorem 10.
    """
    return decide_pair(instance.pairs(), max_steps=max_steps)


def pair_counts(instance: PairBudget, meters: Meters) -> dict[tuple[int, int], int]:
    """f_uv = N^{≤ L}(u, v) with L = max_u Σ_v κ(u, v)."""
    graph = instance.graph
    length = max(map(sum, instance.budgets), default=0)
    rows = {u: _row(instance.row(u), length, meters) for u in graph.vertices}
    return {(u, v): rows[u][v] for u in graph.vertices for v in graph.vertices}


def _row(instance: RootBudget, length: int, meters: Meters) -> tuple[int, ...]:
    """N^{≤ length}(root, ·), its cost paid before: additions, then the products' factors, in words of 64 bits."""
    graph = instance.graph
    longest = min(length, graph.order - 1) if graph.topological_order() is not None else length
    words = 1 + longest * bits(graph.size) // 64
    meters.spend((longest + 1) * (graph.size + 1) * words)
    meters.spend(sum((budget + 1) * (budget + 1) * words for budget in instance.budgets) * words)
    return bounded_counts(graph, instance.root, length)


def _gap_of_counts(instance: PairBudget, counts: dict[tuple[int, int], int]) -> int:
    designated = (instance.source, instance.target)
    return sum(
        vanishing(count, instance.budgets[u][v], positive=(u, v) == designated) ** 2 for (u, v), count in counts.items()
    )


def _root_gap(instance: RootBudget, counts: tuple[int, ...]) -> int:
    reached = sum(counts[target] for target in instance.targets)
    rows = sum(vanishing(count, budget) ** 2 for count, budget in zip(counts, instance.budgets, strict=True))
    return rows + vanishing(reached, instance.total, positive=True) ** 2
