"""Bodies that no client would send: every answer is one of the document's, none is a 500."""

import copy
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_batch_files import strict  # noqa: E402
from test_server import running  # noqa: E402
from test_tool_calls import TOOLS  # noqa: E402

from stcon.server.openapi import document  # noqa: E402

CHAT = {
    "model": "default", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 60, "seed": 1, "n": 1,
    "temperature": 0.5, "top_p": 0.9, "logprobs": True, "top_logprobs": 2, "stop": ["x"], "logit_bias": {"3": 1},
    "stcon": {"budget": True, "thinking": {"max_tokens": 3}, "guards": {"repeat": True}}, "stream": False,
}  # fmt: skip
TOOLED = {**CHAT, "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True}
TOOLED.pop("stop")
BODIES = [
    ("/v1/chat/completions", {**CHAT, "response_format": strict()}),
    ("/v1/chat/completions", {**CHAT, "structured_outputs": {"choice": ["a", "b"]}}),
    ("/v1/chat/completions", TOOLED),
    ("/v1/chat/completions", {**TOOLED, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 8, "guided_regex": "[a-c]{2}", "logprobs": 1}),
    ("/v1/completions", {"prompt": [1, 2], "max_tokens": 8, "grammar": 'root ::= "a" | "b"'}),
    ("/v1/responses", {"input": [{"role": "user", "content": "x"}], "max_output_tokens": 60, "reasoning": {}}),
    ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 90}),
    ("/v1/grammar/check", {"json_schema": {"type": "array", "items": {"$ref": "#"}}, "text": "[[]]"}),
]
JUNK = [
    None, True, False, 0, -1, 1, 2**31, 2**64, 10**400, 0.5, -0.0, 1e308, "", "x", "\x00", "\ud800", "é" * 50, [], [[]],
    {}, {"type": "x"}, {"": None}, [None], ["a", 1], {"type": "object"}, "json_schema", {"$ref": "#/x"}, "function",
]  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture
def url(server):
    return server.url


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def mutated(body, draw):
    """`body` with a few places changed, removed, added or put somewhere else."""
    body = copy.deepcopy(body)
    for _ in range(draw.randint(1, 3)):
        path = draw.choice([path for path in places(body) if path])
        parent = body
        for key in path[:-1]:
            parent = parent[key]
        change = draw.randrange(4)
        if change == 0:
            del parent[path[-1]]
        elif change == 1 and isinstance(parent, dict):
            parent[draw.choice(["type", "x", "n", "$ref", "strict", "name", "stcon"])] = draw.choice(JUNK)
        else:
            parent[path[-1]] = copy.deepcopy(draw.choice(JUNK))
        if not isinstance(body, dict) or not body:
            return body
    return body


def check(answer):
    """The answer is one that the document has; errors have OpenAI's body."""
    assert answer.status_code in (200, 400, 404, 413, 429), answer.text[:300]
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    elif "text/event-stream" in str(answer.headers["content-type"]):  # of schemathesis, headers are lists
        assert "server_error" not in answer.text


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_mutated_bodies_never_break_the_server(server, path, body):
    """Each body as it is gives 200; fifty mutations of it give an answer or a refusal, and no row is lost."""
    draw = random.Random(path + json.dumps(body))
    with httpx.Client(base_url=server.url, timeout=120) as client:
        assert client.post(path, json=body).status_code == 200
        for _ in range(50):
            check(client.post(path, content=json.dumps(mutated(body, draw))))
    assert server.idle()


@pytest.mark.parametrize("path", [path for path, methods in document()["paths"].items() if "post" in methods])
def test_bytes_that_are_no_body(url, path):
    """Not JSON, not an object, NaN, deep nesting, nothing: refused."""
    for content in (b"", b"\xff", b"3", b"null", b"[" * 10_000, b'{"messages": NaN}', b'{"a":' * 3_000, b"{}"):
        assert httpx.post(url + path, content=content, timeout=60).status_code == 400


def test_other_paths_and_methods(url):
    """What is not there says so in OpenAI's error body; the document is served."""
    assert httpx.get(url + "/openapi.json").json() == document()
    for method, path, status in [("GET", "/v1/nothing", 404), ("GET", "/v1/completions", 405), ("PUT", "/health", 405)]:
        answer = httpx.request(method, url + path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, "invalid_request_error")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_the_document_fuzzed(server, mode):
    """Whatever schemathesis makes of the document, valid and not: no 500, and answers of the described kinds."""
    schemathesis = pytest.importorskip("schemathesis")
    described = schemathesis.openapi.from_url(server.url + "/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == len(document()["paths"])
    for operation in operations:
        cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])

        @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=cases)
        def fuzz(case):
            check(case.call(timeout=120))

        if operation.body or mode == "POSITIVE":  # without a body nothing can be sent that is not valid
            fuzz()
    assert server.idle()
