"""What every `stcon bench …` command ends with: a table of at most 80 columns, where it ran, the file, what is red."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from stcon.commands.inputs import environment, write_json


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """A table of at most 80 columns where standard output is no terminal; the first `left` columns are text."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=80 if not sys.stdout.isatty() else None).print(table)


def finish(result: Mapping[str, Any], red: Sequence[str], json_file: str | None, about: Mapping[str, Any]) -> int:
    """Say what ran where, write the file with the environment and the failures, name each failure.

    Returns:
        1 if something is red, else 0: the command's exit code.
    """
    where = environment()
    for key, value in {**about, **where}.items():
        click.echo(f"{key}: {value}")
    write_json(json_file, {**result, **where, "failures": list(red)})
    for line in red:
        click.echo(f"stcon: {line}", err=True)
    return 1 if red else 0
