"""The catalogue covers the paper's tables, its commands exist, and results become a page that stands alone."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from stcon.bench import catalogue
from stcon.bench.catalogue import ENTRIES, ITEMS
from stcon.bench.report.page import as_markdown, build, html, paper_tables
from stcon.bench.report.tables import Table, markdown, size, tables_of
from stcon.cli import cli
from stcon.errors import RequestError

pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra bench)")
pytest.importorskip("jinja2", reason="jinja2 is not installed (the extra bench)")

MEASURED = Path(__file__).parents[2] / "docs" / "measurements"
TABLES = [1, *range(4, 14), *range(17, 36)]
FIGURES = [1, 4, *range(7, 14)]


def test_every_table_and_figure_of_the_paper_is_listed_once() -> None:
    """Tables 1, 4–13, 17–35 and Figures 1, 4, 7–13: each runs or says why not."""
    numbers = [item.number for item in ITEMS]
    assert numbers == [f"Table {n}" for n in TABLES] + [f"Figure {n}" for n in FIGURES]
    assert all(item.entries or item.note for item in ITEMS)
    assert {name for item in ITEMS for name in item.entries} <= {one.name for one in ENTRIES}


def test_the_papers_figures_are_whole() -> None:
    """A row has as many cells as its table has columns; every listed table is there."""
    tables = paper_tables()
    assert set(tables) == {f"Table {n}" for n in TABLES}
    assert all(len(row) == len(table.columns) for table in tables.values() for row in table.rows)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_is_a_command_with_the_options_it_is_given(entry: catalogue.Entry) -> None:
    """The command exists and takes what the catalogue adds."""
    command: Any = cli
    words = list(entry.argv)
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    options = {name for parameter in command.params for name in parameter.opts}
    wanted = {"--json"} | {word for word in (*entry.argv, *entry.quick) if word.startswith("--")}
    wanted |= {"--model"} if entry.takes_model else set()
    wanted |= {"--device"} if entry.takes_device else set()
    assert wanted <= options


def test_list_shows_everything() -> None:
    """Within 80 columns."""
    result = CliRunner().invoke(cli, ["bench", "list"])
    assert result.exit_code == 0
    assert all(f"Table {n}" in result.stdout for n in TABLES)


def _script(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Stands in for ``python -m stcon``: gets the same arguments, the last of which is the result's file."""
    script = folder / "stands_in.py"
    script.write_text(f"import sys, json\n{code}\n", "utf-8")
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" "{script}" "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    monkeypatch.setattr(catalogue.sys, "executable", str(wrapper))


def test_a_run_keeps_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ok, red and failed entries are told apart, and a later run keeps the others."""
    code = """
name = sys.argv[2]
json.dump({"model": "m", "failures": []}, open(sys.argv[-1], "w")) if name != "memory" else None
print("stcon: no", file=sys.stderr)
sys.exit({"loop": 0, "levels": 1, "memory": 2}[name])
"""
    _script(monkeypatch, tmp_path, code)
    out = tmp_path / "out"
    manifest = catalogue.run(["loop", "levels", "memory"], out, quick=True, model="m")
    assert [(one.name, one.status) for one in manifest.entries] == [
        ("loop", "ok"),
        ("levels", "red"),
        ("memory", "failed"),
    ]
    assert manifest.entries[2].message == "stcon: no"
    assert manifest.entries[0].command == "stcon bench loop --quick --model m"
    again = catalogue.run(["loop"], out)
    assert {one.name for one in again.entries} == {"loop", "levels", "memory"}
    read, results = catalogue.read(out)
    assert read is not None
    assert set(results) == {"loop", "levels"}


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started."""
    entry = catalogue.Entry("loop", "", ("bench", "loop"), needs=("no_such_package",))
    monkeypatch.setattr(catalogue, "ENTRIES", (entry,))
    [done] = catalogue.run(["loop"], tmp_path).entries
    assert (done.status, done.message) == ("missing", "pip install no-such-package")


def test_run_refuses_unknown_names() -> None:
    """Bad input, exit code 2."""
    assert CliRunner().invoke(cli, ["bench", "run", "magic"]).exit_code == 2


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with recorded results, and one with hostile text."""
    for name in ("budget", "throughput", "jobs"):
        (tmp_path / f"{name}.json").write_bytes((MEASURED / f"{name}-2-cores.json").read_bytes())
    hostile = "<script>alert(1)</script> | x"
    rows = [{"engine": hostile, "kind": "regular"} | dict.fromkeys(_LOOP, 1)]
    pieces = [['{"name":"', "forced"], [hostile, "sampled"]]
    runs = [{"job": "person", "engine": "stcon canonical", "pieces": pieces}]
    loop = {"model": hostile, "rows": rows, "facts": {}, "runs": runs, "failures": [hostile]}
    (tmp_path / "loop.json").write_text(json.dumps(loop), "utf-8")
    return tmp_path


_LOOP = (
    *("rate", "passes_per_token", "forced_share", "tokens", "passes", "decode_s", "ms_per_sampled", "valid", "outputs"),
    *("facts", "agreeing", "compared"),
)


class _Page(HTMLParser):
    """Counts tags and collects what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [
            value or "" for name, value in attrs if name in {"src", "href"} and not (value or "").startswith("#")
        ]


def test_the_page_stands_alone_and_escapes_what_models_write(results: Path) -> None:
    """No request to anywhere, no script, the paper's figures and plots in it."""
    page = _Page()
    text = html(build(results))
    page.feed(text)
    assert page.fetched == []
    assert "script" not in page.tags
    assert page.tags.count("svg") >= 2
    assert "Table 18." in text
    assert not re.search(r"url\((?!#)", text)


def test_red_results_show_no_time(results: Path) -> None:
    """A check that failed takes the times out, not the counts."""
    [table, *_] = tables_of("loop", json.loads((results / "loop.json").read_text("utf-8")))
    assert table.rows[0][1] == "–"
    assert table.rows[0][2] == "1.00"


def test_markdown_has_the_same_tables(results: Path) -> None:
    """Cells with bars are escaped; what has no result is listed with a reason."""
    text = as_markdown(build(results))
    assert "\\| x" in text
    assert "Every limit, with the rule and without" in text
    assert "Table 9, constraint memory by grammar: not run" in text


def test_limits_are_counted_as_in_the_file(results: Path) -> None:
    """The table's totals are the sums of the attempts."""
    data = json.loads((results / "budget.json").read_text("utf-8"))
    [table, shrinking] = tables_of("budget", data)
    feasible = [a for task in data["tasks"] for a in task["attempts"] if a["limit"] >= task["need"]]
    assert table.rows[-1][-3:] == (str(len(feasible)), str(sum(a["valid"] for a in feasible)), table.rows[-1][-1])
    limits = [int(row[0]) for row in shrinking.rows]
    assert limits == sorted(limits, reverse=True)


def test_results_of_unknown_shape_become_tables() -> None:
    """Every list of flat objects."""
    [table] = tables_of(
        "negative", {"model": "m", "ideas": [{"idea": "a", "x": 0.5, "deep": {}}, {"idea": "b", "x": None, "deep": {}}]}
    )
    assert table == Table("ideas", ("idea", "x"), (("a", "0.5"), ("b", "–")))
    assert markdown(table).count("\n| ") == 4
    assert [size(0), size(1500), size(2.5e9)] == ["0 B", "1.5 kB", "2.5 GB"]


def test_folders_without_results_are_bad_input(tmp_path: Path) -> None:
    """One line that says what to do."""
    with pytest.raises(RequestError, match="holds no result"):
        build(tmp_path)
    (tmp_path / "loop.json").write_text("[]", "utf-8")
    with pytest.raises(RequestError, match="not what"):
        build(tmp_path)
