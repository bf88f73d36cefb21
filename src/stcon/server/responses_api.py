"""``/v1/responses``: its bodies read as chat bodies, and its objects and events.

Taken: ``input`` (a text; messages, ``function_call`` and ``function_call_output`` items), ``instructions``,
``max_output_tokens``, ``temperature``, ``top_p``, ``text.format``, ``reasoning.effort``, function ``tools``,
``tool_choice``, ``parallel_tool_calls``, ``stream``. Nothing is stored, so ``previous_response_id`` is refused.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from stcon.engine.batch import Failed, Finished, Handle, Piece
from stcon.server.refusals import BadRequest
from stcon.server.response_items import Items
from stcon.server.responses import error_body, own_usage

if TYPE_CHECKING:
    from stcon.engine.output import Generation

_SAME = frozenset({
    "model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "temperature",
    "top_p", "top_k", "min_p", "seed", "stream", "tool_choice", "parallel_tool_calls", "stcon", "chat_template_kwargs",
})  # fmt: skip
_OWN = frozenset({"input", "instructions", "max_output_tokens", "text", "tools", "reasoning"})
_IF_EMPTY = frozenset({"include", "previous_response_id", "background", "conversation", "prompt"})
_TEXT_PARTS = ("input_text", "output_text", "text")
_RENAMED = (
    (r"^response_format\.json_schema", "text.format"),
    (r"^response_format", "text.format"),
    (r"^messages", "input"),
    (r"^max_tokens|^max_completion_tokens", "max_output_tokens"),
    (r"^tools/(\d+)/function", r"tools/\1"),
    (r"^reasoning_effort", "reasoning.effort"),
)


def as_chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The chat body that asks for the same.

    Raises:
        BadRequest: with the parameter at fault.
    """
    for name in sorted(set(body) - _SAME - _OWN):
        if name == "truncation" and body[name] in (None, "disabled"):
            continue
        if name not in _IF_EMPTY or body[name]:
            code = None if name in _IF_EMPTY else "unknown_parameter"
            raise BadRequest(f"parameter {name!r} is not supported", name, code)
    chat = {name: value for name, value in body.items() if name in _SAME and value is not None}
    chat["messages"] = _messages(body)
    chat["max_completion_tokens"] = body.get("max_output_tokens")
    if (format_ := _format(body)) is not None:
        chat["response_format"] = format_
    if body.get("tools") is not None:
        chat["tools"] = _tools(body["tools"])
    if (effort := _effort(body)) is not None:
        chat["reasoning_effort"] = effort
    return chat


def renamed(error: BadRequest) -> BadRequest:
    """An error of the chat body, its parameter as this endpoint has it."""
    param = error.param
    for pattern, name in _RENAMED:
        changed = param and re.sub(pattern, name, param)
        if changed != param:
            return BadRequest(str(error), changed, error.code)
    return error


class ResponseAnswer:
    """One ``response`` object, whole or as events.

    Args:
        model: the model's id.
        body: as sent; the object repeats some of it.
    """

    def __init__(self, model: str, body: Mapping[str, Any]) -> None:
        self._head: dict[str, Any] = {
            "id": f"resp_{uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "text": body.get("text") or {"format": {"type": "text"}},
            "reasoning": body.get("reasoning"),
            "store": False,
            "error": None,
        }

    async def whole(self, handle: Handle) -> tuple[int, dict[str, Any]]:
        """Status and body when the output is over."""
        async for event in handle:
            if isinstance(event, Failed):
                return error_body(event.error)
            if isinstance(event, Finished):
                items = Items(handle)
                answer = event.generation
                for _ in (*items.feed("", answer.thinking or ""), *items.feed(answer.text)):
                    continue
                for _ in items.finish(answer.finish_reason):
                    continue
                return 200, self._object(items, event)
        raise RuntimeError("a request ended without an output")

    async def stream(self, handle: Handle) -> AsyncIterator[str]:
        """Server-sent events. Leaving it early cancels the request."""
        items, number = Items(handle), 0

        def sent(event: Mapping[str, Any]) -> str:
            nonlocal number
            number += 1
            return f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number - 1})}\n\n"

        try:
            for kind in ("created", "in_progress"):
                yield sent({"type": f"response.{kind}", "response": self._object(items, None)})
            async for event in handle:
                if isinstance(event, Failed):
                    error = error_body(event.error)[1]["error"]
                    yield sent({"type": "error", **{key: error[key] for key in ("message", "param", "code")}})
                    return
                if isinstance(event, Piece):
                    for found in items.feed(event.text, event.thought):
                        yield sent(found)
                    continue
                for found in items.finish(event.generation.finish_reason):
                    yield sent(found)
                response = self._object(items, event)
                yield sent({"type": f"response.{response['status']}", "response": response})
        finally:
            handle.cancel()

    def _object(self, items: Items, finished: Finished | None) -> dict[str, Any]:
        """The object; with `finished` as it ends."""
        details = None if items.status != "incomplete" else {"reason": "max_output_tokens"}
        usage = None if finished is None else _usage(finished.generation, finished.cached_tokens)
        found = {"status": items.status, "output": items.output, "incomplete_details": details, "usage": usage}
        return {**self._head, **found}


def _usage(generation: Generation, cached: int) -> dict[str, Any]:
    written = len(generation.tokens)
    return {
        "input_tokens": generation.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": generation.thinking_tokens},
        "total_tokens": generation.prompt_tokens + written,
        "stcon": own_usage([generation]),
    }


# ------------------------------------------------------------------------------------------------- bodies


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given, instructions = body.get("input"), body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise BadRequest("instructions: expected a text", "instructions")
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise BadRequest("input: expected a text or a list of items", "input")
    for index, item in enumerate(given):
        _add(messages, item, f"input/{index}")
    return messages


def _add(messages: list[dict[str, Any]], item: Any, place: str) -> None:
    """Add an item; calls in a row are one message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        role = "system" if item.get("role") == "developer" else item.get("role")
        if not isinstance(role, str):
            raise BadRequest("input: a message has a role", f"{place}/role")
        messages.append({"role": role, "content": _text(item.get("content"), f"{place}/content")})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        if messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    elif kind == "function_call_output":
        content = _text(item.get("output"), f"{place}/output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
    elif kind != "reasoning":  # what was thought before is not shown to the model again
        raise BadRequest(f"input: an item of type {kind!r} is not supported", f"{place}/type")


def _text(content: Any, place: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [None]:
        if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS or not isinstance(part.get("text"), str):
            raise BadRequest("input: expected a text, or a list of parts that are text", place)
        texts.append(part["text"])
    return "".join(texts)


def _format(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """``text.format`` as chat's ``response_format``."""
    text = body.get("text") or {}
    if (
        not isinstance(text, dict)
        or set(text) - {"format", "verbosity"}
        or text.get("verbosity") not in (None, "medium")
    ):
        raise BadRequest("text: expected an object with 'format' alone", "text")
    given = text.get("format")
    if given is None or not isinstance(given, dict):
        if given is None:
            return None
        raise BadRequest("text.format: expected an object", "text.format")
    if given.get("type") != "json_schema":
        return dict(given)
    if "schema" not in given:
        raise BadRequest("text.format: expected an object with 'schema'", "text.format")
    return {"type": "json_schema", "json_schema": {"name": given.get("name"), "schema": given["schema"]}}


def _effort(body: Mapping[str, Any]) -> Any:
    """``reasoning.effort``; there are no summaries of what was thought."""
    given = body.get("reasoning")
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) - {"effort", "summary", "generate_summary"}:
        raise BadRequest("reasoning: expected an object with 'effort'", "reasoning")
    if any(given.get(name) not in (None, "auto") for name in ("summary", "generate_summary")):
        raise BadRequest("reasoning: summaries are not supported", "reasoning.summary")
    return given.get("effort")


def _tools(given: Any) -> Any:
    """Flat tools as chat has them."""
    if not isinstance(given, list):
        return given
    return [
        {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
        if isinstance(tool, dict) and tool.get("type") == "function"
        else tool
        for tool in given
    ]
