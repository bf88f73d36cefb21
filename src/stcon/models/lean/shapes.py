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
class Step:
    """S tokens for each of B rows.

    Attributes:
        rows, size: B and S.
        lengths: int32[B], tokens each row held before.
        counts: int32[B], real tokens of each row; None: S.
        cos, sin: float32[capacity, rope.dim / 2].
        workspace: the cache's, for kernels that need one.
    """

    rows: int
    size: int
    lengths: Tensor
    counts: Tensor | None
    cos: Tensor
    sin: Tensor
    workspace: Any = None

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
