"""`DeviceSampling`: how each row of a batch draws its token, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Options(Protocol):
    """What `stcon.engine.sampling.Sampling` has."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def top_p(self) -> float: ...

    @property
    def min_p(self) -> float: ...

    @property
    def seed(self) -> int | None: ...


class DeviceSampling:
    """Tensors of options, one entry a row; greedy until set. Kernels read them, and count `positions` up.

    Attributes:
        temperature, top_p, min_p: float64[R].
        top_k: int32[R].
        seeds: int64[R], read as unsigned.
        positions: int64[R], tokens of each row's output so far: with the seed, all the randomness there is. The host
            sets it when it writes tokens of its own.
    """

    def __init__(self, max_rows: int, device: torch.device | str) -> None:
        import torch

        self.temperature = torch.zeros(max_rows, dtype=torch.float64, device=device)
        self.top_k = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self.top_p = torch.ones(max_rows, dtype=torch.float64, device=device)
        self.min_p = torch.zeros(max_rows, dtype=torch.float64, device=device)
        self.seeds = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self.positions = torch.zeros(max_rows, dtype=torch.int64, device=device)

    def set_row(self, row: int, options: Options, position: int = 0) -> None:
        """Let `row` draw by `options`, with `position` tokens written already."""
        seed = options.seed or 0
        self.temperature[row] = options.temperature
        self.top_k[row] = options.top_k
        self.top_p[row] = options.top_p
        self.min_p[row] = options.min_p
        self.seeds[row] = seed - (1 << 64) if seed >= 1 << 63 else seed
        self.positions[row] = position
