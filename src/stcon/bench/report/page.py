"""The report: a page that opens without a network, and the same as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.bench.catalogue import ENTRIES, ITEMS, Item, Manifest, read
from stcon.bench.report.tables import Table, markdown, tables_of
from stcon.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIGURE_4 = "person"


@dataclass(frozen=True)
class Section:
    """One entry: what ran, what came out, what the paper has.

    Attributes:
        items: the paper's tables and figures that it stands beside.
        about: machine, model and versions, as one line.
        red: checks that failed; then the tables show no times.
        tokens: an output token by token (text, kind), for the loop's; else empty.
        plots: caption and SVG.
    """

    name: str
    summary: str
    command: str
    items: tuple[Item, ...]
    about: str
    red: tuple[str, ...]
    tables: tuple[Table, ...]
    paper: tuple[Table, ...]
    plots: tuple[tuple[str, str], ...]
    tokens: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything on the page.

    Attributes:
        missing: the paper's items without a result here, with the reason.
    """

    manifest: Manifest | None
    headline: tuple[Table, ...]
    sections: tuple[Section, ...]
    missing: tuple[tuple[Item, str], ...]


def build(folder: Path) -> Report:
    """The report of a folder that ``stcon bench run`` wrote.

    Raises:
        RequestError: there is no result in it, or one is no result.
    """
    try:
        manifest, results = read(folder)
        sections = tuple(_sections(results))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{folder}: not what `stcon bench run` writes ({error}); run it again") from error
    if not sections:
        raise RequestError(f"{folder} holds no result; run: stcon bench run all --out {folder}")
    missing = tuple((item, _why(item, manifest)) for item in ITEMS if not set(item.entries) & set(results))
    return Report(manifest, tuple(_headline(results)), sections, missing)


def html(report: Report) -> str:
    """The page: styles, plots and all in one file."""
    from jinja2 import Environment

    template = resources.files("stcon.bench.report").joinpath("page.html.j2").read_text("utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(report=report, entries=ENTRIES)


def as_markdown(report: Report) -> str:
    """The tables alone."""
    lines = ["# Measurements", ""]
    if report.manifest:
        lines += [f"{report.manifest.date}; {_machine(report.manifest.environment)}{_quick(report.manifest)}", ""]
    for table in report.headline:
        lines += [markdown(table)]
    for section in report.sections:
        numbers = ", ".join(item.number for item in section.items)
        lines += [
            f"## {section.name}: {section.summary}",
            "",
            f"`{section.command}` ({numbers})",
            "",
            section.about,
            "",
        ]
        lines += [f"- red: {line}" for line in section.red]
        lines += [markdown(table) for table in section.tables]
        lines += [f"The paper's {markdown(table)}" for table in section.paper]
    if report.missing:
        lines += ["## Not here", ""]
        lines += [f"- {item.number}, {item.title}: {why}" for item, why in report.missing]
    return "\n".join(lines) + "\n"


def paper_tables() -> dict[str, Table]:
    """The paper's own figures by number, as printed there."""
    data = json.loads(resources.files("stcon.bench.report").joinpath("paper.json").read_text("utf-8"))
    return {
        number: Table(f"{number}. {one['title']}", tuple(one["columns"]), tuple(map(tuple, one["rows"])))
        for number, one in data.items()
    }


def _sections(results: Mapping[str, Mapping[str, Any]]) -> Iterator[Section]:
    from stcon.bench.report.plots import plots_of

    paper = paper_tables()
    for entry in ENTRIES:
        result = results.get(entry.name)
        if result is None:
            continue
        items = tuple(item for item in ITEMS if entry.name in item.entries and item.number != "Table 1")
        yield Section(
            name=entry.name,
            summary=entry.summary,
            command=f"stcon {' '.join(entry.argv)}",
            items=items,
            about=_machine(result),
            red=tuple(map(str, result.get("failures", ()))),
            tables=tuple(tables_of(entry.name, result)),
            paper=tuple(paper[item.number] for item in items if item.number in paper),
            plots=tuple(plots_of(entry.name, result)),
            tokens=_tokens(result) if entry.name == "loop" else (),
        )


def _tokens(result: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The person record by our canonical policy, token by token: Figure 4."""
    runs = [run for run in result["runs"] if (run["job"], run["engine"]) == (_FIGURE_4, "stcon canonical")]
    return tuple((str(text), str(kind)) for text, kind in runs[0]["pieces"] if text) if runs else ()


def _headline(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """The first lines of the paper's Table 1 that the results give."""
    rows: list[tuple[str, str, str]] = []
    loop = results.get("loop")
    if loop and not loop.get("failures"):
        speed = {row["engine"]: row for row in loop["rows"] if row["kind"] == "regular"}
        peers = [row for name, row in speed.items() if name.startswith("llguidance")]
        if peers and "stcon canonical" in speed:
            best, ours = min(peers, key=lambda row: row["decode_s"]), speed["stcon canonical"]
            rows.append(("extractions, decode time", f"{best['decode_s']:.2f} s", f"{ours['decode_s']:.2f} s"))
            rows.append(("extractions, model runs", str(best["passes"]), str(ours["passes"])))
    for row in (results.get("memory") or {}).get("grammars", ()):
        if row["grammar"] in {"typed tools", "96 fields"}:
            table, machine = row["token_table_bytes"] / 1e6, row["machine_bytes"] / 1e6
            rows.append((f"memory of {row['grammar']}", f"token table: {table:,.0f} MB", f"{machine:.2f} MB"))
    jobs = results.get("jobs")
    if jobs and not jobs.get("failures"):
        peers = [run for run in jobs["runs"] if not run["engine"].startswith("stcon")]
        ours_jobs = [run for run in jobs["runs"] if run["engine"].startswith("stcon")]
        if peers and ours_jobs:
            best_peer = min(run["seconds"] for run in peers)
            best_ours = min(run["seconds"] for run in ours_jobs)
            rows.append(("eighteen jobs, eight slots", f"{best_peer:.1f} s", f"{best_ours:.1f} s"))
    return [Table("In short", ("setting", "peer", "stcon"), tuple(rows))] if rows else []


def _why(item: Item, manifest: Manifest | None) -> str:
    done = {one.name: one for one in manifest.entries} if manifest else {}
    for name in item.entries:
        if name in done and done[name].status != "ok":
            return f"{name}: {done[name].status}: {done[name].message}"
    return item.note or f"not run: stcon bench run {' '.join(item.entries)}"


def _machine(result: Mapping[str, Any]) -> str:
    names = ("model", "machine", "device", "python", "stcon", "torch", "transformers", "numba")
    return ", ".join(f"{name} {result[name]}" for name in names if result.get(name))


def _quick(manifest: Manifest) -> str:
    return "; quick: a look, no figures to publish" if manifest.quick else ""


def write(report: Report, page: Path, text: Path) -> None:
    """Write both files."""
    page.write_text(html(report), "utf-8")
    text.write_text(as_markdown(report), "utf-8")
