"""LangChain's ChatOpenAI against the server: structured output by schema and by tools, bound tools, reasoning."""

import warnings

import pytest

langchain_openai = pytest.importorskip("langchain_openai", reason="no LangChain here: pip install langchain-openai")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from pydantic import BaseModel, Field  # noqa: E402
from test_server import running  # noqa: E402


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=130)


class Alarm(BaseModel):
    """Set an alarm."""

    on: bool
    hours: list[int] = Field(max_length=2)


@pytest.fixture(scope="module")
def model():
    with running() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield langchain_openai.ChatOpenAI(
            model="default", base_url=server.url + "/v1", api_key="none", seed=1, max_tokens=80, max_retries=0
        )


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_is_of_its_class(model, method):
    """`with_structured_output` gives an instance, by either method, for every question."""
    structured = model.with_structured_output(Person, method=method)
    for number in range(3):
        assert isinstance(structured.invoke(f"Who is number {number}?"), Person)


def test_bound_tools_are_called_with_their_arguments(model):
    """`bind_tools` with a required choice: calls whose arguments make an instance; streamed as well."""
    bound = model.bind_tools([Alarm], tool_choice="any")
    for call in bound.invoke("Wake me.").tool_calls:
        assert call["name"] == "Alarm"
        Alarm(**call["args"])
    added = None
    for chunk in bound.stream("Wake me."):
        added = chunk if added is None else added + chunk
    for call in added.tool_calls:
        Alarm(**call["args"])
