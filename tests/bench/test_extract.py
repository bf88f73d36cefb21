"""The measurement of the extractions: what it counts, and that it is red when it must be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import stcon
from stcon.bench.extract import MODES, Run, agreement, as_json, failures, first_object, measure, summarize
from stcon.bench.workloads import MISSING, load
from stcon.cli import cli
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def model() -> FakeModel:
    """A model over bytes, a few merged tokens and one end token, that likes to close what it opened."""
    tokens: list[bytes | None] = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":"', b'","', b'":', b'"}', b'"]', b"true", None]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    bias = prefer(vocabulary, lambda data: data in (b'"', b'","', b"]", b'"]', b"a"))
    return FakeModel(vocabulary, seed=5, bias=bias, context_length=2000, chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def runs(model: FakeModel) -> list[Run]:
    """Two workloads, every mode, two rounds."""
    return measure(model, rounds=2, max_tokens=400, workloads=[load("tool_call"), load("person")])


def test_measure_runs_every_mode_on_every_workload(runs: list[Run]) -> None:
    """One run a pair, a time a round."""
    assert [(run.mode, run.workload) for run in runs] == [(m, w) for m in MODES for w in ("tool_call", "person")]
    assert all(len(run.decode_s) == 2 for run in runs)


def test_measure_constrained_outputs_are_valid_and_stable(runs: list[Run]) -> None:
    """Nothing is red with a deterministic model."""
    assert failures(runs) == []
    assert all(run.valid for run in runs if run.mode != "free")


def test_measure_counts_by_mode(runs: list[Run]) -> None:
    """free and mask force nothing; the forced modes do; passes equal sampled tokens; tokens add up."""
    for run in runs:
        assert (run.forced > 0) is (run.mode in ("any", "canonical"))
        assert run.passes == run.sampled
        assert run.sampled + run.forced == len(run.tokens)


def test_summarize_adds_up(runs: list[Run]) -> None:
    """A row holds the sums of its runs."""
    rows = {row.mode: row for row in summarize(runs)}
    assert list(rows) == list(MODES)
    canonical = [run for run in runs if run.mode == "canonical"]
    row = rows["canonical"]
    assert row.tokens == sum(len(run.tokens) for run in canonical)
    assert row.passes_per_token == pytest.approx(sum(run.passes for run in canonical) / row.tokens)
    assert row.forced_share == pytest.approx(1 - row.passes_per_token)
    assert row.valid == 2
    assert row.facts == sum(load(run.workload).correct(run.answer) for run in canonical)


def test_failures_invalid_or_unstable_is_red(runs: list[Run]) -> None:
    """An output that is not valid, or whose tokens changed, makes the measurement red; a free one may be invalid."""
    good = next(run for run in runs if run.mode == "mask")
    assert len(failures([replace(good, valid=False)])) == 1
    assert len(failures([replace(good, stable=False)])) == 1
    assert failures([replace(good, mode="free", valid=False)]) == []


def test_as_json_can_be_written(runs: list[Run]) -> None:
    """The result survives JSON."""
    result = as_json(runs, summarize(runs), {"model": "fake"})
    again = json.loads(json.dumps(result))
    assert again["model"] == "fake"
    assert len(again["runs"]) == len(runs)
    assert again["modes"][0]["mode"] == "free"


def test_agreement_counts_leaves() -> None:
    """Leaves of the free answer that the other answer has, at the same place, of how many."""
    free = {"a": "X ", "b": [1, 2, {"c": None}]}
    assert agreement(free, free) == (4, 4)
    assert agreement(free, {"a": "x", "b": [1, 3]}) == (2, 4)
    assert agreement(free, MISSING) == (0, 4)
    assert agreement(MISSING, free) == (0, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here it is:\n```json\n{"a": {"b": 2}}\n```\nand {"c": 3}', {"a": {"b": 2}}),
        ('{not json} {"a": 1}', {"a": 1}),
        ('{"a": 1', MISSING),
        ("no object", MISSING),
        ("", MISSING),
    ],
)
def test_first_object_is_lenient(text: str, value: object) -> None:
    """The first object that parses, in prose or a fenced block."""
    assert first_object(text) == value


def test_bench_extract_prints_a_table_and_writes_json(
    model: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command's table has a row a mode within 80 columns, and names model and machine."""
    monkeypatch.setattr(stcon, "load_model", lambda name, **options: model, raising=False)
    path = tmp_path / "result.json"
    arguments = ["bench", "extract", "--modes", "canonical,mask", "--rounds", "1", "--max-tokens", "900", "--json"]
    result = CliRunner().invoke(cli, [*arguments, str(path)])
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.stdout.splitlines()[:5]) <= 80
    for part in ("mask", "canonical", "6/6", "/45", "model: fake-5", "machine: "):
        assert part in result.stdout
    assert "free" not in [row["mode"] for row in json.loads(path.read_text())["modes"]]
    assert json.loads(path.read_text())["failures"] == []


def test_bench_extract_red_shows_no_time(model: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outputs that are cut are not valid: exit code 1, named on stderr, and no time in the table."""
    monkeypatch.setattr(stcon, "load_model", lambda name, **options: model, raising=False)
    arguments = ["bench", "extract", "--modes", "canonical", "--rounds", "1", "--max-tokens", "5"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert "not valid" in result.stderr
    row = next(line for line in result.stdout.splitlines() if line.startswith("canonical"))
    assert row.split()[4] == "-"


@pytest.mark.parametrize("modes", ["", "fast", "free,fast", ","])
def test_bench_extract_bad_modes(modes: str) -> None:
    """An unknown mode is refused with the list of modes."""
    result = CliRunner().invoke(cli, ["bench", "extract", "--modes", modes])
    assert result.exit_code == 2
    assert "canonical" in result.stderr
