"""NL: collision-averaged fingerprints. Collisions need not be avoided if they are rare on average.

Instead of looking for a point α without collisions, take q₀ of them and count all distinct images together. A vertex
with at most t walks has at most q₀t images; one with t + 1 loses fewer than q₀ to collisions, so it has more than q₀t.
The quotient D / q₀, rounded up, *is* the number of walks, up to the cap.

A logspace machine with an NL oracle counts the reachable states of the lifts' disjoint union; here they are explored.

Source: Lemma 11, Theorem 6(i).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stcon.theory.budgets import PairBudget, RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.graph import Digraph
from stcon.theory.lift import Lift, State, least_prime_above
from stcon.theory.meters import Meters
from stcon.theory.witness import confirm, refute

METHOD = "nl"


@dataclass(frozen=True)
class Average:
    """The parameters of one averaged count.

    Args:
        graph: H.
        root: r.
        depth: B ≥ 1; walks up to this length are counted.
        cap: K; counts are exact up to K, and K + 1 stands for more.
    """

    graph: Digraph
    root: int
    depth: int
    cap: int

    @property
    def num_points(self) -> int:
        """q₀ = (B − 1) C(K + 1, 2) + 1."""
        return (self.depth - 1) * (self.cap * (self.cap + 1) // 2) + 1

    def lifts(self, meters: Meters) -> Iterable[Lift]:
        """H_α for the points α = 0 … q₀ − 1, over the least prime above max{m, q₀}."""
        prime = least_prime_above(max(self.graph.size, self.num_points), meters)
        return (Lift(self.graph, self.root, self.depth, prime, point) for point in range(self.num_points))


def averaged_counts(average: Average, meters: Meters | None = None) -> tuple[int, ...]:
    """min{N^{≤ B}(root, v), K + 1} for every v, by ⌈D_v / q₀⌉: what the FL^NL transducer writes.

    Args:
        average: root, B and K.
        meters: counts ``states``.

    Cost: q₀ lifts of up to n (B + 1) p states each.
    Source: Lemma 11, Theorem 6(i).
    """
    meters = meters or Meters()
    images = [0] * average.graph.order
    for lift in average.lifts(meters):
        for layer in _layers(lift, meters):
            for vertex, _, _ in layer:
                images[vertex] += 1
    return tuple(min(-(-count // average.num_points), average.cap + 1) for count in images)


def walks_at_least(graph: Digraph, root: int, targets: frozenset[int], threshold: int, max_length: int) -> bool:
    """Whether at least `threshold` walks of at most `max_length` edges lead from `root` into `targets`.

    For an acyclic configuration graph this is {x : f(x) ≥ τ(x)} with f a #L function: f counts the accepting paths.

    Args:
        graph: any graph.
        root: r.
        targets: where counted walks end.
        threshold: τ, polynomially bounded for the method to be in NL.
        max_length: B.

    Cost: as `averaged_counts` with K = τ − 1, less what an early answer saves.
    Source: Theorem 6(i).
    """
    if threshold <= 0:
        return True
    average = Average(graph, root, max(max_length, 1), threshold - 1)
    meters = Meters()
    images = 0
    for lift in average.lifts(meters):
        for index, layer in enumerate(_layers(lift, meters)):
            # walks end in different targets, but one (length, fingerprint) is one image: edges determine the end
            if index <= max_length:
                images += len({value for vertex, _, value in layer if vertex in targets})
            if images > average.num_points * (threshold - 1):
                return True
    return False


def decide_root(instance: RootBudget, *, max_steps: int | None = None) -> Verdict:
    """RootBudget by Lemma 11: N ≤ κ(v) iff D_v ≤ q₀ κ(v), with K the largest budget.

    Args:
        instance: any graph and budgets.
        max_steps: refuse past so many states; None: run to the end.

    Returns:
        The verdict. Evidence: ``prime``, ``num_points`` = q₀, ``images`` = (D_v) as far as counted. Meters: ``steps`` =
        states explored and divisions to find p; at most q₀B, and a last layer, since counting stops at the first D_v
        over q₀ κ(v).
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 6(i).
    """
    meters = Meters(max_steps)
    counted = _count_row(instance, meters)
    asked = instance.requirements
    if counted.broken:
        return Verdict(False, METHOD, refute(asked, instance.root), counted.evidence, meters.values)
    answer = any(counted.counts[target] for target in instance.targets)
    return Verdict(answer, METHOD, confirm(asked, {instance.root: counted.counts}), counted.evidence, meters.values)


def decide_pair(instance: PairBudget, *, max_steps: int | None = None) -> Verdict:
    """PairBudget, a row at a time: a walk of U(G) never leaves its copy, so a source's budget bounds it alone.

    Args:
        instance: any graph and budgets.
        max_steps: as for `decide_root`.

    Returns:
        The verdict. Evidence: ``rows``, what `decide_root` gives for each source up to the first broken one.
    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 6(i) with Lemma 2.
    """
    meters = Meters(max_steps)
    meters.spend(instance.graph.order**2)  # the counts of the certificate
    asked = instance.requirements
    counts: dict[int, tuple[int, ...]] = {}
    rows: list[dict[str, object]] = []
    for source in instance.graph.vertices:
        counted = _count_row(instance.row(source), meters)
        rows.append(counted.evidence)
        if counted.broken:
            return Verdict(False, METHOD, refute(asked, source), {"rows": rows}, meters.values)
        counts[source] = counted.counts
    answer = counts[instance.source][instance.target] >= 1
    return Verdict(answer, METHOD, confirm(asked, counts), {"rows": rows}, meters.values)


def decide_strongly_few(instance: StronglyFew, *, max_steps: int | None = None) -> Verdict:
    """STCON_sf as the PairBudget it is; see `decide_pair`.

    Source: Theorem 6(i).
    """
    return decide_pair(instance.pairs(), max_steps=max_steps)


@dataclass(frozen=True)
class _Counted:
    """Walk numbers, unless `broken`."""

    broken: bool
    counts: tuple[int, ...]
    evidence: dict[str, object]


def _count_row(instance: RootBudget, meters: Meters) -> _Counted:
    if instance.total == 0:
        return _Counted(True, (), {"prime": None, "num_points": 0, "images": ()})
    average = Average(instance.graph, instance.root, instance.total, max(instance.budgets))
    images = [0] * instance.graph.order
    most = [average.num_points * budget for budget in instance.budgets]
    broken, prime = False, 0
    for lift in average.lifts(meters):
        prime = lift.prime
        for layer in _layers(lift, meters):
            for vertex, _, _ in layer:
                images[vertex] += 1
                broken = broken or images[vertex] > most[vertex]
            if broken:
                break
        if broken:
            break
    counts = tuple(-(-count // average.num_points) for count in images)
    evidence = {"prime": prime, "num_points": average.num_points, "images": tuple(images)}
    return _Counted(broken, counts, evidence)


def _layers(lift: Lift, meters: Meters) -> Iterable[set[State]]:
    """The reachable states of the lift, by length."""
    layer = {lift.start}
    while layer:
        meters.spend(len(layer))
        yield layer
        layer = {state for reached in layer for state in lift.successors(reached)}
