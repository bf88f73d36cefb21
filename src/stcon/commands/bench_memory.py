"""`stcon bench memory`: what a grammar costs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table

if TYPE_CHECKING:
    from stcon.bench.memory import Engine

QUICK = ("person", "96 fields", "solar (recursive)")


@click.command()
@click.option(
    "--tokenizer",
    type=click.Choice(["qwen3.5", "smollm2"]),
    default="qwen3.5",
    show_default=True,
    help="248,077 tokens, or the default model's 49,152.",
)
@click.option("--quick", is_flag=True, help=f"Only {', '.join(QUICK)}, without the sixteen in one process.")
@json_option
def memory(*, tokenizer: str, quick: bool, json_file: str | None) -> int:
    """Memory, compile time and mask time by grammar, beside a table of tokens and llguidance.

    Exit code 1 if stcon rejects a valid document.
    """
    from stcon.bench.masks_engines import Settings, load_vocabulary
    from stcon.bench.memory import as_json, drive, failures, grammars, serve, weigh

    settings = Settings(tokenizer, "schema")
    engines: tuple[Engine, ...] = ("stcon", "llguidance") if find_spec("llguidance") else ("stcon",)
    chosen = {name: schema for name, schema in grammars().items() if not quick or name in QUICK}
    vocabulary = load_vocabulary(tokenizer)
    with Progress() as progress:
        footprints = weigh(chosen, vocabulary)
        driven = drive(chosen, settings, engines, progress)
        if not quick:
            driven += serve(settings, engines, progress)
    red = failures(driven)
    print_table(
        ("grammar", "states", "machine\nkB", "token\ntable MB", "rows of a\ndocument", "their\nMB"),
        [
            (
                row.grammar,
                f"{row.states:,}",
                f"{row.machine_bytes / 1e3:.0f}",
                f"{row.token_table_bytes / 1e6:.0f}",
                f"{row.rows} of {row.tokens}",
                f"{row.row_bytes / 1e6:.2f}",
            )
            for row in footprints
        ],
    )
    click.echo(f"shared by all: packed vocabulary, {vocabulary.packed_nbytes / 1e6:.2f} MB")
    click.echo()
    print_table(
        ("grammar", "engine", "compile\nms", "first\nmask ms", "mask µs\n(median)", "process\ngrew MB"),
        [
            (row.grammar, row.engine, *(("-",) * 3), row.refused[:20])
            if row.refused
            else (
                row.grammar,
                row.engine,
                f"{row.compile_ms:.2f}",
                f"{row.first_mask_ms:.2f}",
                f"{row.mask_us:.1f}",
                "-" if row.grown_bytes is None else f"{row.grown_bytes / 1e6:.1f}",
            )
            for row in driven
        ],
        left=2,
    )
    return finish(as_json(footprints, driven, vocabulary, {"tokenizer": tokenizer}), red, json_file, {})
