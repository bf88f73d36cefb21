"""`stcon bench calls`: what counts as a typed call, and a run over a server of its own."""

import json

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_batch_files import make_model

from stcon.bench.calls import SCHEMAS, TOOLS, fault_of, questions
from stcon.cli import cli

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.sampled_from([0.5, "EUR", "celsius", "Rome", "x" * 130, ""]),
    lambda inner: st.lists(inner, max_size=4) | st.fixed_dictionaries({"name": inner, "phone": inner}),
    max_leaves=6,
)


@given(st.data())
def test_faults_are_those_of_jsonschema(data):
    """A call has a fault iff its arguments have an undeclared name or jsonschema refuses them."""
    name = data.draw(st.sampled_from(sorted(SCHEMAS)))
    schema = SCHEMAS[name]
    names = data.draw(st.lists(st.sampled_from([*schema["properties"], "more"]), unique=True))
    arguments = {key: data.draw(VALUES) for key in names}
    closed = {**schema, "additionalProperties": False}
    wanted = not jsonschema.Draft202012Validator(closed).is_valid(arguments)
    assert bool(fault_of([{"name": name, "arguments": json.dumps(arguments)}])) == wanted


def test_other_faults():
    """No call, two, one of no tool, arguments that are not JSON."""
    call = {"name": "stop_music", "arguments": '{"fade_seconds": 1}'}
    assert fault_of([call]) == ""
    for calls in ([], [call, call], [{**call, "name": "x"}], [{**call, "arguments": '{"fade_seconds": 1'}]):
        assert fault_of(calls)


def test_questions_are_different_and_about_every_tool():
    """As many as asked for, no two alike."""
    found = questions()
    assert len(set(found)) == len(found) == 46
    assert {tool for tool, _ in found} == {tool["function"]["name"] for tool in TOOLS}


def test_a_run_finds_every_call_typed(monkeypatch, tmp_path):
    """Over HTTP, on a model without weights: every reply is a typed call; the figures are written."""
    monkeypatch.setattr("stcon.commands.generate.load", lambda _: make_model())
    path = tmp_path / "calls.json"
    run = CliRunner().invoke(cli, ["bench", "calls", "--slots", "4", "--requests", "12", "--json", str(path)])
    assert run.exit_code == 0, run.output
    assert "12 of 12" in run.output
    found = json.loads(path.read_text())
    assert len(found["replies"]) == 12
    assert found["tokens"] == sum(reply["tokens"] for reply in found["replies"])
