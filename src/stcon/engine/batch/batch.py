"""`Batch`: many requests on one model, each a row; requests join and leave at any step.

::

    with Batch(SessionRows(model)) as batch:               # a thread of its own
        handle = batch.submit(Request(model.prompt_ids("…"), grammar))
        for event in handle: ...                           # or: async for event in handle
        [generation] = handle.result()

A step: drop what was cancelled, let in what fits, feed every row its share (`stcon.engine.batch.feeding`), draw for the
rows that have nothing pending, and give their rows back when their outputs end. What a row writes depends on its own
request alone: draws are keyed by seed and position, so neighbours change nothing but the rounding of the model's sums.

Where the model runs beside the host (`BatchModel.is_async`), what a step wrote is told to its readers while the next
one runs: between two steps the host only plans.

**Threads.** `submit` plans a request's beginning in the caller's thread, so what is wrong with it is raised there; all
else happens in the batch's thread (`start`, or whoever calls `step`). An error in one row ends that row; an error of
the model in a step ends the rows that were fed in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

from stcon.engine.batch.aside import Aside, SharedRows
from stcon.engine.batch.feeding import Demand, Feeding, StepCost, divide
from stcon.engine.batch.memory import MemoryPlan, plan_memory
from stcon.engine.batch.model import BatchModel, Span, StepLogits
from stcon.engine.batch.prompt_cache import PromptCache
from stcon.engine.batch.request import Handle, Request
from stcon.engine.batch.rows import Job, Row, Writer, write
from stcon.engine.batch.stats import Stats
from stcon.engine.batch.waiting import Waiting
from stcon.engine.output import Generation
from stcon.errors import InvalidOption, Overloaded

DEFAULT_CHUNK = 256
DEFAULT_WAITING = 4096
LEAST_ASIDE = 4  # rows of an output that takes several; half of the batch's if that is more
SHARED_PREFIX = 64  # tokens that two prompts begin with, for one to wait until the other is read


class Batch:
    """Continuous batching.

    Args:
        model: the rows.
        feeding: see `stcon.engine.batch.feeding`.
        chunk: most prompt tokens of a step.
        memory: what may be used; None: computed from the model and the machine (`plan_memory`).
        max_waiting: requests that may wait; more are refused with `Overloaded`.
        cache_bytes: the prompt cache's limit where `memory` is computed; 0: no prompt cache; None: a quarter.

    Attributes:
        memory: the plan.
        stats: what was done so far.

    Raises:
        NoRoom: the machine has no memory for a single row.
    """

    def __init__(
        self,
        model: BatchModel,
        *,
        feeding: Feeding = "auto",
        chunk: int = DEFAULT_CHUNK,
        memory: MemoryPlan | None = None,
        max_waiting: int = DEFAULT_WAITING,
        cache_bytes: int | None = None,
    ) -> None:
        if feeding not in {"drip", "ragged", "auto"}:
            raise InvalidOption(f"feeding: expected drip, ragged or auto, got {feeding!r}")
        self.model = model
        self.feeding: Feeding = feeding
        self.chunk = chunk
        self.max_waiting = max_waiting
        self.memory = memory or plan_memory(model, chunk=chunk, cache_bytes=cache_bytes)
        most = model.most_parked_bytes
        limit = self.memory.cache if most is None else min(self.memory.cache, most)
        self.cache = PromptCache(limit, cuts=model.can_truncate)
        self.cost = StepCost()
        self.stats = Stats()
        self._waiting = Waiting()
        self._rows: list[Row] = []
        self._asides: list[Aside] = []
        self._used_bytes = 0
        self._used_rows = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._cancel_all = False
        self._has_cancelled = False
        self._unreported: list[Writer] = []

    # ------------------------------------------------------------------------------------------------- for callers

    def submit(self, request: Request) -> Handle:
        """Take a request; safe to call from any thread.

        Raises:
            Overloaded: too many requests wait.
            NoRoom: it would not fit an empty batch.
            RequestError: it cannot be served (see `stcon.engine.loop.generate`); nothing was asked of the model.
        """
        if len(self._waiting) >= self.max_waiting:
            raise Overloaded(len(self._waiting), self.max_waiting)
        handle = Handle(request, self._note_cancelled)
        writers = write(handle, self.model.model)
        self.memory.check(writers[0].num_tokens, self._num_rows(request))
        for writer in writers:
            writer.report()
        job = Job(handle, [writer for writer in writers if not writer.is_over])
        with self._changed:
            if self._is_closing:
                raise InvalidOption("the batch is closed")
            self.stats.submitted(writers)
            if job.writers:
                self._waiting.add(job)
                self._changed.notify_all()
        return handle

    def generate(self, requests: Iterable[Request]) -> list[list[Generation]]:
        """The outputs of all requests, in their order; for a batch that was not started."""
        handles = [self.submit(request) for request in requests]
        self.run()
        return [handle.result(0) for handle in handles]

    def start(self) -> Batch:
        """Run in a thread of its own until `close`."""
        assert self._thread is None, "started once"
        self._thread = threading.Thread(target=self._serve, name="stcon-batch", daemon=True)
        self._thread.start()
        return self

    def close(self, *, finish: bool = True) -> None:
        """Take no more requests; end the thread when the rows are done, or (without `finish`) cancel them all first."""
        with self._changed:
            self._is_closing = True
            self._cancel_all = not finish
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Batch:
        return self.start()

    def __exit__(self, kind: Any, *_: object) -> None:
        self.close(finish=kind is None)

    @property
    def num_active(self) -> int:
        """Rows that write now."""
        return len(self._rows) + len(self._asides)

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    # ------------------------------------------------------------------------------------------------- the step

    def run(self) -> None:
        """Step until nothing is left to do."""
        while self.step():
            pass

    def step(self) -> bool:
        """One step; False if there was nothing to do."""
        self._drop_cancelled()
        self._admit()
        if not self.num_active:
            self._report()
            return False
        if self._rows:
            self._step_rows()
        else:
            self._report()  # of rows that have ended
        for aside in self._asides[:]:
            self._step_aside(aside)
        return True

    def _step_rows(self) -> None:
        began = perf_counter()
        fed, spans = self._spans()
        started = perf_counter()
        rows = [row for row, span in zip(fed, spans, strict=True) if span.wants_logits]
        try:
            logits = self.model.feed(spans)
            self._report()
            drawn = self._drawn_by_the_model(rows, logits)
        except Exception as error:
            self._give_up(fed, error)
            return
        seconds = perf_counter() - started
        has_prompt = any(row.is_prompt for row in fed)
        if not has_prompt:
            self.cost.observe(self.model.computed([len(span.tokens) for span in spans]), seconds)
        self._save(fed)
        self._take(rows, logits, drawn)
        self.stats.stepped(spans, seconds, perf_counter() - began - seconds, has_prompt=has_prompt)

    def _step_aside(self, aside: Aside) -> None:
        """One pass of a loop of many rows."""
        started, has_prompt = perf_counter(), not aside.writer.output.sampled
        try:
            aside.step()
        except Exception as error:
            aside.writer.fail(error)
        self.stats.stepped(aside.rows.spans, perf_counter() - started, 0.0, has_prompt=has_prompt)
        if aside.writer.is_over:
            self._leave_aside(aside)

    def _serve(self) -> None:
        while True:
            if self._is_closing and self._cancel_all:
                self._end_all()
            try:
                if self.step():
                    continue
            except Exception as error:  # a defect: nobody may wait for ever for what will not come
                self._crash(error)
                return
            with self._changed:
                if self._waiting:
                    continue
                if self._is_closing:
                    return
                self._changed.wait()

    def _crash(self, error: Exception) -> None:
        """Fail every request and take no more."""
        self._report()
        with self._changed:
            self._is_closing = True
            jobs = self._waiting.clear()
        writers = [writer for job in jobs for writer in job.writers]
        writers += [writer for row in self._rows for writer in row.writers]
        writers += [aside.writer for aside in self._asides]
        for writer in writers:
            writer.fail(error)
        self._rows.clear()
        self._asides.clear()

    # ------------------------------------------------------------------------------------------------- coming, going

    def _admit(self) -> None:
        """Let in what fits."""
        while self._used_rows < self.memory.num_rows:  # a queue of thousands is not gone through for nothing
            with self._changed:
                job = self._waiting.take(self._fits)
            if job is None:
                return
            num = self._num_rows(job.handle.request, len(job.writers))
            self._used_rows += num
            self._used_bytes += self.memory.need(job.num_tokens, num)
            try:
                if job.handle.request.is_aside:
                    self._join_aside(job, num)
                else:
                    self._join(job)
            except Exception as error:  # no memory after all
                for writer in job.writers:
                    writer.fail(error)
                    self._release(writer)

    def _num_rows(self, request: Request, num_open: int | None = None) -> int:
        """Rows that a request takes, or those of its outputs that are open."""
        if request.is_aside:
            return min(self.memory.num_rows, max(LEAST_ASIDE, self.memory.num_rows // 2))
        return request.n if num_open is None else num_open

    def _join_aside(self, job: Job, num_rows: int) -> None:
        from stcon.engine.parallel.aside import passes  # it is built on rows, as this is; only here do they meet

        (writer,) = job.writers
        rows = SharedRows(self.model, num_rows, writer.num_tokens)
        writer.started()
        self._asides.append(Aside(writer, rows, passes(rows, writer.output, job.handle.request, chunk=self.chunk)))

    def _leave_aside(self, aside: Aside) -> None:
        self._asides.remove(aside)
        aside.close()
        self._release(aside.writer)

    def _fits(self, job: Job) -> bool:
        num = self._num_rows(job.handle.request, len(job.writers))
        if self._used_rows + num > self.memory.num_rows:
            return False
        if self._used_bytes + self.memory.need(job.num_tokens, num) > self.memory.rows:
            return False
        return not self._is_being_read(job)

    def _is_being_read(self, job: Job) -> bool:
        """Whether a row is reading a prompt that begins as the job's: the job can have it when it is read.

        Waiting costs nothing: prompts share the chunk, so the job's own would not be read any sooner.
        """
        if not self._uses_cache(job) or not self.model.can_truncate or job.handle.request.is_aside:
            return False
        begin = job.writers[0].output.pending[:SHARED_PREFIX]
        if len(begin) < SHARED_PREFIX:
            return False
        reading = (row for row in self._rows if row.is_prompt and row.writer.handle.request.cache_prompt)
        return any([*row.fed, *row.writer.output.pending][:SHARED_PREFIX] == begin for row in reading)

    def _uses_cache(self, job: Job) -> bool:
        return job.handle.request.cache_prompt and self.cache.limit_bytes > 0

    def _join(self, job: Job) -> None:
        """Give a job a row, with what the prompt cache has of its prompt."""
        leader, *followers = job.writers
        pending, cached = leader.output.pending, self._uses_cache(job)
        hit = self.cache.look_up(pending, most=len(pending) - 1) if cached else None
        if hit is None:
            row = Row(self.model.join(leader.num_tokens), leader, followers=followers)
        else:
            row = Row(self.model.copy(hit.row, hit.length, leader.num_tokens), leader, followers=followers)
            row.take(hit.length)
        for writer in job.writers:
            writer.cached_tokens = min(hit.length, leader.output.num_prompt) if hit else 0
            writer.started()
        save_at = leader.output.num_prompt - 1
        if cached and not self.model.can_truncate and save_at > len(row.fed):
            row.save_at = save_at
        self._rows.append(row)

    def _leave(self, row: Row, *, keep: bool) -> None:
        """Give a row back, or keep what it holds in the prompt cache."""
        self._rows.remove(row)
        self._release(row.writer)
        self.cache.forget(row.number)
        if keep and row.writer.handle.request.cache_prompt and row.fed:
            self._park(row.fed, row.number)
        else:
            self.model.leave(row.number)

    def _park(self, tokens: Sequence[int], number: int) -> None:
        given_back = self.cache.park(tokens, number, self.model.parked_bytes(number))
        for old in given_back:
            self.model.leave(old)
        if number not in given_back:
            self.model.park(number)

    def _release(self, writer: Writer) -> None:
        """The memory set aside for an output is free."""
        request = writer.handle.request
        num = self._num_rows(request) if request.is_aside else 1
        self._used_rows -= num
        self._used_bytes -= self.memory.need(writer.num_tokens, num)
        with self._changed:
            self.stats.finished(writer)

    def _drop_cancelled(self) -> None:
        if not self._has_cancelled:
            return
        self._has_cancelled = False
        with self._changed:
            jobs = self._waiting.take_cancelled()
        for job in jobs:
            for writer in job.writers:
                writer.end("cancelled")
                self.stats.finished(writer)
        for row in [row for row in self._rows if row.writer.handle.is_cancelled]:
            self._end(row)
        for aside in [aside for aside in self._asides if aside.writer.handle.is_cancelled]:
            aside.writer.end("cancelled")
            self._leave_aside(aside)

    def _note_cancelled(self) -> None:
        """From any thread: a request was cancelled."""
        self._has_cancelled = True

    def _report(self) -> None:
        """Tell the readers what the last step wrote."""
        writers, self._unreported = self._unreported, []
        for writer in writers:
            try:
                writer.report()
            except Exception as error:  # its row goes with the next step's
                writer.fail(error)

    def _end_all(self) -> None:
        with self._changed:
            jobs = self._waiting.clear()
        for writer in [writer for job in jobs for writer in job.writers]:
            writer.end("cancelled")
            self.stats.finished(writer)
        for row in list(self._rows):
            self._end(row)
        for aside in self._asides[:]:
            aside.writer.end("cancelled")
            self._leave_aside(aside)

    def _end(self, row: Row) -> None:
        for follower in row.followers:
            follower.end("cancelled")
            self._release(follower)
        if not row.writer.is_over:
            row.writer.end("cancelled")
        self._leave(row, keep=True)

    def _give_up(self, rows: Sequence[Row], error: Exception) -> None:
        """The model failed in a step that fed `rows`: what their caches hold is not known any more."""
        self._report()
        for row in rows:
            for writer in row.writers:
                writer.fail(error)
            for follower in row.followers:
                self._release(follower)
            self._leave(row, keep=False)

    # ------------------------------------------------------------------------------------------------- feeding, drawing

    def _spans(self) -> tuple[list[Row], list[Span]]:
        """The rows that are fed, and what."""
        counts = divide(
            [Demand(row.num_pending, row.is_prompt) for row in self._rows],
            feeding=self.feeding,
            chunk=self.chunk,
            cost=self.cost.seconds if self.cost.is_known else None,
            computed=self.model.computed,
            most=self.model.max_span,
        )
        fed, spans = [], []
        for row, count in zip(self._rows, counts, strict=True):
            if count:
                tokens = row.take(count)
                fed.append(row)
                spans.append(Span(row.number, tokens, not row.writer.output.pending))
                row.writer.output.passes += 1
        return fed, spans

    def _save(self, rows: Sequence[Row]) -> None:
        """Let the prompt cache know what rows hold now."""
        for row in rows:
            if row.save_at and len(row.fed) == row.save_at:
                row.save_at = 0
                self._park(row.fed[:], self.model.copy(row.number, len(row.fed), len(row.fed)))

    def _take(self, rows: Sequence[Row], logits: StepLogits, drawn: Sequence[int]) -> None:
        """Give each of `rows` its token: that of `drawn`, or one drawn from its logits; they come in the same order."""
        for index, (row, token) in enumerate(zip(rows, drawn, strict=True)):
            writer = row.writer
            self._share(row)
            if row.followers:
                self._part(row, logits, index)
            try:
                if writer.is_over:
                    pass  # what it wrote last could not be reported
                elif token < 0 or not writer.output.take_greedy(token):
                    writer.output.take(logits.row(index))
                if self.model.is_async and not writer.handle.request.guards:
                    self._unreported.append(writer)
                else:
                    writer.report()
            except Exception as error:
                writer.fail(error)
            if writer.is_over or writer.output.finish is not None:
                self._leave(row, keep=writer.output.finish is not None)

    def _drawn_by_the_model(self, rows: Sequence[Row], logits: StepLogits) -> Sequence[int]:
        """Tokens for rows that are drawn where the logits are; -1 for the others."""
        outputs = [row.writer.output for row in rows]
        if all(output.needs_logits for output in outputs):
            return [-1] * len(rows)
        tokens = logits.draw(outputs)
        if tokens is None:
            return [-1] * len(rows)
        return [-1 if output.needs_logits else token for token, output in zip(tokens, outputs, strict=True)]

    def _share(self, row: Row) -> None:
        """The row has read its prompt, so others with the same beginning may copy it."""
        if row.is_prompt:
            row.writer.read_prompt()
            if self.model.can_truncate and self.cache.limit_bytes and row.writer.handle.request.cache_prompt:
                self.cache.share(row.fed, row.number)

    def _part(self, row: Row, logits: StepLogits, index: int) -> None:
        """The prompt is read: its other outputs get rows of their own."""
        for writer in row.followers:
            writer.read_prompt()
            writer.output.passes = row.writer.output.passes
            writer.output.pending.clear()
            try:
                writer.output.take(logits.row(index).copy())
                writer.report()
                if not writer.is_over:
                    number = self.model.copy(row.number, len(row.fed), writer.num_tokens)
                    self._rows.append(Row(number, writer, fed=row.fed[:]))
            except Exception as error:
                writer.fail(error)
            if writer.is_over:
                self._release(writer)
        row.followers = []
