"""`--grammar` on the command line, and where it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stcon.cli import cli


@pytest.fixture
def palindromes(tmp_path: Path) -> Path:
    path = tmp_path / "palindromes.gbnf"
    path.write_text('root ::= "a" root "a" | "b" root "b" | "c"\n', encoding="utf-8")
    return path


def test_explain_describes_a_grammar(palindromes: Path, tmp_path: Path) -> None:
    """A deterministic grammar has the facts of a machine; the file's ending gives the syntax."""
    out = tmp_path / "facts.json"
    result = CliRunner().invoke(cli, ["explain", "--grammar", str(palindromes), "--json", str(out)])
    assert result.exit_code == 0, result.output
    facts = json.loads(out.read_text("utf-8"))
    assert facts["complete"]
    assert facts["shortest"] == "c"


def test_explain_names_the_conflict(tmp_path: Path) -> None:
    """A grammar that is not deterministic is shown with the rule, the alternatives and the shortest prefix."""
    path, out = tmp_path / "even.txt", tmp_path / "facts.json"
    path.write_text('root ::= "a" root "a" | "aa"\n', encoding="utf-8")
    command = ["explain", "--grammar", str(path), "--syntax", "gbnf", "--json", str(out)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    facts = json.loads(out.read_text("utf-8"))
    assert not facts["deterministic"]
    assert "rule root: after 'a', alternative" in facts["conflict"]
    assert facts["prefix"] == "a"
    assert "conflict" in result.output


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--grammar", "missing.gbnf"], "no such file"),
        (["--grammar", "FILE", "--syntax", "lark"], "line 1, column 7"),
        (["--grammar", "FILE", "--regex", "a"], "give one of"),
        (["--syntax", "gbnf"], "--syntax needs --grammar"),
        (["--grammar", "README.md"], "--syntax"),
    ],
)
def test_bad_grammar_options_are_one_line(palindromes: Path, arguments: list[str], part: str) -> None:
    """Each mistake ends in one line that names it, and exit code 2."""
    result = CliRunner().invoke(cli, ["explain", *(str(palindromes) if a == "FILE" else a for a in arguments)])
    assert result.exit_code == 2
    assert part in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
