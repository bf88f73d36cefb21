"""Hardness, as functions: each turns an instance of a hard problem into one with the same answer.

All are computable in deterministic logarithmic space; here they build graphs. The completeness that they start from
(STCON_ru for ReachUL, rooted recognition for ReachUL, PL's counting problem) is cited by the paper and cited here.

Source: Theorems 5, 6 and 7; Appendices B.10, B.12, B.14.
"""

from __future__ import annotations

from dataclasses import dataclass

from stcon.theory.budgets import RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.deciders import decide
from stcon.theory.graph import Digraph, Edge, GraphError
from stcon.theory.program import ConfigurationGraph
from stcon.theory.walks import capped_counts


def root_few(graph: Digraph, source: int, target: int, cap: int) -> RootBudget:
    """RootFew_k: N(s, v) ≤ k for every v, and N(s, t) ≥ 1. For k = 1 it is STCON_ru.

    Source: Theorem 5.
    """
    return RootBudget(graph, source, (cap,) * graph.order, frozenset([target]))


def recognition(graph: Digraph, source: int, cap: int) -> RootBudget:
    """Rooted k-few recognition: only the bounds; reaching the root is always possible.

    Source: Theorem 5.
    """
    return root_few(graph, source, source, cap)


@dataclass(frozen=True)
class TwoCones:
    """FBFew_{k,ℓ}: N(s, v) ≤ k and N(v, t) ≤ ℓ for every v, and N(s, t) ≥ 1.

    Args:
        graph: G.
        source: s.
        target: t.
        forward: k.
        backward: ℓ.

    Source: Theorem 5.
    """

    graph: Digraph
    source: int
    target: int
    forward: int
    backward: int

    def instances(self) -> tuple[RootBudget, RootBudget]:
        """The two root-budget instances that it is the conjunction of: from s in G, and from t with edges reversed."""
        out_of = root_few(self.graph, self.source, self.target, self.forward)
        into = root_few(self.graph.reversed(), self.target, self.source, self.backward)
        return out_of, into

    def decide(self, method: str = "counts", *, max_steps: int | None = None) -> tuple[Verdict, Verdict]:
        """Both verdicts; the answer is yes iff both are.

        Raises:
            TooMuchWork: past `max_steps`.
        """
        out_of, into = self.instances()
        return decide(out_of, method, max_steps=max_steps), decide(into, method, max_steps=max_steps)


def multiplied_root(graph: Digraph, source: int, cap: int) -> tuple[Digraph, int]:
    """A new root with `cap` disjoint two-edge paths to `source`, so that N(root, v) = cap · N(source, v).

    Returns:
        The graph (old vertices keep their numbers) and the root. G is 1-reach-few from `source` iff the new graph is
        cap-reach-few from the root.
    Source: Theorem 5 (RootFew_k for k > 1).
    """
    root = graph.order
    middles = range(root + 1, root + 1 + cap)
    edges = [*graph.edges, *((root, middle) for middle in middles), *((middle, source) for middle in middles)]
    names = [*graph.names, ("root", cap), *(("middle", index) for index in range(cap))]
    return Digraph(root + 1 + cap, edges, names), root


def layered_dag(graph: Digraph, source: int, target: int) -> tuple[Digraph, int, int]:
    """STCON_ru on any graph to STCON_ru on a DAG: 2n layers of copies, and a sink for every vertex.

    A vertex with two walks, or on or behind a cycle, has two walks of length at most 2n − 1, and both end in its sink.

    Returns:
        The graph, (source, 0) and the sink of `target`.
    Source: Theorem 5 (DAGs).
    """
    order, layers = graph.order, 2 * graph.order
    edges: list[Edge] = []
    for layer in range(layers - 1):
        edges += [(layer * order + u, (layer + 1) * order + v) for u, v in graph.edges]
    sinks = layers * order
    edges += [(layer * order + v, sinks + v) for layer in range(layers) for v in graph.vertices]
    names = [("copy", graph.names[v], layer) for layer in range(layers) for v in graph.vertices]
    names += [("sink", graph.names[v], 0) for v in graph.vertices]
    return Digraph(sinks + order, edges, names), source, sinks + target


def recognition_to_two_cones(graph: Digraph, source: int, cap: int) -> TwoCones:
    """Rooted k-few recognition to FBFew_{k,1}: fresh r → s and r → z, from r to z.

    Source: Theorem 5.
    """
    root, end = graph.order, graph.order + 1
    edges = [*graph.edges, (root, source), (root, end)]
    return TwoCones(Digraph(graph.order + 2, edges, [*graph.names, "new root", "new end"]), root, end, cap, 1)


def few_path_machine(configurations: ConfigurationGraph, cap: int) -> StronglyFew:
    """A StrongFewL computation to STCON_sf: does the machine accept?

    Args:
        configurations: the graph of a machine with at most `cap` paths between any two configurations. The theorem
        takes
            all configurations; of those unreachable from the start, which no walk meets, none is needed for the answer.
        cap: q(|x|).

    Returns:
        The instance: parallel transitions get private middles, and a collector follows the accepting configurations,
        which multiplies the cap by their number.
    Source: Theorem 7, Appendix B.10.
    """
    graph, accepting = configurations.graph, sorted(configurations.accepting)
    collector = graph.order
    edges = [*graph.edges, *((vertex, collector) for vertex in accepting)]
    collected = Digraph(graph.order + 1, edges, [*graph.names, "accepted"]).without_parallel_edges()
    return StronglyFew(collected, configurations.start, collector, cap * max(1, len(accepting)))


def capped_pair(graph: Digraph, source: int, target: int, cap: int) -> bool:
    """Whether the graph is a DAG with N(source, target) ≤ cap: NL-complete for a fixed cap.

    Cost: O(n · m) additions of capped counts.
    Source: Theorem 6(iii).
    """
    acyclic = graph.topological_order() is not None
    return acyclic and capped_counts(graph, source, graph.order, cap + 1)[target] <= cap


def unreachability_to_capped_pair(graph: Digraph, source: int, target: int, cap: int) -> tuple[Digraph, int, int]:
    """DAG non-reachability to `capped_pair`: a root with cap + 1 disjoint prefixes into the source.

    Returns:
        The graph, its root and `target`: N(root, target) is 0 if `target` was unreachable, and above `cap` otherwise.
    Source: Theorem 6(iii).
    """
    multiplied, root = multiplied_root(graph, source, cap + 1)
    return multiplied, root, target


def majority_gadget(coins: ConfigurationGraph, flips: int) -> StronglyFew:
    """The PL gadget: the instance is in Bin-STCON_sf iff the machine accepts on at most half of its 2^p paths.

    The configuration graph (A paths from a to b, once a collector b follows the accepting configurations) stands in
    parallel with a chain of p + 1 diamonds (C = 2^{p+1} paths), and K = C + 2^{p−1}. Every other pair has at most C
    paths and a reaches b in any case, so the answer hangs on N(a, b) = C + A alone.

    Args:
        coins: the acyclic configuration graph of a machine that flips exactly p coins on every path, so that no pair
        has
            more than 2^p paths; its start has no edge into it.
        flips: p ≥ 1.

    Raises:
        GraphError: p < 1.
    Source: Theorem 6(ii).
    """
    if flips < 1:
        raise GraphError(f"{flips} flips; half of the paths is a whole number from one flip on")
    graph = coins.graph
    end = graph.order
    edges = [*graph.edges, *((vertex, end) for vertex in sorted(coins.accepting))]
    names: list[object] = [*graph.names, "end"]
    tail = coins.start
    for diamond in range(flips + 1):
        upper, lower, head = len(names), len(names) + 1, len(names) + 2
        names += [("upper", diamond), ("lower", diamond)]
        if diamond == flips:
            head = end
        else:
            names.append(("joint", diamond))
        edges += [(tail, upper), (tail, lower), (upper, head), (lower, head)]
        tail = head
    return StronglyFew(Digraph(len(names), edges, names), coins.start, end, 2 ** (flips + 1) + 2 ** (flips - 1))
