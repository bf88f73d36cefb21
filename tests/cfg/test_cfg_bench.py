"""`stcon bench grammars`: verdicts of this engine and its peers on the same texts, red where ours are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stcon.cli import cli

pytest.importorskip("llguidance")
pytest.importorskip("xgrammar")


def write(folder: Path, accept: list[str], reject: list[str]) -> None:
    (folder / "pairs.ebnf").write_text('root ::= "(" root ")" | "x"\n', encoding="utf-8")
    (folder / "pairs.lark").write_text('start: "(" start ")" | "x"\n', encoding="utf-8")
    (folder / "pairs.json").write_text(json.dumps({"accept": accept, "reject": reject}), encoding="utf-8")


def test_bench_grammars_agrees_with_the_peers(tmp_path: Path) -> None:
    """Every engine gives the sample's verdicts, and is timed."""
    write(tmp_path, ["x", "((x))"], ["(x", "x)", ""])
    out = tmp_path / "out" / "result.json"
    out.parent.mkdir()
    command = ["bench", "grammars", "--data", str(tmp_path), "--tokenizer", "bytes", "--json", str(out)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text("utf-8"))["rows"]
    assert [(row["engine"], row["syntax"]) for row in rows] == [
        ("stcon", "ebnf"),
        ("xgrammar", "ebnf"),
        ("stcon", "lark"),
        ("llguidance", "lark"),
    ]
    for row in rows:
        assert row["wrong_accepts"] == row["wrong_rejects"] == []
        assert row["masks"] == 6
        assert row["first_us"] > 0


def test_bench_grammars_is_red_on_a_wrong_verdict(tmp_path: Path) -> None:
    """A sample that says otherwise ends with exit code 1, and no times are shown."""
    write(tmp_path, ["x"], ["((x))"])
    result = CliRunner().invoke(cli, ["bench", "grammars", "--data", str(tmp_path), "--tokenizer", "bytes"])
    assert result.exit_code == 1
    assert "pairs (ebnf): accepts '((x))'" in result.stderr


def test_bench_grammars_needs_samples(tmp_path: Path) -> None:
    """An empty folder is bad input."""
    result = CliRunner().invoke(cli, ["bench", "grammars", "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert "no sample grammars" in result.stderr
