"""What a kernel needs to know besides its tensors: the step's shape and where its rows stand, heads and their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

Tensor = Any


@dataclass(frozen=True)
class Heads:
    """Shape of one attention layer. Rows of its projection are queries, keys, values and, if `gated`, gates."""

    heads: int
    kv_heads: int
    dim: int
    eps: float
    gated: bool = False

    @property
    def width(self) -> int:
        """Columns of the projection."""
        return (self.heads * (2 if self.gated else 1) + 2 * self.kv_heads) * self.dim


@dataclass(frozen=True)
class Packing:
    """The real tokens of a step one behind another, M in all, the rows' in their order; what is left over is anything.

    Attributes:
        firsts: int32[B], where each row's tokens begin.
        sources: int64[M], each token's place among the padded ones.
        places: int64[B·S], the place of each padded one here; of padding any.
        lasts: int64[B], the place of each row's last token; of a row without any, any.
    """

    firsts: Tensor
    sources: Tensor
    places: Tensor
    lasts: Tensor


def packing(counts: Tensor, size: int, total: int) -> Packing:
    """How to pack rows of `counts` (int32[B]) tokens out of `size`, at most `total` together. Waits for nothing."""
    import torch

    rows, device = len(counts), counts.device
    ends = counts.long().cumsum(0)
    firsts = ends - counts
    place = torch.arange(total, device=device)
    row = torch.searchsorted(ends, place, right=True).clamp(max=rows - 1)
    sources = row * size + (place - firsts[row]).clamp(max=size - 1)
    token = torch.arange(size, device=device).minimum((counts.long() - 1).clamp(min=0)[:, None])
    places = (firsts[:, None] + token).clamp(max=total - 1).reshape(-1)
    return Packing(firsts.int(), sources, places, (ends - 1).clamp(min=0))


@dataclass(frozen=True)
class Step:
    """S tokens for each of B rows.

    Attributes:
        rows, size: B and S.
        lengths: int32[B], tokens each row held before.
        counts: int32[B], real tokens of each row; None: S.
        cos, sin: float32[capacity, rope.dim / 2].
        workspace: the cache's, for kernels that need one.
        packing: tokens stand one behind another; None: row b's stand at b·S, padded.
    """

    rows: int
    size: int
    lengths: Tensor
    counts: Tensor | None
    cos: Tensor
    sin: Tensor
    workspace: Any = None
    packing: Packing | None = None

    @cached_property
    def host_lengths(self) -> list[int]:
        """`lengths` as numbers; for code that runs on the CPU only, where reading them waits for nothing."""
        return [int(n) for n in self.lengths.tolist()]

    @cached_property
    def positions(self) -> Tensor:
        """int64[B, S]: where each token stands."""
        import torch

        return self.lengths.long()[:, None] + torch.arange(self.size, device=self.lengths.device)

    @cached_property
    def rotation(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the tokens, float32[B, S, 1, rope.dim / 2]."""
        positions = self.positions.clamp(max=self.cos.shape[0] - 1)
        return self.cos[positions][:, :, None], self.sin[positions][:, :, None]

    @cached_property
    def real(self) -> Tensor | None:
        """bool[B, S]: which tokens are real; None: all."""
        import torch

        if self.counts is None:
            return None
        return torch.arange(self.size, device=self.lengths.device) < self.counts.long()[:, None]
