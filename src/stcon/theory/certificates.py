"""What a decider hands over besides its answer: evidence that `stcon.theory.check` verifies without trusting it.

A yes carries the walk numbers and a walk; a no carries one of four short reasons. All name vertices and edges by
number.

Source: yes: Theorem 14(i), in the one-sided form that suffices (a nonnegative solution of c = e + cA bounds every
walk number from above). No: Definition 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stcon.theory.walks import Walk


@dataclass(frozen=True)
class Fits:
    """Yes: every budget holds and a target is reached.

    Args:
        counts: for each bounded source, its row c; nonnegative integers with c = e_source + cA and c ≤ κ.
        walk: edges from the source to a target.
    """

    counts: Mapping[int, tuple[int, ...]]
    walk: Walk
    answer = True


@dataclass(frozen=True)
class Unreachable:
    """No: `closed` holds the source and whatever its edges lead to, and no target."""

    closed: frozenset[int]
    answer = False


@dataclass(frozen=True)
class Cycle:
    """No: from `source` one walk leads to a vertex, and another, not empty, leads from there back to it: N = ∞."""

    source: int
    approach: Walk
    cycle: Walk
    answer = False


@dataclass(frozen=True)
class TooManyWalks:
    """No: distinct walks from `source` to `target`, more than the budget of `target`."""

    source: int
    target: int
    walks: tuple[Walk, ...]
    answer = False


@dataclass(frozen=True)
class TooManyCounted:
    """No, where the walks are too many to list: their exact numbers.

    Args:
        source: where the walks start.
        target: whose budget is exceeded.
        order: a set closed under edges into it from what `source` reaches, in an order in which edges point forward.
        counts: N(source, v) for each v of `order`.
    """

    source: int
    target: int
    order: tuple[int, ...]
    counts: tuple[int, ...]
    answer = False


Certificate = Fits | Unreachable | Cycle | TooManyWalks | TooManyCounted


@dataclass(frozen=True)
class Verdict:
    """A decider's result.

    Args:
        answer: whether the instance is in the language.
        method: which decider.
        certificate: why, in a form that `stcon.theory.check.check_certificate` verifies.
        evidence: what the construction itself found: a prime and evaluation points, an integer to be zero, …
        meters: work counted, by name; bits, steps, nodes. Each decider's docstring says which, and their bounds.
    """

    answer: bool
    method: str
    certificate: Certificate
    evidence: Mapping[str, Any] = field(default_factory=dict)
    meters: Mapping[str, int] = field(default_factory=dict)
