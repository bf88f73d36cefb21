"""int32 arrays that grow while a machine is built, and that its kernels read meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]


class Growing:
    """An int32 list whose storage the kernels can read: amortised append, `generation` counts reallocations."""

    def __init__(self, values: Sequence[int] = ()) -> None:
        self._data = np.zeros(16, np.int32)
        self._size = 0
        self.generation = 0
        self.extend(values)

    def append(self, value: int) -> None:
        self.extend((value,))

    def extend(self, values: Sequence[int]) -> None:
        needed = self._size + len(values)
        if needed > len(self._data):
            self._data = grow(self._data, (max(needed, 2 * len(self._data)),), 0)
            self.generation += 1
        self._data[self._size : needed] = values
        self._size = needed

    def __getitem__(self, index: int) -> int:
        return int(self._data[index])

    def __len__(self) -> int:
        return self._size

    @property
    def array(self) -> Int32:
        """The over-allocated storage."""
        return self._data


def narrow(array: Int32) -> Int32:
    """A contiguous copy as int16 if its values fit, else as it is (typed by what `Tables` calls it)."""
    fits = array.size == 0 or bool(array.min() >= -(2**15) and array.max() < 2**15)
    return array.astype(np.int16 if fits else np.int32)


def grow(array: NDArray, shape: tuple[int, ...], fill: int) -> NDArray:  # type: ignore[type-arg]
    """A copy of `array` with the first axis grown, new entries `fill`."""
    grown = np.full(shape, fill, array.dtype)
    grown[: len(array)] = array
    return grown
