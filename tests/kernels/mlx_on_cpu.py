"""The kernels' text for mlx, Metal's and CUDA's, compiled as C++ for the CPU behind a shim, so that it is tested."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from stcon._cache import cache_dir
from stcon.kernels.mlx.kernels import BODIES, Dialect, body, header

OPTIONS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused", "-shared", "-fPIC")
COMMON = "#include <algorithm>\n#include <cstddef>\nusing std::max;\nusing std::min;\ntypedef unsigned uint;\n"
SHIMS: dict[Dialect, str] = {
    "metal": """
#define __METAL_VERSION__ 320
#define device
#define thread
#define constant
inline unsigned long popcount(unsigned long bits) { return __builtin_popcountl(bits); }
struct uint3 { uint x, y, z; };
""",
    "cuda": """
#define __device__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
struct uint3 { uint x, y, z; };
""",
}
LOOPS: dict[Dialect, tuple[str, str]] = {
    "metal": (
        "for (uint j = 0; j < ny; ++j) for (uint i = 0; i < nx; ++i) {",
        "uint3 thread_position_in_grid = {i, j, 0};",
    ),
    "cuda": (  # blocks of four threads, and one row too many, as where a grid is rounded up
        "for (uint j = 0; j < ny + 1; ++j) for (uint i = 0; i < (nx + 3) / 4 * 4; ++i) {",
        "uint3 blockDim = {4, 1, 1}, blockIdx = {i / 4, j, 0}, threadIdx = {i % 4, 0, 0};",
    ),
}
TYPES = {"data": "unsigned char", "bytes": "unsigned char"}


class HostKernels:
    """`Kernels` on the CPU."""

    def __init__(self, dialect: Dialect) -> None:
        self._library = library(dialect)

    def mask(self, *inputs: Any) -> Any:
        rows, size = inputs[5].shape[0], inputs[3].shape[0]
        (status,) = self._call("stcon_mask", inputs, (size, rows), [(rows, size)])
        return status

    def advance(self, *inputs: Any) -> tuple[Any, Any, Any]:
        count = inputs[5].shape[0]
        shapes = [inputs[5].shape, (count,), (count,)]
        moved, status, stopped = self._call("stcon_advance", inputs, (count, 1), shapes)
        return moved, status, stopped

    def _call(self, name: str, inputs: Any, grid: tuple[int, int], shapes: list[Any]) -> list[Any]:
        arrays = [np.ascontiguousarray(np.array(array)) for array in inputs]
        assert all(array.size >= 8 for array in arrays), "smaller ones are in Metal's address space `constant`"
        dims = [np.array(array.shape, np.int32) for array in arrays]
        out = [np.full(shape, 0x5A5A5A5A, np.int32) for shape in shapes]
        pointers = [array.ctypes.data for array in (*arrays, *dims, *out)]
        getattr(self._library, name)((ctypes.c_void_p * len(pointers))(*pointers), *grid)
        return [mx.array(array) for array in out]


def source(dialect: Dialect) -> str:
    """The whole text: a shim, the kernels' header, and a function a kernel that runs its body in every thread."""
    loop, place = LOOPS[dialect]
    parts = [COMMON, SHIMS[dialect], header()]
    for name, (inputs, outputs, _, _) in BODIES.items():
        lines = [f'extern "C" void {name}(void** p, uint nx, uint ny) {{']
        for i, given in enumerate(inputs):
            lines.append(f"  auto {given} = (const {TYPES.get(given, 'int')}*)p[{i}];")
            lines.append(f"  auto {given}_shape = (const int*)p[{len(inputs) + i}];")
        lines += [f"  auto {given} = (int*)p[{2 * len(inputs) + i}];" for i, given in enumerate(outputs)]
        # a body may return, so it is a function of its own
        parts.append("\n".join([*lines, loop, "[&] {", place, body(name, dialect), "}();", "}", "}"]))
    return "\n".join(parts)


@cache
def library(dialect: Dialect) -> ctypes.CDLL:
    """The shared library, compiled if its text has changed; skips the test where there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler: the kernels' text is not tested here")
    text = source(dialect)
    digest = hashlib.sha256(" ".join((compiler, *OPTIONS, text)).encode()).hexdigest()[:24]
    target = cache_dir() / "tests" / f"mlx_on_cpu-{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            written, built = Path(scratch) / "kernels.cpp", Path(scratch) / "built.so"
            written.write_text(text)
            command = [compiler, *OPTIONS, str(written), "-o", str(built)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert "warning" not in done.stderr, done.stderr
            built.replace(target)
    return ctypes.CDLL(str(target))
