"""``vllm serve`` with our flags and OpenAI's client: formats, tools, streams, refusals, hostile requests beside others.

The server runs as users run it, in several processes, with forced text drafted. Skipped where there is no vLLM.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from integration_matrix import extractions, model_directory, package_missing
from jsonschema import Draft202012Validator
from vllm_process import LOG_TAIL, vllm_environment, vllm_python, why_no_vllm

import stcon

NO_VLLM = why_no_vllm() or package_missing("openai", "transformers", "gguf")
pytestmark = [pytest.mark.model, pytest.mark.long, pytest.mark.skipif(NO_VLLM is not None, reason=str(NO_VLLM))]

START_S = 600
COMPILE_S = 20
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
# vLLM leaves the arguments of tools that are not strict to the model
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "strict": True, "parameters": WEATHER}},
    {"type": "function", "function": {"name": "clock", "strict": True, "parameters": NOTHING}},
]
QUESTION: Any = [{"role": "user", "content": "What will the weather be in Oslo in the next 3 days?"}]
# a minute of compiling and more
HOSTILE: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {f"k{i}": {"type": "integer"}, f"k{i * 7 % 300}": {"type": "string"}},
            "required": [f"k{i}"],
        }
        for i in range(300)
    ]
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """OpenAI's client of a server that has started."""
    import openai

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with log.open("w") as messages:
        server = subprocess.Popen(
            _command(port),
            stdout=messages,
            stderr=subprocess.STDOUT,
            env=vllm_environment(STCON_VLLM_COMPILE_SECONDS=str(COMPILE_S)),
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", server, log)
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=300, max_retries=0)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _command(port: int) -> list[str]:
    python = vllm_python()
    assert python is not None
    flags = subprocess.run(
        [python, "-m", "stcon.integrations.vllm", "--forced"], check=True, capture_output=True, text=True
    ).stdout.split()
    small = ["--enforce-eager", "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "4"]
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command = [python, str(Path(__file__).with_name("vllm_serve.py")), "serve"]
    serve = [*command, str(model_directory()), "--served-model-name", "smol"]
    return [*serve, "--host", "127.0.0.1", "--port", str(port), *small, *tools, *flags]


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    pytest.fail(f"the server did not start:\n{log.read_text('utf-8', 'replace')[-LOG_TAIL:]}")


def test_response_format(client: Any) -> None:
    """``response_format`` with a schema: valid, and complete within ``max_tokens``."""
    work = extractions()["person"]
    answer = client.chat.completions.create(
        model="smol",
        messages=[{"role": "user", "content": work.prompt}],
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": work.schema}},
        max_tokens=60,
        temperature=1.0,
        seed=7,
        n=2,
    )
    assert len(answer.choices) == 2
    assert all(work.is_valid(choice.message.content) for choice in answer.choices)
    assert answer.usage.completion_tokens <= 120


def test_streams(client: Any) -> None:
    """A stream has the same text as a whole answer."""
    asked: dict[str, Any] = {
        "model": "smol",
        "messages": QUESTION,
        "response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}},
        "max_tokens": 40,
        "temperature": 0.0,
    }
    whole = client.chat.completions.create(**asked).choices[0].message.content
    pieces = [part.choices[0].delta.content or "" for part in client.chat.completions.create(**asked, stream=True)]
    assert "".join(pieces) == whole
    assert Draft202012Validator(WEATHER).is_valid(json.loads(whole))


@pytest.mark.parametrize(
    ("structured", "grammar"),
    [
        ({"regex": "(sun|rain){1,3}"}, stcon.compile_regex("(sun|rain){1,3}")),
        ({"choice": ["sunny", "wet"]}, stcon.compile_regex("sunny|wet")),
        ({"grammar": 'root ::= "(" root? ")"'}, stcon.compile_grammar('root ::= "(" root? ")"', syntax="gbnf")),
    ],
)
def test_structured_outputs(client: Any, structured: dict[str, Any], grammar: stcon.Grammar) -> None:
    """``structured_outputs`` in vLLM's spelling, and settings of ours in ``vllm_xargs``."""
    answer = client.chat.completions.create(
        model="smol",
        messages=QUESTION,
        max_tokens=20,
        extra_body={"structured_outputs": structured, "vllm_xargs": {"stcon_mode": "any"}},
    )
    assert grammar.accepts(answer.choices[0].message.content)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_tools(client: Any, choice: Any) -> None:
    """A tool that must be called is called with arguments of its schema."""
    answer = client.chat.completions.create(
        model="smol", messages=QUESTION, tools=TOOLS, tool_choice=choice, max_tokens=120, temperature=0.0
    )
    calls = answer.choices[0].message.tool_calls
    assert calls
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    for call in calls:
        assert Draft202012Validator(schemas[call.function.name]).is_valid(json.loads(call.function.arguments))
    if choice != "required":
        assert [call.function.name for call in calls] == ["weather"]


def test_free_answers(client: Any) -> None:
    """A request without a constraint is answered as ever."""
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=10)
    assert answer.choices[0].message.content


@pytest.mark.parametrize(
    ("schema", "more", "reason"),
    [
        ({"type": "objekt"}, {}, "type must be a type name"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, {}, "no JSON value satisfies"),
        (WEATHER, {"max_tokens": 3}, "where 3 are allowed"),
        (WEATHER, {"extra_body": {"min_tokens": 5}}, "min_tokens"),
        (WEATHER, {"extra_body": {"vllm_xargs": {"stcon_color": "red"}}}, "stcon_color"),
    ],
)
def test_refusals_are_bad_requests(client: Any, schema: Any, more: dict[str, Any], reason: str) -> None:
    """What cannot be served is answered with 400 and the reason."""
    import openai

    body = {"max_tokens": 40, **more}
    with pytest.raises(openai.BadRequestError, match=reason):
        client.chat.completions.create(
            model="smol",
            messages=QUESTION,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
            **body,
        )


def test_hostile_schemas_stall_nobody(client: Any) -> None:
    """While hostile schemas compile, other answers come as ever; then they are refused, and new schemas are served."""
    import openai

    def hostile(number: int) -> None:
        schema = {"type": "object", "properties": {f"x{number}": HOSTILE}, "required": [f"x{number}"]}
        client.chat.completions.create(
            model="smol",
            messages=QUESTION,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
            max_tokens=400,
        )

    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(hostile, number) for number in range(2)]
        answers = 0
        while not all(one.done() for one in waiting):
            client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=5)
            answers += 1
        for one in waiting:
            with pytest.raises(openai.BadRequestError, match="not compiled within"):
                one.result()
    assert answers > 2
    test_structured_outputs(client, {"regex": "[ab]{4}"}, stcon.compile_regex("[ab]{4}"))
