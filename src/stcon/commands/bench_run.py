"""`stcon bench list`, `run` and `report`: the paper's tables as commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stcon.commands.tables import print_table

if TYPE_CHECKING:
    from stcon.bench.catalogue import Entry, Item

DEFAULT_FOLDER = "bench-results"


@click.command("list")
def list_() -> int:
    """Every table and figure of the paper's measurements, and the command that makes it here."""
    from stcon.bench.catalogue import ENTRIES, ITEMS

    print_table(
        ("paper", "what it shows", "entries", "status"),
        [(item.number, item.title, ", ".join(item.entries) or "-", _status(item)) for item in ITEMS],
        left=4,
    )
    click.echo()
    print_table(
        ("entry", "command", "measures"),
        [(one.name, f"stcon {' '.join(one.argv)}", one.summary) for one in ENTRIES],
        left=3,
    )
    click.echo()
    click.echo("The paper's own settings, where they can be had:")
    for item in ITEMS:
        if item.note or item.elsewhere:
            click.echo(f"  {item.number}: {'; '.join(part for part in (item.note, item.elsewhere) if part)}")
    return 0


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME... | all")
@click.option("--quick", is_flag=True, help="Minutes in all, for a look; no figures to publish.")
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--device", metavar="D", help="For the entries that can run on another device.")
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    metavar="DIR",
    help="Where the results go.",
)
def run(*, names: tuple[str, ...], quick: bool, model_name: str | None, device: str | None, folder: Path) -> int:
    """Run entries of `stcon bench list`, each in a process of its own.

    Exit code 1 if a check of one is red or one did not finish.
    """
    from stcon.bench import catalogue

    chosen = _entries(names)
    done = catalogue.run(
        [one.name for one in chosen],
        folder,
        quick=quick,
        model=model_name,
        device=device,
        say=lambda line: click.echo(f"\n== {line}"),
    ).entries
    mine = [one for one in done if one.name in {entry.name for entry in chosen}]
    click.echo()
    print_table(
        ("entry", "status", "seconds", "note"),
        [(one.name, one.status, f"{one.seconds:.0f}", one.message[:48]) for one in mine],
        left=2,
    )
    click.echo(f"results: {folder}; the report: stcon bench report {folder}")
    return 1 if any(one.status in {"red", "failed"} for one in mine) else 0


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=DEFAULT_FOLDER)
@click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="[default: DIR/report.html]"
)
@click.option(
    "--markdown",
    "text",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="[default: DIR/report.md]",
)
def report(*, folder: Path, page: Path | None, text: Path | None) -> int:
    """One HTML page and one Markdown file from the results in FOLDER, the paper's figures beside them."""
    from stcon.bench.report.page import build, write

    page, text = page or folder / "report.html", text or folder / "report.md"
    write(build(folder), page, text)
    click.echo(f"{page}\n{text}")
    return 0


def _entries(names: tuple[str, ...]) -> list[Entry]:
    from stcon.bench.catalogue import ENTRIES

    known = {one.name: one for one in ENTRIES}
    if names == ("all",):
        return list(ENTRIES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of: all, {', '.join(known)}", param_hint="NAME")
    return [known[name] for name in dict.fromkeys(names)]


def _status(item: Item) -> str:
    from stcon.bench.catalogue import entry

    if not item.entries:
        return "not here"
    missing = sorted({package for name in item.entries for package in entry(name).missing})
    return f"needs {', '.join(missing)}" if missing else "runs"
