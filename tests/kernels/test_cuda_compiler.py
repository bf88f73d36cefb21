"""Machine code is kept on disk under what it depends on; without cuda.core there is one clear error."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from stcon.errors import ModelUnavailable
from stcon.kernels.cuda import compiler, tables, tokens, walker


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STCON_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "_compiler_version", lambda: "13.0")
    return tmp_path / "kernels"


def test_code_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each architecture and number of blocks; another compiler's version compiles again."""
    compiled = []

    def compile_source(arch: str, min_blocks: int) -> bytes:
        compiled.append((arch, min_blocks))
        return f"{arch} {min_blocks}".encode()

    monkeypatch.setattr(compiler, "compile_source", compile_source)
    for _ in range(2):
        assert compiler.cubin("sm_90", 2) == b"sm_90 2"
        assert compiler.cubin("sm_90", 4) == b"sm_90 4"
        assert compiler.cubin("sm_80", 2) == b"sm_80 2"
    assert compiled == [("sm_90", 2), ("sm_90", 4), ("sm_80", 2)]
    assert len(list(cache.iterdir())) == 3
    monkeypatch.setattr(compiler, "_compiler_version", lambda: "13.1")
    compiler.cubin("sm_90", 2)
    assert len(compiled) == 4


def test_a_cache_that_cannot_be_written_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """The code is compiled every time then."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STCON_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(compiler, "compile_source", lambda arch, min_blocks: b"code")
    assert compiler.cubin("sm_90", 2) == compiler.cubin("sm_90", 2) == b"code"


def test_without_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, and how to install it."""
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'stcon\[cuda\]'"):
        compiler.compile_source("sm_90", 2)


def test_constants_are_those_of_the_text() -> None:
    """What Python and C++ both have to know is the same in both."""
    text = "".join(path.read_text("utf-8") for path in sorted(compiler.SOURCE_DIR.glob("*.cu*")))
    both = {
        "THREADS": walker.THREADS,
        "MAX_ROWS": walker.MAX_ROWS,
        "MAX_CHUNK_WORDS": tokens.MAX_CHUNK_WORDS,
        "FINISHED": walker.FINISHED,
        "TEXT": tables.TEXT,
        "BOUNDED": tables.BOUNDED,
        "FREE": tables.FREE,
        "MIXED": tables.MIXED,
        "DRAW_THREADS": compiler.CudaKernels.draw_threads,
    }
    for name, value in both.items():
        assert re.search(rf"\b{name}(?: =)? {value}\b", text), name
    assert set(re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(", text)) == set(compiler.KERNELS)
