"""stcon and llguidance in one loop: both are constrained, both count passes alike, and red runs are red."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stcon.bench.loop import ENGINES, Run, as_json, failures, jobs, measure, summarize
from stcon.cli import cli
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

pytest.importorskip("llguidance", reason="llguidance is not installed (the extra bench)")

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def _model() -> FakeModel:
    tokens: list[bytes | None] = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":"', b'","', b'":', b'"}', b'"]', b"true", None]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    bias = prefer(vocabulary, lambda data: data in (b'"', b'","', b"]", b'"]', b"}"))
    return FakeModel(vocabulary, seed=5, bias=bias, context_length=3000, chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """One extraction and one tree, every engine, two rounds."""
    tasks = [job for job in jobs() if job.name in ("tool_call", "fs 1")]
    return measure(_model(), tasks, rounds=2, limits={"regular": 300, "recursive": 300})


def test_there_are_six_jobs_and_five_in_three_phrasings() -> None:
    """The sets of Tables 18 and 19."""
    assert [sum(job.kind == kind for job in jobs()) for kind in ("regular", "recursive")] == [6, 15]
    assert len({job.prompt for job in jobs()}) == 21


def test_every_constrained_answer_is_valid_and_repeats(runs: list[Run]) -> None:
    """The peer too is held by its mask: in the plain loop a mask that comes late is still taken."""
    assert not failures(runs)
    assert all(run.valid for run in runs if run.engine != "free" and run.finish_reason == "stop")
    assert {run.finish_reason for run in runs if run.kind == "regular" and run.engine != "free"} == {"stop"}


def test_forced_tokens_save_passes(runs: list[Run]) -> None:
    """Masks alone ask for every token; fast-forward and our policies do not; passes are draws."""
    for run in runs:
        assert run.passes == run.sampled, run.engine
        assert (run.forced > 0) == (run.engine in ("llguidance forward", "stcon any", "stcon canonical")), run.engine


def test_rows_add_up(runs: list[Run]) -> None:
    """A row an engine and set, its counts the sums of its runs."""
    rows = summarize(runs)
    assert [(row.kind, row.engine) for row in rows] == [
        (kind, engine) for kind in ("regular", "recursive") for engine in ENGINES
    ]
    assert sum(row.tokens for row in rows) == sum(len(run.tokens) for run in runs)
    written = json.loads(json.dumps(as_json(runs, rows, {"model": "fake"})))
    assert {row["engine"] for row in written["rows"]} == set(ENGINES)


def test_an_invalid_or_unstable_answer_is_red(runs: list[Run]) -> None:
    """What makes the command exit with 1."""
    ended = next(run for run in runs if run.engine == "stcon canonical" and run.finish_reason == "stop")
    assert failures([replace(ended, valid=False)])
    assert failures([replace(ended, stable=False)])


def test_the_command_writes_its_table_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stcon bench loop --quick` at 80 columns; an unknown engine is bad input."""
    fake = _model()

    def load(*_: Any) -> FakeModel:
        return fake

    monkeypatch.setattr("stcon.commands.generate.load", load)
    file = tmp_path / "loop.json"
    result = CliRunner().invoke(
        cli, ["bench", "loop", "--quick", "--set", "regular", "--engines", "free,stcon canonical", "--json", str(file)]
    )
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines()[:10])) <= 80
    assert {run["engine"] for run in json.loads(file.read_text("utf-8"))["runs"]} == {"free", "stcon canonical"}
    assert CliRunner().invoke(cli, ["bench", "loop", "--engines", "magic"]).exit_code == 2
