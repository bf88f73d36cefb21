"""Masks onto the scores of torch: from the host, or walked on an NVIDIA GPU by the CUDA kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stcon.engine.sampling import unpack_bitmask
from stcon.errors import DecodingError, RequestError

if TYPE_CHECKING:
    from stcon.engine.batch.walking import Grammars
    from stcon.grammar.machine import Machine
    from stcon.integrations.prefixes import Prefixes, Row
    from stcon.vocab.vocabulary import Vocabulary

Int32 = NDArray[np.int32]
Tensor = Any

MAX_GRAMMARS = 256
MAX_REPEATS = 10_000


class Masks(Protocol):
    """Something that masks scores."""

    def apply(self, prefixes: Prefixes, rows: Sequence[Row], scores: Tensor) -> Tensor:
        """A copy of `scores` (float [R, V or more]) with -inf where a token may not come."""
        ...


class HostMasks:
    """Masks computed on the host and sent to where the scores are.

    Cost: R·V/8 bytes to the device.
    """

    def apply(self, prefixes: Prefixes, rows: Sequence[Row], scores: Tensor) -> Tensor:
        """See `Masks.apply`."""
        words = np.empty((len(rows), prefixes.vocabulary.num_words), np.int32)
        for row, out in zip(rows, words, strict=True):
            prefixes.mask(row, out)
        free = [number for number, row in enumerate(rows) if row.matcher is None]
        return mask_scores(scores, words, prefixes.vocabulary.size, free)


class CudaMasks:
    """Masks walked on the device from the rows' configurations; what only the host knows is sent as in `HostMasks`.

    Args:
        vocabulary: the model's.
        grammars: tables of machines: `stcon.kernels.cuda.CudaGrammars`.
        walker: rows over them: `stcon.kernels.cuda.CudaWalker`.
    """

    def __init__(self, vocabulary: Vocabulary, grammars: Grammars, walker: Any) -> None:
        self.vocabulary = vocabulary
        self.walker = walker
        self._grammars = grammars
        self._indices: dict[Machine, int] = {}
        self._host = HostMasks()

    def apply(self, prefixes: Prefixes, rows: Sequence[Row], scores: Tensor) -> Tensor:
        """See `Masks.apply`. Waits for the device once."""
        import torch

        walker, count, size = self.walker, len(rows), self.vocabulary.size
        if count > walker.max_rows or scores.shape[1] < size or scores.dtype == torch.float64:
            return self._host.apply(prefixes, rows, scores)
        places = [prefixes.place(row) for row in rows]
        words = np.full((count, self.vocabulary.num_words), -1, np.int32)
        configs = np.zeros((count, walker.config.shape[1]), np.int32)
        indices = np.full(count, -1, np.int32)
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            if place is None:
                prefixes.mask(row, words[number])
            else:
                indices[number] = self._index(place[0])
                configs[number] = place[1]
        self._send(walker.config, configs)
        self._send(walker.grammar, indices)
        self._send(walker.is_restricted, (indices < 0).astype(np.int32))
        self._send(walker.allowed, words)
        walker.min_bytes[:count] = 0
        walker.missing[:count] = -1
        for _ in range(MAX_REPEATS):
            masked = torch.full_like(scores, -torch.inf, memory_format=torch.contiguous_format)
            masked[:, :size] = scores[:, :size]
            walker.mask_logits(masked[:, :size])
            if not walker.build_missing():
                break
        else:
            return self._host.apply(prefixes, rows, scores)
        for number in [number for number, row in enumerate(rows) if row.matcher is None]:
            masked[number] = scores[number]
        return masked

    def _send(self, tensor: Tensor, values: Int32) -> None:
        import torch

        tensor[: len(values)].copy_(torch.from_numpy(values))

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
        return HostMasks()
    from stcon.kernels.cuda import CudaGrammars, CudaWalker

    try:
        grammars = CudaGrammars(device)
        return CudaMasks(vocabulary, grammars, CudaWalker(vocabulary, grammars, max_rows=num_rows))
    except RequestError:  # no compiler for the kernels, or more rows or end tokens than they take
        return HostMasks()


def mask_scores(scores: Tensor, words: Int32, size: int, free: Sequence[int] = ()) -> Tensor:
    """A copy of `scores` with -inf where `words` has no bit, and past the vocabulary.

    Args:
        scores: float [R, any width].
        words: int32[R, W].
        size: V.
        free: rows that stay as they are.
    """
    import torch

    width = scores.shape[1]
    allowed = np.zeros((len(words), width), np.bool_)
    shared = min(size, width)
    for row, mask in zip(allowed, words, strict=True):
        row[:shared] = unpack_bitmask(mask, size)[:shared]
    allowed[list(free)] = True
    return torch.where(torch.from_numpy(allowed).to(scores.device), scores, -torch.inf)


def check_scores(masked: Tensor, rows: Sequence[Row]) -> None:
    """Raise `DecodingError` if a row that goes on has no token left: another processor took what the grammar admits."""
    import torch

    dead = torch.isneginf(masked.amax(-1)).tolist()
    for number, (row, is_dead) in enumerate(zip(rows, dead, strict=True)):
        if is_dead and row.matcher is not None and not row.is_over:
            raise DecodingError(
                f"row {number}: every token that the grammar admits has score -inf; another processor or option "
                "(min_new_tokens, bad_words_ids, suppress_tokens …) forbids it: leave that out"
            )
