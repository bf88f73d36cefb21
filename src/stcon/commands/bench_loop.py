"""`stcon bench loop`: stcon and llguidance in one loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table
from stcon.errors import RequestError

if TYPE_CHECKING:
    from stcon.bench.loop import Row, Set

QUICK_LIMIT = 80


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option(
    "--weights",
    type=click.Choice(["auto", "int4"]),
    default="auto",
    show_default=True,
    help="int4: four bits a weight.",
)
@click.option("--device", default="auto", show_default=True, metavar="D", help="auto, cpu, cuda …")
@click.option("--set", "kind", type=click.Choice(["regular", "recursive", "both"]), default="both", show_default=True)
@click.option("--engines", metavar="LIST", help="Which engines, by commas.  [default: all that are installed]")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, metavar="N")
@click.option("--quick", is_flag=True, help=f"One round of three tasks, {QUICK_LIMIT} tokens an output at most.")
@json_option
def loop(
    *,
    model_name: str | None,
    weights: str,
    device: str,
    kind: str,
    engines: str | None,
    rounds: int,
    quick: bool,
    json_file: str | None,
) -> int:
    """Free text, llguidance and stcon in one loop: passes, forced tokens, time, valid answers, facts.

    Exit code 1 if an answer that ended is not valid or changes between rounds; then no time is shown.
    """
    from stcon.bench.loop import LIMITS, QUICK, as_json, failures, jobs, measure, summarize
    from stcon.commands.generate import load

    chosen = _engines(engines)
    kinds: tuple[Set, ...] = ("regular", "recursive") if kind == "both" else (kind,)  # type: ignore[assignment]
    rounds = 1 if quick else rounds
    limits = {name: min(limit, QUICK_LIMIT) if quick else limit for name, limit in LIMITS.items()}
    model = load(model_name, device, weights)
    with Progress() as progress:
        runs = measure(
            model,
            [job for job in jobs(kinds) if not quick or job.name in QUICK],
            engines=chosen,
            rounds=rounds,
            limits=limits,
            progress=progress,
        )
    red, rows = failures(runs), summarize(runs)
    for name in kinds:
        click.echo(f"{name}: at most {limits[name]} tokens an output")
        print_table(_TITLES, [_cells(row, timed=not red) for row in rows if row.kind == name])
    about = {"model": model.name, "weights": weights, "device": device, "rounds": rounds, "limits": limits}
    return finish(as_json(runs, rows, about), red, json_file, about)


_TITLES = ("engine", "tok/s", "passes\n/tok", "forced", "tokens", "passes", "decode\ns", "valid", "facts")


def _cells(row: Row, *, timed: bool) -> tuple[str, ...]:
    return (
        row.engine,
        f"{row.rate:.0f}" if timed else "-",
        f"{row.passes_per_token:.2f}",
        f"{row.forced_share:.0%}",
        str(row.tokens),
        str(row.passes),
        f"{row.decode_s:.2f}" if timed else "-",
        f"{row.valid}/{row.outputs}",
        str(row.facts) if row.kind == "regular" else "-",
    )


def _engines(text: str | None) -> tuple[str, ...]:
    from importlib.util import find_spec

    from stcon.bench.loop import ENGINES

    has_peer = find_spec("llguidance") is not None
    if text is None:
        if not has_peer:
            click.echo("stcon: llguidance is not installed (pip install 'stcon[bench]'); it is left out", err=True)
        return tuple(name for name in ENGINES if has_peer or not name.startswith("llguidance"))
    names = {part.strip() for part in text.split(",") if part.strip()}
    chosen = tuple(name for name in ENGINES if name in names)
    if not chosen or len(chosen) < len(names):
        raise click.BadParameter(f"a list of {', '.join(ENGINES)}; got {text!r}", param_hint="--engines")
    if not has_peer and any(name.startswith("llguidance") for name in chosen):
        raise RequestError("llguidance is not installed; pip install 'stcon[bench]', or leave it out of --engines")
    return chosen
