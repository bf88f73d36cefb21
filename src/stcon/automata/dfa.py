"""Deterministic automata as arrays: `CharDfa` over code points, `ByteDfa` over bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_CODE_POINTS = 0x110000


@dataclass(frozen=True, eq=False)
class CharDfa:
    """A *complete* DFA over Unicode code points.

    Interval i is ``[starts[i], starts[i + 1])``, the last one ends at 0x110000; all of its code points have class
    ``classes[i]``.

    Attributes:
        starts: int32[n], ascending, ``starts[0] == 0``.
        classes: int32[n], values in 0 … K - 1.
        delta: int32[Q, K], every entry a state.
        labels: int32[Q], -1 where the state rejects, else its accept label (0 unless said otherwise).
        start: the start state.
    """

    starts: NDArray[np.int32]
    classes: NDArray[np.int32]
    delta: NDArray[np.int32]
    labels: NDArray[np.int32]
    start: int

    @property
    def num_states(self) -> int:
        return int(self.delta.shape[0])

    @property
    def num_classes(self) -> int:
        return int(self.delta.shape[1])


@dataclass(frozen=True, eq=False)
class ByteDfa:
    """A *partial*, trim DFA over bytes.

    Attributes:
        byte_class: uint8[256], values in 0 … K - 1.
        delta: int32[Q, K], -1 where no edge.
        labels: int32[Q], -1 or the accept label.
        start: the start state.
        boundary: bool[Q], true where the bytes read so far spell whole code points; a state is either always or never
            at a boundary (minimisation keeps the two kinds apart).
    """

    byte_class: NDArray[np.uint8]
    delta: NDArray[np.int32]
    labels: NDArray[np.int32]
    start: int
    boundary: NDArray[np.bool_]

    @property
    def num_states(self) -> int:
        return int(self.delta.shape[0])
