"""Forty-six requests for a typed tool call, eight at a time, over HTTP: is each reply a call with typed arguments?

Six tools with arguments of every JSON type are offered in each request, and one call is asked for. A reply counts if it
is one call of an offered tool whose arguments are JSON, have every required name and no other, and are of their
declared types. With ``free`` the same questions are asked without tools or constraint, which any server of OpenAI's
interface answers: for comparing throughput.

Source: the paper's Section 7.6 (46 of 46). We depart in the tools and the questions, and in the model.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

NUM_REQUESTS = 46
MAX_TOKENS = 160
TIMEOUT_S = 600


def _tool(name: str, about: str, required: Sequence[str], **properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


_TEXT = {"type": "string"}
TOOLS = [
    _tool(
        "get_weather", "The weather of a city.", ["city", "days", "unit"],
        city=_TEXT, days={"type": "integer", "minimum": 1, "maximum": 14}, unit={"enum": ["celsius", "fahrenheit"]},
    ),
    _tool(
        "set_alarm", "Set an alarm.", ["hour", "minute", "repeat"],
        hour={"type": "integer", "minimum": 0, "maximum": 23}, minute={"type": "integer", "minimum": 0, "maximum": 59},
        repeat={"type": "boolean"},
    ),
    _tool(
        "send_message", "Send a message to people.", ["to", "text", "urgent"],
        to={"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 3}, text={"type": "string", "maxLength": 120},
        urgent={"type": "boolean"},
    ),
    _tool(
        "convert", "Convert an amount of money.", ["amount", "source", "target"],
        amount={"type": "number", "minimum": 0}, source={"enum": ["EUR", "USD", "JPY", "GBP"]},
        target={"enum": ["EUR", "USD", "JPY", "GBP"]},
    ),
    _tool(
        "book_table", "Book a table.", ["guest", "seats"],
        guest={
            "type": "object", "properties": {"name": _TEXT, "phone": {"type": ["string", "null"], "maxLength": 20}},
            "required": ["name", "phone"], "additionalProperties": False,
        },
        seats={"type": "integer", "minimum": 1, "maximum": 12},
    ),
    _tool("stop_music", "Stop the music.", ["fade_seconds"], fade_seconds={"type": "number"}),
]  # fmt: skip
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
_QUESTIONS = [
    ("get_weather", "What will the weather be in {city} in the next {n} days, in celsius?"),
    ("set_alarm", "Wake me at {n}:30 every day."),
    ("send_message", "Tell {name} and Ann that I will be {n} minutes late. It is urgent."),
    ("convert", "How much are {n}.50 euros in dollars?"),
    ("book_table", "Book a table for {n} in the name of {name}."),
    ("stop_music", "Fade the music out over {n} seconds."),
]
_CITIES = ["Rome", "Oslo", "Lima", "Kyoto", "Nairobi", "Quito", "Riga", "Perth"]
_NAMES = ["Maria Silva", "Ken Ito", "Zoë Brandt", "Amir Haddad", "Li Wei", "Eva Novak", "Tom O'Neil", "Ada Byrne"]


@dataclass(frozen=True)
class Reply:
    """What came of one request.

    Attributes:
        question: that was asked.
        wanted: the tool that it is about.
        called: the tools that were called.
        fault: what is wrong with the reply; empty if nothing is.
        tokens: written.
        seconds: from the request to the whole reply.
    """

    question: str
    wanted: str
    called: tuple[str, ...]
    fault: str
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """All replies, and the seconds from the first request to the last reply."""

    replies: tuple[Reply, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Written in all."""
        return sum(reply.tokens for reply in self.replies)

    @property
    def latencies(self) -> list[float]:
        """Seconds of each request, ascending."""
        return sorted(reply.seconds for reply in self.replies)


def questions(count: int = NUM_REQUESTS) -> list[tuple[str, str]]:
    """`count` questions with the tool that each is about."""
    found = []
    for number in range(count):
        tool, text = _QUESTIONS[number % len(_QUESTIONS)]
        k = number // len(_QUESTIONS)
        found.append((tool, text.format(city=_CITIES[k % 8], name=_NAMES[k % 8], n=2 + k)))
    return found


def measure(
    url: str,
    *,
    model: str = "default",
    at_once: int = 8,
    count: int = NUM_REQUESTS,
    free: bool = False,
    key: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Ask a server for all calls.

    Args:
        url: of the server, up to and without ``/v1``.
        model: its id there.
        at_once: requests under way at a time.
        count: of requests.
        free: without tools: the replies are text, and nothing is checked.
        key: API key.
        progress: is given a line after each reply.
    """
    done: list[Reply] = []

    def one(asked: tuple[str, str]) -> Reply:
        reply = _ask(url, model, *asked, free=free, key=key)
        done.append(reply)
        progress(f"{len(done)}/{count} replies")
        return reply

    _ask(url, model, *questions(1)[0], free=free, key=key)  # grammars, caches and kernels are warm
    started = perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        replies = tuple(pool.map(one, questions(count)))
    return Result(replies, perf_counter() - started)


def _ask(url: str, model: str, wanted: str, question: str, *, free: bool, key: str | None) -> Reply:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
    }
    if not free:
        body |= {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    started = perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        return Reply(question, wanted, (), f"HTTP {error.code}: {error.read()[:200]!r}", 0, perf_counter() - started)
    seconds = perf_counter() - started
    message = found["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    fault = "" if free else fault_of(calls)
    tokens = int(found["usage"]["completion_tokens"])
    return Reply(question, wanted, tuple(call["name"] for call in calls), fault, tokens, seconds)


def fault_of(calls: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with the calls of a reply, of which one was asked for; empty if nothing is."""
    if len(calls) != 1:
        return f"{len(calls)} calls"
    name, text = calls[0]["name"], calls[0]["arguments"]
    if name not in SCHEMAS:
        return f"no tool is named {name!r}"
    try:
        arguments = json.loads(text)
    except ValueError:
        return "the arguments are not JSON"
    return _fault(arguments, SCHEMAS[name], "arguments")


_KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _fault(value: Any, schema: Mapping[str, Any], place: str) -> str:
    """What is wrong with a value, by the keywords that `TOOLS` use; a checker of its own, not the compiler's."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_KINDS[kind](value) for kind in kinds):
        return f"{place} is not of type {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} is none of {schema['enum']}"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{place} is out of its range"
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        return f"{place} is too long"
    if isinstance(value, list):
        return _fault_in_array(value, schema, place)
    return _fault_in_object(value, schema, place) if isinstance(value, dict) else ""


def _fault_in_array(value: list[Any], schema: Mapping[str, Any], place: str) -> str:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{place} has {len(value)} items"
    faults = (_fault(item, schema.get("items", {}), f"{place}[{index}]") for index, item in enumerate(value))
    return next(filter(None, faults), "")


def _fault_in_object(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> str:
    properties = schema["properties"]
    if missing := [name for name in schema["required"] if name not in value]:
        return f"{place} has no {missing[0]!r}"
    if more := [name for name in value if name not in properties]:
        return f"{place} has {more[0]!r}, which is not declared"
    faults = (_fault(item, properties[name], f"{place}.{name}") for name, item in value.items())
    return next(filter(None, faults), "")
