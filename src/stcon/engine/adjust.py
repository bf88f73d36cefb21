"""What a request adds to the model's logits before the constraint's mask: penalties and biases of single tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stcon.engine.sampling import Float32
from stcon.errors import InvalidOption

MAX_PENALTY = 2.0
MAX_BIAS = 100.0


@dataclass(frozen=True)
class Adjustment:
    """Numbers added to logits, as OpenAI's API defines them.

    Args:
        presence: subtracted from the logit of every token the output already has; -2 … 2.
        frequency: subtracted once for each time the output has the token; -2 … 2.
        bias: token id → number added; -100 … 100.

    Raises:
        InvalidOption: a number is out of its range.

    Source: OpenAI API reference, ``presence_penalty``, ``frequency_penalty``, ``logit_bias``. The prompt's tokens do
    not count, forced tokens of the output do.
    """

    presence: float = 0.0
    frequency: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("presence_penalty", self.presence), ("frequency_penalty", self.frequency)):
            _check(name, value, MAX_PENALTY)
        for token, value in self.bias.items():
            _check(f"logit_bias of token {token}", value, MAX_BIAS)

    def __bool__(self) -> bool:
        """Whether anything is added at all."""
        return bool(self.presence or self.frequency or self.bias)

    def apply(self, logits: Float32, emitted: Counter[int]) -> None:
        """Add to `logits` (float32[V]) in place; `emitted` counts the output's tokens. Cost: O(tokens counted)."""
        if self.bias:
            tokens = np.fromiter((token for token in self.bias if token < len(logits)), np.int64)
            logits[tokens] += np.array([self.bias[int(token)] for token in tokens], np.float32)
        if emitted and (self.presence or self.frequency):
            tokens = np.fromiter(emitted, np.int64, len(emitted))
            counts = np.fromiter(emitted.values(), np.float32, len(emitted))
            logits[tokens] -= np.float32(self.presence) + np.float32(self.frequency) * counts


def _check(name: str, value: object, most: float) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -most <= value <= most:
        raise InvalidOption(f"{name}: expected a number from -{most:g} to {most:g}, got {value!r}")
