"""The items of a ``response`` as they are written (reasoning, a message, calls), and the events that say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from stcon.server.replies import new_reply

if TYPE_CHECKING:
    from stcon.engine.batch import Handle

_STREAMS = {"message": "output_text", "reasoning": "reasoning_text"}  # item → how events name its text


class Items:
    """The items of one output.

    Args:
        handle: whose output it is.

    Attributes:
        output: the items so far.
        status: of the response.
    """

    def __init__(self, handle: Handle) -> None:
        self.output: list[dict[str, Any]] = []
        self.status = "in_progress"
        self._reply = new_reply(handle.request.grammar)
        self._is_open = False

    def feed(self, text: str, thought: str = "") -> Iterator[dict[str, Any]]:
        """The events of `text`, the next of the output, and of `thought`, the next of the thinking before it."""
        deltas = self._reply.feed(text) if self._reply else [{"content": text}] if text else []
        yield from self._deltas([{"thought": thought}, *deltas] if thought else deltas)

    def finish(self, reason: str) -> Iterator[dict[str, Any]]:
        """The events at the end."""
        if self._reply:
            yield from self._deltas(self._reply.finish())
            reason = self._reply.finish_reason(reason)
        if not self.output or (self.output[-1]["type"] == "reasoning" and reason == "stop"):
            yield from self._close("completed")
            yield from self._open(_message())
        whole = reason in {"stop", "tool_calls"}
        yield from self._close("completed" if whole else "incomplete")
        self.status = "completed" if whole else "incomplete"

    def _deltas(self, deltas: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for delta in deltas:
            if "thought" in delta:
                yield from self._text(delta["thought"], "reasoning")
                continue
            if "content" in delta:
                yield from self._text(delta["content"], "message")
                continue
            call = delta["tool_calls"][0]
            if "id" in call:
                yield from self._close("completed")
                yield from self._open(_call(call["id"], call["function"]["name"]))
            if call["function"]["arguments"]:
                self.output[-1]["arguments"] += call["function"]["arguments"]
                yield self._event("function_call_arguments.delta", delta=call["function"]["arguments"])

    def _text(self, text: str, kind: str) -> Iterator[dict[str, Any]]:
        """More text of an item of this kind, which is opened if it is not open."""
        if not self._is_open or self.output[-1]["type"] != kind:
            yield from self._close("completed")
            yield from self._open(_message() if kind == "message" else _reasoning())
        self.output[-1]["content"][0]["text"] += text
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._event(f"{_STREAMS[kind]}.delta", content_index=0, delta=text, **more)

    def _open(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.output.append(item)
        self._is_open = True
        has_text = item["type"] in _STREAMS
        empty = {**item, "content": []} if has_text else dict(item)
        yield {"type": "response.output_item.added", "output_index": len(self.output) - 1, "item": empty}
        if has_text:
            yield self._event("content_part.added", content_index=0, part=dict(item["content"][0]))

    def _close(self, status: str) -> Iterator[dict[str, Any]]:
        if not self._is_open:
            return
        self._is_open = False
        item = self.output[-1]
        item["status"] = status
        if item["type"] in _STREAMS:
            part = item["content"][0]
            more: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
            yield self._event(f"{_STREAMS[item['type']]}.done", content_index=0, text=part["text"], **more)
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


def _reasoning() -> dict[str, Any]:
    part = {"type": "reasoning_text", "text": ""}
    about = {"id": f"rs_{uuid4().hex}", "type": "reasoning", "status": "in_progress"}
    return {**about, "summary": [], "content": [part]}


def _call(call_id: str, name: str) -> dict[str, Any]:
    about = {"id": f"fc_{uuid4().hex}", "type": "function_call", "status": "in_progress"}
    return {**about, "call_id": call_id, "name": name, "arguments": ""}
