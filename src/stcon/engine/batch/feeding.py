"""How many tokens each row is fed in a step: drip, ragged, or what the measured cost of a step says.

A row has tokens *pending*: its prompt at first, later the token it drew and the forced text behind it. A row can draw
only when nothing is pending. Prompts are fed in chunks beside the rows that are writing, so that a long one does not
stall them: of the `chunk` tokens that a step gives to prompts, the oldest prompt gets half or more, and the rest goes
to those that need the fewest, so that short ones do not wait for long ones and none starves.

- ``"drip"``: a writing row is fed one token a step (the paper's batch: every step is uniform).
- ``"ragged"``: a writing row is fed all of its pending tokens.
- ``"auto"``: at most c of them, the c that feeds the most tokens a second by the cost of a step that was measured, by
  N, the positions computed, padding included (`StepCost`). Where extra tokens are nearly free or nothing is padded that
  is ragged; where a step is bound by arithmetic and rows are padded to the longest, it is less.

Source: the paper's App. D.7 for drip; ragged is its Outlook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

Feeding: TypeAlias = Literal["drip", "ragged", "auto"]

CAPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FORGET = 0.98
_NUM_STEPS_TO_TRUST = 8
_NUM_STEPS_AVERAGED = 50


class Demand(NamedTuple):
    """What one row could be fed.

    Attributes:
        pending: tokens, at least one.
        is_prompt: nothing was drawn for it yet.
    """

    pending: int
    is_prompt: bool


class StepCost:
    """Seconds of a step by N: what steps of that N took, where enough were seen; else t = a + b·N, fitted to all.

    Both forget old steps. Steps that read prompts are not to be told: chunks of prompts may cost what they like.
    """

    def __init__(self) -> None:
        self.num_steps = 0
        self._sums = [0.0] * 5  # of weights: 1, N, N², t, N·t
        self._seen: dict[int, tuple[int, float]] = {}  # N → steps, their seconds on the average

    def observe(self, num_computed: int, seconds: float) -> None:
        """A step computed `num_computed` positions in `seconds`."""
        n, t = float(num_computed), seconds
        self._sums = [_FORGET * s + x for s, x in zip(self._sums, (1.0, n, n * n, t, n * t), strict=True)]
        self.num_steps += 1
        steps, mean = self._seen.get(num_computed, (0, 0.0))
        self._seen[num_computed] = steps + 1, mean + (t - mean) / min(steps + 1, _NUM_STEPS_AVERAGED)

    @property
    def line(self) -> tuple[float, float] | None:
        """(a, b) in seconds and seconds a token, neither negative; None while too little was seen."""
        weight, n, nn, t, nt = self._sums
        spread = weight * nn - n * n
        if self.num_steps < _NUM_STEPS_TO_TRUST or spread <= 1e-9 * weight * nn:
            return None
        b = max(0.0, (weight * nt - n * t) / spread)
        return max(0.0, (t - b * n) / weight), b

    @property
    def is_known(self) -> bool:
        """Whether enough was seen."""
        return self.line is not None

    def seconds(self, num_computed: int) -> float:
        """What a step of `num_computed` positions takes; once `is_known`."""
        steps, mean = self._seen.get(num_computed, (0, 0.0))
        if steps >= _NUM_STEPS_TO_TRUST:
            return mean
        a, b = self.line or (0.0, 1.0)
        return a + b * num_computed


def best_cap(
    pending: Sequence[int], cost: Callable[[int], float] | None, computed: Callable[[Sequence[int]], int]
) -> int:
    """The cap on a writing row's tokens that feeds the most tokens a second.

    Args:
        pending: tokens of each writing row.
        cost: seconds of a step by the positions it computes; None: not known yet, feed everything.
        computed: positions that a step with spans of the given sizes computes.
    """
    longest = max(pending, default=1)
    if cost is None or longest == 1:
        return CAPS[-1]
    best, best_rate = 1, 0.0
    for cap in CAPS:
        counts = [min(cap, size) for size in pending]
        rate = sum(counts) / max(cost(computed(counts)), 1e-9)
        if rate >= best_rate:
            best, best_rate = cap, rate
        if cap >= longest:
            break
    return best


def divide(
    demands: Sequence[Demand],
    *,
    feeding: Feeding,
    chunk: int,
    cost: Callable[[int], float] | None = None,
    computed: Callable[[Sequence[int]], int] = sum,
    most: int | None = None,
) -> list[int]:
    """How many of its pending tokens each row is fed in the next step.

    Args:
        demands: the rows in the order of their arrival.
        feeding: the mode for writing rows.
        chunk: most prompt tokens of a step.
        cost, computed: see `best_cap`.
        most: most tokens of one writing row; None: `chunk`.

    Returns:
        A count for each row: at least 1 for a writing one; 0 for a prompt that has to wait.
    """
    writing = [demand.pending for demand in demands if not demand.is_prompt]
    cap = 1 if feeding == "drip" else min(chunk, most or chunk)
    if feeding == "auto":
        cap = min(cap, best_cap([min(cap, size) for size in writing], cost, computed))
    counts = [0 if demand.is_prompt else min(cap, demand.pending) for demand in demands]
    prompts = [index for index, demand in enumerate(demands) if demand.is_prompt]
    for index, count in zip(prompts, _share([demands[index].pending for index in prompts], chunk), strict=True):
        counts[index] = count
    return counts


def _share(pending: Sequence[int], chunk: int) -> list[int]:
    """`chunk` tokens divided among prompts, the oldest first in the list."""
    if not pending:
        return []
    counts = [0] * len(pending)
    counts[0] = min(pending[0], max(1, chunk // 2))
    left = chunk - counts[0]
    for index in sorted(range(1, len(pending)), key=lambda i: pending[i]):
        counts[index] = min(pending[index], left)
        left -= counts[index]
    counts[0] += min(pending[0] - counts[0], left)
    return counts
