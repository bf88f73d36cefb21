"""What slow work says once before it begins: the command line listens, the library alone is silent."""

from __future__ import annotations

from collections.abc import Callable

compiling: list[Callable[[], None]] = []
"""Called before the first function is compiled that is not kept on disk yet; each is called once."""


def tell_compiling() -> None:
    """Call what is in `compiling`, and forget it."""
    while compiling:
        compiling.pop()()
