"""The kernels of mlx's GPUs: one thread a token, each walking its bytes through the machine.

The step is the CUDA kernels' own text (``stcon/kernels/cuda/source/machine.cuh``), which Metal's compiler takes as it
is; ``source/walk.h`` reads a token with it. The two dialects differ in how a thread learns its place (`PROLOGUES`).

A thread a token is the shape that mlx's kernels take without shared memory: all of a row's tokens are walked, those
that die on their first byte ending there.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

SOURCES = (Path(__file__).parents[1] / "cuda" / "source" / "machine.cuh", Path(__file__).parent / "source" / "walk.h")
Dialect = Literal["metal", "cuda"]
THREADS = 256
ALIVE = 0

PROLOGUES: dict[Dialect, str] = {
    "metal": "uint x = thread_position_in_grid.x, y = thread_position_in_grid.y;",
    "cuda": (
        "unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "if (x >= (unsigned)LAST_X || y >= (unsigned)LAST_Y) return;  // the grid is rounded up"
    ),
}
SHARED_INPUTS = ("heads", "data", "bytes", "starts", "lengths", "rows")
_VOCABULARY = "Vocabulary v = {bytes, starts, lengths, (int)starts_shape[0]};"
# name → inputs, outputs, the size of the grid, and what a thread does
BODIES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, str], str]] = {
    "stcon_mask": (
        SHARED_INPUTS,
        ("status",),
        ("starts_shape[0]", "rows_shape[0]"),
        "status[y * v.size + x] = token_status(heads, data, v, rows + y * ROW_WORDS, (int)x);",
    ),
    "stcon_advance": (
        (*SHARED_INPUTS, "tokens"),
        ("moved", "status", "stopped"),
        ("rows_shape[0]", "1"),
        "int count = (int)tokens_shape[1];\n"
        "status[x] = advanced(heads, data, v, rows + x * ROW_WORDS, tokens + x * count, count,\n"
        "                     moved + x * ROW_WORDS, stopped + x);",
    ),
}


class Kernels(Protocol):
    """What the walker asks of a device; every array is of mlx, and nothing waits."""

    def mask(self, *inputs: Any) -> Any:
        """int32[B, V]: the status of each token in each row; inputs as `SHARED_INPUTS`."""
        ...

    def advance(self, *inputs: Any) -> tuple[Any, Any, Any]:
        """The rows after their ``tokens`` (int32[B, S]), each row's status, and the token that was not read."""
        ...


def header() -> str:
    """The text in front of every kernel."""
    return "\n".join(path.read_text("utf-8").replace("#pragma once\n", "") for path in SOURCES)


def body(name: str, dialect: Dialect) -> str:
    """The text of kernel `name`."""
    _, _, (last_x, last_y), text = BODIES[name]
    prologue = PROLOGUES[dialect].replace("LAST_X", last_x).replace("LAST_Y", last_y)
    return f"{prologue}\n{_VOCABULARY}\n{text}\n"


class DeviceKernels:
    """The kernels, made by mlx for its GPU; each is compiled when it is first called.

    Args:
        dialect: the GPU's language.
    """

    def __init__(self, dialect: Dialect) -> None:
        import mlx.core as mx

        make = mx.fast.metal_kernel if dialect == "metal" else mx.fast.cuda_kernel
        self._kernels: dict[str, Any] = {
            name: make(
                name=name,
                input_names=list(inputs),
                output_names=list(outputs),
                source=body(name, dialect),
                header=header(),
            )
            for name, (inputs, outputs, _, _) in BODIES.items()
        }

    def mask(self, *inputs: Any) -> Any:
        """See `Kernels.mask`."""
        rows, size = inputs[5].shape[0], inputs[3].shape[0]
        (status,) = self._call("stcon_mask", inputs, (size, rows, 1), [(rows, size)])
        return status

    def advance(self, *inputs: Any) -> tuple[Any, Any, Any]:
        """See `Kernels.advance`."""
        rows = inputs[5]
        count = rows.shape[0]
        moved, status, stopped = self._call("stcon_advance", inputs, (count, 1, 1), [rows.shape, (count,), (count,)])
        return moved, status, stopped

    def _call(self, name: str, inputs: Any, grid: tuple[int, int, int], shapes: list[Any]) -> list[Any]:
        import mlx.core as mx

        found: list[Any] = self._kernels[name](
            inputs=list(inputs),
            grid=grid,
            threadgroup=(min(THREADS, grid[0]), 1, 1),
            output_shapes=shapes,
            output_dtypes=[mx.int32] * len(shapes),
        )
        return found


def kernels_for_device() -> DeviceKernels | None:
    """The kernels of the device on which mlx computes; None: it is a CPU."""
    import mlx.core as mx

    if mx.default_device().type != mx.DeviceType.gpu:
        return None
    return _made("metal" if mx.metal.is_available() else "cuda")


@cache
def _made(dialect: Dialect) -> DeviceKernels:
    return DeviceKernels(dialect)
