"""`stcon explain` shows the text from cut state to cut state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import stcon
from stcon.cli import cli
from stcon.grammar.cuts import cut_states
from stcon.grammar.structure import forced_chain

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "colour": {"enum": ["red", "green", "blue"]}, "n": {"type": "integer"}},
    "required": ["name", "colour", "n"],
}


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def test_explain_shows_cut_states(schema_file: str) -> None:
    """Forced text stands as it is, with the number of choices between; lines stay within 80 columns."""
    result = CliRunner().invoke(cli, ["explain", "--schema", schema_file])
    assert result.exit_code == 0, result.output
    assert "between cut states (3 to choose, each by itself)" in result.stdout
    assert '{"name":"⟨…⟩,"colour":"⟨3⟩,"n":⟨…⟩' in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_explain_json_holds_the_segments(schema_file: str, tmp_path: Path) -> None:
    """--json has them all, as `cut_states` and the one definition of forced text give them."""
    out = tmp_path / "out.json"
    assert CliRunner().invoke(cli, ["explain", "--schema", schema_file, "--json", str(out)]).exit_code == 0
    facts = json.loads(out.read_text())["segments"]
    machine = stcon.compile(SCHEMA).machine
    segments = cut_states(machine).segments
    assert [(f["text"].encode(), f["is_forced"]) for f in facts] == [(s.text, s.is_forced) for s in segments]
    for fact, segment in zip(facts, segments, strict=True):
        assert (fact["state"], tuple(fact["stack"])) == (segment.start.state, segment.start.stack)
        assert forced_chain(machine, segment.start).startswith(segment.text)
        assert not segment.is_forced or (fact["num_texts"], fact["decisions"]) == (1, 0)
    colour = facts[[f["num_texts"] for f in facts].index(3)]
    assert colour["decisions"] <= 2


def test_explain_of_a_long_text_is_cut(tmp_path: Path) -> None:
    """A constant of thousands of characters does not fill the screen."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "array", "prefixItems": [{"const": "x" * 900}, {"const": "y" * 5_000}] * 3}))
    result = CliRunner().invoke(cli, ["explain", "--schema", str(path)])
    assert result.exit_code == 0, result.output
    assert len(result.stdout) < 40_000
