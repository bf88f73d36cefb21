"""Any model as a batch: its sessions, one after another. Always right, and no faster than one stream at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stcon.engine.batch.model import BatchModel, HostLogits, Span, StepLogits
from stcon.engine.sampling import Float32

if TYPE_CHECKING:
    from stcon.models.base import Model, Session


class SessionRows(BatchModel):
    """One `Session` a row.

    Args:
        model: any.
        num_rows: most active rows.
        token_bytes: bytes that a cached token takes, for the memory plan; 0 where that is not known.
        weight_bytes: of the weights, for the memory plan; 0 where that is not known.
    """

    row_bytes = 0

    def __init__(self, model: Model, num_rows: int = 16, *, token_bytes: int = 0, weight_bytes: int = 0) -> None:
        self.model = model
        self.num_rows = num_rows
        self.row_tokens = model.context_length
        self.token_bytes = token_bytes
        self.weight_bytes = weight_bytes
        self.can_truncate = model.session().can_truncate
        self._sessions: dict[int, Session] = {}
        self._next = 0

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        return self._keep(self.model.session())

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        del self._sessions[row]

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`."""
        session = self._sessions[row].copy()
        if length < session.length:
            session.truncate(length)
        return self._keep(session)

    def truncate(self, row: int, length: int) -> None:
        """See `BatchModel.truncate`."""
        self._sessions[row].truncate(length)

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._sessions[row].length

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`. Cost: one pass a span."""
        return HostLogits([row for span in spans for row in self._feed(span)])

    def _feed(self, span: Span) -> list[Float32]:
        """The logits that `span` wants."""
        session, tokens = self._sessions[span.row], list(span.tokens)
        if span.positions is None:
            logits = session.append(tokens)
            return [logits] if span.wants_logits else []
        every = session.append(tokens, all_positions=True)
        return [every[index] for index in span.positions]

    def _keep(self, session: Session) -> int:
        self._next += 1
        self._sessions[self._next] = session
        return self._next
