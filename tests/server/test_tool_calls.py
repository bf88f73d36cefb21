"""Tool calls through the server: OpenAI's own client, whole and streamed, every choice, every refusal."""

import asyncio
import json

import jsonschema
import pytest

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_batch_files import TEMPLATE, make_model  # noqa: E402
from test_server import CHAT, chunks, running  # noqa: E402

from stcon.grammar.tools import FORMATS  # noqa: E402
from stcon.server.grammars import Grammars  # noqa: E402
from stcon.server.refusals import BadRequest  # noqa: E402
from stcon.server.requests import chat_request  # noqa: E402
from stcon.server.tools import messages_for, read_offer  # noqa: E402

QUESTION = [{"role": "user", "content": "What is the weather?"}]
SCHEMAS = {
    "weather": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"], "type": "string"}, "days": {"type": "integer", "maximum": 9}},
        "required": ["city", "days"],
    },
    "alarm": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "null"}, "maxItems": 2}},
        "required": ["on"],
    },
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]


@pytest.fixture(scope="module")
def url():
    with running() as server:
        yield server.url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as found:
        yield found


def ask(**more):
    """What is asked of the client."""
    return {"model": "default", "messages": QUESTION, "tools": TOOLS, "max_tokens": 150, **more}


def check(calls):
    """Every call's arguments are of its tool."""
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        assert set(json.loads(call.function.arguments)) <= set(SCHEMAS[call.function.name]["properties"])
        assert call.type == "function"
        assert call.id
    return len(calls)


@pytest.mark.parametrize("name", FORMATS)
def test_required_calls_are_valid_in_every_format(client, name):
    """With tool_choice "required" each reply is calls alone, with valid arguments, whatever the model's format."""
    for seed in range(4):
        own = {"stcon": {"tool_format": name}}
        answer = client.chat.completions.create(**ask(tool_choice="required", seed=seed), extra_body=own)
        choice = answer.choices[0]
        assert check(choice.message.tool_calls) >= 1
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)


def test_a_named_tool_is_called_once(client):
    """A named tool is the one that is called, once."""
    for seed in range(4):
        choice = {"type": "function", "function": {"name": "alarm"}}
        answer = client.chat.completions.create(**ask(tool_choice=choice, seed=seed))
        calls = answer.choices[0].message.tool_calls
        assert [call.function.name for call in calls] == ["alarm"]
        assert check(calls) == 1


def test_auto_is_text_or_calls(client):
    """By default a reply is text, then calls if any, and `finish_reason` says which; "none" gives text."""
    for seed in range(4):
        choice = client.chat.completions.create(**ask(seed=seed)).choices[0]
        assert (choice.finish_reason == "tool_calls") == bool(choice.message.tool_calls)
        assert check(choice.message.tool_calls or []) or choice.message.content
        assert "<tool_call>" not in (choice.message.content or "")
    choice = client.chat.completions.create(**ask(tool_choice="none")).choices[0]
    assert choice.message.tool_calls is None


def test_parallel_calls_can_be_forbidden(client):
    """With parallel_tool_calls false there is one call at most."""
    for seed in range(6):
        answer = client.chat.completions.create(**ask(tool_choice="required", parallel_tool_calls=False, seed=seed))
        assert check(answer.choices[0].message.tool_calls) == 1


@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
def test_streamed_deltas_add_up(client, name):
    """A stream's argument deltas make the whole answer's calls, for each of n outputs."""
    asked = ask(tool_choice="required", n=2, seed=5)
    own = {"stcon": {"tool_format": name}}
    whole = client.chat.completions.create(**asked, extra_body=own)
    found, reasons, deltas = {}, {}, 0
    for chunk in client.chat.completions.create(**asked, stream=True, extra_body=own):
        for choice in chunk.choices:
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
            assert not choice.delta.content
            for call in choice.delta.tool_calls or []:
                key = (choice.index, call.index)
                if call.id:
                    assert key not in found
                    found[key] = [call.function.name, ""]
                found[key][1] += call.function.arguments
                deltas += 1
    wanted = {
        (choice.index, number): [call.function.name, call.function.arguments]
        for choice in whole.choices
        for number, call in enumerate(choice.message.tool_calls)
    }
    assert found == wanted
    assert set(reasons.values()) == {"tool_calls"}
    assert deltas > 2 * len(found)


def test_the_clients_stream_helper_reads_calls(client):
    """`chat.completions.stream` accumulates the calls as its own types."""
    with client.chat.completions.stream(**ask(tool_choice="required", seed=2)) as stream:
        final = stream.get_final_completion()
    assert check(final.choices[0].message.tool_calls) >= 1


def test_traces_and_text_deltas(url):
    """With `stcon.trace`, every written token is in a chunk; text deltas are the reply's text."""
    body = {**ask(seed=1), "stream": True, "stcon": {"trace": True}}
    streamed = chunks(httpx.post(url + CHAT, json=body, timeout=120).text)
    kinds = {token["kind"] for chunk in streamed if "stcon" in chunk for token in chunk["stcon"]["tokens"]}
    assert "sampled" in kinds


def test_an_answer_or_calls(client):
    """Tools beside a schema: the reply is a value of it, or calls; never other text."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    format_ = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    for seed in range(6):
        message = client.chat.completions.create(**ask(response_format=format_, seed=seed)).choices[0].message
        if message.tool_calls:
            check(message.tool_calls)
            assert message.content is None
        else:
            jsonschema.validate(json.loads(message.content), schema)


def test_eight_concurrent_typed_calls(url):
    """Eight requests at once: every reply parses, and every argument is there and of its type."""

    async def main():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            asked = [client.chat.completions.create(**ask(tool_choice="required", seed=seed)) for seed in range(8)]
            return await asyncio.gather(*asked)

    assert sum(check(answer.choices[0].message.tool_calls) for answer in asyncio.run(main())) >= 8


BAD = [
    ({"tools": [TOOLS[0], {"type": "function", "function": {"name": "bad name"}}]}, "tools/1/function/name"),
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools/1"),
    ({"tools": "x"}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools/0/type"),
    (
        {
            "tools": [
                TOOLS[0],
                {"type": "function", "function": {"name": "b", "parameters": {"properties": {"x": {"type": 1}}}}},
            ]
        },
        "tools/1/function/parameters/properties/x/type",
    ),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
    ({"tool_choice": "required", "tools": []}, "tool_choice"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"stop": ["x"]}, "stop"),
    ({"guided_regex": "a*"}, "guided_regex"),
    ({"stcon": {"tool_format": "xml"}}, "stcon.tool_format"),
    ({"functions": []}, "functions"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
    ({"messages": [{"role": "assistant", "tool_calls": [3]}]}, "messages"),
]


@pytest.mark.parametrize(("more", "param"), BAD, ids=[param + str(i) for i, (_, param) in enumerate(BAD)])
def test_what_cannot_be_enforced_is_refused(url, more, param):
    """HTTP 400 with the parameter and the JSON pointer; never an answer without the constraint."""
    answer = httpx.post(url + CHAT, content=json.dumps(ask(**more)), timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_check_compiles_tools(url):
    """/v1/grammar/check says what the tools became, and refuses as a request would."""
    assert httpx.post(url + "/v1/grammar/check", json={"tools": TOOLS}).json()["kind"] == "grammar"
    assert httpx.post(url + "/v1/grammar/check", json={"tools": [{"type": "x"}]}).status_code == 400


def test_a_cut_call_says_so(client):
    """Without the budget rule a call that the limit cuts ends with "length", its arguments as far as they came."""
    asked = {**ask(tool_choice="required", seed=1), "max_tokens": 12}
    with pytest.raises(openai.BadRequestError):  # no call is so short
        client.chat.completions.create(**asked)
    choice = client.chat.completions.create(**asked, extra_body={"stcon": {"budget": False}}).choices[0]
    assert choice.finish_reason == "length"
    assert not choice.message.tool_calls or not choice.message.tool_calls[0].function.arguments.endswith("}")


def test_messages_become_what_the_template_takes():
    """Where the template shows tools, arguments are data; where not, calls are text and tools a system message."""
    call = {"id": "1", "type": "function", "function": {"name": "alarm", "arguments": '{"on": true}'}}
    history = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    shown = messages_for(history, None, "{{ tools }}")
    assert shown[1]["tool_calls"][0]["function"]["arguments"] == {"on": True}
    offer = read_offer({"tools": TOOLS}, TEMPLATE)
    plain = messages_for(history, offer, TEMPLATE)
    assert [message["role"] for message in plain] == ["system", "user", "assistant", "user"]
    assert '"name": "alarm", "arguments": {"on": true}' in plain[2]["content"]
    assert "weather" in plain[0]["content"]
    offer = read_offer({"tools": TOOLS}, "<start_of_turn>{{ messages }}")
    gemma = messages_for(history, offer, "<start_of_turn>{{ messages }}")
    assert gemma[2]["content"] == "[alarm(on=True)]"
    assert "[function_name(parameter_name=value" in gemma[0]["content"]
    with pytest.raises(BadRequest, match="not JSON"):
        messages_for([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}], None, TEMPLATE)


def test_an_unknown_template_is_refused():
    """A template that shows tools in a format we do not know is refused, unless the format is set."""
    with pytest.raises(BadRequest, match="tool_format"):
        read_offer({"tools": TOOLS}, "{{ tools }}")
    found = read_offer({"tools": TOOLS, "stcon": {"tool_format": "hermes"}}, "{{ tools }}")
    assert found.format.name == "hermes"


def test_grammars_are_compiled_once():
    """The same tools, asked for again, are not compiled again."""
    model, grammars = make_model(), Grammars()
    first, second = (chat_request(ask(), model, grammars).grammar for _ in range(2))
    assert first is second
    assert chat_request(ask(tool_choice="required"), model, grammars).grammar is not first
