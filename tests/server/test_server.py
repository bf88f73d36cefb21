"""The HTTP server over a model without weights: answers, streams, refusals, clients that go away, many at once."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from test_batch_files import SCHEMA, make_model, strict  # noqa: E402

from stcon.engine.batch import Batch, MemoryPlan, SessionRows  # noqa: E402
from stcon.engine.batch.warm import warm_up  # noqa: E402
from stcon.server.app import Limits, Server  # noqa: E402

CHAT = "/v1/chat/completions"


class Running:
    """A server on a free port, in a thread."""

    def __init__(self, slots=4, max_waiting=512, api_key=None, model=None, **limits):
        memory = MemoryPlan(0, 1 << 16, 0, 1 << 26, 0, slots, 0, 64)
        rows = SessionRows(model or make_model(), slots, token_bytes=64)
        self.batch = Batch(rows, memory=memory, max_waiting=max_waiting)
        warm_up(self.batch)
        self.server = Server(self.batch.start(), name="fake", api_key=api_key, limits=Limits(**limits))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = uvicorn.Config(self.server.app(), port=self.port, log_level="error", timeout_graceful_shutdown=10)
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 60
        while not self.uvicorn.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.uvicorn.should_exit = True
        self.thread.join(60)

    def idle(self, patience_s=60):
        """Whether every row and all memory come back."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if not self.batch.num_active and not self.batch.num_waiting and not self.batch._used_rows:
                return self.batch._used_bytes == 0
            time.sleep(0.01)
        return False


@contextlib.contextmanager
def running(**options):
    server = Running(**options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=120) as found:
        yield found


def body(number=0, **more):
    """A chat request."""
    message = {"role": "user", "content": f"Number {number}."}
    return {"model": "default", "messages": [message], "max_tokens": 40, "seed": number, **more}


def chunks(text):
    """The data of server-sent events, the last of which is [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_chat_answers_and_streams_are_the_same(client):
    """The chunks of a stream add up to the whole answer, for each of n outputs; usage comes last if asked for."""
    asked = body(3, n=2, response_format=strict())
    whole = client.post(CHAT, json=asked).json()
    streamed = chunks(client.post(CHAT, json={**asked, "stream": True, "stream_options": {"include_usage": True}}).text)
    for choice in whole["choices"]:
        mine = [chunk["choices"][0] for chunk in streamed if chunk["choices"]]
        mine = [found for found in mine if found["index"] == choice["index"]]
        assert "".join(found["delta"].get("content", "") for found in mine) == choice["message"]["content"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        assert set(json.loads(choice["message"]["content"])) == set(SCHEMA["required"])
    counted = streamed[-1]["usage"]
    assert counted["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert counted["stcon"]["forced_tokens"] > 0


def test_trace_says_what_was_forced(client):
    """With `stcon.trace`, the chunks carry tokens with their kinds, and the count to the shortest ending."""
    streamed = chunks(
        client.post(CHAT, json=body(1, stream=True, response_format=strict(), stcon={"trace": True})).text
    )
    traces = [chunk["stcon"] for chunk in streamed if "stcon" in chunk]
    kinds = {token["kind"] for trace in traces for token in trace["tokens"]}
    assert {"sampled", "forced"} <= kinds
    assert traces[0]["need"] > 0


def test_text_models_health_metrics_and_check(client):
    """The other endpoints answer in their formats."""
    text = client.post("/v1/completions", json={"prompt": "Once", "max_tokens": 5, "temperature": 0}).json()
    assert text["object"] == "text_completion"
    assert client.get("/v1/models").json()["data"][0]["id"] == "fake"
    assert client.get("/health").json()["status"] == "ok"
    assert "stcon_steps_total" in client.get("/metrics").text
    checked = client.post("/v1/grammar/check", json={"response_format": strict()}).json()
    assert checked["kind"] == "json"
    refused = client.post("/v1/grammar/check", json={"response_format": strict({"type": "objekt"})})
    assert (refused.status_code, refused.json()["error"]["param"].split("/")[0]) == (
        400,
        "response_format.json_schema.schema",
    )


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[1]", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (json.dumps(body(model="gpt-4")).encode(), 404, "model_not_found"),
        (json.dumps(body(no_such=1)).encode(), 400, "unknown_parameter"),
        (b" " * (9 << 20), 413, "body_too_large"),
    ],
)
def test_bad_bodies_are_refused(client, content, status, code):
    """What is not understood is an error in OpenAI's format, never a 500, and never an unconstrained answer."""
    answer = client.post(CHAT, content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_api_key():
    """With a key, requests without it are refused; health stays open."""
    with running(api_key="sesame") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.post(CHAT, json=body()).status_code == 401
        assert client.post(CHAT, json=body(), headers={"Authorization": "Bearer sesam"}).status_code == 401
        assert client.post(CHAT, json=body(), headers={"Authorization": "Bearer sesame"}).status_code == 200
        assert client.get("/health").status_code == 200


def test_many_requests_at_once_on_few_slots(server):
    """Two hundred at once on four slots: every one is answered, as it would be alone."""

    async def main():
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=limits) as client:
            wanted = [body(number % 7, response_format=strict()) for number in range(200)]
            answers = await asyncio.gather(*(client.post(CHAT, json=one) for one in wanted))
            return [answer.json()["choices"][0]["message"]["content"] for answer in answers]

    texts = asyncio.run(main())
    assert all(texts[number] == texts[number % 7] for number in range(200))
    assert len(set(texts)) > 3
    assert server.idle()


def test_clients_that_go_away_free_their_rows(server):
    """Connections closed in the middle of streams, and before answers: no row is lost, the next answer is the same."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        before = client.post(CHAT, json=body(2, response_format=strict())).json()["choices"]
        for number in range(25):
            with client.stream("POST", CHAT, json=body(number, stream=True, max_tokens=3000)) as answer:
                next(answer.iter_raw())
            with contextlib.suppress(httpx.TimeoutException):
                httpx.post(server.url + CHAT, json=body(number, max_tokens=3000), timeout=0.05)
        assert server.idle()
        assert client.post(CHAT, json=body(2, response_format=strict())).json()["choices"] == before


CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", {port}))
data = {data!r}
head = b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(data)
connection.sendall(head + data)
connection.recv(400)
print("reading", flush=True)
connection.recv(1)
sys.stdin.read()
"""


@pytest.mark.long
def test_five_hundred_killed_clients_lose_nothing(server):
    """Clients killed with signal 9 in the middle of a stream, 500 of them, and slow readers beside them."""
    data = json.dumps(body(1, stream=True, max_tokens=3000)).encode()
    program = CLIENT.format(port=server.port, data=data)
    with httpx.Client(base_url=server.url, timeout=120) as client:
        before = client.post(CHAT, json=body(2, response_format=strict())).json()["choices"]
        slow = client.stream("POST", CHAT, json=body(5, stream=True, max_tokens=400))
        with slow as answer:
            pieces = answer.iter_raw()
            for _ in range(50):
                killed = [
                    subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                    for _ in range(10)
                ]
                for process in killed:
                    assert process.stdout.readline() == b"reading\n"
                    process.kill()
                    process.wait()
                next(pieces, None)
        assert server.idle()
        assert client.post(CHAT, json=body(2, response_format=strict())).json()["choices"] == before


def test_full_queue_is_told_to_come_back():
    """More requests than may wait get 429 with Retry-After; those that were taken are answered."""
    with running(slots=1, max_waiting=2) as server:

        async def main():
            async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
                return await asyncio.gather(*(client.post(CHAT, json=body(i, max_tokens=400)) for i in range(20)))

        answers = asyncio.run(main())
        assert {answer.status_code for answer in answers} == {200, 429}
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "overloaded"


def test_shutdown_finishes_rows():
    """A server that is told to stop finishes the answers under way."""
    with running(slots=2) as server:
        found = []

        def ask():
            found.append(httpx.post(server.url + CHAT, json=body(1, max_tokens=500), timeout=60))

        thread = threading.Thread(target=ask)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.batch.num_active and time.monotonic() < deadline:
            time.sleep(0.002)
        server.stop()
        thread.join(60)
    assert found[0].status_code == 200
    assert not server.batch.num_active
