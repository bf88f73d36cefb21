"""`stcon bench negative`: what does not help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table

if TYPE_CHECKING:
    from stcon.bench.negative import Apart, Label, Lookup, Siblings


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--device", default="auto", show_default=True, help="auto (a GPU if there is one), cpu, cuda, cuda:1 …")
@click.option("--max-tokens", type=click.IntRange(min=1), default=320, show_default=True, metavar="N")
@click.option("--quick", is_flag=True, help="Two tasks of each kind, six tickets.")
@json_option
def negative(*, model_name: str | None, device: str, max_tokens: int, quick: bool, json_file: str | None) -> int:
    """Siblings and fields written side by side unchecked; labels decided as texts; prompt lookup.

    Exit code 1 if certified decoding with prompt lookup writes other tokens than decoding in turn.
    """
    from stcon.bench import negative as bench
    from stcon.commands.generate import load

    model, most = load(model_name, device), 2 if quick else None
    with Progress() as progress:
        siblings = list(bench.siblings(model, most=most, max_tokens=max_tokens, progress=progress))
        apart = list(bench.apart(model, most=most, max_tokens=max_tokens, progress=progress))
        labels = list(bench.labels(model, most=6 if quick else None, progress=progress))
        lookups = list(bench.lookups(model, most=most, max_tokens=max_tokens, progress=progress))
    _print_siblings(siblings)
    _print_apart(apart)
    _print_labels(labels)
    _print_lookups(lookups)
    about = {"model": model.name, "max_tokens": max_tokens}
    red = [f"{one.task}: prompt lookup changes the output, or a near-tie does" for one in lookups if not one.is_same]
    return finish(bench.as_json(siblings, apart, labels, lookups, about), red, json_file, about)


def _print_siblings(found: list[Siblings]) -> None:
    click.echo("Siblings side by side, without a certificate (Table 35)")
    titles = ("task", "siblings", "as in\nturn", "objects\nin turn", "objects", "passes\nin turn", "passes")
    print_table(
        titles,
        [
            (
                one.task,
                str(one.branches),
                str(one.same),
                str(one.objects_in_turn),
                str(one.objects),
                str(one.passes_in_turn),
                str(one.passes),
            )
            for one in found
            if one.branches
        ],
    )
    if left_out := [one.task for one in found if not one.branches]:
        click.echo(f"no siblings in the output in turn, or it was cut off: {', '.join(left_out)}")
    for one in found:
        if one.example:
            click.echo(f"{one.task}: {one.example[:240]}")


def _print_apart(found: list[Apart]) -> None:
    click.echo("\nFields apart, without a certificate (Table 34)")
    rows = [
        (
            one.task,
            f"{one.same}/{one.leaves}",
            f"{one.facts_in_turn}/{one.facts}",
            f"{one.facts_apart}/{one.facts}",
            str(one.passes_in_turn),
            str(one.passes),
        )
        for one in found
    ]
    print_table(("task", "values as\nin turn", "facts\nin turn", "facts", "passes\nin turn", "passes"), rows)


def _print_labels(found: list[Label]) -> None:
    count = max(1, len(found))
    click.echo("\nLabels among sixteen (Table 34)")
    ways = (
        ("token by token", [one.by_tokens for one in found], [one.passes_by_tokens for one in found]),
        ("as a whole text", [one.by_texts for one in found], [one.passes_by_texts for one in found]),
    )
    rows = [
        (
            name,
            f"{sum(label == one.wanted for label, one in zip(given, found, strict=True))}/{len(found)}",
            f"{sum(passes) / count:.2f}",
            max(given, key=given.count, default=""),
        )
        for name, given, passes in ways
    ]
    print_table(("decided", "as intended", "passes", "most often"), rows)


def _print_lookups(found: list[Lookup]) -> None:
    click.echo("\nPrompt lookup in certified decoding (Table 34)")
    rows = [
        (
            one.task,
            str(one.passes_in_turn),
            str(one.passes),
            str(one.passes_with),
            f"{one.s:.2f}",
            f"{one.s_with:.2f}",
            "yes" if one.is_same else "no",
        )
        for one in found
    ]
    print_table(("task", "passes\nin turn", "without", "with", "s\nwithout", "s\nwith", "same"), rows)
