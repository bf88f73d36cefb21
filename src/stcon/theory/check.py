"""The independent checker: verifies certificates and evidence from the definitions alone.

Nothing here is used by a decider and no code of theirs is used here; only the containers of instances and certificates
are shared. A graph is read as its number of vertices and its list of edges. Checks are slow and plain on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stcon.theory.budgets import Requirements
from stcon.theory.certificates import Certificate, Cycle, Fits, TooManyCounted, TooManyWalks, Unreachable, Verdict

Edges = Sequence[tuple[int, int]]


def check_verdict(asked: Requirements, verdict: Verdict) -> bool:
    """Whether the certificate proves the answer given.

    Cost: polynomial in the graph and the certificate.
    """
    return verdict.certificate.answer == verdict.answer and check_certificate(asked, verdict.certificate)


def check_certificate(asked: Requirements, certificate: Certificate) -> bool:
    """Whether `certificate` proves what it claims about the instance.

    Returns:
        False for a certificate that proves nothing, however malformed.
    Cost: polynomial in the graph and the certificate.
    """
    try:
        match certificate:
            case Fits():
                return _fits(asked, certificate)
            case Unreachable():
                return _unreachable(asked, certificate)
            case Cycle():
                return _cycle(asked, certificate)
            case TooManyWalks():
                return _too_many_walks(asked, certificate)
            case TooManyCounted():
                return _too_many_counted(asked, certificate)
    except (IndexError, KeyError, TypeError):
        return False


def _fits(asked: Requirements, certificate: Fits) -> bool:
    """A nonnegative c = e + cA is at least the walk numbers: unrolled, it is those up to length i, plus cAⁱ⁺¹."""
    edges = asked.graph.edges
    if set(certificate.counts) != set(asked.budgets):
        return False
    for source, budgets in asked.budgets.items():
        row = certificate.counts[source]
        if len(row) != asked.graph.order or any(type(count) is not int or count < 0 for count in row):
            return False
        right = [int(v == source) for v in range(asked.graph.order)]
        for tail, head in edges:
            right[head] += row[tail]
        if list(row) != right or any(count > budget for count, budget in zip(row, budgets, strict=True)):
            return False
    return _end(edges, asked.source, certificate.walk) in asked.targets


def _unreachable(asked: Requirements, certificate: Unreachable) -> bool:
    closed = certificate.closed
    leaves = any(tail in closed and head not in closed for tail, head in asked.graph.edges)
    return asked.source in closed and not leaves and not closed & asked.targets


def _cycle(asked: Requirements, certificate: Cycle) -> bool:
    middle = _end(asked.graph.edges, certificate.source, certificate.approach)
    if certificate.source not in asked.budgets or middle is None or not certificate.cycle:
        return False
    return _end(asked.graph.edges, middle, certificate.cycle) == middle


def _too_many_walks(asked: Requirements, certificate: TooManyWalks) -> bool:
    budget = asked.budgets[certificate.source][certificate.target]
    ends = {_end(asked.graph.edges, certificate.source, walk) for walk in certificate.walks}
    return len(set(certificate.walks)) > budget and ends == {certificate.target}


def _too_many_counted(asked: Requirements, certificate: TooManyCounted) -> bool:
    """On a set closed under edges and ordered by them, the recurrence has one solution, the walk numbers."""
    place = {vertex: index for index, vertex in enumerate(certificate.order)}
    if len(place) != len(certificate.order) or certificate.source not in place:
        return False
    right = [int(vertex == certificate.source) for vertex in certificate.order]
    for tail, head in asked.graph.edges:
        if tail in place:
            if head not in place or place[tail] >= place[head]:
                return False
            right[place[head]] += certificate.counts[place[tail]]
    budget = asked.budgets[certificate.source][certificate.target]
    return list(certificate.counts) == right and certificate.counts[place[certificate.target]] > budget


def _end(edges: Edges, start: int, walk: Sequence[int]) -> int | None:
    """Where the walk from `start` ends; None if it is no walk."""
    for edge in walk:
        if edge < 0 or edges[edge][0] != start:
            return None
        start = edges[edge][1]
    return start


def check_fingerprints(
    asked: Requirements, root: int, *, prime: int, point: int, fibres: Sequence[int], least_point: bool = True
) -> bool:
    """Whether a certified lift is one: walks listed, hashed and counted by hand.

    Args:
        asked: an instance that holds, so that the walks from `root` are few.
        root: where the walks start.
        prime: p; must be prime and above the number of edges.
        point: α.
        fibres: the claimed number of walks to each vertex.
        least_point: also ask that every smaller point makes two walks of one length and endpoint collide.

    Returns:
        True iff α separates the walks from `root`, the fibres are their numbers, and α is the least that does.
    Cost: α times the number of walks.
    """
    edges = asked.graph.edges
    walks = _all_walks(edges, root, sum(asked.budgets[root]))
    if prime <= len(edges) or any(prime % d == 0 for d in range(2, min(prime, 1 + int(prime**0.5) + 1))):
        return False
    if walks is None or not _separates(walks, point, prime):
        return False
    ends = [end for _, end in walks]
    if list(fibres) != [ends.count(v) for v in range(asked.graph.order)]:
        return False
    return not least_point or not any(_separates(walks, smaller, prime) for smaller in range(point))


def _all_walks(edges: Edges, root: int, most: int) -> list[tuple[tuple[int, ...], int]] | None:
    """Every walk from `root`; None once there are more than `most`."""
    walks: list[tuple[tuple[int, ...], int]] = [((), root)]
    for walk, end in walks:
        walks += [((*walk, index), head) for index, (tail, head) in enumerate(edges) if tail == end]
        if len(walks) > most:
            return None
    return walks


def _separates(walks: Sequence[tuple[tuple[int, ...], int]], point: int, prime: int) -> bool:
    images = set()
    for walk, end in walks:
        # edge i of the paper counts from 1
        value = sum((edge + 1) * point ** (len(walk) - 1 - place) for place, edge in enumerate(walk)) % prime
        images.add((end, len(walk), value))
    return len(images) == len(walks)


def check_gap(asked: Requirements, counts: Mapping[tuple[int, int], int], gap: int) -> bool:
    """Whether `gap` is the sum of squares of vanishing products that the counts make.

    Args:
        asked: a pair instance: every source bounded, one target.
        counts: the truncated count of each pair.
        gap: the claimed integer.
    """
    total = 0
    for (tail, head), count in counts.items():
        designated = tail == asked.source and head in asked.targets
        product = 1
        for value in range(1 if designated else 0, asked.budgets[tail][head] + 1):
            product *= count - value
        total += product * product
    return total == gap


__all__ = ["check_certificate", "check_fingerprints", "check_gap", "check_verdict"]
