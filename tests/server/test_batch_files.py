"""`stcon batch`: the file format, resuming after kills, refusals as lines, on a model without weights."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import stcon
from stcon.cli import cli
from stcon.engine.batch import Batch, MemoryPlan, SessionRows
from stcon.errors import RequestError
from stcon.models.fake import FakeModel, prefer
from stcon.server.batch_files import Results, check, read_lines
from stcon.server.batch_run import run
from stcon.vocab.vocabulary import Vocabulary

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
}


def make_model():
    """All bytes, some words, one end token."""
    tokens = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":', b'":"', b'","', b"name", b"true", b"false", b"Maria", None]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    closing = prefer(vocabulary, lambda data: data[:1] in b'"}', 3.0)
    return FakeModel(vocabulary, 1, bias=closing, chat_template=TEMPLATE)


def entry(number, url="/v1/chat/completions", **body):
    """A request of a batch file."""
    if "chat" in url:
        body = {"model": "x", "messages": [{"role": "user", "content": f"Number {number}."}], **body}
    return {"custom_id": f"r{number}", "method": "POST", "url": url, "body": {"max_tokens": 40, "seed": number, **body}}


def strict(schema=SCHEMA):
    """A response format."""
    return {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}


def write(path, entries):
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    return str(path)


def results_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.fixture
def stcon_batch(monkeypatch, tmp_path):
    """Runs the command on a list of requests."""
    monkeypatch.setattr(stcon, "load_model", lambda *_, **__: make_model())

    def command(entries, output="out.jsonl", *options):
        source = write(tmp_path / "in.jsonl", entries)
        result = CliRunner().invoke(cli, ["batch", source, "-o", str(tmp_path / output), *options])
        return result, tmp_path / output

    return command


def test_batch_answers_every_request(stcon_batch):
    """Chat and text, free and constrained, n outputs, logprobs, stop: one line each, in OpenAI's shape."""
    entries = [
        entry(0, response_format=strict()),
        entry(1),
        entry(2, "/v1/completions", prompt="Once", logprobs=2, temperature=0),
        entry(3, guided_choice=["yes", "no"], n=3),
        entry(4, structured_outputs={"regex": "[0-9]{3}"}, logprobs=True, top_logprobs=1),
        entry(5, response_format={"type": "json_object"}, stcon={"guards": {"repeat": True}}),
        entry(6, tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="required", max_tokens=100),
    ]
    result, output = stcon_batch(entries)
    assert result.exit_code == 0, result.output
    found = {one["custom_id"]: one["response"] for one in results_of(output)}
    assert set(found) == {f"r{i}" for i in range(7)}
    assert all(one["status_code"] == 200 for one in found.values())
    bodies = {name: one["body"] for name, one in found.items()}
    assert set(json.loads(bodies["r0"]["choices"][0]["message"]["content"])) == {"name", "ok"}
    assert bodies["r0"]["usage"]["stcon"]["forced_tokens"] > 0
    assert bodies["r0"]["object"] == "chat.completion"
    assert bodies["r2"]["object"] == "text_completion"
    assert len(bodies["r2"]["choices"][0]["logprobs"]["top_logprobs"][0]) == 2
    assert [choice["index"] for choice in bodies["r3"]["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in bodies["r3"]["choices"]} <= {"yes", "no"}
    assert bodies["r4"]["choices"][0]["message"]["content"].isdigit()
    assert len(bodies["r4"]["choices"][0]["logprobs"]["content"]) == 3
    assert isinstance(json.loads(bodies["r5"]["choices"][0]["message"]["content"]), dict)
    assert bodies["r6"]["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    usage = bodies["r1"]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert "7/7 requests" in result.stderr
    assert "memory" in result.stderr


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": strict({"type": "objekt"})}, "response_format.json_schema.schema"),
        ({"response_format": strict({"properties": {"a": {"pattern": "("}}})}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2, "response_format": strict()}, None),
        ({"n": 0}, "n"),
        ({"seed": "x"}, "seed"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"presence_penalty": 9}, "presence_penalty"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"no_such": 1}, "no_such"),
        ({"stream": True}, "stream"),
        ({"tools": [{"type": "function", "function": {"name": "f f"}}]}, "tools"),
        ({"guided_json": SCHEMA, "guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"grammar": "root ::= 'a'"}}, "structured_outputs.grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages"),
        ({"stcon": {"budgets": True}}, "stcon.budgets"),
        ({"stcon": {"mode": "best"}}, None),
        ({"stop": [""]}, None),
    ],
)
def test_batch_refusals_are_lines(stcon_batch, body, param):
    """What cannot be served or enforced is a line with status 400 that names the parameter; the others are answered."""
    result, output = stcon_batch([entry(0, **body), entry(1)])
    assert result.exit_code == 1
    found = {one["custom_id"]: one["response"] for one in results_of(output)}
    assert found["r1"]["status_code"] == 200
    assert found["r0"]["status_code"] == 400
    error = found["r0"]["body"]["error"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"].split("/")[0] == param
    assert "1 of 2 requests were refused" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "line 1: expected an object"),
        (json.dumps(entry(1)) + "\n" + json.dumps(entry(1)), "lines 1 and 2 have the same custom_id 'r1'"),
        (json.dumps(entry(1, "/v1/embeddings")), "line 1: url"),
        ('{"custom_id": 3}', "line 1: custom_id"),
        ('{"custom_id": "a", "url": "/v1/completions"}', "line 1: body"),
        ("\n", "no request"),
    ],
)
def test_batch_bad_input_is_refused_before_the_model(tmp_path, text, message):
    """A file that is none of the format: exit code 2, one line, nothing written."""
    source = tmp_path / "in.jsonl"
    source.write_text(text)
    result = CliRunner().invoke(cli, ["batch", str(source), "-o", str(tmp_path / "out.jsonl")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_batch_resumes(stcon_batch):
    """A second run answers only what has no line; a torn last line is cut off; a finished file is left as it is."""
    entries = [entry(i, response_format=strict()) for i in range(6)]
    _, output = stcon_batch(entries)
    whole = output.read_bytes()
    lines = whole.splitlines(keepends=True)
    output.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    result, _ = stcon_batch(entries)
    assert result.exit_code == 0
    again = output.read_bytes().splitlines(keepends=True)
    assert again[:3] == lines[:3]
    assert sorted(json.loads(line)["custom_id"] for line in again) == [f"r{i}" for i in range(6)]
    before = output.read_bytes()
    result, _ = stcon_batch(entries)
    assert "6 of 6 requests have a result already" in result.stderr
    assert output.read_bytes() == before


def test_batch_output_of_another_run_is_refused(stcon_batch, tmp_path):
    """A file with other results, or that is none of ours, is not written to."""
    _, output = stcon_batch([entry(7)])
    before = output.read_bytes()
    result, _ = stcon_batch([entry(1)])
    assert (result.exit_code, "results of other requests" in result.stderr) == (2, True)
    assert output.read_bytes() == before
    (tmp_path / "notes.txt").write_text("dear diary\n")
    result, _ = stcon_batch([entry(1)], "notes.txt")
    assert (result.exit_code, "no result of a batch" in result.stderr) == (2, True)
    assert (tmp_path / "notes.txt").read_text() == "dear diary\n"


@pytest.mark.parametrize("text", ["dear diary", '{"id": 3}', json.dumps(entry(1)), '{"id": "batch_req_1"}\n{"id": "x'])
def test_batch_cuts_nothing_off_a_file_that_is_not_its_own(stcon_batch, tmp_path, text):
    """A last line without an end is cut off only where a kill can have left it."""
    (tmp_path / "notes.txt").write_text(text)
    result, _ = stcon_batch([entry(1)], "notes.txt")
    assert (result.exit_code, "no result of a batch" in result.stderr) == (2, True)
    assert (tmp_path / "notes.txt").read_text() == text


@pytest.mark.parametrize("size", [0, 1, 10, 17, 40])
def test_batch_cuts_off_what_a_kill_left(stcon_batch, tmp_path, size):
    """However little of a result was written."""
    _, output = stcon_batch([entry(0)])
    whole = output.read_bytes()
    (tmp_path / "torn.jsonl").write_bytes(whole + whole[:size])
    result, output = stcon_batch([entry(0), entry(1)], "torn.jsonl")
    assert result.exit_code == 0
    assert [one["custom_id"] for one in results_of(output)] == ["r0", "r1"]
    assert "█ 2/2 requests" in result.stderr


@pytest.mark.parametrize("other", ["in.jsonl", "link.jsonl"])
def test_batch_does_not_write_over_its_requests(stcon_batch, tmp_path, other):
    """Input and output are one file, by name or by a link: refused, and the file is as it was."""
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "in.jsonl")
    result, _ = stcon_batch([entry(0), entry(1)], other)
    assert (result.exit_code, "the requests themselves" in result.stderr) == (2, True)
    assert len(results_of(tmp_path / "in.jsonl")) == 2


def test_results_are_one_writers(tmp_path):
    """Two runs never write to one file at once."""
    path = str(tmp_path / "out.jsonl")
    with Results(path), pytest.raises(RequestError, match="another process"):
        Results(path)
    with Results(path) as results:
        assert results.done == set()


KILLED = """
    import sys
    sys.path.insert(0, {folder!r})
    import stcon, time
    from test_batch_files import make_model
    from stcon.models.fake import FakeSession
    append = FakeSession.append
    FakeSession.append = lambda *a, **k: (time.sleep(0.002), append(*a, **k))[1]
    stcon.load_model = lambda *_, **__: make_model()
    from stcon.cli import cli
    cli.main(["batch", {source!r}, "-o", {output!r}, "--slots", "4"])
"""


def run_alone(source, output):
    """The rest of a file's requests, in this process."""
    engine = Batch(SessionRows(make_model(), 4), memory=MemoryPlan(0, 0, 0, 1 << 24, 0, 4, 0, 64))
    with Results(str(output)) as results:
        return run(read_lines(source), results, engine, total=60)


def kill_after(process, output, num_bytes, patience_s=300):
    """Kill `process` when `output` has grown by `num_bytes`; False if it ended by itself."""
    begin = output.stat().st_size if output.exists() else 0
    deadline = time.monotonic() + patience_s
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline, "it writes nothing"
            if output.exists() and output.stat().st_size > begin + num_bytes:
                os.kill(process.pid, signal.SIGKILL)
                return True
            time.sleep(0.005)
        return False
    finally:
        process.kill()
        process.wait()


def test_batch_survives_kills(tmp_path):
    """Killed with signal 9 again and again, then left alone: every request has one line, equal to an unkilled run's."""
    entries = [entry(i, response_format=strict(), temperature=1.0) for i in range(60)]
    source, output = write(tmp_path / "in.jsonl", entries), tmp_path / "out.jsonl"
    run_alone(source, tmp_path / "whole.jsonl")  # first, so that kernels are compiled and on disk
    program = textwrap.dedent(KILLED.format(folder=str(Path(__file__).parent), source=source, output=str(output)))
    kills = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
        kills += kill_after(process, output, 3000)
    run_alone(source, output)
    assert kills >= 1
    assert sorted(one["custom_id"] for one in results_of(output)) == sorted(check(source))

    def texts(path):
        return {
            one["custom_id"]: one["response"]["body"]["choices"][0]["message"]["content"] for one in results_of(path)
        }

    assert texts(output) == texts(tmp_path / "whole.jsonl")
