"""Parallel and sequence-wise requests through the server: the answers of plain ones, and what is said of how."""

import json

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from test_server import CHAT, running  # noqa: E402

WORD = {"type": "string", "pattern": "^[a-e]{1,8}$"}
SCHEMA = {
    "type": "object",
    "properties": dict.fromkeys(("name", "city", "land"), WORD) | {"status": {"enum": ["open", "shut"]}},
    "required": ["name", "city", "land", "status"],
}
BODY = {
    "messages": [{"role": "user", "content": "Who?"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "max_tokens": 120,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def server():
    with running(slots=8) as found:
        yield found


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=120) as found:
        yield found


def asked(client, path=CHAT, **more):
    """The body of an answer that is one."""
    response = client.post(path, json={**BODY, **more})
    assert response.status_code == 200, response.text
    return response.json()


def test_parallel_answers_are_the_plain_ones(client, server):
    """The same text; usage says fields, rounds, looks, repairs and passes."""
    plain, side = asked(client), asked(client, stcon={"parallel": True})
    assert plain["choices"][0]["message"] == side["choices"][0]["message"]
    usage = side["usage"]["stcon"]
    assert usage["parallel"]["fields"] == 4
    assert usage["parallel"]["sequential_passes"] >= usage["passes"]
    assert {"rounds", "looks", "repaired", "accepted", "row_passes"} <= set(usage["parallel"])
    assert "parallel" not in plain["usage"]["stcon"]
    assert server.idle()


def test_parallel_streams_have_the_same_text(client):
    """Chunks are certified text; the last one has the counts."""
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}, "stcon": {"parallel": True}}
    text, usage = "", None
    with client.stream("POST", CHAT, json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                usage = chunk.get("usage") or usage
                text += "".join(choice["delta"].get("content", "") for choice in chunk["choices"])
    assert text == asked(client)["choices"][0]["message"]["content"]
    assert usage["stcon"]["parallel"]["fields"] == 4


def test_decide_gives_every_option_with_its_probability(client):
    """A choice, and an enum among other fields; probabilities fall, the first is taken, and none is more than 1."""
    body = {**BODY, "structured_outputs": {"choice": ["yes", "no", "perhaps"]}, "stcon": {"decide": "sequence"}}
    del body["response_format"]
    response = client.post(CHAT, json=body).json()
    (decision,) = response["usage"]["stcon"]["decisions"]
    assert {option["text"] for option in decision["options"]} == {"yes", "no", "perhaps"}
    assert response["choices"][0]["message"]["content"] == decision["options"][0]["text"]
    scores = [option["logprob"] for option in decision["options"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] <= 0
    (decision,) = asked(client, stcon={"decide": "sequence"})["usage"]["stcon"]["decisions"]
    assert {option["text"] for option in decision["options"]} == {'"open"', '"shut"'}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"response_format": None, "stcon": {"parallel": True}}, "parallel"),
        ({"n": 2, "stcon": {"parallel": True}}, "parallel"),
        ({"stcon": {"parallel": True, "guards": {"repeat": True}}}, "parallel"),
        ({"stcon": {"parallel": "yes"}}, "stcon.parallel"),
        ({"stcon": {"decide": "sequence", "parallel": True}}, "parallel"),
        ({"logprobs": True, "stcon": {"decide": "sequence"}}, "decide"),
        ({"frequency_penalty": 1.0, "stcon": {"decide": "sequence"}}, "decide"),
        ({"stcon": {"decide": "best"}}, "decide"),
    ],
)
def test_combinations_that_cannot_be_are_refused(client, more, param):
    """With 400 and the parameter."""
    response = client.post(CHAT, json={**BODY, **more})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_responses_take_the_option_too(client):
    """/v1/responses says the same of it."""
    body = {
        "input": "Who?",
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        "max_output_tokens": 120,
        "temperature": 0,
        "stcon": {"parallel": True},
    }
    response = client.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["stcon"]["parallel"]["fields"] == 4


def test_serve_parallel_is_for_requests_that_say_nothing():
    """With the server's own option constrained requests are parallel, unless they cannot be or say no."""
    with running(slots=8) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        server.server.parallel = True
        assert "parallel" in asked(client)["usage"]["stcon"]
        assert "parallel" not in asked(client, stcon={"parallel": False})["usage"]["stcon"]
        assert "parallel" not in asked(client, n=2)["usage"]["stcon"]
        assert "parallel" not in asked(client, response_format=None)["usage"]["stcon"]
        assert "decisions" in asked(client, stcon={"decide": "sequence"})["usage"]["stcon"]
