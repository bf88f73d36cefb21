"""curl against the server: an answer, a stream as it comes, a refusal, a key."""

import json
import shutil
import subprocess

import jsonschema
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_batch_files import SCHEMA, strict
from test_server import CHAT, body, chunks, running

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")


@pytest.fixture(scope="module")
def url():
    with running(api_key="sesame") as server:
        yield server.url


def curl(url, asked, *options, key="sesame"):
    """What curl prints for a POST."""
    command = ["curl", "-sS", "-N", "-m", "120", url, "-H", "Content-Type: application/json", "-d", json.dumps(asked)]
    header = ["-H", f"Authorization: Bearer {key}"]
    return subprocess.run(
        [*command, *header, *options], capture_output=True, text=True, check=False, timeout=180
    ).stdout


def test_an_answer_and_a_stream(url):
    """The answer is of its schema, and the stream's pieces make it."""
    asked = body(2, response_format=strict())
    text = json.loads(curl(url + CHAT, asked))["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(text), SCHEMA)
    streamed = chunks(curl(url + CHAT, {**asked, "stream": True}))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed) == text


def test_refusals_have_their_status(url):
    """A wrong schema is a 400, a wrong key a 401; `--fail` sees both."""
    wrong = body(1, response_format=strict({"type": "objekt"}))
    status = ("-o", "/dev/null", "-w", "%{http_code}")
    assert curl(url + CHAT, wrong, *status) == "400"
    assert curl(url + CHAT, body(1), *status, key="wrong") == "401"
    assert curl(url + CHAT, wrong, "--fail") == ""
