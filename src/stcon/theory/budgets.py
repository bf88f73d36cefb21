"""The three decision problems, as values: RootBudget, PairBudget and STCON_sf.

Each asks that walk numbers stay within budgets *and* that a target is reached, on an arbitrary graph: the bound is part
of what is decided, not a promise. The problems nest. STCON_sf is PairBudget with one budget k everywhere, and
PairBudget is RootBudget on the universal-source graph U(G) (Lemma 2). One fact makes all deciders stop: by Lemma 1
only walks of length at most the total budget B matter.

`requirements` is the form that all three share: a row of budgets for each of some sources, a source to start from and
the targets of which one must be reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stcon.theory.graph import Digraph, GraphError
from stcon.theory.walks import capped_counts, walk_counts

Budgets = tuple[int, ...]  # one budget κ(v) a vertex


@dataclass(frozen=True)
class RootBudget:
    """N(root, v) ≤ budgets[v] for every v, and N(root, f) ≥ 1 for some target f.

    Args:
        graph: H.
        root: r.
        budgets: κ, one number ≥ 0 a vertex.
        targets: F.

    Raises:
        GraphError: a budget is negative or missing, or the root or a target is no vertex.
    """

    graph: Digraph
    root: int
    budgets: Budgets
    targets: frozenset[int]

    def __post_init__(self) -> None:
        _check_vertices(self.graph, [self.root, *self.targets])
        _check_row(self.graph, self.budgets)

    @property
    def total(self) -> int:
        """B = Σ κ(v)."""
        return sum(self.budgets)

    @property
    def requirements(self) -> Requirements:
        """The form shared with the other problems."""
        return Requirements(self.graph, {self.root: self.budgets}, self.root, self.targets)


@dataclass(frozen=True)
class PairBudget:
    """N(u, v) ≤ budgets[u][v] for all pairs, and N(source, target) ≥ 1.

    Args:
        graph: G.
        budgets: κ, n rows of n numbers ≥ 0.
        source: s.
        target: t.

    Raises:
        GraphError: a budget is negative or missing, or s or t is no vertex.
    """

    graph: Digraph
    budgets: tuple[Budgets, ...]
    source: int
    target: int

    def __post_init__(self) -> None:
        _check_vertices(self.graph, [self.source, self.target])
        if len(self.budgets) != self.graph.order:
            raise GraphError(f"{len(self.budgets)} rows of budgets for {self.graph.order} vertices")
        for row in {id(row): row for row in self.budgets}.values():  # a uniform budget is one row, n times
            _check_row(self.graph, row)

    @property
    def total(self) -> int:
        """1 + Σ κ(u, v), the total budget of `rooted`."""
        return 1 + sum(map(sum, self.budgets))

    @property
    def requirements(self) -> Requirements:
        """The form shared with the other problems."""
        return Requirements(self.graph, dict(enumerate(self.budgets)), self.source, frozenset([self.target]))

    def rooted(self) -> RootBudget:
        """The same question about U(G): budget 1 at the root ρ and κ(a, v) at (a, v); the target is (s, t).

        Source: Lemma 2.
        """
        target = universal_vertex(self.graph, self.source, self.target)
        budgets = (1, *(budget for row in self.budgets for budget in row))
        return RootBudget(universal_source(self.graph), UNIVERSAL_ROOT, budgets, frozenset([target]))

    def row(self, source: int) -> RootBudget:
        """One source's part: its budgets and, for s, the target; for another source the target is itself.

        A PairBudget holds iff every row does.
        """
        target = self.target if source == self.source else source
        return RootBudget(self.graph, source, self.budgets[source], frozenset([target]))


@dataclass(frozen=True)
class StronglyFew:
    """STCON_sf: N(u, v) ≤ cap for all pairs, and N(source, target) ≥ 1.

    Args:
        graph: G.
        source: s.
        target: t.
        cap: k ≥ 0. For k = 0 the answer is no, since the empty walk counts.

    Raises:
        GraphError: s or t is no vertex, or k is negative.
    """

    graph: Digraph
    source: int
    target: int
    cap: int

    def __post_init__(self) -> None:
        _check_vertices(self.graph, [self.source, self.target])
        if self.cap < 0:
            raise GraphError(f"k = {self.cap}: the number of walks allowed cannot be negative")

    @property
    def source_budget(self) -> int:
        """nk, the total budget of the walks from one source."""
        return self.graph.order * self.cap

    @property
    def input_length(self) -> int:
        """M = n² + 2⌈log₂ n⌉ + k: an adjacency matrix, s, t and k in unary."""
        order = self.graph.order
        return order * order + 2 * (order - 1).bit_length() + self.cap

    @property
    def requirements(self) -> Requirements:
        """The form shared with the other problems."""
        return self.pairs().requirements

    def pairs(self) -> PairBudget:
        """The same question with every budget written out."""
        row = (self.cap,) * self.graph.order
        return PairBudget(self.graph, (row,) * self.graph.order, self.source, self.target)


Instance = RootBudget | PairBudget | StronglyFew


@dataclass(frozen=True)
class Requirements:
    """What every instance asks, in one form.

    Args:
        graph: the graph.
        budgets: for each source whose walks are bounded, its row of budgets.
        source: where the demanded walk starts.
        targets: it must reach one of these.
    """

    graph: Digraph
    budgets: Mapping[int, Budgets]
    source: int
    targets: frozenset[int]

    def hold(self) -> bool:
        """The definition itself, by exact counts.

        Cost: O(n + m) additions a source.
        """
        reached = self.graph.descendants(self.source)
        return not reached.isdisjoint(self.targets) and all(
            respects(self.graph, source, row) for source, row in self.budgets.items()
        )


UNIVERSAL_ROOT = 0


def universal_source(graph: Digraph) -> Digraph:
    """U(G): a root ρ, a vertex (a, v) for every pair, ρ → (a, a), and a copy of every edge for every tag a.

    N_{U(G)}(ρ, (a, v)) = N_G(a, v): a walk enters copy a by one edge and never leaves it. Copies are what keeps the
    pairs apart; a universal source without them would bound only Σ_a N(a, v).

    Returns:
        ρ is vertex 0 and (a, v) is `universal_vertex`; the edges of ρ come first, then copy after copy.
    Cost: 1 + n² vertices, n + nm edges.
    Source: Lemma 2.
    """
    edges = [(UNIVERSAL_ROOT, universal_vertex(graph, a, a)) for a in graph.vertices]
    for a in graph.vertices:
        edges += [(universal_vertex(graph, a, u), universal_vertex(graph, a, v)) for u, v in graph.edges]
    names = ["ρ", *((graph.names[a], graph.names[v]) for a in graph.vertices for v in graph.vertices)]
    return Digraph(len(names), edges, names)


def universal_vertex(graph: Digraph, tag: int, vertex: int) -> int:
    """The number of (tag, vertex) in U(G)."""
    return 1 + tag * graph.order + vertex


def respects(graph: Digraph, root: int, budgets: Budgets) -> bool:
    """Whether N(root, v) ≤ budgets[v] for every v, by exact counts.

    Cost: O(n + m) additions.
    """
    return all(count <= budget for count, budget in zip(walk_counts(graph, root), budgets, strict=True))


def respects_truncated(graph: Digraph, root: int, budgets: Budgets) -> bool:
    """The same, looking only at walks of length at most B = Σ budgets.

    A walk of length B has B + 1 prefixes, one more than all budgets together admit; so either no walk is that long and
    nothing was missed, or a violation shows within length B. The depth B is tight: a directed cycle on B vertices with
    unit budgets shows its violation at length B and not before.

    Cost: O(B · m) additions of integers up to max κ + 1.
    Source: Lemma 1.
    """
    cap = max(budgets, default=0) + 1
    counts = capped_counts(graph, root, sum(budgets), cap)
    return all(count <= budget for count, budget in zip(counts, budgets, strict=True))


def _check_vertices(graph: Digraph, vertices: Iterable[int]) -> None:
    for vertex in vertices:
        if not 0 <= vertex < graph.order:
            raise GraphError(f"{vertex} is no vertex; the graph has vertices 0 … {graph.order - 1}")


def _check_row(graph: Digraph, budgets: Budgets) -> None:
    if len(budgets) != graph.order:
        raise GraphError(f"{len(budgets)} budgets for {graph.order} vertices")
    if any(budget < 0 for budget in budgets):
        raise GraphError(f"a budget is negative: {min(budgets)}")
