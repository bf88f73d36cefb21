"""A batch file's requests through a `Batch`: as many as its rows take, results as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from stcon.engine.batch import Batch, Failed, Finished, Handle, Request
from stcon.server.batch_files import Line, Results
from stcon.server.grammars import Grammars
from stcon.server.refusals import BadRequest
from stcon.server.requests import chat_request, text_request
from stcon.server.responses import chat_response, error_body, text_response

_BAR = 16  # columns
_AHEAD = 2  # requests taken from the file for each row: enough that none stands empty


@dataclass
class Counts:
    """What a run did.

    Attributes:
        done: requests answered, those of earlier runs not counted.
        refused: of them, with another status than 200.
        total: requests of the file; `before`: those that had results already.
    """

    total: int
    before: int
    done: int = 0
    refused: int = 0


def run(
    lines: Iterable[Line],
    results: Results,
    batch: Batch,
    *,
    total: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Counts:
    """Answer every request that has no result yet.

    Args:
        lines: the file's.
        results: where they are written.
        batch: not started.
        total: requests of the file, for the progress line.
        progress: is given one after each step.

    Cost: memory for `_AHEAD` requests a row, whatever the size of the file.
    """
    runner = _Runner(lines, results, batch, Counts(total, len(results.done)))
    started = time.perf_counter()
    while True:
        runner.fill()
        if not runner.live:
            return runner.counts
        batch.step()
        runner.collect()
        progress(status(batch, runner.counts, time.perf_counter() - started))


def status(batch: Batch, counts: Counts, seconds: float) -> str:
    """One line for people."""
    stats, share = batch.stats, (counts.before + counts.done) / max(counts.total, 1)
    bar = f"{'█' * int(_BAR * share):·<{_BAR}}"
    written = stats.sampled + stats.forced
    return (
        f"{bar} {counts.before + counts.done}/{counts.total} requests  {written / max(seconds, 1e-9):.0f} tokens/s  "
        f"forced {stats.forced_share:.0%}  cache hits {batch.cache.hit_share:.0%}  rows {batch.num_active}"
    )


class _Runner:
    """Requests on their way.

    Attributes:
        live: those that were submitted and have no result yet.
        counts: of what is done.
    """

    def __init__(self, lines: Iterable[Line], results: Results, batch: Batch, counts: Counts) -> None:
        self.counts = counts
        self.live: list[tuple[Line, Handle]] = []
        self._results = results
        self._batch = batch
        self._grammars = Grammars(vocabulary=batch.model.model.vocabulary)
        self._waiting = (line for line in lines if line.custom_id not in results.done)

    def fill(self) -> None:
        """Submit requests until enough are on their way; those that cannot be served are answered at once."""
        while len(self.live) < _AHEAD * self._batch.memory.num_rows:
            line = next(self._waiting, None)
            if line is None:
                return
            try:
                self.live.append((line, self._batch.submit(self._request(line))))
            except Exception as error:
                self._write(line, *error_body(error))

    def collect(self) -> None:
        """Write the results of what is over."""
        for entry in [entry for entry in self.live if entry[1].is_done]:
            self.live.remove(entry)
            self._write(entry[0], *self._answer(*entry))

    def _request(self, line: Line) -> Request:
        if line.body.get("stream"):
            raise BadRequest("stream: a batch file's answers are whole", "stream")
        build = chat_request if "chat" in line.url else text_request
        return build(line.body, self._batch.model.model, self._grammars)

    def _answer(self, line: Line, handle: Handle) -> tuple[int, dict[str, Any]]:
        """Status and body for a request that is over."""
        events, model = list(handle), self._batch.model.model
        for event in events:
            if isinstance(event, Failed):
                return error_body(event.error)
        cached = max((event.cached_tokens for event in events if isinstance(event, Finished)), default=0)
        respond = chat_response if "chat" in line.url else text_response
        about: dict[str, Any] = {
            "name": uuid4().hex,
            "model": model.name,
            "created": int(time.time()),
            "cached": cached,
        }
        if respond is chat_response:
            about["grammar"] = handle.request.grammar
        return 200, respond(handle.result(0), model.vocabulary, **about)

    def _write(self, line: Line, status_code: int, body: dict[str, Any]) -> None:
        self._results.add(line, status_code, body, uuid4().hex)
        self.counts.done += 1
        self.counts.refused += status_code != 200
