"""OpenAI's own Python client against the server: answers, streams, parsed models, errors, sync and async."""

import asyncio
import json

import pytest

openai = pytest.importorskip("openai")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from pydantic import BaseModel, Field  # noqa: E402
from test_server import running  # noqa: E402

QUESTION = [{"role": "user", "content": "Who?"}]


class Person(BaseModel):
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=130)
    tags: list[bool] = Field(max_length=3)


@pytest.fixture(scope="module")
def url():
    with running() as server:
        yield server.url + "/v1"


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as found:
        yield found


def test_parse_gives_a_pydantic_model(client):
    """`chat.completions.parse` with a pydantic class gives an instance, for every seed."""
    for seed in range(5):
        answer = client.chat.completions.parse(
            model="default", messages=QUESTION, response_format=Person, seed=seed, max_tokens=60
        )
        assert isinstance(answer.choices[0].message.parsed, Person)
        assert answer.usage.completion_tokens > 0


def test_create_and_stream_agree(client):
    """A stream's deltas are the whole answer's text; log-probabilities and usage are read by the client's types."""
    options = {"model": "default", "messages": QUESTION, "seed": 3, "max_tokens": 20, "n": 2}
    whole = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    texts, usage = ["", ""], None
    for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert usage.total_tokens == whole.usage.total_tokens
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    text = client.completions.create(model="default", prompt="Once", max_tokens=5, seed=1)
    assert text.choices[0].finish_reason in {"stop", "length"}


def test_errors_are_the_clients_own(client):
    """A refused schema is a BadRequestError that names the place; an unknown model is not found."""
    broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"items": {"type": "nothing"}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="default", messages=QUESTION, response_format=broken)
    assert caught.value.param.endswith("/items/type")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt", messages=QUESTION)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "y"}}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="default", messages=QUESTION, tools=[tool])
    assert caught.value.param == "tools/0/function/parameters/properties/x/type"


def test_eight_async_requests_at_once(url):
    """Eight constrained requests at once through the async client: all parse."""

    async def main():
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as client:
            asked = [
                client.chat.completions.create(
                    model="default",
                    messages=QUESTION,
                    seed=seed,
                    max_tokens=60,
                    response_format={
                        "type": "json_schema",
                        "json_schema": {"name": "person", "schema": Person.model_json_schema()},
                    },
                )
                for seed in range(8)
            ]
            return [answer.choices[0].message.content for answer in await asyncio.gather(*asked)]

    for text in asyncio.run(main()):
        Person.model_validate(json.loads(text))
