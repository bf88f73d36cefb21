"""Agents on a scripted model: tasks done and not done, guards, errors, what is counted; suites and the command."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("starlette")
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from test_batch_files import TEMPLATE, make_model
from test_sandbox import confined

from stcon.agents.agent import Settings
from stcon.agents.run import report, run, table
from stcon.agents.sandbox import Sandbox, Unconfined
from stcon.agents.tasks import Task, load_suite, suite_names
from stcon.agents.tools import call, is_typed
from stcon.cli import cli
from stcon.engine.batch import Batch, MemoryPlan, SessionRows
from stcon.errors import RequestError
from stcon.models.fake import FakeModel

RESULT = "<tool_response>\n"


def scripted_model(script, context_length=1 << 15):
    """A model that follows `script`: from a conversation's text to the reply's, as far as the constraint lets it."""
    vocabulary = make_model().vocabulary
    data = [vocabulary.token_bytes(token) or b"" for token in range(vocabulary.size)]
    (end,) = vocabulary.end_ids
    known = {}

    def bias(tokens):
        prompt, _, written = b"".join(data[token] for token in tokens).rpartition(b"[assistant]")
        if prompt not in known:
            known[prompt] = script(prompt.decode("utf-8", "replace")).encode()
        reply, row = known[prompt], np.zeros(vocabulary.size, np.float32)
        left = reply[len(written) :] if reply.startswith(written) else b""
        row[end] = 0 if left else 1000
        for token, piece in enumerate(data):
            if piece and left.startswith(piece):
                row[token] = 100 * len(piece)
        return row

    return FakeModel(vocabulary, 1, bias=bias, chat_template=TEMPLATE, context_length=context_length)


def tool_call(name, **arguments):
    """A call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def running(model, slots=4):
    """A batch on `model`, with a prompt cache."""
    memory = MemoryPlan(0, 1 << 24, 0, 1 << 26, 0, slots, 0, 64)
    return Batch(SessionRows(model, slots, token_bytes=64), memory=memory)


def do(script, *tasks, number=None, settings=None, **options):
    """The outcomes of agents that follow `script`."""
    with running(scripted_model(script, **options)) as batch:
        return run(tasks, batch, settings, num_agents=number)


HELLO = Task("hello", "Write hello.", "assert read('hello.txt') == 'Hello\\n'")
SUM = Task("sum", "Add the numbers.", "assert read('sum.txt').strip() == '7' and '7' in answer", {"n.txt": "3\n4\n"})


def diligent(conversation):
    """Does both tasks, by all of the tools."""
    results = conversation.count(RESULT)
    if "Write hello." in conversation:
        return [
            tool_call("write_file", path="hello.txt", content="Hello\n"),
            tool_call("finish", summary="It is there."),
        ][results]
    code = "print(sum(map(int, open('n.txt'))), file=open('sum.txt', 'w'))"
    steps = [
        tool_call("read_file", path="n.txt"),
        tool_call("run_python", code=code),
        tool_call("read_file", path="sum.txt"),
        tool_call("finish", summary="The sum is 7."),
    ]
    return steps[results]


@confined
def test_tasks_are_done_and_counted():
    """Agents at once do their tasks by typed calls; every call parses; later turns find their prompts in the cache."""
    outcomes = do(diligent, HELLO, SUM, number=4)
    assert [outcome.task for outcome in outcomes] == ["hello", "sum", "hello", "sum"]
    assert all(outcome.passed and outcome.ended == "finished" for outcome in outcomes)
    assert [outcome.turns for outcome in outcomes] == [2, 4, 2, 4]
    assert all(outcome.calls == outcome.parsed == outcome.turns for outcome in outcomes)
    assert outcomes[1].answer == "The sum is 7."
    for outcome in outcomes:
        assert 0 < outcome.forced < outcome.tokens
        assert outcome.later_cached_tokens > 0.85 * outcome.later_prompt_tokens
    found = report(outcomes, 2.0)
    assert found["total"]["passed"] == 4
    assert found["total"]["tokens"] == sum(outcome.tokens for outcome in outcomes)
    assert "4 of 4 tasks passed" in table(found)
    assert "12 of 12 calls parsed" in table(found)


@confined
def test_what_was_not_done_does_not_pass():
    """Saying that it is done is not enough; an answer counts where the check asks for one."""
    [lazy] = do(lambda _: tool_call("finish", summary="Done."), HELLO)
    assert (lazy.passed, lazy.ended, lazy.turns) == (False, "finished", 1)
    forged = Task("forged", "Write hello.", "import lib")
    script = [
        tool_call("write_file", path="lib.py", content="import os\nos._exit(0)\n"),
        tool_call("finish", summary=""),
    ]
    [outcome] = do(lambda text: script[text.count(RESULT)], forged)
    assert not outcome.passed  # the check was ended early by what it imported


@confined
def test_the_model_sees_what_its_calls_did():
    """Results, errors of tools and of programs are told, so that the next turn can mend them."""
    seen = []

    def script(text):
        seen.append(text.rpartition(RESULT)[2])
        steps = [
            tool_call("read_file", path="../secret"),
            tool_call("run_python", code="1 / 0"),
            tool_call("run_python", code="print('é')"),
            tool_call("finish", summary=""),
        ]
        return steps[text.count(RESULT)]

    do(script, Task("t", "Try.", "pass"))
    told = "\n".join(seen)
    assert "error: ../secret: paths are those of files" in told
    assert "ZeroDivisionError" in told
    assert "exit code 1" in told
    assert "\né\n" in told


@confined
def test_loops_are_ended():
    """A call made again is not made, but told of; the third time in a row ends the task. Turns are bounded too."""
    seen = []

    def again(text):
        seen.append(text)
        return tool_call("run_python", code="open('n', 'a').write('x')")

    [outcome] = do(again, Task("t", "Go.", "assert read('n') == 'x'"))
    assert (outcome.ended, outcome.turns, outcome.passed) == ("loop", 3, True)
    assert any("You made this call just now" in text for text in seen)
    [outcome] = do(
        lambda text: tool_call("read_file", path=f"f{text.count(RESULT)}"), Task("t", "Go.", "pass", max_turns=5)
    )
    assert (outcome.ended, outcome.turns) == ("turns", 5)


@confined
def test_free_replies_end_without_a_call():
    """With free replies a text is the end, and what a model repeats without end is cut."""
    steps = ["I will write it. " + tool_call("write_file", path="hello.txt", content="Hello\n"), "It is written."]
    settings = Settings(free=True)
    [outcome] = do(lambda text: steps[text.count(RESULT)], HELLO, settings=settings)
    assert (outcome.passed, outcome.ended, outcome.answer) == (True, "finished", "It is written.")
    [outcome] = do(lambda _: "la la " * 200, HELLO, settings=settings)
    assert (outcome.passed, outcome.ended) == (False, "cut")
    assert outcome.tokens < 200


@confined
def test_conversations_past_the_context_end():
    """A conversation that outgrows the context ends its task with the reason, and the other tasks go on."""
    long = Task("long", "Read it.", "pass", {"x": "x" * 9_000})

    def script(text):
        steps = [tool_call("read_file", path="x"), tool_call("finish", summary="")]
        return steps[text.count(RESULT)] if "Read it." in text else diligent(text)

    outcomes = do(script, long, HELLO, context_length=6_000)
    assert [outcome.ended for outcome in outcomes] == ["context", "finished"]
    assert "prompt" in outcomes[0].error
    assert outcomes[1].passed


@confined
def test_an_interrupt_ends_all_agents():
    """An error in the middle, such as an interrupt, ends the others after what they are doing, not after all turns."""
    turns = set()

    def script(text):
        if "Write hello." in text:
            return diligent(text)
        turns.add(text.count(RESULT))
        return tool_call("run_python", code=f"import time\ntime.sleep(0.3)  # {text.count(RESULT)}")

    def told(outcome):
        raise KeyboardInterrupt

    with running(scripted_model(script)) as batch, pytest.raises(KeyboardInterrupt):
        run([HELLO, Task("endless", "Go on.", "pass", max_turns=100)], batch, told=told)
    assert max(turns) < 20


@confined
def test_reply_limits_leave_calls_whole():
    """A limit that a call does not fit in completes it: it parses, with the text cut short."""
    write = tool_call("write_file", path="a.txt", content="long " * 100)
    steps = [write, tool_call("finish", summary="")]
    settings = Settings(max_tokens=100)
    [outcome] = do(lambda text: steps[text.count(RESULT)], Task("t", "Go.", "read('a.txt')"), settings=settings)
    assert outcome.calls == outcome.parsed == outcome.turns
    assert outcome.passed


def test_nothing_begins_where_programs_cannot_be_confined(monkeypatch):
    """Unconfined machines are refused before an agent begins."""
    monkeypatch.setattr("stcon.agents.sandbox.sys.platform", "darwin")
    asked = []
    with running(scripted_model(asked.append)) as batch, pytest.raises(Unconfined, match="Linux"):
        run([HELLO], batch)
    assert asked == []


def test_without_python_the_tool_is_not_offered():
    """With `python=False` no reply can call run_python: the grammar has no such call."""
    seen = []

    def script(text):
        seen.append(text)
        return tool_call("run_python", code="print(1)") if not text.count(RESULT) else tool_call("finish", summary="")

    [outcome] = do(script, Task("t", "Go.", "pass", max_turns=2), settings=Settings(python=False, max_tokens=64))
    assert not any('"name": "run_python"' in text for text in seen)
    assert outcome.calls == outcome.parsed


def test_parsed_means_typed():
    """A call counts as parsed if a validator takes its arguments for its tool."""
    assert is_typed("read_file", '{"path": "a"}')
    for name, arguments in [
        ("read_file", '{"path": 1}'),
        ("read_file", "{}"),
        ("read_file", '{"path": "a", "x": 1}'),
        ("read_file", '{"path"'),
        ("other", "{}"),
    ]:
        assert not is_typed(name, arguments)
    with Sandbox() as sandbox:
        assert call(sandbox, "read_file", {"path": "none"}).startswith("error: none: no such file")


# ------------------------------------------------------------------------------------------------- suites

SOLUTIONS = {
    "hello": {"hello.txt": "Hello, world!\n"},
    "sum": {"sum.txt": "1155"},
    "sort": {"names.txt": "Ada\nAlan\nEdsger\nGrace\n"},
    "config": {"config.json": '{"host": "localhost", "port": 8080, "debug": false}'},
    "csv": {"older.txt": "Bo\nDee\n"},
    "words": {"word.txt": "river"},
    "fix": {"mean.py": "def mean(values):\n    return sum(values) / len(values)\n"},
    "primes": {
        "primes.py": "def primes(n):\n    return [p for p in range(2, n + 1) if all(p % d for d in range(2, p))]\n"
    },
    "roman": {
        "roman.py": "VALUES = 1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1\n"
        "NUMERALS = 'M CM D CD C XC L XL X IX V IV I'.split()\n"
        "def roman(n):\n    out = ''\n    for value, numeral in zip(VALUES, NUMERALS):\n        while n >= value:\n"
        "            out += numeral\n            n -= value\n    return out\n"
    },
    "answer": {},
}


@confined
@pytest.mark.parametrize("name", SOLUTIONS)
def test_suite_can_be_solved_and_is_not_solved_yet(name):
    """Each task of the suite passes with its solution, and does not as it is given."""
    task = next(task for task in load_suite("small") if task.name == name)
    with Sandbox() as sandbox:
        task.prepare(sandbox)
        assert not task.passes(sandbox, "")
        for path, text in SOLUTIONS[name].items():
            sandbox.write_file(path, text)
        assert task.passes(sandbox, "It prints 5050.")


def test_suite_has_a_solution_for_each_task():
    """The table above is that of the suite."""
    assert [task.name for task in load_suite("small")] == list(SOLUTIONS)
    assert "small" in suite_names()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "1: not JSON"),
        ("[]", "object"),
        ('{"name": "a", "prompt": "b"}', "check"),
        ('{"name": "a", "prompt": "b", "check": "pass", "files": {"../x": ""}}', "files"),
        ('{"name": "a", "prompt": "b", "check": "pass", "files": ["x"]}', "files"),
        ('{"name": "a", "prompt": "b", "check": "pass", "max_turns": 0}', "max_turns"),
        ("", "no tasks"),
    ],
)
def test_bad_suites_are_refused(tmp_path, line, said):
    """The refusal names the file, the line and what is wrong."""
    path = tmp_path / "suite.jsonl"
    path.write_text(line)
    with pytest.raises(RequestError, match=said):
        load_suite(str(path))
    with pytest.raises(RequestError, match="no such suite"):
        load_suite(str(tmp_path / "none"))


@confined
def test_command(monkeypatch, tmp_path):
    """`stcon agents run` prints a line a task and writes the report; `list` names the suites."""
    (tmp_path / "suite.jsonl").write_text(
        json.dumps({"name": "hello", "prompt": "Write hello.", "check": "assert read('hello.txt') == 'Hello\\n'"})
    )
    monkeypatch.setattr("stcon.commands.generate.load", lambda name: scripted_model(diligent))
    monkeypatch.setattr(
        "stcon.engine.batch.choose.rows_for", lambda model, slots: SessionRows(model, slots, token_bytes=64)
    )
    command = [
        "agents",
        "run",
        str(tmp_path / "suite.jsonl"),
        "-n",
        "2",
        "--slots",
        "2",
        "--json",
        str(tmp_path / "out.json"),
    ]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "2 of 2 tasks passed" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert [one["passed"] for one in found["outcomes"]] == [True, True]
    assert "small: hello" in CliRunner().invoke(cli, ["agents", "list"]).stdout
    assert CliRunner().invoke(cli, ["agents", "run", "no-such"]).exit_code == 2
