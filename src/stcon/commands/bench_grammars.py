"""`stcon bench grammars`: sample grammars in this engine, llguidance (Lark) and xgrammar (EBNF)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress

if TYPE_CHECKING:
    from stcon.bench.grammars import Row


@click.command()
@click.option(
    "--data", default="examples/grammars", show_default=True, type=click.Path(), metavar="DIR", help="The samples."
)
@click.option(
    "--tokenizer",
    type=click.Choice(["qwen3.5", "smollm2", "bytes"]),
    default="qwen3.5",
    show_default=True,
    help="Whose tokens the masks are timed with.",
)
@json_option
def grammars(*, data: str, tokenizer: str, json_file: str | None) -> int:
    """Context-free grammars: verdicts on the samples' texts, first and later masks.

    Exit code 1 if a verdict of stcon is not the sample's; then no time is shown.
    """
    from stcon.bench.grammars import failures, measure
    from stcon.bench.masks_engines import versions

    with Progress() as progress:
        rows = measure(Path(data), tokenizer, progress)
    red = failures(rows)
    _print(rows, timed=not red)
    about = {"tokenizer": tokenizer, **versions(["stcon", "llguidance", "xgrammar"]), **environment()}
    for key, value in about.items():
        click.echo(f"{key}: {value}")
    write_json(json_file, {**about, "failures": red, "rows": [row._asdict() for row in rows]})
    for line in red:
        click.echo(f"stcon: {line}", err=True)
    return 1 if red else 0


def _print(rows: list[Row], *, timed: bool) -> None:
    """One line a grammar and engine; times in microseconds."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("grammar", "engine", "form", "wrong\n+ / -", "compile\nms", "first\nµs", "later\nµs", "max\nµs"):
        table.add_column(title, justify="left" if title in ("grammar", "engine", "form") else "right")
    for row in rows:
        times = (row.compile_us and row.compile_us / 1e3, row.first_us, row.between_us, row.between_max_us)
        wrong = "refused" if row.refused else f"{len(row.wrong_accepts)} / {len(row.wrong_rejects)}"
        name = f"{row.engine}*" if row.conflict else row.engine
        shown = ["-" if value is None or not timed else f"{value:,.1f}" for value in times]
        table.add_row(row.grammar, name, row.syntax, wrong, *shown)
    console = Console(width=None if sys.stdout.isatty() else 80)
    console.print(table)
    console.print("* not deterministic: sets of stacks")
