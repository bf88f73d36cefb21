"""`stcon check`: files, lines, standard input; places in files; exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stcon.cli import cli

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "maximum": 130}},
    "required": ["name", "age"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a schema, entered."""
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, stdin: str = "") -> tuple[int, Result]:
    """The exit code of the `stcon` script, and what it wrote."""
    result = CliRunner().invoke(cli, ["check", *arguments], input=stdin)
    return result.exit_code, result


def test_accepted_documents(folder: Path) -> None:
    """Documents in any layout and order, with names that the schema does not list, are accepted: 0, nothing written."""
    (folder / "a.json").write_text('\n {"extra": [1],\n  "age": 3, "name": "x"}\n')
    code, result = run("s.json", "a.json")
    assert (code, result.stdout) == (0, "")
    assert "1 of 1 accepted" in result.stderr
    assert run("s.json", "--as-generated", "a.json")[0] == 1


def test_places_in_files(folder: Path) -> None:
    """A refusal names file, line and column, what was expected and what the reference validator says."""
    (folder / "a.json").write_text('\n\n  {"name": "x",\n   "age": 200}\n')
    code, result = run("s.json", "a.json")
    assert code == 1
    assert result.stdout.startswith("a.json:4:13: in '200': expected")
    assert "greater than the maximum of 130" in result.stdout
    (folder / "b.json").write_text('\n  {"nam": 3')
    assert run("s.json", "b.json")[1].stdout.startswith("b.json:2:12: ")
    (folder / "c.json").write_text("  3")
    assert run("s.json", "c.json")[1].stdout.startswith("c.json:1:3: expected an object")


def test_lines(folder: Path) -> None:
    """JSON Lines are checked line by line, blank lines left out, whatever their number is kept."""
    (folder / "a.jsonl").write_text('{"name":"x","age":3}\n\n  {"name":"y","age":"z"}\n{"age":1.0,"name":"z"}')
    code, result = run("s.json", "a.jsonl", "--json", "out.json")
    lines = result.stdout.splitlines()
    assert code == 1
    assert [line.split(": ")[0] for line in lines] == ["a.jsonl:3:21", "a.jsonl:4:9"]
    assert "spelling" in lines[1]
    found = json.loads((folder / "out.json").read_text())
    assert found["accepted"] == 1
    assert [entry["refusal"] is None for entry in found["documents"]] == [True, False, False]
    assert found["documents"][1]["refusal"]["pointer"] == "/age"


def test_standard_input(folder: Path) -> None:
    """Standard input is read for - and where no document is named."""
    text = '{"name":"x","age":3}'
    assert run("s.json", stdin=text)[0] == 0
    assert run("s.json", "-", stdin=text)[0] == 0
    assert run("s.json", "--lines", stdin=f"{text}\n{text}\n")[0] == 0
    code, result = run("-", "s.json", stdin=json.dumps(True))
    assert (code, result.stdout) == (0, "")


def test_expressions_and_grammars(folder: Path) -> None:
    """--regex and --grammar take the schema's place; one line break at the end of a text does not count."""
    (folder / "g.lark").write_text('start: "a" start "b" | "c"\n')
    assert run("--regex", "yes|no", stdin="yes\n")[0] == 0
    assert run("--regex", "yes|no", stdin="yes\n\n")[0] == 1
    assert run("--grammar", "g.lark", stdin="aacbb\n")[0] == 0
    code, result = run("--grammar", "g.lark", stdin="aacb\n")
    assert code == 1
    assert result.stdout == "<stdin>:1:5: expected 'b', found the end of the text\n"


def test_tokenizer(folder: Path) -> None:
    """With a tokenizer the token path is checked too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert run("--regex", "yes|no", "--tokenizer", "tokenizer.json", stdin="yes")[0] == 0
    assert run("--regex", "yes|no", "--tokenizer", "tokenizer.json", stdin="maybe")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("none.json", "s.json"),
        ("s.json", "none.json"),
        ("-", "-"),
        ("--regex", "(", "s.json"),
        ("--regex", "a", "--grammar", "s.json"),
        ("s.json", "--tokenizer", "none"),
    ],
)
def test_bad_input(folder: Path, arguments: tuple[str, ...]) -> None:
    """What cannot be read or compiled is exit code 2, in one line."""
    from stcon.cli import _guarded

    code = _guarded(lambda: cli.main(["check", *arguments], standalone_mode=False))
    assert code == 2
