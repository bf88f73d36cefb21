"""`stcon bench masks`: this engine beside its peers on a corpus of schemas."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress

if TYPE_CHECKING:
    from stcon.bench.masks_engines import Settings

MAX_FAILURES_SHOWN = 20
PROGRESS_EVERY_S = 30.0


@click.command()
@click.option("--data", "data_file", required=True, type=click.Path(), metavar="FILE", help="JSON lines, maybe gzip.")
@click.option("--engines", default="stcon,llguidance", show_default=True, metavar="LIST", help="Which, by commas.")
@click.option(
    "--tokenizer",
    type=click.Choice(["qwen3.5", "smollm2", "bytes"]),
    default="qwen3.5",
    show_default=True,
    help="248,077 tokens; the default model's 49,152; or the 256 bytes.",
)
@click.option(
    "--key-order",
    type=click.Choice(["schema", "any"]),
    default="any",
    show_default=True,
    help="Of stcon: the order of declared keys.",
)
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, metavar="K", help="Every K-th case.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N cases.")
@click.option("--suite", is_flag=True, help="FILE is the official suite: its format… groups annotate, do not assert.")
@click.option(
    "--documents", "documents_file", type=click.Path(), metavar="FILE", help="URI → document, for references."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds of one engine on one case.",
)
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=8.0,
    show_default=True,
    metavar="GIB",
    help="Resident memory of one engine's process.",
)
@json_option
def masks(
    *,
    data_file: str,
    engines: str,
    tokenizer: str,
    key_order: str,
    every: int,
    limit: int | None,
    suite: bool,
    documents_file: str | None,
    time_limit: float,
    memory_limit: float,
    json_file: str | None,
) -> int:
    """Schemas with valid and invalid instances: what each engine gets right, and how long its masks take.

    FILE holds one object a line: "id", "schema", and either "tests" (objects with "description", "valid", "data") or
    "accept" and "reject" (JSON texts). An instance is fed as the tokens of its JSON text: a token outside the mask
    rejects; after the last one an end token must be allowed. A schema passes if all its instances are judged rightly;
    it is exact if it passes, or has no valid instance and is refused as unsatisfiable.

    Engines: stcon, llguidance, xgrammar, xgrammar_dynamic, outlines_core. Each works in a process of its own; they take
    turns case by case, so that all meet the machine in the same state.

    Exit code 1 if stcon accepts an invalid instance or fails otherwise than by refusing; then no time is shown.
    """
    from stcon.bench.masks import failures, run
    from stcon.bench.masks_corpus import read_cases, read_documents
    from stcon.bench.masks_engines import Settings, versions
    from stcon.bench.masks_report import as_json, print_tables

    names = _names(engines)
    cases = read_cases(data_file, suite=suite, every=every, limit=limit)
    if not cases:
        raise click.BadParameter(f"{data_file} has no case", param_hint="--data")
    settings = Settings(tokenizer, key_order, read_documents(documents_file) if documents_file else {})  # type: ignore[arg-type]
    with Progress(PROGRESS_EVERY_S) as progress:
        measured = run(
            cases, names, settings, limit_s=time_limit, memory_limit=int(memory_limit * 2**30), progress=progress
        )
    red = failures(measured)
    about = _about(settings, data=data_file, every=every, limit=limit, suite=suite, time_limit_s=time_limit)
    about |= environment() | versions(names)
    print_tables(_console(), measured, timed=not red)
    click.echo()
    for key, value in about.items():
        click.echo(f"{key}: {value}")
    for one in measured:
        click.echo(f"{one.engine}: {', '.join(f'{key}={value}' for key, value in one.options.items())}")
    write_json(json_file, as_json(measured, {**about, "failures": red}, timed=not red))
    for line in red[:MAX_FAILURES_SHOWN]:
        click.echo(f"stcon: {line}", err=True)
    if len(red) > MAX_FAILURES_SHOWN:
        click.echo(f"stcon: and {len(red) - MAX_FAILURES_SHOWN} more; --json FILE has them all", err=True)
    return 1 if red else 0


def _names(text: str) -> tuple[str, ...]:
    from stcon.bench.masks_engines import ENGINES

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names or set(names) - set(ENGINES):
        raise click.BadParameter(f"a list of {', '.join(ENGINES)}; got {text!r}", param_hint="--engines")
    return names


def _about(settings: Settings, **options: Any) -> dict[str, Any]:
    return {
        **{name: value for name, value in options.items() if value is not None},
        "documents": len(settings.documents),
        "tokenizer": settings.tokenizer,
        "key_order": settings.key_order,
        "processes": "one an engine, taking turns case by case",
    }


def _console() -> Any:
    from rich.console import Console

    return Console(width=80 if not sys.stdout.isatty() else None)
