"""`stcon bench …`: measurements. Each prints a table and writes everything with ``--json``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stcon.bench.extract import MODES, as_json, failures, measure, summarize
from stcon.commands.bench_batch import jobs, throughput, turns
from stcon.commands.bench_budget import budget
from stcon.commands.bench_calls import calls
from stcon.commands.bench_certified import certified
from stcon.commands.bench_coding import coding
from stcon.commands.bench_divergence import divergence
from stcon.commands.bench_grammars import grammars
from stcon.commands.bench_levels import levels
from stcon.commands.bench_loop import loop
from stcon.commands.bench_masks import masks
from stcon.commands.bench_memory import memory
from stcon.commands.bench_negative import negative
from stcon.commands.bench_passes import passes
from stcon.commands.bench_run import list_, report, run
from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress

if TYPE_CHECKING:
    from stcon.bench.extract import Run, Summary
    from stcon.engine.control import Mode


@click.group()
def bench() -> None:
    """Measure: correctness first, then time; the machine, the versions and the model are named."""


@bench.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--modes", default=",".join(MODES), show_default=True, metavar="LIST", help="Which modes, by commas.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, metavar="N")
@click.option("--max-tokens", type=click.IntRange(min=1), default=320, show_default=True, metavar="N")
@click.option(
    "--whitespace", type=click.Choice(["compact", "json", "pretty", "flexible"]), default="compact", show_default=True
)
@click.option("--show-text", is_flag=True, help="Also print every output.")
@json_option
def extract(
    *,
    model_name: str | None,
    modes: str,
    rounds: int,
    max_tokens: int,
    whitespace: str,
    show_text: bool,
    json_file: str | None,
) -> int:
    """The six extractions, in each mode: passes, forced share, time, valid outputs, facts, agreement.

    Exit code 1 if a constrained output is not valid or changes between rounds; then no time is shown.
    """
    from stcon.commands.generate import load

    chosen = _modes(modes)
    model = load(model_name)
    with Progress() as progress:
        runs = measure(
            model, modes=chosen, rounds=rounds, max_tokens=max_tokens, whitespace=whitespace, progress=progress
        )
    red, rows = failures(runs), summarize(runs)
    about = {"model": model.name, "rounds": rounds, "max_tokens": max_tokens, "whitespace": whitespace}
    if show_text:
        for run in runs:
            click.echo(f"{run.workload:<15}{run.mode:<11}{run.text}")
    _print_table(rows, runs, timed=not red)
    for key, value in (about | environment()).items():
        click.echo(f"{key}: {value}")
    write_json(json_file, as_json(runs, rows, {**about, **environment(), "failures": red}))
    for line in red:
        click.echo(f"stcon: {line}", err=True)
    return 1 if red else 0


def _modes(text: str) -> tuple[Mode, ...]:
    names = {part.strip() for part in text.split(",") if part.strip()}
    chosen = tuple(mode for mode in MODES if mode in names)
    if not chosen or len(chosen) < len(names):
        raise click.BadParameter(f"a list of {', '.join(MODES)}; got {text!r}", param_hint="--modes")
    return chosen


def _print_table(rows: Sequence[Summary], runs: Sequence[Run], *, timed: bool) -> None:
    """One row a mode, at most 80 columns."""
    from rich.console import Console
    from rich.table import Table

    facts_total = _facts_total(runs)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("mode", "tokens", "passes\n/token", "forced", "decode\ns", "valid", "facts", "as free"):
        table.add_column(title, justify="left" if title == "mode" else "right")
    for row in rows:
        outputs = sum(run.mode == row.mode for run in runs)
        table.add_row(
            row.mode,
            str(row.tokens),
            f"{row.passes_per_token:.2f}",
            f"{row.forced_share:.0%}",
            f"{row.decode_s:.2f}" if timed else "-",
            f"{row.valid}/{outputs}",
            f"{row.facts}/{facts_total}",
            f"{row.agreeing}/{row.compared}" if row.compared else "-",
        )
    Console(width=80 if not sys.stdout.isatty() else None).print(table)


def _facts_total(runs: Sequence[Run]) -> int:
    from stcon.bench.workloads import load

    return sum(len(load(name).gold) for name in {run.workload for run in runs})


for _command in (budget, masks, throughput, jobs, turns):
    bench.add_command(_command)
bench.add_command(grammars)
bench.add_command(calls)
bench.add_command(certified)
bench.add_command(divergence)
bench.add_command(negative)
bench.add_command(loop)
bench.add_command(memory)
bench.add_command(passes)
bench.add_command(levels)
for _command in (coding, list_, run, report):
    bench.add_command(_command)
