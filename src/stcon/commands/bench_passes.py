"""`stcon bench passes`: what a pass costs, in time and memory."""

from __future__ import annotations

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--device", default="cpu", show_default=True, metavar="D", help="cpu, cuda …")
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True, metavar="N")
@click.option("--quick", is_flag=True, help="Fewer rounds, contexts of 1,024 tokens at most, short prompts.")
@json_option
def passes(*, model_name: str | None, device: str, rounds: int, quick: bool, json_file: str | None) -> int:
    """A pass by the tokens it is fed and by the context behind it; peak memory by streams and by prompt chunk.

    Exit code 1 if a pass over several tokens does not give what one pass a token gives.
    """
    import stcon
    from stcon.bench.passes import (
        CHUNKS,
        CONTEXTS,
        PROMPT,
        REGIMES,
        WIDTHS,
        as_json,
        failures,
        measure_peaks,
        time_passes,
    )

    model = stcon.load_model(model_name or "default", device=device)
    red = failures(model)
    with Progress() as progress:
        by_width, by_context = time_passes(
            model,
            widths=WIDTHS[:-1] if quick else WIDTHS,
            contexts=[c for c in CONTEXTS if c <= 1024] if quick else CONTEXTS,
            rounds=3 if quick else rounds,
            progress=progress,
        )
        peaks = measure_peaks(
            model,
            regimes=((1, 32), (8, 32)) if quick else REGIMES,
            chunks=(256, 128) if quick else CHUNKS,
            prompt=400 if quick else PROMPT,
            batches=(1, 2) if quick else (1, 8),
            progress=progress,
        )
    titles = ("tokens\nin a pass", "context", "ms", "relative")
    print_table(
        titles,
        [(str(p.tokens), str(p.context), f"{p.ms:.2f}", f"{p.relative:.2f}") for p in (*by_width, *by_context)],
        left=0,
    )
    click.echo()
    print_table(
        ("memory above the model", "streams", "tokens", "chunk", "MB", "tok/s"),
        [
            (
                peak.what,
                str(peak.rows),
                str(peak.tokens),
                "-" if peak.chunk is None else str(peak.chunk),
                "-" if peak.above_bytes is None else f"{peak.above_bytes / 1e6:.0f}",
                f"{peak.rate:.0f}",
            )
            for peak in peaks
        ],
    )
    about = {"model": model.name, "device": device, "rounds": 3 if quick else rounds}
    return finish(as_json(by_width, by_context, peaks, about), red, json_file, about)
