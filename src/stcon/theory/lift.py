"""ReachUL: the certified lift. Certify that a hash collides nowhere, then count what it tells apart.

Every walk gets a fingerprint, a polynomial in its edge indices at a point α of a prime field. The lift H_α is the
layered graph of (endpoint, length, fingerprint); walks are its root paths. If no state of H_α is reached by two paths
(it is *reach-unambiguous*), the reachable states over a vertex are its walks, so they can be counted one state at a
time. On a valid input some α certifies; on an invalid one either none does, or the exact counts show the broken budget
(Lemma 1).

What runs here is the controller, a deterministic machine that asks a reach-unambiguity oracle; `oracle_free` has the
machine that needs no oracle. The oracle's answers are found by exploring the lift layer by layer.

Source: Definition 3, Lemmas 3 and 4, Theorem 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from math import isqrt
from typing import Protocol

from stcon.theory.budgets import PairBudget, RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.graph import Digraph
from stcon.theory.meters import Meters, bits
from stcon.theory.witness import confirm, refute

METHOD = "reachul"

State = tuple[int, int, int]  # (endpoint v, length d, fingerprint z)


class Layered(Protocol):
    """A layered graph over the walks from a vertex of `graph`: `start` is its root, edges lead one layer on."""

    @property
    def graph(self) -> Digraph: ...

    @property
    def start(self) -> State: ...

    def successors(self, state: State) -> list[State]: ...


@dataclass(frozen=True)
class Lift:
    """H_α.

    Args:
        graph: H.
        root: r.
        depth: B, the length of the longest walks that are lifted.
        prime: p.
        point: α, with 0 ≤ α < p.
    """

    graph: Digraph
    root: int
    depth: int
    prime: int
    point: int

    @property
    def start(self) -> State:
        """(r, 0, 0)."""
        return (self.root, 0, 0)

    def successors(self, state: State) -> list[State]:
        """(v, d + 1, αz + i mod p) for every edge eᵢ from the endpoint to v, parallel edges each; i counts from 1."""
        vertex, length, value = state
        if length == self.depth:
            return []
        edges = zip(self.graph.out_edges(vertex), self.graph.successors(vertex), strict=True)
        return [(head, length + 1, (self.point * value + edge + 1) % self.prime) for edge, head in edges]


@dataclass(frozen=True)
class Exploration:
    """What one lift showed.

    Args:
        certified: whether no state is reached twice.
        fibres: reachable states over each vertex, as far as the exploration went.
        over: a vertex with more states than its budget, where the exploration stopped; None: it ran to its end.
    """

    certified: bool
    fibres: tuple[int, ...]
    over: int | None


def explore(lift: Layered, budgets: tuple[int, ...] | None, meters: Meters) -> Exploration:
    """Whether the lift is reach-unambiguous from its root, and its fibre counts.

    Args:
        lift: the lift.
        budgets: stop at the first vertex with more states than its budget. Distinct states come from distinct walks,
            so that alone refutes the instance, whatever is certified. None: go on to a collision or the end.
        meters: counts ``states``.

    Cost: with budgets, at most B + 1 states; without, up to n (B + 1) p.
    Source: Lemma 4.
    """
    fibres = [0] * lift.graph.order
    layer = [lift.start]
    while layer:
        for vertex, _, _ in layer:
            fibres[vertex] += 1
            if budgets is not None and fibres[vertex] > budgets[vertex]:
                return Exploration(False, tuple(fibres), vertex)
        meters.add("states", len(layer))
        meters.spend(len(layer))
        following = [state for reached in layer for state in lift.successors(reached)]
        if len(set(following)) < len(following):
            return Exploration(False, tuple(fibres), None)
        layer = following
    return Exploration(True, tuple(fibres), None)


def lift_prime(instance: RootBudget, meters: Meters | None = None) -> int:
    """The least prime p > max{m, BS, 2}, with S = Σ C(κ(v), 2): more points than can make two of the walks collide.

    Cost: trial division; p is polynomial in the budgets, valid or not.
    Source: Lemma 3.
    """
    pairs = sum(budget * (budget - 1) // 2 for budget in instance.budgets)
    return least_prime_above(max(instance.graph.size, instance.total * pairs, 2), meters)


def least_prime_above(bound: int, meters: Meters | None = None) -> int:
    """The least prime greater than `bound`, found by trial division.

    Args:
        bound: any integer.
        meters: charged the divisions that finding one prime takes.

    Raises:
        TooMuchWork: `meters` does not allow them.
    Cost: O(log bound) candidates on average, √bound divisions each.
    """
    if meters is not None:
        meters.spend(isqrt(max(bound, 0)))
    return next(candidate for candidate in count(bound + 1) if _is_prime(candidate))


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


def decide_root(instance: RootBudget, *, early: bool = True, max_steps: int | None = None) -> Verdict:
    """RootBudget by Theorem 9: for α = 0, 1, … certify H_α; with the first that certifies, compare every fibre.

    Args:
        instance: any graph and budgets.
        early: stop as soon as some fibre is over its budget, certified or not. That changes no answer and bounds an
            exploration by B + 1 states; without it the controller is the paper's to the letter.
        max_steps: refuse past so many states; None: run to the end.

    Returns:
        The verdict. Evidence: ``prime``, ``point`` (the first α that certified; None if none did), ``fibres`` (N(r, v)
        of each v, where α certified). Meters: ``steps`` = ``states`` explored, ``queries`` to the oracle (one a lift
        and, were they asked one by one, one a state), ``work_tape_bits`` of the controller.
    Raises:
        TooMuchWork: past `max_steps`.
    Cost: at most p lifts; on valid inputs fewer than (B − 1) S + 1 of them.
    Source: Theorem 9.
    """
    meters = Meters(max_steps)
    found = _certify(instance, early, meters)
    asked = instance.requirements
    if found.broken:
        return Verdict(False, METHOD, refute(asked, instance.root), found.evidence, found.meters)
    answer = any(found.fibres[target] for target in instance.targets)
    return Verdict(answer, METHOD, confirm(asked, {instance.root: found.fibres}), found.evidence, found.meters)


def decide_pair(instance: PairBudget, *, early: bool = True, max_steps: int | None = None) -> Verdict:
    """PairBudget by Theorem 9 on U(G); evidence and meters are those of U(G), whose building counts as steps too.

    Args:
        instance: any graph and budgets.
        early: as for `decide_root`.
        max_steps: as for `decide_root`.

    Raises:
        TooMuchWork: past `max_steps`.
    Source: Theorem 9 with Lemma 2.
    """
    asked, order = instance.requirements, instance.graph.order
    meters = Meters(max_steps)
    meters.spend(order * (order + instance.graph.size))  # U(G) is built
    found = _certify(instance.rooted(), early, meters)
    if found.broken:
        broken = (a for a in range(order) if _certify(instance.row(a), True, meters).broken)
        return Verdict(False, METHOD, refute(asked, next(broken)), found.evidence, found.meters)
    counts = {a: found.fibres[1 + a * order : 1 + (a + 1) * order] for a in range(order)}
    answer = counts[instance.source][instance.target] >= 1
    return Verdict(answer, METHOD, confirm(asked, counts), found.evidence, found.meters)


def decide_strongly_few(instance: StronglyFew, *, early: bool = True, max_steps: int | None = None) -> Verdict:
    """STCON_sf as the PairBudget it is; see `decide_pair`.

    Source: Theorem 9, Theorem 2.
    """
    return decide_pair(instance.pairs(), early=early, max_steps=max_steps)


@dataclass(frozen=True)
class _Controlled:
    """The controller's findings; `fibres` are walk numbers unless `broken`."""

    broken: bool
    fibres: tuple[int, ...]
    evidence: Mapping[str, object]
    meters: Mapping[str, int]


def _certify(instance: RootBudget, early: bool, meters: Meters) -> _Controlled:
    graph, budgets, total = instance.graph, instance.budgets, instance.total
    if total == 0 or budgets[instance.root] == 0:  # the empty walk is one too many
        return _Controlled(True, (), {"prime": None, "point": None}, dict(meters.values))
    prime = lift_prime(instance, meters)
    vertex, layer, residue = bits(graph.order), bits(total), bits(prime)
    meters.peak("work_tape_bits", vertex + layer + 2 * residue + bits(max(budgets) + 1))
    for point in range(prime):
        shown = explore(Lift(graph, instance.root, total, prime, point), budgets if early else None, meters)
        meters.add("queries")
        if not shown.certified and shown.over is None:
            continue
        evidence: dict[str, object] = {"prime": prime, "point": point if shown.certified else None}
        within = all(fibre <= budget for fibre, budget in zip(shown.fibres, budgets, strict=True))
        if within:
            evidence["fibres"] = shown.fibres
        return _Controlled(not within, shown.fibres, evidence, dict(meters.values))
    return _Controlled(True, (), {"prime": prime, "point": None}, dict(meters.values))
