"""Outputs that are written over several rows at once, by a loop of their own: beside the batch's rows, a pass a step.

Such a loop (`stcon.engine.parallel`) joins, copies and feeds rows as it needs them, of those that are set aside for it
when it is let in: a share of the batch's, so that others go on beside it, and no more tokens each than its prompt and
its limit. It is stepped once for every step of the batch, so neither waits for more than one pass of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stcon.engine.batch.model import BatchModel, Span, StepLogits

if TYPE_CHECKING:
    from stcon.engine.batch.rows import Writer


class SharedRows(BatchModel):
    """Some of a model's rows.

    Args:
        model: has others too.
        num_rows, row_tokens: most rows, and most tokens of each.

    Attributes:
        spans: what was fed last.
    """

    def __init__(self, model: BatchModel, num_rows: int, row_tokens: int) -> None:
        self._shared = model
        self.model = model.model
        self.num_rows = num_rows
        self.row_tokens = min(row_tokens, model.row_tokens)
        self.can_truncate = model.can_truncate
        self.weight_bytes, self.row_bytes, self.token_bytes = model.weight_bytes, model.row_bytes, model.token_bytes
        self.max_span = model.max_span
        self.is_async = model.is_async
        self.spans: Sequence[Span] = ()
        self._numbers: set[int] = set()

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        return self._taken(self._shared.join(num_tokens))

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        self._numbers.remove(row)
        self._shared.leave(row)

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`."""
        return self._taken(self._shared.copy(row, length, num_tokens))

    def _taken(self, row: int) -> int:
        self._numbers.add(row)
        assert len(self._numbers) <= self.num_rows, "a loop keeps to the rows set aside for it"
        return row

    def truncate(self, row: int, length: int) -> None:
        """See `BatchModel.truncate`."""
        self._shared.truncate(row, length)

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._shared.length(row)

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`."""
        self.spans = spans
        return self._shared.feed(spans)


class Aside:
    """One such output.

    Args:
        writer: of the output.
        rows: set aside for it.
        passes: the loop: runs until its next pass is over.
    """

    def __init__(self, writer: Writer, rows: SharedRows, passes: Iterator[None]) -> None:
        self.writer = writer
        self.rows = rows
        self._passes = passes

    def step(self) -> None:
        """One pass, and its events."""
        is_first = not self.writer.output.sampled
        next(self._passes, None)
        if is_first and self.writer.output.sampled:
            self.writer.read_prompt()
        self.writer.report()

    def close(self) -> None:
        """Give its rows back."""
        close = getattr(self._passes, "close", None)
        if close is not None:
            close()
