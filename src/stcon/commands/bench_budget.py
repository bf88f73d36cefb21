"""`stcon bench budget`: outputs under every token limit, with the rule and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress
from stcon.commands.tables import print_table

if TYPE_CHECKING:
    from stcon.bench.budget import Series, Siege

MAX_FAILURES_SHOWN = 20

QUICK = ("event", "tool_call", "solar")


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--adversaries-only", is_flag=True, help="No model; the adversaries use the Qwen3.5 vocabulary.")
@click.option("--step", type=click.IntRange(min=1), default=1, show_default=True, metavar="K", help="Every K-th limit.")
@click.option("--seeds", type=click.IntRange(min=0), default=20, show_default=True, metavar="N", help="Uniform seeds.")
@click.option("--longest", type=click.IntRange(min=1), default=160, show_default=True, metavar="N", help="Full answer.")
@click.option("--plot", "plot_file", type=click.Path(dir_okay=False), metavar="FILE.svg", help="Draw the shares.")
@click.option("--quick", is_flag=True, help=f"Only the tasks {', '.join(QUICK)}, every eighth limit up to 96 tokens.")
@json_option
def budget(
    *,
    model_name: str | None,
    adversaries_only: bool,
    step: int,
    seeds: int,
    longest: int,
    plot_file: str | None,
    quick: bool,
    json_file: str | None,
) -> int:
    """Outputs within every token limit, with the rule and without: six extractions and seven recursive tasks.

    Exit code 1 if an output within a feasible limit is not valid, a limit that none fits is not refused, or an output
    with room has changed.
    """
    from stcon.bench.budget import as_json, besiege, failures, measure
    from stcon.bench.budget_plot import write_plot
    from stcon.bench.workloads.recursive import load_tasks

    tasks = [task for task in load_tasks() if not quick or task.name in QUICK]
    if quick:
        step, longest, seeds = 8, 96, min(seeds, 2)
    series: list[Series] = []
    with Progress() as progress:
        if adversaries_only:
            from stcon.vocab.qwen import qwen35_vocabulary

            vocabulary, name = qwen35_vocabulary(), "the Qwen3.5 vocabulary"
        else:
            from stcon.commands.generate import load

            model = load(model_name)
            vocabulary, name = model.vocabulary, model.name
            series = measure(model, longest=longest, step=step, tasks=tasks, progress=progress)
        sieges = besiege(vocabulary, seeds=seeds, tasks=tasks, progress=progress)
    red = failures(series, sieges)
    if series:
        _print_series(series)
    _print_sieges(sieges)
    about = {"model": name, "step": step, "seeds": seeds, "longest": longest, **environment()}
    for key, value in about.items():
        click.echo(f"{key}: {value}")
    write_json(json_file, as_json(series, sieges, {**about, "failures": red}))
    if plot_file and series:
        write_plot(series, plot_file)
    for line in red[:MAX_FAILURES_SHOWN]:
        click.echo(f"stcon: {line}", err=True)
    return 1 if red else 0


def _print_series(series: Sequence[Series]) -> None:
    """One row a task, and their sums; at most 80 columns."""
    titles = ("task", "need", "full", "valid", "valid\nwithout", "refused", "same", "table\ns", "table\nkB", "rule")
    rows = []
    for row in series:
        same = [attempt.unchanged for attempt in row.attempts if attempt.unchanged is not None]
        rows.append(
            (
                row.task,
                str(row.need),
                str(row.full) if row.ended else f"{row.full}+",
                f"{sum(a.valid for a in row.feasible)}/{len(row.feasible)}",
                str(sum(a.cut_valid for a in row.feasible)),
                f"{sum(a.refused for a in row.infeasible)}/{len(row.infeasible)}",
                f"{sum(same)}/{len(same)}",
                f"{row.build_s:.2f}",
                f"{row.nbytes / 1e3:.0f}",
                "" if row.rule_share is None else f"{row.rule_share:.1%}",
            )
        )
    print_table(titles, rows)


def _print_sieges(sieges: Sequence[Siege]) -> None:
    """One row an adversary."""
    rows = []
    for name in dict.fromkeys(siege.adversary for siege in sieges):
        mine = [siege for siege in sieges if siege.adversary == name]
        valid, runs = sum(siege.valid for siege in mine), sum(siege.runs for siege in mine)
        refused, refusals = sum(siege.refused for siege in mine), sum(siege.refusals for siege in mine)
        rows.append((name, str(len({siege.task for siege in mine})), f"{valid}/{runs}", f"{refused}/{refusals}"))
    print_table(("adversary", "tasks", "valid", "refused"), rows)
