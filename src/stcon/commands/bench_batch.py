"""`stcon bench throughput`, `jobs` and `turns`: many streams at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress

if TYPE_CHECKING:
    from stcon.models.base import Model

_MODEL = click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)


@click.command()
@_MODEL
@click.option("--streams", metavar="LIST", help="How many at once, by commas.  [default: 1,2,4,8,16,32,64,128]")
@click.option("--max-tokens", type=click.IntRange(min=1), default=96, show_default=True, metavar="N")
@click.option("--quick", is_flag=True, help="1, 4 and 8 streams of 32 tokens.")
@json_option
def throughput(
    *, model_name: str | None, streams: str | None, max_tokens: int, quick: bool, json_file: str | None
) -> int:
    """Tokens a second by number of streams: free, and constrained (nine constraints in turn), dripped and ragged.

    Exit code 1 if a constrained output is not valid; then no time is shown.
    """
    from stcon.bench.throughput import QUICK_STREAMS, STREAMS, as_json, failures, measure
    from stcon.commands.generate import load

    numbers = _numbers(streams) if streams else QUICK_STREAMS if quick else STREAMS
    model = load(model_name)
    with Progress() as progress:
        runs = measure(model, streams=numbers, max_tokens=32 if quick else max_tokens, progress=progress)
    red = failures(runs)
    titles = ("streams", "kind", "feeding", "tok/s", "writing\ntok/s", "steps", "ms a\nstep", "masks,\ndraws")
    rows = [
        (
            str(run.streams),
            {"free": "free", "constrained": "mixed"}[run.kind],
            run.feeding if run.kind == "constrained" else "-",
            "-" if red else f"{run.rate:.1f}",
            "-" if red else f"{run.writing_rate:.1f}",
            str(run.steps),
            "-" if red else f"{run.step_ms:.0f}",
            "-" if red else f"{run.host_share:.1%}",
            f"{run.forced_share:.0%}",
            f"{run.same}/{run.streams}" if run.feeding == "ragged" and run.kind == "constrained" else "",
        )
        for run in runs
    ]
    _print((*titles, "forced", "as\ndrip"), rows, left=3)
    about = {"model": model.name, "max_tokens": 32 if quick else max_tokens}
    return _end(as_json(runs, {**about, **environment(), "failures": red}), red, json_file, about)


@click.command()
@_MODEL
@click.option("--slots", type=click.IntRange(min=1), default=8, show_default=True, metavar="N")
@click.option("--max-tokens", type=click.IntRange(min=17), default=200, show_default=True, metavar="N")
@json_option
def jobs(*, model_name: str | None, slots: int, max_tokens: int, json_file: str | None) -> int:
    """Eighteen extractions: the schema in the prompt, or its keys; against transformers with llguidance.

    Exit code 1 if an output of ours is not valid; then no time is shown.
    """
    from stcon.bench.jobs import as_json, failures, measure
    from stcon.commands.generate import load

    model = load(model_name)
    with Progress() as progress:
        runs = measure(
            model, _of_transformers(model, model_name), slots=slots, max_tokens=max_tokens, progress=progress
        )
    red = failures(runs)
    rows = [
        (
            run.engine,
            run.prompt,
            str(run.prompt_tokens),
            str(run.tokens),
            f"{run.forced / max(run.tokens, 1):.0%}",
            "-" if red else f"{run.seconds:.2f}",
            "-" if red else f"{run.cpu_s:.2f}",
            f"{run.valid}/{run.jobs}",
        )
        for run in runs
    ]
    _print(("engine", "prompt", "prompt\ntokens", "tokens", "forced", "s", "CPU s", "valid"), rows, left=2)
    about = {"model": model.name, "slots": slots, "max_tokens": max_tokens}
    return _end(as_json(runs, {**about, **environment(), "failures": red}), red, json_file, about)


@click.command()
@_MODEL
@click.option("--quick", is_flag=True, help="Forms of 8 and 12 fields only.")
@json_option
def turns(*, model_name: str | None, quick: bool, json_file: str | None) -> int:
    """Sixteen grammars in turn, four requests each, three at a time: memory above the model, waits for first answers.

    Exit code 1 if an answer is not valid.
    """
    from stcon.bench.turns import FIELDS, REQUESTS, as_json, failures, measure
    from stcon.commands.generate import load

    model = load(model_name)
    with Progress(every_s=30) as progress:
        served = measure(model, fields=FIELDS[:2] if quick else FIELDS, progress=progress)
    red = failures(served)
    rows = [
        (
            one.name,
            str(one.states),
            f"{one.compile_s:.2f}",
            f"{one.first_s:.2f}",
            f"{one.longest_first_s:.2f}",
            f"{one.above_model_bytes / 1e6:.0f}",
            f"{one.valid}/{REQUESTS}",
        )
        for one in served
    ]
    _print(("grammar", "states", "compile\ns", "first\ns", "longest\nfirst s", "MB above\nmodel", "valid"), rows)
    about = {"model": model.name}
    return _end(as_json(served, {**about, **environment(), "failures": red}), red, json_file, about)


def _of_transformers(model: Model, name: str | None) -> Model:
    """The same model as transformers runs it."""
    import stcon

    if type(model).__module__ == "stcon.models.transformers":
        return model
    return stcon.load_model(name or "default", runner="transformers")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"a list of numbers from 1; got {text!r}", param_hint="--streams")
    return numbers


def _print(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """A table of at most 80 columns; the first `left` columns are text."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=80 if not sys.stdout.isatty() else None).print(table)


def _end(result: dict[str, Any], red: Sequence[str], json_file: str | None, about: dict[str, Any]) -> int:
    """Say what ran where, write the file, name failures."""
    for key, value in {**about, **environment()}.items():
        click.echo(f"{key}: {value}")
    write_json(json_file, result)
    for line in red:
        click.echo(f"stcon: {line}", err=True)
    return 1 if red else 0
