"""Masks walked on mlx's GPU (`stcon.kernels.mlx`) where the machine alone decides, so that no words are sent there."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from stcon.errors import DecodingError
from stcon.kernels.mlx import MlxGrammars, MlxWalker, kernels_for_device
from stcon.kernels.mlx.walker import masked

if TYPE_CHECKING:
    from stcon.engine.sampling import Int32
    from stcon.grammar.machine import Machine
    from stcon.kernels.mlx.kernels import Kernels
    from stcon.vocab.vocabulary import Vocabulary

MAX_GRAMMARS = 32


class DeviceMasks:
    """Masks by kernels.

    Args:
        vocabulary: the model's.
        kernels: the device's.
    """

    def __init__(self, vocabulary: Vocabulary, kernels: Kernels) -> None:
        self._grammars = MlxGrammars()
        self._walker = MlxWalker(vocabulary, self._grammars, 1, kernels=kernels)
        self._indices: dict[Machine, int] = {}
        self._lock = Lock()

    def apply(self, machine: Machine, config: Int32, logits: Any) -> Any:
        """`logits` (mlx float array [1, V or more]) with −inf where `machine` admits no token after `config`.

        Raises:
            DecodingError: it admits none.
        """
        with self._lock:
            self._walker.place(0, self._index(machine), config)
            allowed = self._walker.allowed(1)
        if not allowed.any().item():
            raise DecodingError("no token is admissible here")
        return masked(logits, allowed)

    def _index(self, machine: Machine) -> int:
        index = self._indices.get(machine)
        if index is None:
            if len(self._indices) == MAX_GRAMMARS:
                self._grammars.remove(self._indices.pop(next(iter(self._indices))))
            index = self._indices[machine] = self._grammars.add(machine)
        return index


@lru_cache(maxsize=4)
def device_masks(vocabulary: Vocabulary) -> DeviceMasks | None:
    """Those of the GPU on which mlx computes; None: it has none, and the host's masks are sent."""
    kernels = kernels_for_device()
    return None if kernels is None else DeviceMasks(vocabulary, kernels)
