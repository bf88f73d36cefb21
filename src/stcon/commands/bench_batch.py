"""`stcon bench throughput`, `jobs` and `turns`: many streams at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table

if TYPE_CHECKING:
    from stcon.models.base import Model

QUICK_JOBS = 2

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
    print_table((*titles, "forced", "as\ndrip"), rows, left=3)
    about = {"model": model.name, "max_tokens": 32 if quick else max_tokens}
    return finish(as_json(runs, about), red, json_file, about)


@click.command()
@_MODEL
@click.option("--slots", type=click.IntRange(min=1), default=8, show_default=True, metavar="N")
@click.option("--max-tokens", type=click.IntRange(min=17), default=200, show_default=True, metavar="N")
@click.option("--quick", is_flag=True, help=f"Only {QUICK_JOBS} of the jobs.")
@json_option
def jobs(*, model_name: str | None, slots: int, max_tokens: int, quick: bool, json_file: str | None) -> int:
    """Eighteen extractions: the schema in the prompt, or its keys; against transformers with llguidance.

    Exit code 1 if an output of ours is not valid; then no time is shown.
    """
    from stcon.bench.jobs import as_json, failures, measure
    from stcon.commands.generate import load

    model = load(model_name)
    with Progress() as progress:
        runs = measure(
            model,
            _of_transformers(model, model_name),
            slots=slots,
            max_tokens=max_tokens,
            count=QUICK_JOBS if quick else None,
            progress=progress,
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
    print_table(("engine", "prompt", "prompt\ntokens", "tokens", "forced", "s", "CPU s", "valid"), rows, left=2)
    about = {"model": model.name, "slots": slots, "max_tokens": max_tokens}
    return finish(as_json(runs, about), red, json_file, about)


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
    print_table(("grammar", "states", "compile\ns", "first\ns", "longest\nfirst s", "MB above\nmodel", "valid"), rows)
    about = {"model": model.name}
    return finish(as_json(served, about), red, json_file, about)


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
