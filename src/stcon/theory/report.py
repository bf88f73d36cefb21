"""A verdict as JSON data, in the graph's own names.

A walk is given by its vertices and, since parallel edges differ, by its edge numbers too. Integers past 1,024 bits are
written in hexadecimal, as strings: the zero test's integer can have thousands of digits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from stcon.theory.budgets import Requirements
from stcon.theory.certificates import Certificate, Cycle, Fits, TooManyCounted, TooManyWalks, Unreachable, Verdict
from stcon.theory.graph import Digraph
from stcon.theory.walks import Walk

PLAIN_BITS = 1_024


def verdict_data(asked: Requirements, verdict: Verdict, *, certificate: bool = True) -> dict[str, Any]:
    """The verdict as JSON data.

    Args:
        asked: the instance decided.
        verdict: its verdict.
        certificate: whether the certificate and the method's evidence are included; a yes' is n × n numbers.
    """
    data: dict[str, Any] = {"answer": verdict.answer, "method": verdict.method, "meters": dict(verdict.meters)}
    if certificate:
        data["certificate"] = certificate_data(asked, verdict.certificate)
        data["evidence"] = _plain(verdict.evidence)
    return data


def certificate_data(asked: Requirements, certificate: Certificate) -> dict[str, Any]:
    """The certificate as JSON data, with ``reason`` in words and ``kind`` for programs."""
    graph = asked.graph
    name = graph.names.__getitem__
    match certificate:
        case Fits(counts, walk):
            reason = "every number of walks is within its budget, and this walk reaches the target"
            rows = [{"from": _name(name(a)), "walks": _numbers(graph, enumerate(row))} for a, row in counts.items()]
            return {"kind": "fits", "reason": reason, "walk": _walk(graph, asked.source, walk), "counts": rows}
        case Unreachable(closed):
            reason = "these vertices hold the source and are left by no edge; the target is not among them"
            return {"kind": "unreachable", "reason": reason, "closed": [_name(name(v)) for v in sorted(closed)]}
        case Cycle(source, approach, cycle):
            reason = "a cycle is reachable, so walks are infinitely many"
            middle = graph.edges[cycle[0]][0]
            walks = {"approach": _walk(graph, source, approach), "cycle": _walk(graph, middle, cycle)}
            return {"kind": "cycle", "reason": reason, **walks}
        case TooManyWalks(source, target, walks):
            reason = f"these {len(walks)} walks lead from {name(source)} to {name(target)}"
            return {"kind": "too many walks", "reason": reason, "walks": [_walk(graph, source, w) for w in walks]}
        case TooManyCounted(source, target, order, counts):
            number = _plain(counts[order.index(target)])
            reason = f"{number} walks lead from {name(source)} to {name(target)}; counted in topological order"
            numbers = _numbers(graph, zip(order, counts, strict=True))
            return {"kind": "too many counted", "reason": reason, "counts": numbers}


def _numbers(graph: Digraph, counts: Iterable[tuple[int, int]]) -> list[list[Any]]:
    """[name, count] of every vertex reached."""
    return [[_name(graph.names[v]), _plain(count)] for v, count in counts if count]


def _walk(graph: Digraph, source: int, walk: Walk) -> dict[str, Any]:
    ends = [source, *(graph.edges[edge][1] for edge in walk)]
    return {"vertices": [_name(graph.names[v]) for v in ends], "edges": list(walk)}


def _name(name: Hashable) -> Any:
    return name if isinstance(name, str | int | float) else str(name)


def _plain(value: Any) -> Any:
    """Containers as JSON has them, and integers that every reader can read."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, int) and value.bit_length() > PLAIN_BITS:
        return hex(value)
    return value


__all__ = ["certificate_data", "verdict_data"]
