"""How each kernel is cut into programs: numbers found by measurement (H200), not by theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Tensor = Any

FEW = 16  # tokens up to which our own kernels beat the library's products
PDL = 1  # how kernels overlap; see `dependent`
PROGRAMS = 264  # two for each multiprocessor: what splitting aims at
MAX_SPLITS = 64  # of a row's keys
MAX_BLOCK_Q = 32
DELTA_WARPS = 8


def launch() -> dict[str, Any]:
    """The launch attribute that goes with `PDL`."""
    return {"launch_pdl": True} if PDL else {}


@dataclass(frozen=True)
class LinearPlan:
    """Rows of weights and columns of a tile, programs that share K, 128-byte lines of a row to prefetch."""

    block_n: int
    block_k: int
    warps: int
    stages: int
    lines: int
    splits: int = 1

    def options(self) -> dict[str, Any]:
        """Keywords of the kernel."""
        blocks = {"BLOCK_N": self.block_n, "BLOCK_K": self.block_k, "LINES": self.lines, "PDL": PDL}
        return {**blocks, "num_warps": self.warps, "num_stages": self.stages, **launch()}


def vector(columns: int, size: int, swiglu: bool, itemsize: int) -> LinearPlan:
    """How to multiply one row of `size` with a matrix of `columns` rows."""
    block_k = min(1024, _power_of_two(size))
    lines = 0 if columns > 16384 else _power_of_two(-(-size * itemsize // 128))
    return LinearPlan(4, block_k * 2 // itemsize, 4, 1, lines)


def rows(count: int, columns: int, size: int, swiglu: bool, itemsize: int) -> LinearPlan:
    """How to multiply `count` ≤ FEW rows with it."""
    block_n = 64 if columns <= 16384 else 128
    block_k = 128 * 2 // itemsize if size % 128 == 0 else 64 * 2 // itemsize
    tiles = -(-columns * (2 if swiglu else 1) // block_n)
    blocks = -(-size // block_k)
    splits = max(1, min(PROGRAMS // tiles, blocks // 2, 8)) if block_n == 64 else 1
    splits = -(-blocks // -(-blocks // splits))  # none empty
    return LinearPlan(block_n, block_k, 4, 4, 0, splits)


@dataclass(frozen=True)
class AttentionPlan:
    """Tiles of queries and keys; `splits` programs share the keys of a row, each at least `least`."""

    block_q: int
    block_t: int
    warps: int
    stages: int
    splits: int = 1
    tiles: int = 1
    least: int = 1


def decode(heads: int, queries: int, dim: int) -> AttentionPlan:
    """How to attend with `queries` for each of `heads` key heads, all rows together."""
    block_q = 16 if queries <= 16 else MAX_BLOCK_Q
    tiles = -(-queries // block_q)
    splits = max(1, min(MAX_SPLITS, PROGRAMS // (heads * tiles)))
    splits = 1 << (splits.bit_length() - 1)
    return AttentionPlan(block_q, 32 if dim > 128 else 64, 4, 3, splits, tiles, 128 if dim > 128 else 256)


def chunk(dim: int, itemsize: int) -> AttentionPlan:
    """How to attend with many queries."""
    if itemsize > 2:
        return AttentionPlan(32, 32, 4, 1)
    return AttentionPlan(64 if dim > 128 else 128, 32 if dim > 128 else 64, 8 if dim > 64 else 4, 2)


@dataclass
class Workspace:
    """Where programs that share a result leave their parts; one for each cache, since steps on one never overlap.

    Attributes:
        partial: float32, PROGRAMS tiles of 64 × max(dim, 64).
        stats: float32, as many times 128.
        arrived: int32, all zero between launches.
    """

    partial: Tensor
    stats: Tensor
    arrived: Tensor


def workspace(dim: int, device: Any) -> Workspace:
    """Room for any step's parts."""
    import torch

    partial = torch.empty(PROGRAMS, 64 * max(dim, 64), device=device, dtype=torch.float32)
    stats = torch.empty(PROGRAMS, 128, device=device, dtype=torch.float32)
    return Workspace(partial, stats, torch.zeros(PROGRAMS, device=device, dtype=torch.int32))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
