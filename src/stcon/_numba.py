"""The one way stcon compiles Python with numba, typed so that mypy keeps the signature.

Imports numba (about 0.4 s): import this module only from modules that are themselves imported on use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def njit(function: F) -> F:
    """Compile `function` at first call, without the GIL, and keep the machine code on disk."""
    compiled: F = numba.njit(cache=True, nogil=True)(function)
    return compiled
