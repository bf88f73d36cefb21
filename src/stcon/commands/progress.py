"""One status line on stderr while a command works."""

from __future__ import annotations

import sys
from time import monotonic

import click


class Progress:
    """On a terminal, the line is rewritten in place; elsewhere one is printed every `every_s` seconds, if at all.

    Args:
        every_s: seconds between lines where stderr is not a terminal; None: none there.
    """

    def __init__(self, every_s: float | None = None) -> None:
        self._every_s = every_s

    def __enter__(self) -> Progress:
        self._is_terminal = sys.stderr.isatty()
        self._last = monotonic()
        return self

    def __call__(self, line: str) -> None:
        if self._is_terminal:
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        elif self._every_s is not None and monotonic() - self._last >= self._every_s:
            self._last = monotonic()
            click.echo(line, err=True)

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
