"""The measurement of token limits: what it counts, that it is green here, and red when it must be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import stcon
from stcon.bench.budget import ADVERSARIES, Series, as_json, besiege, failures, measure
from stcon.bench.budget_plot import BINS, curves, svg
from stcon.bench.remembered import RememberedModel
from stcon.bench.workloads.recursive import NAMES, load_recursive, load_tasks
from stcon.cli import cli
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
TASKS = [task for task in load_tasks() if task.name in {"event", "solar", "fs"}]


@pytest.fixture(scope="module")
def model() -> FakeModel:
    """A model over bytes, a few merged tokens and one end token, that likes to close what it opened."""
    tokens: list[bytes | None] = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":"', b'","', b'":', b'"}', b'"]', b"true", b"[]}", b'":[', b"}]}", b"},{", None]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    bias = prefer(vocabulary, lambda data: data in (b'"', b'","', b"]", b'"]', b"a", b"[]}"))
    return FakeModel(vocabulary, seed=5, bias=bias, context_length=2000, chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def series(model: FakeModel) -> list[Series]:
    """Three tasks, every ninth limit."""
    return measure(model, longest=250, step=9, timed=False, tasks=TASKS)


def test_measure_every_feasible_limit_is_valid(series: list[Series]) -> None:
    """With the rule every limit is kept or refused; without it hardly any output is valid."""
    assert failures(series, []) == []
    for row in series:
        assert all(attempt.valid for attempt in row.feasible)
        assert all(attempt.refused for attempt in row.infeasible)
        assert sum(attempt.cut_valid for attempt in row.attempts) <= 1
        assert row.feasible
        assert row.infeasible


def test_failures_names_what_is_red(series: list[Series]) -> None:
    """An output that is not valid, a limit not refused, and an output that changed are each one line."""
    row = series[0]
    feasible, infeasible = row.feasible[0], row.infeasible[0]
    wrong = [replace(feasible, valid=False), replace(infeasible, refused=False), replace(feasible, unchanged=False)]
    assert len(failures([replace(row, attempts=wrong)], [])) == 3


def test_besiege_every_limit_is_kept(model: FakeModel) -> None:
    """Each adversary is held to valid outputs and refused what cannot be."""
    sieges = besiege(model.vocabulary, seeds=4, step=16, tasks=[TASKS[1]])
    assert {siege.adversary for siege in sieges} == set(ADVERSARIES)
    assert failures([], sieges) == []
    assert all(siege.runs == siege.valid > 0 and siege.refused == siege.refusals > 0 for siege in sieges)


def test_curves_and_svg(series: list[Series]) -> None:
    """Four curves; with the rule the last bin is full; the picture is XML with one line a curve."""
    lines = curves(series)
    assert [len(line.shares) for line in lines] == [BINS] * 4
    assert lines[0].shares[-1] == lines[1].shares[-1] == 1
    picture = Xml.fromstring(svg(lines))
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 4


def test_remembered_model_gives_the_same_logits(model: FakeModel) -> None:
    """Whatever was read before, the logits after a prefix are the model's own; each is computed once."""
    remembered = RememberedModel(model)
    for tokens in ([1, 2, 3], [1, 2], [1, 2, 4, 5], [9], [1, 2, 3]):
        expected = model.session().append(tokens)
        assert np.array_equal(remembered.session().append(tokens), expected)
    before = model.num_passes
    remembered.session().append([1, 2, 4, 5])
    assert model.num_passes == before


@pytest.mark.parametrize("task", load_recursive(), ids=NAMES)
def test_recursive_tasks_compile_and_their_shortest_text_is_valid(task) -> None:
    """The seven schemas are valid, recursive, and their machines agree with the reference validator."""
    Draft202012Validator.check_schema(task.schema)
    assert "$ref" in json.dumps(task.schema)
    text = stcon.compile(task.schema).shortest()
    assert Draft202012Validator(task.schema).is_valid(json.loads(text))


def test_bench_budget_command(model: FakeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command prints both tables, writes JSON and the plot, and exits with 0."""
    monkeypatch.setattr(stcon, "load_model", lambda name, **options: model, raising=False)
    monkeypatch.setattr("stcon.bench.budget.load_tasks", lambda: tuple(TASKS[:1]))
    data, plot = tmp_path / "budget.json", tmp_path / "budget.svg"
    arguments = ["bench", "budget", "--step", "40", "--seeds", "2", "--longest", "200"]
    result = CliRunner().invoke(cli, [*arguments, "--json", str(data), "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    assert "event" in result.output
    assert "uniform" in result.output
    assert json.loads(data.read_text())["failures"] == []
    assert plot.read_text().startswith("<svg")


def test_as_json_is_json(series: list[Series]) -> None:
    """Everything measured can be written."""
    assert json.loads(json.dumps(as_json(series, [], {"model": "fake"})))["tasks"][0]["task"] == "event"
