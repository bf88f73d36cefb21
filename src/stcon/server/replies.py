"""Replies that may call tools as OpenAI's messages: whole, and as the deltas of a stream."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from stcon.grammar.tools import Arguments, Begin, Content, Event, ReplyGrammar

if TYPE_CHECKING:
    from stcon.engine.output import Generation
    from stcon.grammar.grammar import Grammar

FINISH = {"stop": "stop", "length": "length", "guard": "length", "cancelled": "length"}


def new_reply(grammar: Grammar | None) -> Reply | None:
    """What takes a reply apart, where its grammar is one of tools."""
    return Reply(grammar) if isinstance(grammar, ReplyGrammar) else None


class Reply:
    """One reply as it is written.

    Args:
        grammar: of the reply.
    """

    def __init__(self, grammar: ReplyGrammar) -> None:
        self._reader = grammar.reader()
        # Mistral's templates take ids of nine letters and digits alone
        self._short_ids = grammar.format.name.startswith("mistral")
        self._texts: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def feed(self, text: str) -> list[dict[str, Any]]:
        """The deltas that `text`, the next of the reply, adds."""
        return _merged([self._delta(event) for event in self._reader.feed(text)])

    def finish(self) -> list[dict[str, Any]]:
        """The last deltas, when the reply is over."""
        return _merged([self._delta(event) for event in self._reader.finish()])

    def message(self) -> dict[str, Any]:
        """The reply so far."""
        text = "".join(self._texts)
        if not self._calls:
            return {"role": "assistant", "content": text, "refusal": None}
        return {"role": "assistant", "content": text or None, "refusal": None, "tool_calls": self._calls}

    def finish_reason(self, reason: str) -> str:
        """OpenAI's name for why the reply ended; one whose calls are whole ended for them, also at its limit."""
        return "tool_calls" if self._calls and self._reader.calls_are_whole else FINISH[reason]

    def _delta(self, event: Event) -> dict[str, Any]:
        if isinstance(event, Content):
            self._texts.append(event.text)
            return {"content": event.text}
        if isinstance(event, Begin):
            name = uuid4().hex[:9] if self._short_ids else f"call_{uuid4().hex[:24]}"
            call = {"id": name, "type": "function", "function": {"name": event.name, "arguments": ""}}
            self._calls.append(call)
            return {"tool_calls": [{"index": len(self._calls) - 1, **copy.deepcopy(call)}]}
        if isinstance(event, Arguments):
            self._calls[-1]["function"]["arguments"] += event.text
            return {"tool_calls": [{"index": len(self._calls) - 1, "function": {"arguments": event.text}}]}
        return {}


def message_of(generation: Generation, grammar: Grammar | None) -> tuple[dict[str, Any], str]:
    """A finished output as a message, and its ``finish_reason``."""
    reply = new_reply(grammar)
    if reply is None:
        return {"role": "assistant", "content": generation.text, "refusal": None}, FINISH[generation.finish_reason]
    reply.feed(generation.text)
    reply.finish()
    return reply.message(), reply.finish_reason(generation.finish_reason)


def _merged(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Deltas without empty ones, the arguments of one call joined: a delta begins at most one call."""
    found: list[dict[str, Any]] = []
    for delta in deltas:
        last = found[-1] if found else {}
        if "tool_calls" in delta and "tool_calls" in last:
            more, before = delta["tool_calls"][0], last["tool_calls"][0]
            if more["index"] == before["index"]:
                before["function"]["arguments"] += more["function"]["arguments"]
                continue
        if delta:
            found.append(delta)
    return found
