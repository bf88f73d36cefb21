"""The measurements of many streams, on a model without weights: what they count and when they are red."""

import json

import pytest
from click.testing import CliRunner

import stcon
from stcon.bench import jobs, throughput, turns
from stcon.cli import cli
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary


@pytest.fixture
def model(monkeypatch):
    """All bytes, some words, one end token; loaded whatever the name."""
    tokens = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":', b'":"', b'","', b"name", b"field_", b"true", b"false", None]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    closing = prefer(vocabulary, lambda data: data[:1] in b'"}]', 5.0)
    fake = FakeModel(vocabulary, 1, bias=closing, context_length=8192)
    monkeypatch.setattr(stcon, "load_model", lambda *_, **__: fake)
    return fake


def test_throughput_counts_and_compares(model):
    """Ragged feeding writes the same tokens as drip in fewer steps; free streams force nothing; all is valid."""
    runs = throughput.measure(model, streams=(1, 10), max_tokens=24)
    assert not throughput.failures(runs)
    assert [(run.streams, run.kind, run.feeding) for run in runs[3:]] == [
        (10, "free", "ragged"),
        (10, "constrained", "drip"),
        (10, "constrained", "ragged"),
    ]
    free, drip, ragged = runs[3:]
    assert free.forced_share == 0
    assert free.tokens <= 10 * 24
    assert drip.tokens == ragged.tokens
    assert ragged.same == 10
    assert ragged.steps < drip.steps
    assert ragged.forced_share > 0.2


def test_throughput_invalid_outputs_are_red(model, monkeypatch):
    """An output that a reader of others refuses makes the measurement red."""
    monkeypatch.setattr(throughput.Task, "is_valid", lambda *_: False)
    runs = throughput.measure(model, streams=(2,), max_tokens=8)
    assert len(throughput.failures(runs)) == 2


def test_throughput_command(model, tmp_path):
    """The command prints a table and writes the runs."""
    result = CliRunner().invoke(
        cli, ["bench", "throughput", "--streams", "1,3", "--max-tokens", "9", "--json", str(tmp_path / "t.json")]
    )
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "t.json").read_text())["runs"]) == 6
    bad = CliRunner().invoke(cli, ["bench", "throughput", "--streams", "a"])
    assert (bad.exit_code, "--streams" in bad.stderr) == (2, True)


def test_jobs_are_eighteen_with_two_prompts(model):
    """Eighteen different prompts of each kind; the one with keys is shorter; ours are all valid."""
    work = jobs.jobs()
    assert len({job.with_keys for job in work}) == len({job.with_schema for job in work}) == 18
    assert all(len(job.with_keys) < len(job.with_schema) for job in work)
    outcome = jobs.ours(model, work, jobs.prompts(model, work, "keys"), 8, 200)
    assert all(jobs.is_valid(job, text) for job, text in zip(work, outcome.texts, strict=True))
    assert 0 < outcome.forced < outcome.tokens


def test_grammars_in_turn(model, tmp_path):
    """Every grammar gets four valid answers; a form has as many fields as it says."""
    assert [len(turns.fields_schema(count)["required"]) for count in turns.FIELDS] == list(turns.FIELDS)
    result = CliRunner().invoke(cli, ["bench", "turns", "--quick", "--json", str(tmp_path / "g.json")])
    assert result.exit_code == 0, result.output
    served = json.loads((tmp_path / "g.json").read_text())["grammars"]
    assert [one["valid"] for one in served] == [4] * 8
    assert all(one["longest_first_s"] >= one["first_s"] > 0 for one in served)
