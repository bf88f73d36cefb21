"""ReachUL without an oracle: a machine that certifies the hashed unfolding layer by layer before it counts.

The hashed unfolding Γ_{a,α} has a state (v, i, h) for the walks of length i from a to v with fingerprint h. Where it is
certified through layer d, the part reached is a tree, and an Euler tour visits each of its states once, recovering
parents by guessing. Counting a next layer's in-neighbours on such tours certifies one layer more, and never is a tour
started on a layer that is not certified. So the machine guesses only where all wrong guesses die, and every
configuration has one path from the start, on every input, valid or not.

`OracleFreeMachine` is that machine, step by step, for `configurations.check_unambiguous`. Its path that survives is
polynomial but long (a tour for each of np states a layer); `decide_strongly_few` computes what that path finds.

Source: Definition 4, Lemmas 5–9, Algorithms 1 and 2, Appendix B.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stcon.theory.budgets import StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.graph import Digraph, GraphError
from stcon.theory.lift import State, explore, least_prime_above
from stcon.theory.meters import Meters, bits
from stcon.theory.witness import confirm, refute

METHOD = "oracle-free"

CERTIFY, COUNT, ACCEPT, REJECT = range(4)
DOWN, UP, RECOVER = range(3)
NOWHERE: State = (0, 0, 0)


@dataclass(frozen=True)
class HashedUnfolding:
    """Γ_{a,α}.

    Args:
        graph: G, simple, since vertex sequences are hashed.
        source: a.
        depth: L, the last layer.
        prime: p.
        point: α.
    """

    graph: Digraph
    source: int
    depth: int
    prime: int
    point: int

    @property
    def start(self) -> State:
        """r_a = (a, 0, a)."""
        return (self.source, 0, self.source % self.prime)

    def successors(self, state: State) -> list[State]:
        """(w, i + 1, αh + w) for every edge v → w, by w."""
        vertex, layer, value = state
        if layer == self.depth:
            return []
        heads = sorted(self.graph.successors(vertex))
        return [(head, layer + 1, (self.point * value + head) % self.prime) for head in heads]

    def predecessors(self, state: State) -> list[State]:
        """The states with an edge into `state`, reachable or not."""
        vertex, layer, value = state
        if layer == 0:
            return []
        tails = self.graph.predecessors(vertex)
        return [(tail, layer - 1, before) for tail in tails for before in self._values_before(vertex, value)]

    def _values_before(self, vertex: int, value: int) -> range | tuple[int, ...]:
        """The h with αh + vertex = value: one, unless α = 0 forgets it."""
        if self.point:
            return ((value - vertex) * pow(self.point, -1, self.prime) % self.prime,)
        return range(self.prime) if (vertex - value) % self.prime == 0 else ()


class Configuration(NamedTuple):
    """The work tape.

    Args:
        stage: CERTIFY, COUNT, or a halting ACCEPT or REJECT.
        source: a.
        point: α.
        reached: R, whether a walk from s to t was counted.
        depth: the layer through which the tour runs: d, or L when counting.
        sought: (v, h): the state y of layer d + 1, or the vertex v (and 0) when counting.
        counted: in-neighbours of y, or walks to v.
        mode: DOWN, UP, or RECOVER inside Parent.
        at: x, the tour's state.
        guess: u, the guessed parent; NOWHERE outside Parent.
        trail: z_m, the end of the guessed path, whose layer is m; NOWHERE outside Parent.
    """

    stage: int
    source: int
    point: int
    reached: bool
    depth: int
    sought: tuple[int, int]
    counted: int
    mode: int
    at: State
    guess: State
    trail: State


class OracleFreeMachine:
    """Algorithm 2 on a fixed input, as a `configurations.Machine`.

    Args:
        instance: the input; its graph must be simple.
        prime: p; None: the least prime above max(n, L(nk)²). With a smaller one some valid inputs may be rejected, but
            unambiguity must hold all the same, which tests use.

    Raises:
        GraphError: the graph has parallel edges.
    Source: Algorithms 1 and 2.
    """

    def __init__(self, instance: StronglyFew, prime: int | None = None) -> None:
        if not instance.graph.is_simple:
            raise GraphError("vertex sequences do not tell parallel edges apart; use graph.without_parallel_edges()")
        self.instance = instance
        self.graph = instance.graph
        self.length = instance.source_budget
        self.prime = unfolding_prime(instance) if prime is None else prime

    @property
    def configuration_bits(self) -> int:
        """Bits of a work tape: 5 vertices, 4 layers, 5 residues, a count, and the finite control; O(log M)."""
        control = 2 + 2 + 1
        count = bits(max(2, self.instance.cap + 1))
        return 5 * bits(self.graph.order) + 4 * bits(self.length + 1) + 5 * bits(self.prime) + count + control

    def start(self) -> Configuration:
        """The first source, the first point."""
        blank = Configuration(CERTIFY, 0, 0, False, 0, (0, 0), 0, DOWN, NOWHERE, NOWHERE, NOWHERE)
        return self._certification(blank)

    def verdict(self, configuration: Configuration) -> bool | None:
        """ACCEPT, REJECT, or neither."""
        return {ACCEPT: True, REJECT: False}.get(configuration.stage)

    def progress(self, configuration: Configuration) -> tuple[int, ...]:
        """The loop variables of Algorithm 2, outermost first; each invocation of Tour has its own."""
        stage, source, point, _, depth, sought, *_ = configuration
        return (source, point, stage, depth, *sought)

    def successors(self, configuration: Configuration) -> list[Configuration]:
        """One step of Tour or Parent; a returning tour steps the loops around it."""
        if configuration.stage in (ACCEPT, REJECT):
            return []
        unfolding = self._unfolding(configuration.source, configuration.point)
        if configuration.mode == RECOVER:
            return self._recover(configuration, unfolding)
        if configuration.mode == UP:
            if configuration.at == unfolding.start:
                return [self._returned(configuration)]
            parents = unfolding.predecessors(configuration.at)
            return [configuration._replace(mode=RECOVER, guess=u, trail=unfolding.start) for u in parents]
        if configuration.at[1] < configuration.depth and (children := unfolding.successors(configuration.at)):
            return [self._visit(configuration, children[0])]
        return [configuration._replace(mode=UP)]

    def _unfolding(self, source: int, point: int) -> HashedUnfolding:
        return HashedUnfolding(self.graph, source, self.length, self.prime, point)

    def _recover(self, now: Configuration, unfolding: HashedUnfolding) -> list[Configuration]:
        """Parent(x): extend the guessed path; at layer j − 1 return if it ends at the guess, else die."""
        if now.trail[1] < now.guess[1]:
            return [now._replace(trail=z) for z in unfolding.successors(now.trail)]
        if now.trail != now.guess:
            return []
        siblings = unfolding.successors(now.guess)
        after = siblings[siblings.index(now.at) + 1 :]
        back = now._replace(guess=NOWHERE, trail=NOWHERE)
        return [self._visit(back, after[0]) if after else back._replace(mode=UP, at=now.guess)]

    def _visit(self, now: Configuration, state: State) -> Configuration:
        """Move the tour to `state` and count it if it is what is looked for."""
        counted = now.counted + self._counts(now, state)
        if now.stage == CERTIFY and counted == 2:
            return self._failed(now)
        most = 1 if now.stage == CERTIFY else self.instance.cap + 1
        return now._replace(at=state, mode=DOWN, counted=min(counted, most))

    def _counts(self, now: Configuration, state: State) -> bool:
        vertex, layer, value = state
        sought, residue = now.sought
        if now.stage == COUNT:
            return vertex == sought
        leads = layer == now.depth and self.graph.multiplicity(vertex, sought) > 0
        return leads and (now.point * value + sought) % self.prime == residue

    def _tour(self, loops: Configuration) -> Configuration:
        """The start of a tour under these loop variables, its root visited."""
        root = self._unfolding(loops.source, loops.point).start
        return self._visit(loops._replace(counted=0, guess=NOWHERE, trail=NOWHERE), root)

    def _certification(self, loops: Configuration) -> Configuration:
        """The start of Certify, or of the counting where there is no layer to certify."""
        if self.length == 0:
            return self._counting(loops)
        return self._tour(loops._replace(stage=CERTIFY, depth=0, sought=(0, 0)))

    def _counting(self, loops: Configuration) -> Configuration:
        return self._tour(loops._replace(stage=COUNT, depth=self.length, sought=(0, 0)))

    def _failed(self, now: Configuration) -> Configuration:
        """Certify fails: the next point, or no point is left."""
        if now.point + 1 == self.prime:
            return now._replace(stage=REJECT)
        return self._certification(now._replace(point=now.point + 1))

    def _returned(self, now: Configuration) -> Configuration:
        return self._certified_one(now) if now.stage == CERTIFY else self._counted_one(now)

    def _certified_one(self, now: Configuration) -> Configuration:
        """The tour for one y is done: the next y, the next layer, or the counting."""
        vertex, value = now.sought
        if value + 1 < self.prime:
            return self._tour(now._replace(sought=(vertex, value + 1)))
        if vertex + 1 < self.graph.order:
            return self._tour(now._replace(sought=(vertex + 1, 0)))
        if now.depth + 1 < self.length:
            return self._tour(now._replace(depth=now.depth + 1, sought=(0, 0)))
        return self._counting(now)

    def _counted_one(self, now: Configuration) -> Configuration:
        """The walks to one v are counted: compare, then the next v, the next source, or the end."""
        instance = self.instance
        vertex = now.sought[0]
        if now.counted > instance.cap:
            return now._replace(stage=REJECT)
        reached = now.reached or ((now.source, vertex) == (instance.source, instance.target) and now.counted >= 1)
        after = now._replace(reached=reached)
        if vertex + 1 < self.graph.order:
            return self._tour(after._replace(sought=(vertex + 1, 0)))
        if now.source + 1 < self.graph.order:
            return self._certification(after._replace(source=now.source + 1, point=0))
        return after._replace(stage=ACCEPT if reached else REJECT)


def unfolding_prime(instance: StronglyFew, meters: Meters | None = None) -> int:
    """The least prime p > max(n, L(nk)²), with L = nk.

    Raises:
        TooMuchWork: `meters` does not allow the divisions.
    Source: Lemma 7.
    """
    return least_prime_above(max(instance.graph.order, instance.source_budget**3), meters)


def decide_strongly_few(instance: StronglyFew, *, early: bool = True, max_steps: int | None = None) -> Verdict:
    """STCON_sf by what the surviving path of Algorithm 2 finds.

    Parallel edges get private middles first (`Digraph.without_parallel_edges`), which changes no answer.

    Args:
        instance: any graph, any s, t, k.
        early: stop an exploration at the first vertex with more than k states, certified or not; changes no answer.
        max_steps: refuse past so many states and divisions; None: run to the end.

    Returns:
        The verdict. Evidence: ``prime`` and, for each source up to the first that fails, ``points``: the first α that
        certified, or None. Meters: ``steps``, ``states``, and ``work_tape_bits`` ≤ 40 log₂ M of the machine (asserted).
    Raises:
        TooMuchWork: past `max_steps`.
    Cost: at most p explorations a source, of at most nk + 1 states if `early`.
    Source: Algorithm 2.
    """
    simple = StronglyFew(instance.graph.without_parallel_edges(), instance.source, instance.target, instance.cap)
    meters = Meters(max_steps)
    meters.spend(simple.graph.order**2)  # the counts of the certificate
    prime = unfolding_prime(simple, meters)
    _meter_tape(simple, prime, meters)
    budgets = (instance.cap,) * simple.graph.order
    points: list[int | None] = []
    evidence = {"prime": prime, "points": points}
    asked, counts = instance.requirements, {}
    for source in simple.graph.vertices:
        point, fibres = _certified(simple, source, prime, budgets if early else None, meters)
        points.append(point)
        if fibres is None or any(fibre > instance.cap for fibre in fibres):
            # a middle's walks are those of its edge's ends, which come first
            assert source < instance.graph.order
            return Verdict(False, METHOD, refute(asked, source), evidence, meters.values)
        if source < instance.graph.order:
            counts[source] = fibres[: instance.graph.order]
    answer = counts[instance.source][instance.target] >= 1
    return Verdict(answer, METHOD, confirm(asked, counts), evidence, meters.values)


def _certified(
    instance: StronglyFew, source: int, prime: int, budgets: tuple[int, ...] | None, meters: Meters
) -> tuple[int | None, tuple[int, ...] | None]:
    """The first point that certifies, with its counts; or None, with counts if one of them is over its budget."""
    for point in range(prime):
        unfolding = HashedUnfolding(instance.graph, source, instance.source_budget, prime, point)
        shown = explore(unfolding, budgets, meters)
        if shown.certified:
            return point, shown.fibres
        if shown.over is not None:
            return None, shown.fibres
    return None, None


def _meter_tape(instance: StronglyFew, prime: int, meters: Meters) -> None:
    used = OracleFreeMachine(instance, prime).configuration_bits
    meters.peak("work_tape_bits", used)
    assert used <= 40 * bits(instance.input_length), "the work tape is not logarithmic"
