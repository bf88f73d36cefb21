"""``python -m stcon.integrations.mlx_lm``: mlx_lm.server over HTTP with constraints, on a tiny random Llama."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (the extra mlx)")
pytest.importorskip("torch")

import httpx
import tiny_llama
from tiny_networks import PERSON, TREE

MESSAGES = [{"role": "user", "content": "Who is here?"}]
START_S = 180


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server."""
    folder = tmp_path_factory.mktemp("mlx")
    tiny_llama.save(folder / "model", max_position_embeddings=1024)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "stcon.integrations.mlx_lm", "--model", str(folder / "model")]
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}/v1/chat/completions"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(root: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{root}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(log.read_text())


def body(schema: dict[str, Any] | None, **options: Any) -> dict[str, Any]:
    constraint = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return {"messages": MESSAGES, "max_tokens": 60, **({"response_format": constraint} if schema else {}), **options}


def post(url: str, sent: dict[str, Any]) -> httpx.Response:
    return httpx.post(url, json=sent, timeout=START_S)


@pytest.mark.parametrize("schema", [PERSON, TREE], ids=["person", "tree"])
def test_response_format_is_enforced_within_the_limit(url: str, schema: dict[str, Any]) -> None:
    """Plain and recursive schemas, at temperature 0 and above, streamed or not."""
    from jsonschema import Draft202012Validator

    for options in ({}, {"temperature": 1.0}):
        found = post(url, body(schema, **options)).json()
        text = found["choices"][0]["message"]["content"]
        Draft202012Validator(schema).validate(json.loads(text))
        assert found["usage"]["completion_tokens"] <= 60
    lines = post(url, body(schema, stream=True)).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
    Draft202012Validator(schema).validate(json.loads(text))


def test_a_request_without_constraint_is_free(url: str) -> None:
    """As mlx-lm answers it."""
    found = post(url, body(None, max_tokens=5))
    assert found.status_code == 200
    assert found.json()["usage"]["completion_tokens"] <= 5


@pytest.mark.parametrize(
    "sent",
    [
        body(PERSON, tools=[{"type": "function", "function": {"name": "f"}}]),
        body({"type": "nothing"}),
        body(PERSON, max_tokens=2),
    ],
    ids=["tools", "schema", "limit"],
)
def test_what_cannot_be_enforced_is_refused(url: str, sent: dict[str, Any]) -> None:
    """400, with a reason, and nothing is generated."""
    found = post(url, sent)
    assert found.status_code == 400
    assert found.json()["error"]
