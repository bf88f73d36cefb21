"""Finite regions: a field of few possible texts is decided as a whole, by the probability of each of them.

Where a field can be only a few texts (an enum, a boolean, a choice of words), all of them are written out and scored
behind the same prefix in one batched pass, and the most probable is taken; every option's log-probability is returned.
The rest of the output is decoded as always. Token by token a decoder commits to the first token that is most likely,
whatever it leads to; here a text is chosen. That is exact for what it computes, and another answer, not a better one:
the paper (Appendix I) found the token-level decision the better classifier, as a short label is likelier as a text.

An option's log-probability is that of its tokens, as the engine would write them, given what is written before, the
forced beginning that all options share included: a sum of the model's log-probabilities, not renormalised by a mask.
The delimiter that ends the field counts, and where the field ends the output, so do the end tokens (any of them); so no
option is the beginning of another.

Source: the paper's Section D.5 (finite regions) and Appendix I.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stcon.constraint.sharing import machine_of
from stcon.engine.batch.model import BatchModel, Span
from stcon.engine.control import Mode
from stcon.engine.output import Decision, Generation, Option, Output
from stcon.engine.parallel.decoder import MAX_PLANS
from stcon.engine.parallel.fields import Field, value_in
from stcon.engine.parallel.front import Front
from stcon.engine.parallel.generate import planner_of, rows_of
from stcon.engine.parallel.guide import Guide
from stcon.engine.parallel.replay import Replay, replay
from stcon.engine.sampling import Float32, Int32, Sampling
from stcon.engine.stream import Token
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.grammar.grammar import Grammar
    from stcon.grammar.machine import Machine
    from stcon.models.base import Model

MAX_OPTIONS = 64
MAX_CONFIGURATIONS = 2048


def decide(
    model: Model,
    prompt_ids: Sequence[int],
    grammar: Grammar,
    *,
    max_tokens: int = 256,
    mode: Mode = "canonical",
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    stream: Callable[[str], None] | None = None,
    on_token: Callable[[Token], None] | None = None,
    budget: bool = False,
    max_options: int = MAX_OPTIONS,
    rows: BatchModel | None = None,
) -> Generation:
    """Decode one output, its fields of at most `max_options` texts as wholes.

    Args:
        model, prompt_ids, grammar, max_tokens, mode, sampling, stop, stream, on_token, budget, rows: as
            `stcon.engine.parallel.generate` takes them. `sampling` is for what is not decided as a whole.
        max_options: texts of a field at most, from 2.

    Returns:
        A `Generation` with `Generation.decisions`, one a field that was decided as a whole.

    Raises:
        InvalidOption: no grammar, or an option is out of its range.
        RequestError, DecodingError: as `stcon.engine.loop.generate` does.
    """
    started = perf_counter()
    if grammar is None or mode == "free":
        raise InvalidOption("decide='sequence' scores the options of a format: give a schema, a regex or a grammar")
    if not isinstance(max_options, int) or isinstance(max_options, bool) or max_options < 2:
        raise InvalidOption(f"max_options: expected an integer from 2, got {max_options!r}")
    output = Output(
        model,
        prompt_ids,
        grammar,
        max_tokens=max_tokens,
        mode=mode,
        sampling=sampling,
        stop=stop,
        budget=budget,
        on_token=on_token,
        stream=stream,
    )
    with rows_of(model, len(prompt_ids) + output.limit, rows) as ours:
        output.begin()
        for _ in Decider(ours, output, machine_of(grammar), max_options).passes():
            pass
    return output.result(perf_counter() - started)


class _Scored(NamedTuple):
    """A text of a field, and the tokens that spell it."""

    text: bytes
    way: Replay
    num_scored: int
    ends: bool


class Decider:
    """The loop of one stream, which stops at finite regions.

    Args:
        rows: computes; used by nobody else during a pass.
        output: begun.
        machine: of its grammar.
        max_options: texts of a field at most.
        chunk: most tokens of the prompt in a pass; None: any number.
    """

    def __init__(
        self, rows: BatchModel, output: Output, machine: Machine, max_options: int, *, chunk: int | None = None
    ) -> None:
        self.rows = rows
        self.output = output
        self.front = Front(machine, MAX_PLANS)
        self.max_options = max_options
        self.chunk = chunk
        self.planner = planner_of(output.control)
        self._row = -1
        self._num_read = 0
        self._decided = -1  # the last field that was looked at, by the tokens before it

    def passes(self) -> Iterator[None]:
        """Decode to the end, and stop after each pass or decision; the row is given back when the iterator ends."""
        output = self.output
        output.decisions = ()
        self.front.plan()
        self._read()
        if output.finish is None and not output.pending:
            raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")
        self._row = self.rows.join(output.num_prompt + output.limit)
        try:
            while self.chunk and len(output.pending) > self.chunk:
                self._feed([Span(self._row, output.pending[: self.chunk], False)])
                del output.pending[: self.chunk]
                yield
            while output.finish is None:
                decision = self._decide()
                if decision is None:
                    logits = self._feed([Span(self._row, output.pending[:], True)])[0]
                    output.pending.clear()
                    output.take(logits)
                else:
                    output.decisions += (decision,)
                self._read()
                yield
        finally:
            self.rows.leave(self._row)

    def _read(self) -> None:
        fresh = self.output.tokens[self._num_read :]
        self._num_read += len(fresh)
        self.front.read(b"".join(token.data for token in fresh), sum(token.kind != "forced" for token in fresh))
        if self.front.is_due:
            self.front.plan()

    def _feed(self, spans: Sequence[Span]) -> list[Float32]:
        """One pass; the logits of all places, in the spans' order."""
        started = perf_counter()
        found = self.rows.feed(spans)
        logits = [found.row(index) for index in range(sum(len(span.wanted) for span in spans))]
        if not self.output.passes:
            self.output.prefill_s = perf_counter() - started
        self.output.passes += 1
        return logits

    # ------------------------------------------------------------------------------------------------- a region

    def _decide(self) -> Decision | None:
        """Decide the field that begins here; None if none does, or it has too many texts."""
        front, output = self.front, self.output
        if front.index >= len(front.fields) or len(front.written) > len(front.fields[front.index].lead):
            return None
        field = front.fields[front.index]
        if field.remembers or self._decided == (place := len(output.tokens)):
            return None
        self._decided = place
        texts = texts_of(self.planner, field, self.max_options)
        scored = [found for text in texts or () if (found := self._spelled(field, text)) is not None]
        if len(scored) < 2:
            return None
        logprobs = self._scores(scored)
        best = max(range(len(scored)), key=lambda index: (logprobs[index], -index))
        self._take(scored[best])
        pairs = sorted(zip(logprobs, scored, strict=True), key=lambda pair: -pair[0])
        options = tuple(Option(self._label(field, one.text), logprob) for logprob, one in pairs)
        return Decision(place, options)

    def _label(self, field: Field, text: bytes) -> str:
        """What an option is called: its value in JSON, else the field's whole text."""
        grammar, following = self.output.grammar, self.front.fields[self.front.index + 1 :]
        if grammar is not None and grammar.kind == "json":
            return value_in(field.lead, text + b"".join(other.lead for other in following[:1]))
        return (field.lead + text).decode("utf-8", "replace")

    def _spelled(self, field: Field, text: bytes) -> _Scored | None:
        """The tokens that write `text`; None where a limit, or the vocabulary, leaves no way to."""
        output, written, machine = self.output, self.front.written, self.front.machine
        rest = (field.lead + text)[len(written) :]
        drawn = {len(rest): output.vocabulary.end_ids[0]} if field.end is None and output.vocabulary.end_ids else {}
        there = Guide(rest, drawn)
        way = replay(output.control, output.step, there, output.vocabulary, output.limit - len(output.tokens))
        num_scored = size = 0
        for token in way.tokens:
            if size >= len(rest):
                break
            size += len(output.vocabulary.token_bytes(token) or b"")
            num_scored += 1
        ends = field.end is None or (machine.accepts(field.end) and not machine.live(field.end))
        return _Scored(text, way, num_scored, ends) if size >= len(rest) and way.tokens else None

    def _scores(self, scored: Sequence[_Scored]) -> list[float]:
        """The log-probability of each text. Cost: a pass for as many texts as there are rows."""
        output = self.output
        if len(output.pending) > 1 and not self.rows.length(self._row):  # texts share the prompt
            self._feed([Span(self._row, output.pending[:-1], False)])
            del output.pending[:-1]
        found: list[float] = []
        size = max(1, self.rows.num_rows - 1)
        for start in range(0, len(scored), size):
            found += self._score_chunk(scored[start : start + size])
        return found

    def _score_chunk(self, scored: Sequence[_Scored]) -> list[float]:
        rows, pending, length = self.rows, self.output.pending, self.rows.length(self._row)
        numbers, spans = [], []
        for one in scored:
            fed = pending + one.way.tokens
            numbers.append(rows.copy(self._row, length, length + len(fed)))
            last = len(pending) + one.num_scored - 1
            spans.append(Span(numbers[-1], fed, True, range(len(pending) - 1, last + one.ends)))
        logits = iter(self._feed(spans))
        for number in numbers:
            rows.leave(number)
        return [self._score(one, logits) for one in scored]

    def _score(self, one: _Scored, logits: Iterator[Float32]) -> float:
        total = 0.0
        for token in one.way.tokens[: one.num_scored]:
            total += _log_probability(next(logits), [token])
        if one.ends:
            total += _log_probability(next(logits), self.output.vocabulary.end_ids)
        return total

    def _take(self, one: _Scored) -> None:
        """Emit a text."""
        for point in one.way.points:
            if point.token is None or self.output.finish is not None:
                break
            admitted = self.output.take_greedy(point.token)
            assert admitted, "replay draws only what a limit surely admits"


def texts_of(planner: Planner, field: Field, most: int) -> list[bytes] | None:
    """The texts that a field's body can be, shortest branches first in byte order; None if there are more than `most`.

    Cost: a kernel step for each of at most `MAX_CONFIGURATIONS` configurations.
    """
    kernel = planner.kernel
    end = None if field.end is None else field.end.pack()[: 3 + len(field.end.stack)]
    found: list[bytes] = []
    pending = [(field.start.pack(), b"")]
    for _ in range(MAX_CONFIGURATIONS):
        if not pending:
            return found
        config, text = pending.pop()
        if end is not None and text and _is_at(config, end):
            found.append(text)
        else:
            if end is None and kernel.accepts(config):
                found.append(text)
            for byte in np.flatnonzero(kernel.live_bytes(config))[::-1].tolist():
                after = config.copy()
                if kernel.advance(after, bytes([byte])):
                    pending.append((after, text + bytes([byte])))
        if len(found) > most:
            return None
    return None


def _is_at(config: Int32, end: Int32) -> bool:
    """Whether state and stack are those of `end`; the counter is not looked at."""
    return bool(config[0] == end[0] and config[1] == end[1] and (config[3 : len(end)] == end[3:]).all())


def _log_probability(logits: Float32, tokens: Sequence[int]) -> float:
    """The logarithm of the probability of any of `tokens`."""
    wide = logits.astype(np.float64)
    top = wide.max()
    chosen = wide[list(tokens)]
    return float(np.log(np.exp(chosen - top).sum()) - np.log(np.exp(wide - top).sum()))
