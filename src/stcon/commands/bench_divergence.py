"""`stcon bench divergence`: where two engines part, and what float32 prefers there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table

if TYPE_CHECKING:
    from stcon.bench.divergence import Compared, Fidelity
    from stcon.models.base import Model
    from stcon.vocab.vocabulary import Vocabulary

DEFAULT = ("auto:auto", "auto:auto:batch", "auto:auto:parallel", "transformers:float32", "auto:bfloat16")


@click.command()
@click.argument("engines", nargs=-1, metavar="[ENGINE]…")
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--device", default="auto", show_default=True, help="auto (a GPU if there is one), cpu, cuda, cuda:1 …")
@click.option("--max-tokens", type=click.IntRange(min=1), default=160, show_default=True, metavar="N")
@click.option("--positions", type=click.IntRange(min=1), default=96, show_default=True, metavar="N", help="A text's.")
@click.option("--quick", is_flag=True, help="Two of the six extractions, 32 tokens each.")
@json_option
def divergence(
    *,
    engines: tuple[str, ...],
    model_name: str | None,
    device: str,
    max_tokens: int,
    positions: int,
    quick: bool,
    json_file: str | None,
) -> int:
    """The first ENGINE beside each other one: where greedy outputs part, with the gap of the two logits in float32.

    An ENGINE is RUNNER:DTYPE[:WAY]; runners and dtypes are those of stcon.load_model (auto, lean, transformers; auto,
    float32, bfloat16, float16), ways are stream, batch (eight rows) and parallel (certified fields). Then the
    distributions of each kind of numbers beside float32's.

    Exit code 1 if a gap is too large for rounding.
    """
    import stcon
    from stcon.bench import divergence as bench

    def load(runner: str, dtype: str) -> Model:
        return stcon.load_model(model_name or "default", device=device, runner=runner, dtype=dtype)

    given = [bench.Engine.parse(text) for text in engines or DEFAULT]
    models, most = bench.Models(load), 2 if quick else None
    max_tokens, positions = (32, 32) if quick else (max_tokens, positions)
    with Progress() as progress:
        tasks = bench.tasks(models.exact, most=most)
        compared = list(bench.compare(given, models, tasks, max_tokens, progress))
        texts = bench.texts(models.exact, most=most, positions=positions)
        kinds = dict.fromkeys((engine.runner, engine.dtype) for engine in given)
        logits = [bench.fidelity(*kind, models, texts, positions) for kind in kinds]
    _print(compared, logits, models.exact.vocabulary)
    about = {"model": models.exact.name, "device": device, "max_tokens": max_tokens, "positions": positions}
    red = [line for one in compared for line in one.failures]
    return finish(bench.as_json(compared, logits, about), red, json_file, about)


def _print(compared: list[Compared], logits: list[Fidelity], vocabulary: Vocabulary) -> None:
    """Both tables, and every divergence."""
    for reference in dict.fromkeys(one.reference for one in compared):
        click.echo(f"beside {reference}:")
    print_table(
        ("engine", "outputs", "part", "median\ngap", "max gap", "float32:\nthe first", "the other"),
        [
            (
                one.engine,
                str(one.ties.compared),
                str(one.ties.divergent),
                _number(one.ties.median_gap),
                _number(one.ties.max_gap),
                str(one.ties.prefers_first),
                str(one.ties.prefers_second),
            )
            for one in compared
        ],
        left=1,
    )
    for one in compared:
        for name, place in one.places.items():
            if place is not None:
                first, second = (_token(vocabulary, token) for token in (place.first, place.second))
                one_logit, other = (_number(logit) for logit in place.logits or (None, None))
                said = f"{first} ({one_logit}) or {second} ({other})"
                click.echo(f"{one.engine}, {name}: after {place.position} tokens {said}, gap {_number(place.gap)}")
    print_table(
        ("numbers", "positions", "same\ntop token", "mean KL", "p99 KL", "max KL", "max\n|Δlogit|"),
        [
            (
                f"{one.runner}:{one.dtype}",
                str(one.positions),
                f"{one.top1:.4f}",
                f"{one.mean_kl:.1e}",
                f"{one.p99_kl:.1e}",
                f"{one.max_kl:.1e}",
                f"{one.max_difference:.2g}",
            )
            for one in logits
        ],
        left=1,
    )
    sys.stdout.flush()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _token(vocabulary: Vocabulary, token: int | None) -> str:
    return "the end" if token is None else repr((vocabulary.token_bytes(token) or b"").decode("utf-8", "replace"))
