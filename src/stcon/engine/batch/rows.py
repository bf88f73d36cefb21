"""What the batch keeps of a request: its outputs, and the rows that write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

from stcon.engine.batch.request import Failed, Finished, Handle, Piece, Request
from stcon.engine.output import Finish, Output
from stcon.engine.sampling import MAX_SEED, Sampling
from stcon.engine.stream import Token
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.models.base import Model


class Writer:
    """One output of a request, and the events it gives.

    Attributes:
        output: what is written.
        num_tokens: most tokens of its row, prompt and output together.
        cached_tokens: prompt tokens that a cache had.
        is_over: its last event was given.
    """

    def __init__(self, handle: Handle, index: int, model: Model, sampling: Sampling) -> None:
        request = handle.request
        self.handle = handle
        self.index = index
        self.cached_tokens = 0
        self.is_over = False
        self._tokens: list[Token] = []
        self._text: list[str] = []
        self._thought: list[str] = []
        self._submitted = perf_counter()
        self._started = self._submitted
        self.output = Output(
            model,
            request.prompt_ids,
            request.grammar,
            max_tokens=request.max_tokens,
            mode=request.mode,
            sampling=sampling,
            stop=request.stop,
            budget=request.budget,
            on_token=self._tokens.append,
            stream=self._text.append,
            logprobs=request.logprobs,
            adjustment=request.adjustment,
            thinking=request.thinking,
            on_thought=self._thought.append,
        )
        self.num_tokens = self.output.num_prompt + self.output.limit
        self.output.begin()
        if self.output.finish is None and not self.output.pending:
            raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")

    def started(self) -> None:
        """Its first pass begins now."""
        self._started = perf_counter()

    def read_prompt(self) -> None:
        """Its first logits are there."""
        self.output.prefill_s = perf_counter() - self._started

    def report(self) -> None:
        """Give the events of what was written since the last call: a piece, and the end if it is reached."""
        output, request = self.output, self.handle.request
        if output.finish is None and request.guards:
            ids = [token.id for token in output.tokens]
            if request.guards.fires(ids, output.text.text):
                output.cut("guard")
        if self._tokens or self._text or self._thought:
            first = len(output.tokens) - len(self._tokens)
            thinking = len(output.tokens) if output.num_thinking is None else output.num_thinking
            self.handle.push(
                Piece(
                    self.index,
                    tuple(self._tokens),
                    "".join(self._text),
                    None if output.logprobs is None else tuple(output.logprobs[first:]),
                    output.need() if request.report_need else None,
                    "".join(self._thought),
                    min(max(0, thinking - first), len(self._tokens)),
                )
            )
            for written in (self._tokens, self._text, self._thought):
                written.clear()
        if output.finish is not None and not self.is_over:
            self.is_over = True
            generation = output.result(perf_counter() - self._started)
            waited_s = self._started - self._submitted
            self.handle.push(Finished(self.index, generation, self.cached_tokens, waited_s))

    def end(self, why: Finish) -> None:
        """End the output as it is."""
        self.output.cut(why)
        self.report()

    def fail(self, error: Exception) -> None:
        """Give it up."""
        if not self.is_over:
            self.is_over = True
            self.handle.push(Failed(self.index, error))


@dataclass(eq=False)
class Row:
    """A row of the model and who writes with it.

    Attributes:
        number: the model's.
        writer: whose tokens it is fed.
        fed: tokens in the row's cache.
        followers: outputs of the same prompt that get copies of the row when the prompt is read.
        save_at: number of tokens at which the row is to be copied for the prompt cache, where it cannot be cut later;
            0: not.
    """

    number: int
    writer: Writer
    fed: list[int] = field(default_factory=list)
    followers: list[Writer] = field(default_factory=list)
    save_at: int = 0

    @property
    def is_prompt(self) -> bool:
        """Whether nothing was drawn for it yet."""
        return self.writer.output.sampled == 0

    @property
    def num_pending(self) -> int:
        """Tokens to feed before a draw, or before the row is to be saved."""
        pending = len(self.writer.output.pending)
        left = self.save_at - len(self.fed)
        return min(pending, left) if left > 0 else pending

    def take(self, count: int) -> list[int]:
        """The next `count` pending tokens, which are fed now."""
        pending = self.writer.output.pending
        tokens = pending[:count]
        del pending[:count]
        self.fed += tokens
        return tokens

    @property
    def writers(self) -> Sequence[Writer]:
        """The row's own and its followers."""
        return [self.writer, *self.followers]


@dataclass(eq=False)
class Job:
    """A request that waits.

    Attributes:
        writers: those of its outputs that need the model.
        passed: requests that came later and were let in before it.
    """

    handle: Handle
    writers: list[Writer]
    passed: int = 0

    @property
    def num_tokens(self) -> int:
        """Most tokens of one of its rows."""
        return self.writers[0].num_tokens


def write(handle: Handle, model: Model) -> list[Writer]:
    """The outputs of a request, with what their grammar forces at the beginning.

    Raises:
        RequestError: the request cannot be served.
    """
    request: Request = handle.request
    sampling = request.sampling.seeded()
    seeds = [((sampling.seed or 0) + index) & MAX_SEED for index in range(request.n)]
    return [Writer(handle, index, model, replace(sampling, seed=seed)) for index, seed in enumerate(seeds)]
