"""`stcon bench certified`: fields in parallel against one token after another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress

if TYPE_CHECKING:
    from stcon.bench.certified import Run

_TITLES = (
    "model",
    "output",
    "fields",
    "tokens",
    "passes\nin turn",
    "passes",
    "fewer",
    "rounds",
    "first\nround",
    "rows a\npass",
    "s in\nturn",
    "s",
    "same",
)


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--device", default="auto", show_default=True, help="auto (a GPU if there is one), cpu, cuda, cuda:1 …")
@click.option("--max-tokens", type=click.IntRange(min=1), default=320, show_default=True, metavar="N")
@click.option("--fake-only", is_flag=True, help="Only the form on the models without weights (with the tokens of M).")
@json_option
def certified(*, model_name: str | None, device: str, max_tokens: int, fake_only: bool, json_file: str | None) -> int:
    """Certified parallel fields against sequential decoding: passes, rounds, drafts accepted, time, identity.

    Eighteen extractions and a form of 48 fields on the model; the form on two models without weights. "first round" is
    how many drawn tokens of the first draft the model would draw there itself.

    Exit code 1 if an output is not the sequential one, near-ties of a real model apart (they are listed).
    """
    from stcon.bench.certified import as_json, extractions, failures, fakes, form, measure
    from stcon.commands.generate import load

    model, long = load(model_name, device), 1600
    with Progress() as progress:
        runs = []
        for fake in fakes(model.vocabulary):
            runs += measure(fake, [form()], max_tokens=long, is_exact=True, progress=progress)
        if not fake_only:
            runs += measure(model, extractions(), max_tokens=max_tokens, progress=progress)
            runs += measure(model, [form()], max_tokens=long, progress=progress)
    red = failures(runs)
    _print(runs, timed=not red)
    for run in runs:
        if run.parted is not None:
            place = run.parted
            click.echo(f"{run.job}: parts after {place.position} tokens, logits {place.logits}, gap {place.gap}")
    about = {"model": model.name, "max_tokens": max_tokens} | environment()
    for key, value in about.items():
        click.echo(f"{key}: {value}")
    write_json(json_file, as_json(runs, about))
    for line in red:
        click.echo(f"stcon: {line}", err=True)
    return 1 if red else 0


def _print(runs: Sequence[Run], *, timed: bool) -> None:
    """The table, with a line for all outputs of a model where there are several."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(_TITLES):
        table.add_column(title, justify="left" if number < 2 else "right")
    for name, group in groupby(runs, lambda run: (run.model, run.job.startswith("form"))):
        same = list(group)
        for run in same:
            table.add_row(run.model, run.job, *_cells([run], timed))
        if len(same) > 1:
            table.add_row(name[0], f"all {len(same)}", *_cells(same, timed), style="bold")
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _cells(runs: Sequence[Run], timed: bool) -> tuple[str, ...]:
    from stcon.bench.certified import fewer

    drafted, agreed = (sum(run.first_round[i] for run in runs) for i in range(2))
    passes = sum(run.passes for run in runs)
    return (
        str(sum(run.fields for run in runs)),
        str(sum(run.tokens for run in runs)),
        str(sum(run.sequential_passes for run in runs)),
        str(passes),
        f"{fewer(runs):.2f}×",
        str(max(run.num_rounds for run in runs)),
        f"{agreed}/{drafted}",
        f"{sum(run.row_passes for run in runs) / passes:.1f}",
        f"{sum(run.sequential_s for run in runs):.2f}" if timed else "-",
        f"{sum(run.certified_s for run in runs):.2f}" if timed else "-",
        f"{sum(run.parted is None for run in runs)}/{len(runs)}",
    )
