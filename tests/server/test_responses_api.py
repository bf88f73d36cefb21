"""/v1/responses by OpenAI's own client: text, schemas, function tools, streams, refusals."""

import json

import jsonschema
import pytest

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from pydantic import BaseModel  # noqa: E402
from test_server import running  # noqa: E402

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}


class Flags(BaseModel):
    on: bool
    off: bool


@pytest.fixture(scope="module")
def url():
    with running() as server:
        yield server.url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as found:
        yield found


def test_text_and_its_stream_agree(client):
    """A text input gives a message; the stream's deltas are its text, and its last event the whole object."""
    asked = {"model": "default", "input": "Who?", "instructions": "Be brief.", "max_output_tokens": 20}
    asked["extra_body"] = {"seed": 3}
    whole = client.responses.create(**asked)
    assert whole.status in {"completed", "incomplete"}
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    events = list(client.responses.create(**asked, stream=True))
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == whole.output_text == events[-1].response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == f"response.{whole.status}"


def test_parse_gives_a_pydantic_model(client):
    """`responses.parse` with a class gives an instance."""
    answer = client.responses.parse(model="default", input="Flags?", text_format=Flags, max_output_tokens=60)
    assert isinstance(answer.output_parsed, Flags)


def test_function_calls(client):
    """A required tool is called with valid arguments; the stream's deltas are the same arguments."""
    asked = {"model": "default", "input": "Weather?", "tools": [TOOL], "tool_choice": "required"}
    asked.update(max_output_tokens=150, parallel_tool_calls=False, extra_body={"seed": 2})
    (call,) = client.responses.create(**asked).output
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    assert (call.type, call.name, call.status) == ("function_call", "weather", "completed")
    events = list(client.responses.create(**asked, stream=True))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    assert len(deltas) > 1
    assert events[-1].response.output[0].arguments == call.arguments


def test_a_conversation_with_calls(client):
    """Calls and their outputs are taken as input; a named tool is called."""
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome", "days": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Sun."},
        {"role": "developer", "content": "Again."},
    ]
    choice = {"type": "function", "name": "weather"}
    answer = client.responses.create(
        model="default", input=given, tools=[TOOL], tool_choice=choice, max_output_tokens=150
    )
    assert [item.name for item in answer.output] == ["weather"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "image"}]}, "input/0/type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input/0/content"),
        ({"previous_response_id": "x"}, "previous_response_id"),
        ({"no_such": 1}, "no_such"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"properties": {"a": {"type": 1}}}}}},
            "text.format.schema/properties/a/type",
        ),
        (
            {"tools": [{**TOOL, "parameters": {"properties": {"a": {"type": 1}}}}]},
            "tools/0/parameters/properties/a/type",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools/0/type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_cannot_be_served_is_refused(url, more, param):
    """HTTP 400 that names the parameter as this endpoint spells it."""
    answer = httpx.post(url + "/v1/responses", json={"model": "default", "input": "Who?", **more}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
