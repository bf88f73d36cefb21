"""Masks onto the scores of torch: from the host, or walked on an NVIDIA GPU by the CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stcon.engine.sampling import unpack_bitmask
from stcon.errors import RequestError

if TYPE_CHECKING:
    from stcon.engine.batch.walking import Grammars
    from stcon.grammar.machine import Machine
    from stcon.vocab.vocabulary import Vocabulary

Int32 = NDArray[np.int32]
Tensor = Any

MAX_GRAMMARS = 256
MAX_REPEATS = 10_000


class Mask(NamedTuple):
    """The tokens that may come next in one row.

    Attributes:
        words: gives them as int32[W]; None: all of them.
        machine, config: where a walk finds the same tokens; None: the host alone knows them.
        min_bytes: what that walk leaves out: shorter tokens.
    """

    words: Callable[[], Int32] | None
    machine: Machine | None = None
    config: Int32 | None = None
    min_bytes: int = 0


class Masks(Protocol):
    """Something that masks scores."""

    def apply(self, masks: Sequence[Mask], scores: Tensor) -> Tensor:
        """A copy of `scores` (float [R, any width]) with -inf where a token may not come."""
        ...


class HostMasks:
    """Masks computed on the host and sent to where the scores are.

    Args:
        vocabulary: the model's.

    Cost: R·V bytes to the device.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def apply(self, masks: Sequence[Mask], scores: Tensor) -> Tensor:
        """See `Masks.apply`."""
        import torch

        width = scores.shape[1]
        shared = min(self.vocabulary.size, width)
        allowed = np.zeros((len(masks), width), np.bool_)
        for row, mask in zip(allowed, masks, strict=True):
            if mask.words is None:
                row[:] = True
            else:
                row[:shared] = unpack_bitmask(mask.words(), self.vocabulary.size)[:shared]
        return torch.where(torch.from_numpy(allowed).to(scores.device), scores, -torch.inf)


class CudaMasks:
    """Masks walked on the device from the rows' configurations; what only the host knows is sent as words.

    Args:
        vocabulary: the model's.
        grammars: tables of machines: `stcon.kernels.cuda.CudaGrammars`.
        walker: rows over them: `stcon.kernels.cuda.CudaWalker`.

    Cost: one walk, and one more where a row of a machine was not built yet; waits for the device once.
    """

    def __init__(self, vocabulary: Vocabulary, grammars: Grammars, walker: Any) -> None:
        self.vocabulary = vocabulary
        self.walker = walker
        self._grammars = grammars
        self._indices: dict[Machine, int] = {}
        self._host = HostMasks(vocabulary)
        self._lock = Lock()

    def apply(self, masks: Sequence[Mask], scores: Tensor) -> Tensor:
        """See `Masks.apply`. Safe to call from any thread: calls take turns."""
        with self._lock:
            return self._applied(masks, scores)

    def _applied(self, masks: Sequence[Mask], scores: Tensor) -> Tensor:
        import torch

        walker, size = self.walker, self.vocabulary.size
        if len(masks) > walker.max_rows or scores.shape[1] < size or scores.dtype == torch.float64:
            return self._host.apply(masks, scores)
        self._place(masks)
        for _ in range(MAX_REPEATS):
            masked = torch.full_like(scores, -torch.inf, memory_format=torch.contiguous_format)
            masked[:, :size] = scores[:, :size]
            walker.mask_logits(masked[:, :size])
            if not walker.build_missing():
                break
        else:
            return self._host.apply(masks, scores)
        for row, mask in enumerate(masks):
            if mask.words is None:
                masked[row] = scores[row]
        return masked

    def _place(self, masks: Sequence[Mask]) -> None:
        """Tell the walker where each row's walk begins, or which tokens it has."""
        walker = self.walker
        allowed = np.full((len(masks), self.vocabulary.num_words), -1, np.int32)
        config = np.zeros((len(masks), walker.config.shape[1]), np.int32)
        grammar = np.full(len(masks), -1, np.int32)
        for row, mask in enumerate(masks):
            if mask.machine is not None:
                grammar[row], config[row] = self._index(mask.machine), mask.config
            elif mask.words is not None:
                allowed[row] = mask.words()
        _send(walker.config, config)
        _send(walker.grammar, grammar)
        _send(walker.is_restricted, (grammar < 0).astype(np.int32))
        _send(walker.allowed, allowed)
        _send(walker.min_bytes, np.array([mask.min_bytes for mask in masks], np.int32))
        walker.missing[: len(masks)] = -1

    def _index(self, machine: Machine) -> int:
        """The number of a machine on the device; the one used longest ago makes room."""
        index = self._indices.pop(machine, None)
        if index is None:
            if len(self._indices) == MAX_GRAMMARS:
                self._grammars.remove(self._indices.pop(next(iter(self._indices))))
            index = self._grammars.add(machine)
        self._indices[machine] = index
        return index


def masks_for(vocabulary: Vocabulary, device: Any, num_rows: int) -> Masks:
    """The quickest for scores on `device`: the CUDA kernels where they are, else the host."""
    if device.type != "cuda":
        return HostMasks(vocabulary)
    return _cuda_masks(vocabulary, device, 1 << (num_rows - 1).bit_length())


@lru_cache(maxsize=4)  # tens of megabytes on the device each
def _cuda_masks(vocabulary: Vocabulary, device: Any, num_rows: int) -> Masks:
    from stcon.kernels.cuda import CudaGrammars, CudaWalker

    try:
        grammars = CudaGrammars(device)
        return CudaMasks(vocabulary, grammars, CudaWalker(vocabulary, grammars, max_rows=num_rows))
    except RequestError:  # no compiler for the kernels, or more rows or end tokens than they take
        return HostMasks(vocabulary)


def _send(tensor: Tensor, values: Int32) -> None:
    import torch

    tensor[: len(values)].copy_(torch.from_numpy(values))
