"""Rows of a llama.cpp model: one decode call a step over the tokens of all of them, ragged and without padding.

Rows are sequences of a context of their own. A copied row shares the cells of what it was copied from, so prompts that
many rows begin with are held once; the memory plan counts them for each, as rows may outlive each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stcon.engine.batch.model import BatchModel, HostLogits, Span, StepLogits
from stcon.errors import InvalidOption
from stcon.models.llama_cpp.context import MAX_SEQUENCES, LlamaContext, Part

if TYPE_CHECKING:
    from stcon.models.llama_cpp.model import LlamaCppModel

DEFAULT_ROW_TOKENS = 2_048


class LlamaCppRows(BatchModel):
    """See the module.

    Args:
        model: its weights are used; its own sessions are not touched.
        num_rows: most active rows.
        row_tokens: most tokens of a row; None: `DEFAULT_ROW_TOKENS`, or the context if less.

    Raises:
        InvalidOption: more rows than llama.cpp has sequences.
    """

    row_bytes = 0

    def __init__(self, model: LlamaCppModel, num_rows: int = 16, *, row_tokens: int | None = None) -> None:
        num_sequences = 2 * num_rows + 1  # as many parked ones, and one that is copied to be parked
        if num_sequences > MAX_SEQUENCES:
            raise InvalidOption(f"num_rows: llama.cpp takes at most {(MAX_SEQUENCES - 1) // 2}, got {num_rows}")
        self.model = model
        self.num_rows = num_rows
        self.row_tokens = min(row_tokens or DEFAULT_ROW_TOKENS, model.context_length)
        num_tokens = num_rows * self.row_tokens
        num_parked = num_tokens // 4
        self._context = LlamaContext(model.weights, num_tokens + num_parked, num_sequences, model.num_threads)
        self.can_truncate = not model.weights.is_recurrent
        self.weight_bytes = model.weights.nbytes
        self.token_bytes = model.weights.token_bytes
        self.allocated_bytes = self.token_bytes * (num_tokens + num_parked)
        self.most_parked_bytes: int = self.token_bytes * num_parked
        self._rows: dict[int, list[int]] = {}  # row → its sequence and its length
        self._numbers = itertools.count(1)

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        return self._keep(self._context.take(), 0)

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        self._context.release(self._rows.pop(row)[0])

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`. Cost: no cell."""
        sequence, held = self._rows[row]
        target = self._context.take()
        if held:
            self._context.copy(sequence, target)
        if length < held:
            self._context.cut(target, length)
        return self._keep(target, length)

    def truncate(self, row: int, length: int) -> None:
        """See `BatchModel.truncate`."""
        self._context.cut(self._rows[row][0], length)
        self._rows[row][1] = length

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._rows[row][1]

    def parked_bytes(self, row: int) -> int:
        """See `BatchModel.parked_bytes`; at least a share, so that there are sequences for all that are parked."""
        return max(super().parked_bytes(row), -(-self.most_parked_bytes // self.num_rows))

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`. Cost: one decode call for each `BATCH_TOKENS` tokens."""
        places = [self._rows[span.row] for span in spans]
        parts = [Part(at[0], at[1], span.tokens, span.wanted) for at, span in zip(places, spans, strict=True)]
        rows = self._context.decode(parts)
        for place, span in zip(places, spans, strict=True):
            place[1] += len(span.tokens)
        return HostLogits(rows)

    def _keep(self, sequence: int, length: int) -> int:
        number = next(self._numbers)
        self._rows[number] = [sequence, length]
        return number
