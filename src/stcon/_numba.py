"""The one way stcon compiles Python with numba, typed so that mypy keeps the signature.

Imports numba (about 0.4 s): import this module only from modules that are themselves imported on use.

Machine code is kept on disk. numba alone renews it when the function's own file changes, not when a function or a
constant that it uses from another file does; so every file with compiled functions, and the machine's constants, count
as the source of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from stcon._notices import tell_compiling

F = TypeVar("F", bound=Callable[..., object])

wide = cast(Callable[[object], int], numba.int64)
"""An integer of any width as int64: what it is passed to is not compiled again for each width."""


class _Listener(event.Listener):  # type: ignore[misc]
    """Says that compiling begins, which takes seconds where nothing is kept on disk."""

    def on_start(self, event: object) -> None:
        tell_compiling()

    def on_end(self, event: object) -> None:
        pass


event.register("numba:compile", _Listener())


def njit(function: F) -> F:
    """Compile `function` at first call, without the GIL, and keep the machine code on disk."""
    compiled = numba.njit(cache=True, nogil=True)(function)
    if not _stamp(compiled):
        compiled = numba.njit(nogil=True)(function)
    return cast(F, compiled)


def _stamp(compiled: Any) -> bool:
    """Make the code kept for `compiled` depend on `_sources_digest`; False if numba no longer has the place for it."""
    try:
        file = compiled._cache._cache_file
        file._source_stamp = (file._source_stamp, _sources_digest())
    except AttributeError:
        return False
    return True


@cache
def _sources_digest() -> str:
    """A digest of every file that compiled code can come from. Cost: about 5 ms, once."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source or path.name == "machine.py":
            digest.update(source)
    return digest.hexdigest()
