"""The kernels' C++ compiled for the device at hand, at first use, and their launches.

NVRTC compiles the text in ``source/`` (a few seconds); the machine code is kept on disk under a digest of the text,
the architecture and the compiler's version. Launches go to torch's current stream, so they can be captured in a graph.

Needs the ``cuda`` extra: `cuda.core` and NVRTC.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from stcon._cache import cache_dir
from stcon.errors import ModelUnavailable

SOURCE_DIR = Path(__file__).parent / "source"
MAIN_FILE = "kernels.cu"

# blocks of a multiprocessor that the compiler leaves registers for, by the number of rows
FEW_ROWS = 16
FEW_BLOCKS, MANY_BLOCKS = 2, 4

KERNELS = ("walk_bitmask", "walk_mask_logits", "walk_best", "advance_rows", "draw_tokens")


class Kernels(Protocol):
    """Compiled kernels. On a GPU; or, in the tests, the same text compiled for the CPU."""

    @property
    def draw_threads(self) -> int:
        """Threads of a block of ``draw_tokens``."""
        ...

    def launch(self, name: str, grid: tuple[int, int], threads: int, arguments: Sequence[int]) -> None:
        """Start kernel `name`; every argument is an address or a number, passed as 8 bytes."""
        ...


class CudaKernels:
    """The kernels on one device.

    Args:
        device: its ordinal.

    Raises:
        ModelUnavailable: `cuda.core` or NVRTC is not installed.
    """

    draw_threads = 1024

    def __init__(self, device: int) -> None:
        core = _core()
        core.Device(device).set_current()
        major, minor = core.Device(device).compute_capability
        self._device = device
        self._core = core
        arch = f"sm_{major}{minor}"
        self._modules = [core.ObjectCode.from_cubin(cubin(arch, blocks)) for blocks in (FEW_BLOCKS, MANY_BLOCKS)]
        self._kernels = [{name: module.get_kernel(name) for name in KERNELS} for module in self._modules]
        self._streams: dict[int, Any] = {}

    def launch(self, name: str, grid: tuple[int, int], threads: int, arguments: Sequence[int]) -> None:
        """See `Kernels.launch`. Cost: some 15 µs of the host, nothing of it in a captured graph."""
        import torch

        handle = torch.cuda.current_stream(self._device).cuda_stream
        stream = self._streams.get(handle)
        if stream is None:
            stream = self._streams[handle] = self._core.Stream.from_handle(handle)
        config = self._core.LaunchConfig(grid=(*grid, 1), block=(threads, 1, 1))
        kernel = self._kernels[grid[1] > FEW_ROWS][name]
        self._core.launch(stream, config, kernel, *arguments)


@cache
def kernels_for(device: int) -> CudaKernels:
    """The kernels on device number `device`, compiled and loaded once a process."""
    return CudaKernels(device)


def cubin(arch: str, min_blocks: int) -> bytes:
    """The machine code for `arch` (``sm_90``) and ``MIN_BLOCKS``, from the cache or compiled now."""
    path = cache_dir() / "kernels" / f"{source_digest(arch, min_blocks)}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        code = compile_source(arch, min_blocks)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, path)  # whole or not at all, whoever else compiles meanwhile
    except OSError:
        pass  # a cache that cannot be written costs seconds at the next start
    return code


def compile_source(arch: str, min_blocks: int) -> bytes:
    """The machine code for `arch` and ``MIN_BLOCKS``, by NVRTC. Needs no GPU. Cost: about two seconds."""
    core = _core()
    macro = ("MIN_BLOCKS", str(min_blocks))
    options = core.ProgramOptions(arch=arch, std="c++17", include_path=str(SOURCE_DIR), define_macro=macro)
    program = core.Program((SOURCE_DIR / MAIN_FILE).read_text("utf-8"), "c++", options)
    return bytes(program.compile("cubin").code)


def source_digest(arch: str, min_blocks: int) -> str:
    """A digest of all that the machine code depends on."""
    digest = hashlib.sha256(f"{arch}|{min_blocks}|{_compiler_version()}".encode())
    for path in sorted(SOURCE_DIR.glob("*.cu*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:40]


def _compiler_version() -> str:
    from cuda.bindings import nvrtc

    return ".".join(str(part) for part in nvrtc.nvrtcVersion()[1:])


def _core() -> Any:
    """The module `cuda.core`, under the name that its version has."""
    try:
        from cuda import core

        if hasattr(core, "Program"):
            return core
        from cuda.core import experimental

        return experimental
    except ImportError as error:
        raise ModelUnavailable(
            "the GPU kernels are compiled with cuda.core, which is not installed; run: pip install 'stcon[cuda]'"
        ) from error
