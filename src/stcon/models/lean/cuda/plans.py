"""How each kernel is cut into programs: numbers found by measurement (H200), not by theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stcon.models.lean.cache import MAX_STEP
from stcon.models.lean.settings import Settings

Tensor = Any

FEW = 32  # tokens up to which our own kernels beat the library's products
FEW_FOUR = 64  # the same for weights in four bits, where the library's need the matrix written out
PDL = 1  # how kernels overlap; see `dependent`; 0 turns it off everywhere
PDL_ALONE = 2  # the same where a step is one token, all latency
PROGRAMS = 264  # two for each multiprocessor: what splitting aims at
MAX_SPLITS = 64  # of a row's keys
SMALL_MATRIX = 4 << 20  # bytes up to which prefetching whole rows of weights pays
BLOCK_Q = 16  # queries of a tile; taller ones keep more of the card idle


def overlap(tokens: int) -> int:
    """How a step's kernels overlap."""
    return PDL_ALONE if PDL and tokens == 1 else PDL


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

    def options(self, tokens: int) -> dict[str, Any]:
        """Keywords of the kernel."""
        blocks = {"BLOCK_N": self.block_n, "BLOCK_K": self.block_k, "LINES": self.lines, "PDL": overlap(tokens)}
        return {**blocks, "num_warps": self.warps, "num_stages": self.stages, **launch()}


def vector(columns: int, size: int, swiglu: bool, itemsize: int) -> LinearPlan:
    """How to multiply one row of `size` with a matrix of `columns` rows."""
    small = columns * size * itemsize < SMALL_MATRIX
    block_k = min(1024 if size < 2048 else 2048, _power_of_two(size))
    lines = _power_of_two(-(-size * itemsize // 128)) if small else 0
    return LinearPlan(4, block_k * 2 // itemsize, 4, 1, lines)


def rows(count: int, columns: int, size: int, swiglu: bool, itemsize: int) -> LinearPlan:
    """How to multiply `count` ≤ FEW rows with it."""
    block_n = 64 if columns <= 16384 else 128
    block_k = 128 * 2 // itemsize if size % 128 == 0 else 64 * 2 // itemsize
    tiles = -(-columns * (2 if swiglu else 1) // block_n)
    blocks = -(-size // block_k)
    splits = max(1, min(PROGRAMS // tiles, blocks // 2, 8)) if block_n == 64 else 1
    part = -(-blocks // splits)
    small = columns * size * itemsize < SMALL_MATRIX
    lines = _power_of_two(-(-part * block_k * itemsize // 128)) if small else 0
    return LinearPlan(block_n, block_k, 4, 4, lines, -(-blocks // part))  # no split empty


@dataclass(frozen=True)
class FourPlan:
    """Rows of weights and groups of 32 columns of a tile; programs that share the groups of a row."""

    block_n: int
    block_g: int
    warps: int
    stages: int = 1
    splits: int = 1

    def options(self, tokens: int) -> dict[str, Any]:
        """Keywords of the kernel."""
        blocks = {"BLOCK_N": self.block_n, "BLOCK_G": self.block_g, "PDL": overlap(tokens)}
        return {**blocks, "num_warps": self.warps, "num_stages": self.stages, **launch()}


def four_vector(columns: int, size: int, swiglu: bool) -> FourPlan:
    """How to multiply one row of `size` with a four-bit matrix of `columns` rows: a thread a group."""
    block_g = min(64, _power_of_two(-(-size // 32)))
    return FourPlan(4, block_g, max(1, block_g // 32))


def four_rows(count: int, columns: int, size: int, swiglu: bool) -> FourPlan:
    """How to multiply `count` ≤ FEW_FOUR rows with it."""
    tiles = -(-columns * (2 if swiglu else 1) // 64)
    blocks = -(-size // 256)
    splits = max(1, min(PROGRAMS // tiles, blocks // 2, 8))
    part = -(-blocks // splits)
    return FourPlan(64, 8, 8, 3 if count <= 16 else 2, -(-blocks // part))  # no split empty


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


def one_token(heads: int, dim: int) -> AttentionPlan | None:
    """How to attend with one token for each of `heads` query heads, all rows together; None: as `decode` says."""
    if heads > PROGRAMS // 2:
        return None
    splits = _power_of_two(PROGRAMS // heads + 1) // 2
    tile = min(128, max(16, 8192 // dim))  # two of keys, two of values and the sums fit the registers
    return AttentionPlan(1, tile, 8, 1, max(1, min(MAX_SPLITS, splits)), least=256)


def decode(heads: int, queries: int, dim: int, itemsize: int = 2) -> AttentionPlan:
    """How to attend with `queries` for each of `heads` key heads, all rows together."""
    tiles = -(-queries // BLOCK_Q)
    splits = max(1, min(MAX_SPLITS, PROGRAMS // (heads * tiles)))
    splits = _power_of_two(splits + 1) // 2
    stages = 3 if dim * itemsize <= 512 else 2  # what fits into shared memory
    return AttentionPlan(BLOCK_Q, 64, 8 if dim > 128 else 4, stages, splits, tiles, 128 if dim > 128 else 256)


def delta(size: int, value_dim: int) -> tuple[int, int]:
    """Columns of a program, and warps, for a step of `size` tokens."""
    return (value_dim, 8) if size == 1 else (min(32, value_dim), 8)


def prompt_columns(value_dim: int) -> int:
    """Columns of the state that a program holds through a prompt: few, since each program is one long chain."""
    return min(32, value_dim)


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
        deltas: float32[rows · value_heads, MAX_STEP, value_dim].
        arrived: int32, all zero between launches.
    """

    partial: Tensor
    stats: Tensor
    deltas: Tensor
    arrived: Tensor


def workspace(settings: Settings, rows: int, device: Any) -> Workspace:
    """Room for any step's parts."""
    import torch

    def zeros(*shape: int, dtype: Any = torch.float32) -> Tensor:
        return torch.zeros(*shape, device=device, dtype=dtype)

    heads, dim = (settings.delta.value_heads, settings.delta.value_dim) if settings.delta else (0, 0)
    partial = zeros(PROGRAMS, 64 * max(settings.head_dim, 64))
    arrived = zeros(max(PROGRAMS, rows * heads), dtype=torch.int32)
    return Workspace(partial, zeros(PROGRAMS, 128), zeros(rows * heads, MAX_STEP, dim), arrived)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
