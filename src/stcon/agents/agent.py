"""One agent: a conversation about one task, in which each reply may call tools, until it says that it is done.

Replies are requests as the server makes them (`stcon.server.requests.chat_request`): the reply grammar types every
call, the limit completes it, the guards end what runs in circles. A turn's prompt begins with all of the turn before,
so that the batch's prompt cache has most of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stcon.agents.sandbox import Limits, Sandbox
from stcon.agents.tasks import Task
from stcon.agents.tools import FINISH, call, is_typed, offered
from stcon.engine.batch import Batch, Failed, Finished, Handle
from stcon.errors import RequestError
from stcon.server.grammars import Grammars
from stcon.server.replies import message_of
from stcon.server.requests import chat_request

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar

Ended: TypeAlias = Literal["finished", "turns", "loop", "cut", "context", "error", "stopped"]

MAX_SAME = 3  # times that a call may be made in a row
_SYSTEM = (
    "You do small tasks in a working folder, one tool call at a time. Look at files before you change them. "
    "When the task is done, {ending}."
)
_SAME = "You made this call just now, with this result. Do something else, or end."


@dataclass(frozen=True)
class Settings:
    """How agents are run.

    Attributes:
        max_tokens: of a reply.
        temperature, seed: of the draws; agent i of a run draws with the seed plus i.
        free: replies may be text or calls, and one without a call is the end; else each is one call, and a call of
            `finish` is the end.
        python: whether they have run_python.
        limits: of their programs.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    free: bool = False
    python: bool = True
    limits: Limits = field(default_factory=Limits)


@dataclass
class Outcome:
    """What became of a task.

    Attributes:
        task: its name.
        passed: the check's verdict.
        ended: by itself, for its turns, for a call made over and over, for a reply that a guard cut, for a conversation
            that has outgrown the context, for an error, or because it was told to.
        turns: replies.
        calls, parsed: calls begun; of them, those whose arguments a validator accepts for the tool.
        tokens, forced, passes: of its replies; those written without the model; runs of the model.
        prompt_tokens, cached_tokens: of all its prompts; of them, not read again.
        later_prompt_tokens, later_cached_tokens: the same, of all turns but the first.
        seconds: from start to end, tools included.
        answer: what it said at last.
        error: one line, where it ended for one.
    """

    task: str
    passed: bool = False
    ended: Ended = "turns"
    turns: int = 0
    calls: int = 0
    parsed: int = 0
    tokens: int = 0
    forced: int = 0
    passes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    later_prompt_tokens: int = 0
    later_cached_tokens: int = 0
    seconds: float = 0.0
    answer: str = ""
    error: str = ""


class Agent:
    """Does one task.

    Args:
        task: what is to be done.
        batch: running.
        grammars: shared by all agents.
        settings: see `Settings`.
        number: among the agents of a run.
        submitting: held while a request is made; agents share it.
    """

    def __init__(
        self, task: Task, batch: Batch, grammars: Grammars, settings: Settings, *, number: int = 0, submitting: Lock
    ) -> None:
        self.task = task
        self.settings = settings
        self._batch = batch
        self._grammars = grammars
        self._number = number
        self._submitting = submitting
        self._last: tuple[str, str, str] | None = None  # name, arguments and result of the call before
        self._num_same = 0
        self._handle: Handle | None = None
        self._is_stopped = False
        ending = "answer in a sentence without a call" if settings.free else f"call {FINISH}"
        files = f"\nFiles: {', '.join(task.files)}" if task.files else ""
        self._messages: list[Mapping[str, Any]] = [
            {"role": "system", "content": _SYSTEM.format(ending=ending)},
            {"role": "user", "content": task.prompt + files},
        ]
        self.outcome = Outcome(task.name)

    def run(self) -> Outcome:
        """Do the task in a folder of its own, and check it. Errors of the task are its outcome."""
        started = perf_counter()
        try:
            with Sandbox(self.settings.limits) as sandbox:
                self.task.prepare(sandbox)
                self._converse(sandbox)
                self.outcome.passed = self.task.passes(sandbox, self.outcome.answer)
        finally:
            self.outcome.seconds = perf_counter() - started
        return self.outcome

    def stop(self) -> None:
        """End the task soon: the reply that is being written is cancelled. From any thread."""
        self._is_stopped = True
        if (handle := self._handle) is not None:
            handle.cancel()

    def _converse(self, sandbox: Sandbox) -> None:
        while self.outcome.turns < self.task.max_turns:
            if self._is_stopped:
                self.outcome.ended = "stopped"
                return
            try:
                message, reason = self._reply()
            except RequestError as error:
                is_full = self.outcome.turns > 0
                self.outcome.ended, self.outcome.error = ("context" if is_full else "error"), str(error)
                return
            self._messages.append(message)
            calls = message.get("tool_calls", [])
            if reason == "length" or not calls:
                self.outcome.answer = message.get("content") or ""
                self.outcome.ended = "cut" if reason == "length" else "finished"
                return
            for one in calls:
                if (ended := self._do(sandbox, one)) is not None:
                    self.outcome.ended = ended
                    return

    def _reply(self) -> tuple[dict[str, Any], str]:
        """The next reply as a message, and why it ended; counted."""
        with self._submitting:
            request = chat_request(self._body(), self._batch.model.model, self._grammars)
            self._handle = handle = self._batch.submit(request)
        if self._is_stopped:
            handle.cancel()
        for event in handle:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                return self._counted(event, request.grammar)
        raise RuntimeError("a request ended without an output")

    def _body(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "messages": self._messages,
            "tools": offered(python=settings.python, finish=not settings.free),
            "tool_choice": "auto" if settings.free else "required",
            "parallel_tool_calls": settings.free,
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "seed": settings.seed + self._number,
            "stcon": {"guards": {"repeat": True, "same_call": True}},
        }

    def _counted(self, event: Finished, grammar: Grammar | None) -> tuple[dict[str, Any], str]:
        outcome, generation = self.outcome, event.generation
        message, reason = message_of(generation, grammar)
        outcome.tokens += len(generation.tokens)
        outcome.forced += generation.forced
        outcome.passes += generation.passes
        outcome.prompt_tokens += generation.prompt_tokens
        outcome.cached_tokens += event.cached_tokens
        if outcome.turns:
            outcome.later_prompt_tokens += generation.prompt_tokens
            outcome.later_cached_tokens += event.cached_tokens
        outcome.turns += 1
        for one in message.get("tool_calls", []):
            outcome.calls += 1
            outcome.parsed += is_typed(one["function"]["name"], one["function"]["arguments"])
        return message, reason

    def _do(self, sandbox: Sandbox, one: Mapping[str, Any]) -> Ended | None:
        """Do what a call asks for, and tell the model; why the conversation is over, if it is."""
        name, arguments = one["function"]["name"], one["function"]["arguments"]
        given = json.loads(arguments)
        if name == FINISH:
            self.outcome.answer = given["summary"]
            return "finished"
        if self._last is not None and self._last[:2] == (name, arguments):
            self._num_same += 1
            result = f"{self._last[2]}\n{_SAME}"
            if self._num_same >= MAX_SAME:
                return "loop"
        else:
            result, self._num_same = call(sandbox, name, given), 1
            self._last = (name, arguments, result)
        self._messages.append({"role": "tool", "tool_call_id": one["id"], "content": result})
        return None
