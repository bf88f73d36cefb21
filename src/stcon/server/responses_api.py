"""``/v1/responses``: its bodies read as chat bodies, and its objects and events.

Taken: ``input`` (a text; messages, ``function_call`` and ``function_call_output`` items), ``instructions``,
``max_output_tokens``, ``temperature``, ``top_p``, ``text.format``, function ``tools``, ``tool_choice``,
``parallel_tool_calls``, ``stream``. Nothing is stored, so ``previous_response_id`` is refused.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from stcon.engine.batch import Failed, Finished, Handle, Piece
from stcon.server.refusals import BadRequest
from stcon.server.replies import new_reply
from stcon.server.responses import error_body

if TYPE_CHECKING:
    from stcon.engine.output import Generation

_SAME = frozenset({
    "model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "temperature",
    "top_p", "top_k", "min_p", "seed", "stream", "tool_choice", "parallel_tool_calls", "stcon",
})  # fmt: skip
_OWN = frozenset({"input", "instructions", "max_output_tokens", "text", "tools"})
_IF_EMPTY = frozenset({"include", "previous_response_id", "reasoning", "background", "conversation", "prompt"})
_TEXT_PARTS = ("input_text", "output_text", "text")
_RENAMED = (
    (r"^response_format\.json_schema", "text.format"),
    (r"^response_format", "text.format"),
    (r"^messages", "input"),
    (r"^max_tokens|^max_completion_tokens", "max_output_tokens"),
    (r"^tools/(\d+)/function", r"tools/\1"),
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
            "store": False,
            "error": None,
        }

    async def whole(self, handle: Handle) -> tuple[int, dict[str, Any]]:
        """Status and body when the output is over."""
        async for event in handle:
            if isinstance(event, Failed):
                return error_body(event.error)
            if isinstance(event, Finished):
                items = _Items(handle)
                for _ in (*items.feed(event.generation.text), *items.finish(event.generation.finish_reason)):
                    continue
                return 200, self._object(items, event)
        raise RuntimeError("a request ended without an output")

    async def stream(self, handle: Handle) -> AsyncIterator[str]:
        """Server-sent events. Leaving it early cancels the request."""
        items, number = _Items(handle), 0

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
                    for found in items.feed(event.text):
                        yield sent(found)
                    continue
                for found in items.finish(event.generation.finish_reason):
                    yield sent(found)
                response = self._object(items, event)
                yield sent({"type": f"response.{response['status']}", "response": response})
        finally:
            handle.cancel()

    def _object(self, items: _Items, finished: Finished | None) -> dict[str, Any]:
        """The object; with `finished` as it ends."""
        details = None if items.status != "incomplete" else {"reason": "max_output_tokens"}
        usage = None if finished is None else _usage(finished.generation, finished.cached_tokens)
        found = {"status": items.status, "output": items.output, "incomplete_details": details, "usage": usage}
        return {**self._head, **found}


class _Items:
    """The items of an output as it is written, and the events that say so."""

    def __init__(self, handle: Handle) -> None:
        self.output: list[dict[str, Any]] = []
        self.status = "in_progress"
        self._reply = new_reply(handle.request.grammar)
        self._is_open = False

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        """The events of `text`, the next of the output."""
        deltas = self._reply.feed(text) if self._reply else [{"content": text}] if text else []
        yield from self._deltas(deltas)

    def finish(self, reason: str) -> Iterator[dict[str, Any]]:
        """The events at the end."""
        if self._reply:
            yield from self._deltas(self._reply.finish())
            reason = self._reply.finish_reason(reason)
        if not self.output:
            yield from self._open(_message())
        whole = reason in {"stop", "tool_calls"}
        yield from self._close("completed" if whole else "incomplete")
        self.status = "completed" if whole else "incomplete"

    def _deltas(self, deltas: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for delta in deltas:
            if "content" in delta:
                if not self._is_open:
                    yield from self._open(_message())
                self.output[-1]["content"][0]["text"] += delta["content"]
                yield self._event("output_text.delta", content_index=0, delta=delta["content"], logprobs=[])
                continue
            call = delta["tool_calls"][0]
            if "id" in call:
                yield from self._close("completed")
                yield from self._open(_call(call["id"], call["function"]["name"]))
            if call["function"]["arguments"]:
                self.output[-1]["arguments"] += call["function"]["arguments"]
                yield self._event("function_call_arguments.delta", delta=call["function"]["arguments"])

    def _open(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.output.append(item)
        self._is_open = True
        empty = {**item, "content": []} if item["type"] == "message" else dict(item)
        yield {"type": "response.output_item.added", "output_index": len(self.output) - 1, "item": empty}
        if item["type"] == "message":
            yield self._event("content_part.added", content_index=0, part=dict(item["content"][0]))

    def _close(self, status: str) -> Iterator[dict[str, Any]]:
        if not self._is_open:
            return
        self._is_open = False
        item = self.output[-1]
        item["status"] = status
        if item["type"] == "message":
            part = item["content"][0]
            yield self._event("output_text.done", content_index=0, text=part["text"], logprobs=[])
            yield self._event("content_part.done", content_index=0, part=part)
        else:
            yield self._event("function_call_arguments.done", arguments=item["arguments"], name=item["name"])
        yield {"type": "response.output_item.done", "output_index": len(self.output) - 1, "item": item}

    def _event(self, kind: str, **more: Any) -> dict[str, Any]:
        place = {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1}
        return {"type": f"response.{kind}", **place, **more}


def _message() -> dict[str, Any]:
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    name = f"msg_{uuid4().hex}"
    return {"id": name, "type": "message", "role": "assistant", "status": "in_progress", "content": [part]}


def _call(call_id: str, name: str) -> dict[str, Any]:
    about = {"id": f"fc_{uuid4().hex}", "type": "function_call", "status": "in_progress"}
    return {**about, "call_id": call_id, "name": name, "arguments": ""}


def _usage(generation: Generation, cached: int) -> dict[str, Any]:
    written = len(generation.tokens)
    return {
        "input_tokens": generation.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": generation.prompt_tokens + written,
        "stcon": {"passes": generation.passes, "forced_tokens": generation.forced},
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
    else:
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
