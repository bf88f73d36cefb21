"""The GPU kernels' own C++ compiled for the CPU, so that their arithmetic is tested where no GPU is."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from stcon._cache import cache_dir
from stcon.kernels.cuda.compiler import SOURCE_DIR

HERE = Path(__file__).parent
MAIN_FILE = HERE / "cuda_on_cpu.cpp"
SHIM_FILE = HERE / "cuda_on_cpu.h"
OPTIONS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-shared", "-fPIC")


class HostKernels:
    """`Kernels` on the CPU: launches run at once. Threads take turns in ascending or descending order."""

    def __init__(self, reverse: bool = False) -> None:
        self._library = library()
        self.reverse = reverse
        self.draw_threads = int(self._library.draw_threads())

    def launch(self, name: str, grid: tuple[int, int], threads: int, arguments: Sequence[int]) -> None:
        words = (ctypes.c_longlong * len(arguments))(*arguments)
        assert self._library.launch(name.encode(), words, *grid, threads, int(self.reverse)) == 0, name


@cache
def library() -> ctypes.CDLL:
    """The shared library, compiled if its text has changed; skips the test where there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler: the kernels' text is not tested here")
    digest = hashlib.sha256(" ".join((compiler, *OPTIONS)).encode())
    for path in (MAIN_FILE, SHIM_FILE, *sorted(SOURCE_DIR.glob("*.cu*"))):
        digest.update(path.read_bytes())
    target = cache_dir() / "tests" / f"cuda_on_cpu-{digest.hexdigest()[:24]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch) / "built.so"
            command = [compiler, *OPTIONS, "-I", str(SOURCE_DIR), "-I", str(HERE), str(MAIN_FILE), "-o", str(built)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert "warning" not in done.stderr, done.stderr
            built.replace(target)
    return ctypes.CDLL(str(target))
