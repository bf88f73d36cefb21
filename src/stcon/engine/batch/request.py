"""A request to a batch, its events, and the handle that gives them.

A request is answered by ``n`` outputs. Each gives `Piece` events as its tokens are written, then one `Finished`; if
something goes wrong with it, one `Failed` instead. Events may be read by iterating over the handle, from a thread or
(``async for``) from a coroutine.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from stcon.engine.adjust import Adjustment
from stcon.engine.batch.guards import Guards
from stcon.engine.control import Mode
from stcon.engine.output import Generation, Logprobs
from stcon.engine.sampling import Sampling
from stcon.engine.stream import Token
from stcon.engine.thinking import Thinking
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar

MAX_OUTPUTS = 128
MAX_LOGPROBS = 20


@dataclass(frozen=True)
class Request:
    """What a caller wants written.

    Args:
        prompt_ids: the prompt (`Model.prompt_ids`).
        grammar: what each output must be; None: free text.
        max_tokens, mode, sampling, stop, budget: as for `stcon.engine.loop.generate`. With ``n > 1`` output i draws
            with the seed plus i.
        n: outputs of the one prompt, which is read once.
        logprobs: how many alternatives to report with each drawn token (0: the token's own); None: none.
        adjustment: penalties and biases.
        guards: what ends an output that runs in circles; nothing by default.
        report_need: whether pieces carry the number of tokens to the shortest valid ending.
        cache_prompt: whether the prompt cache may be used for it, and may keep it.
        thinking: the prompt ends where the output thinks before it answers; None: it answers at once.
        parallel: fields are drafted side by side and certified; the same output in fewer passes (``docs/parallel.md``).
        decide: ``"sequence"``: fields of few texts are decided by the probability of each.

    Raises:
        InvalidOption: `n` or `logprobs` is out of its range, or `parallel` or `decide` does not go with another option.
    """

    prompt_ids: Sequence[int]
    grammar: Grammar | None = None
    max_tokens: int = 256
    mode: Mode = "canonical"
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    stop: Sequence[str] = ()
    budget: bool = True
    logprobs: int | None = None
    adjustment: Adjustment = field(default_factory=Adjustment)
    guards: Guards = field(default_factory=Guards)
    report_need: bool = False
    cache_prompt: bool = True
    thinking: Thinking | None = None
    parallel: bool = False
    decide: Literal["token", "sequence"] = "token"

    @property
    def is_aside(self) -> bool:
        """Whether its output takes several rows at a time (`stcon.engine.batch.aside`)."""
        return self.parallel or self.decide != "token"

    def __post_init__(self) -> None:
        _check_range("n", self.n, 1, MAX_OUTPUTS)
        if self.logprobs is not None:
            _check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.decide not in ("token", "sequence"):
            raise InvalidOption(f"decide: expected token or sequence, got {self.decide!r}")
        if self.is_aside:
            self._check_aside()

    def _check_aside(self) -> None:
        """Raise `InvalidOption` for what the loops of many rows do not do."""
        name = "parallel" if self.parallel else "decide"
        is_sequence = self.decide == "sequence"
        refused = (
            (self.parallel and is_sequence, "decide 'sequence' writes another output than parallel certifies"),
            (self.grammar is None or self.mode == "free", "there are no fields without a format: give a constraint"),
            (self.n != 1, "not with n > 1: send a request for each output"),
            (bool(self.guards), "not with guards"),
            (self.thinking is not None, "not with thinking"),
            (is_sequence and self.logprobs is not None, "not with logprobs: the options' are given"),
            (is_sequence and bool(self.adjustment), "not with penalties or a bias"),
        )
        for is_refused, why in refused:
            if is_refused:
                raise InvalidOption(f"{name}: {why}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that were just written.

    Attributes:
        index: which of the n outputs.
        tokens: one drawn token (or what healed it) with the forced ones after it, or the forced beginning.
        text: the text they complete; may be empty, and may lag behind the tokens by part of a character or stop string.
        logprobs: if asked for, one entry a token; None for a forced token.
        need: fewest tokens that complete the output from here, if asked for and known.
        thought: the text of the thinking that they complete; may be empty.
        thinking_tokens: how many of `tokens`, the first ones, are the thinking's.
    """

    index: int
    tokens: tuple[Token, ...]
    text: str
    logprobs: tuple[Logprobs | None, ...] | None = None
    need: int | None = None
    thought: str = ""
    thinking_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """An output is over.

    Attributes:
        index: which of the n outputs.
        generation: all of it, with what it took.
        cached_tokens: prompt tokens that were not read again, since a cache had them.
        waited_s: seconds from its submission to its first pass.
    """

    index: int
    generation: Generation
    cached_tokens: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An output cannot be finished; the others go on.

    Attributes:
        index: which of the n outputs.
        error: why.
    """

    index: int
    error: Exception


Event: TypeAlias = Piece | Finished | Failed

_numbers = itertools.count(1)


class Handle:
    """A submitted request. Made by `Batch.submit`; its methods may be called from any thread."""

    def __init__(self, request: Request, on_cancel: Callable[[], object] = lambda: None) -> None:
        self.request = request
        self._on_cancel = on_cancel
        self.number = next(_numbers)
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._num_open = request.n
        self._generations: dict[int, Generation] = {}
        self._error: Exception | None = None
        self._is_cancelled = False
        self._listener: Callable[[], object] | None = None

    @property
    def is_done(self) -> bool:
        """Whether every output is over. Events may still wait to be read."""
        return self._num_open == 0

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Stop: outputs not over yet end as they are, ``"cancelled"``, and free their rows before the next step."""
        self._is_cancelled = True
        self._on_cancel()

    def result(self, timeout_s: float | None = None) -> list[Generation]:
        """Wait for all outputs.

        Returns:
            The n generations in their order.

        Raises:
            TimeoutError: not over within `timeout_s`; nothing is cancelled.
            Exception: that of the first output to fail.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.is_done, timeout_s):
                raise TimeoutError(f"request {self.number} is not over after {timeout_s} s")
        if self._error is not None:
            raise self._error
        return [self._generations[index] for index in sorted(self._generations)]

    def __iter__(self) -> Iterator[Event]:
        """The events, each once; ends after the last output's. Blocks while there is none."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self.is_done)
                if not self._events:
                    return
                event = self._events.popleft()
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events, for one coroutine; leaving the loop early does not cancel the request."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        with self._changed:
            self._listener = lambda: loop.call_soon_threadsafe(ready.set)
        try:
            while True:
                ready.clear()  # before looking: what comes after is signalled again
                with self._changed:
                    events, is_last = list(self._events), self.is_done
                    self._events.clear()
                for event in events:
                    yield event
                if is_last:
                    return
                await ready.wait()
        finally:
            with self._changed:
                self._listener = None

    def push(self, event: Event) -> None:
        """Give the reader an event; for the batch alone."""
        with self._changed:
            self._events.append(event)
            if isinstance(event, Finished):
                self._generations[event.index] = event.generation
                self._num_open -= 1
            elif isinstance(event, Failed):
                self._error = self._error or event.error
                self._num_open -= 1
            self._changed.notify_all()
            listener = self._listener
        if listener is not None:
            _call(listener)


def _call(listener: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the reader's event loop is closed: nobody reads any more
        listener()


def _check_range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidOption(f"{name}: expected an integer from {low} to {high}, got {value!r}")
