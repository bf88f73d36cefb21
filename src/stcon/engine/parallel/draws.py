"""The tokens that the logits of a pass give, drawn where the logits are if that can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stcon.engine.sampling import Float32, Int32, Sampling, apply_bitmask
from stcon.errors import StconError

if TYPE_CHECKING:
    from stcon.engine.batch.model import StepLogits
    from stcon.engine.control import Step
    from stcon.engine.output import Output


class Draws:
    """Draws from the logits of one pass.

    Args:
        logits: of the pass.
        steps: for each entry of it, what was fed last there: it says what may be drawn.
        sampling: how.
        greedily: whether the most likely token is all that is wanted of each.
    """

    def __init__(self, logits: StepLogits, steps: Sequence[Step], sampling: Sampling, *, greedily: bool) -> None:
        self._logits = logits
        self._steps = steps
        self._sampling = sampling
        self._tokens = logits.greedy([step.mask for step in steps]) if greedily else None

    def take(self, index: int, output: Output) -> None:
        """Let `output` draw from an entry; `index` is of what it emitted last."""
        token = -1 if self._tokens is None else self._tokens[index]
        if token < 0 or not output.take_greedy(token):
            output.take(self._logits.row(index))

    def guess(self, index: int, position: int | None) -> int | None:
        """The token that would be drawn at `position` of the output, or greedily if that is None; None if none would.

        Where a limit is near, only what it surely admits is drawn, so that this is a guess there.
        """
        step = self._steps[index]
        if self._tokens is not None and step.limit is None:
            return self._tokens[index] if self._tokens[index] >= 0 else None
        sampling = Sampling() if position is None else self._sampling
        return drawn(self._logits.row(index), step, sampling, position or 0)


def drawn(logits: Float32, step: Step, sampling: Sampling, position: int) -> int | None:
    """The token drawn after `step`, as far as that can be told without a search; `logits` is written to."""
    if step.mask is not None:
        apply_bitmask(logits, step.mask)
    if step.limit is not None:
        apply_bitmask(logits, step.limit.mask)
    try:
        return sampling.draw(logits, position)
    except StconError:
        return None


def admits(step: Step, token: int) -> bool:
    """Whether `token` may be drawn after `step`; where a limit is near, only if that is known without a search."""
    return all(mask is None or _has(mask, token) for mask in (step.mask, step.limit and step.limit.certain))


def _has(mask: Int32, token: int) -> bool:
    return bool(np.int64(mask[token >> 5]) >> (token & 31) & 1)
