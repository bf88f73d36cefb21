"""What keeps one client from taking all: compile time, grammars by bytes, slow readers, keys, secrets in errors."""

import asyncio
import contextlib
import hmac
import json
import socket
import threading
import time

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_batch_files import SCHEMA, make_model, strict  # noqa: E402
from test_server import CHAT, body, chunks, running  # noqa: E402

from stcon.server.grammars import Grammars  # noqa: E402

# schemas and patterns that would take for ever, or all memory, if nothing bounded them
_NESTED = {"type": "array"}
for _ in range(500):
    _NESTED = {"type": "array", "items": _NESTED}
HOSTILE = [
    {"response_format": strict({"type": "string", "pattern": "(a|b)*a(a|b){40}c(.*x){12}y"})},
    {"response_format": strict({"allOf": [{"type": "string", "pattern": f"x.{{{n}}}y"} for n in range(3, 40)]})},
    {"response_format": strict(_NESTED)},
    {"response_format": strict({"type": "integer", "multipleOf": 999_999_937})},
    {"response_format": strict({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}})},
    {"response_format": strict({"not": {"not": {"type": "objekt"}}})},
    {"structured_outputs": {"regex": "((a{1,100}){1,100}){1,100}b"}},
    {"structured_outputs": {"grammar": "root ::= root root | root"}},
    {"structured_outputs": {"choice": ["x"] * 10_001}},
    {"tools": [{"type": "function", "function": {"name": f"t{i}", "parameters": {"properties": {
        f"p{k}": {"type": "string", "pattern": f"a{{{k}}}.*b{{{i}}}"} for k in range(40)}}}} for i in range(60)],
     "tool_choice": "required"},
]  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


def test_hostile_constraints_leave_others_their_pace(server):
    """Each is refused with 400 within its time (or answered), while a stream beside them goes on."""
    gaps, stop = [], threading.Event()

    def read():
        with httpx.Client(base_url=server.url, timeout=120) as client:
            while not stop.is_set():
                with client.stream("POST", CHAT, json=body(3, stream=True, max_tokens=2000)) as answer:
                    last = time.monotonic()
                    for _ in answer.iter_raw():
                        gaps.append(time.monotonic() - last)
                        last = time.monotonic()
                        if stop.is_set():
                            break

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for hostile in HOSTILE:
            started = time.monotonic()
            answer = httpx.post(server.url + CHAT, json=body(1, max_tokens=30, **hostile), timeout=60)
            assert answer.status_code in (200, 400), answer.text[:200]
            assert time.monotonic() - started < server.server.limits.prepare_s + 5
            if answer.status_code == 200:
                assert answer.json()["choices"][0]["finish_reason"] in ("stop", "length", "tool_calls")
    finally:
        stop.set()
        reader.join(60)
    assert len(gaps) > 100
    assert sorted(gaps)[len(gaps) // 2] < 0.5
    assert max(gaps) < 5
    assert server.idle()


def test_a_slow_compile_is_given_up():
    """Past the time that preparing may take the client is told so; the server goes on."""
    with running(prepare_s=0.0001) as server:
        schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": "a+b"} for i in range(50)}}
        answer = httpx.post(server.url + CHAT, json=body(1, response_format=strict(schema)), timeout=60)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert "not prepared" in answer.json()["error"]["message"]
        assert server.idle()


def test_slow_readers_do_not_hold_up_others(server):
    """A client that reads nothing of its long stream: others get theirs meanwhile, and its own is whole at the end."""
    data = json.dumps(body(4, stream=True, max_tokens=3000)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(head + data)
        for number in range(4):
            assert httpx.post(server.url + CHAT, json=body(number, max_tokens=20), timeout=60).status_code == 200
        received = b""
        slow.settimeout(60)
        while part := slow.recv(1 << 16):
            received += part
    assert b"data: [DONE]" in received
    assert server.idle()


def test_keys_are_compared_in_constant_time(monkeypatch):
    """Every key that is sent goes through `hmac.compare_digest`, one of another length or no ASCII too."""
    compared = []

    def compare(given, wanted):
        compared.append(given)
        return hmac_compare(given, wanted)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr("stcon.server.app.hmac.compare_digest", compare)
    with running(api_key="sesame") as server:
        for given in ("sesam", "sesame!", "x" * 5000, "sésame"):
            headers = {"Authorization": f"Bearer {given}".encode()}
            answer = httpx.post(server.url + CHAT, json=body(), headers=headers, timeout=60)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert len(compared) == 4
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            assert httpx.get(server.url + path).status_code == 401


def test_errors_tell_no_secrets(server, monkeypatch):
    """What fails inside says that it failed, and nothing of where or how."""

    def fail(*_, **__):
        raise RuntimeError("/secret/path: key=hunter2")

    monkeypatch.setattr("stcon.server.app.chat_request", fail)
    answer = httpx.post(server.url + CHAT, json=body(), timeout=60)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "hunter2" not in answer.text


def test_grammars_are_kept_by_bytes():
    """The cache drops what was used longest ago when grammars, rows and budgets take more than they may."""
    vocabulary = make_model().vocabulary
    grammars = Grammars(max_bytes=1, vocabulary=vocabulary)
    first = grammars.regex("a+")
    assert grammars.regex("a+") is first  # the newest is kept, whatever it takes
    grammars.regex("b+")
    assert len(grammars) == 1
    assert grammars.regex("a+") is not first
    roomy = Grammars(vocabulary=vocabulary)
    kept = [roomy.regex(f"a{{{n}}}") for n in range(1, 40)]
    assert roomy.nbytes > 0
    assert all(roomy.regex(f"a{{{n}}}") is kept[n - 1] for n in range(1, 40))


def test_the_tables_of_a_budget_live_as_long_as_the_grammar():
    """More grammars than kernels stay warm by themselves: the table is not built again."""
    from stcon.constraint.budget import budget_for
    from stcon.constraint.sharing import kernel_for

    vocabulary = make_model().vocabulary
    grammars = Grammars(vocabulary=vocabulary)
    first = grammars.schema(SCHEMA)
    budget = budget_for(kernel_for(first.machine, vocabulary))
    number = id(budget)
    del budget
    for n in range(1, 20):
        kernel_for(grammars.regex(f"b{{{n}}}").machine, vocabulary)
    assert id(budget_for(kernel_for(grammars.schema(SCHEMA).machine, vocabulary))) == number


def test_penalties_change_what_is_drawn(server):
    """A frequency penalty of 2 leaves fewer repeated tokens than one of -2; a bias of -100 forbids a token."""

    def repeats(penalty):
        asked = body(
            3, max_tokens=120, frequency_penalty=penalty, presence_penalty=penalty, logprobs=True, temperature=1
        )
        content = httpx.post(server.url + CHAT, json=asked, timeout=60).json()["choices"][0]["logprobs"]["content"]
        tokens = [tuple(entry["bytes"]) for entry in content]
        return len(tokens) - len(set(tokens))

    assert repeats(2.0) < repeats(-2.0)
    plain = httpx.post(server.url + CHAT, json=body(5, temperature=0), timeout=60).json()["choices"][0]["message"]
    first = plain["content"].encode()[:1]
    biased = body(5, temperature=0, logit_bias={str(token): -100 for token in range(make_model().vocabulary.size) if
                  (make_model().vocabulary.token_bytes(token) or b"x")[:1] == first})  # fmt: skip
    other = httpx.post(server.url + CHAT, json=biased, timeout=60).json()["choices"][0]["message"]["content"]
    assert other.encode()[:1] != first


def test_n_outputs_are_those_of_n_seeds(server):
    """Output i of n is what the seed plus i gives alone."""
    several = httpx.post(server.url + CHAT, json=body(6, n=3, response_format=strict()), timeout=60).json()
    for index, choice in enumerate(several["choices"]):
        asked = {**body(6, response_format=strict()), "seed": 6 + index}
        alone = httpx.post(server.url + CHAT, json=asked, timeout=60).json()["choices"][0]
        assert choice["message"]["content"] == alone["message"]["content"]


def test_streams_of_text_have_their_scores(server):
    """/v1/completions: the scores of a stream's chunks are those of the whole answer, offsets included."""
    asked = {"prompt": "Once", "max_tokens": 12, "seed": 3, "logprobs": 2}
    whole = httpx.post(server.url + "/v1/completions", json=asked, timeout=60).json()["choices"][0]["logprobs"]
    text = httpx.post(server.url + "/v1/completions", json={**asked, "stream": True}, timeout=60).text
    found = [chunk["choices"][0]["logprobs"] for chunk in chunks(text) if chunk["choices"][0]["logprobs"]]
    for name, wanted in whole.items():
        assert [value for one in found for value in one[name]] == wanted


def test_usage_says_what_an_answer_needed(server):
    """`usage.stcon`: passes, forced tokens and need, in chat, completions, responses; whole and in streams."""
    schema = {"type": "json_schema", "name": "x", "schema": SCHEMA}
    asked = [
        (CHAT, body(1, response_format=strict())),
        ("/v1/completions", {"prompt": "x", "max_tokens": 40, "seed": 1, "json_schema": SCHEMA}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 40, "seed": 1, "text": {"format": schema}}),
    ]
    for path, one in asked:
        whole = httpx.post(server.url + path, json=one, timeout=60).json()["usage"]["stcon"]
        options = {} if path.endswith("responses") else {"stream_options": {"include_usage": True}}
        text = httpx.post(server.url + path, json={**one, "stream": True, **options}, timeout=60).text
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        last = events[-1].get("response", events[-1])["usage"]["stcon"]
        assert {"passes", "forced_tokens", "need"} == set(whole) == set(last)
        assert whole["need"] == last["need"] > 0
        assert whole["passes"] > 0
        assert whole["forced_tokens"] == last["forced_tokens"] > 0
    free = httpx.post(server.url + CHAT, json=body(1), timeout=60).json()["usage"]["stcon"]
    assert free["need"] is None


def test_bodies_and_queues_have_ends():
    """A body past its limit is refused before it is read to the end; one request more than may be prepared gets 429."""
    with running(body_bytes=1000, queued=0) as server:
        assert httpx.post(server.url + CHAT, content=b"x" * 1001, timeout=60).status_code == 413
        answer = httpx.post(server.url + CHAT, json=body(), timeout=60)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_async_streams_are_left_early(server):
    """A coroutine that leaves its stream: its row is free again."""

    async def main():
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            async with client.stream("POST", CHAT, json=body(1, stream=True, max_tokens=3000, n=4)) as answer:
                async for _ in answer.aiter_raw():
                    break
            with contextlib.suppress(httpx.HTTPError):
                await asyncio.wait_for(client.post(CHAT, json=body(2, max_tokens=3000)), 0.05)

    with contextlib.suppress(asyncio.TimeoutError):
        asyncio.run(main())
    assert server.idle()


def test_a_body_that_does_not_come_is_given_up():
    """A client that sends a part of its body and waits: 408, and its connection is free."""
    with running(body_s=0.2) as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        slow.settimeout(60)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert httpx.post(server.url + CHAT, json=body(), timeout=60).status_code == 200


def test_a_table_is_built_once_for_all_who_ask_at_once(monkeypatch):
    """Eight requests at once under a new grammar: one table."""
    from stcon.constraint import budget

    built, build = [], budget.NeedTable

    def counted(*arguments):
        built.append(arguments)
        time.sleep(0.05)
        return build(*arguments)

    monkeypatch.setattr(budget, "NeedTable", counted)
    with running(preparing=8) as server:
        asked = body(1, response_format=strict({**SCHEMA, "title": "at once"}))

        async def main():
            async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
                return await asyncio.gather(*(client.post(CHAT, json=asked) for _ in range(8)))

        assert {answer.status_code for answer in asyncio.run(main())} == {200}
    assert 1 <= len(built) <= 2  # the grammar itself may be compiled twice at once
