"""Rows of an mlx-lm model: all writing rows in one call a step, one token each.

On Apple's machines a pass over several rows is bound by arithmetic early, so rows *drip*: a writing row feeds one token
a step (the paper's App. D.7), which is also what mlx-lm's batch caches are made for: they are padded on the left, and
every row moves on by one. A prompt, or forced text of several tokens at an output's beginning, is fed to the row's own
caches; on its first single token the row joins the others' (`merge`, `extend`), and a row that is copied, parked or
left out of a step is taken out of them again (`extract`). Recurrent states are arrays like any other there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stcon.engine.batch.model import BatchModel, HostLogits, Span, StepLogits
from stcon.models.mlx import caches
from stcon.models.mlx.model import MlxSession, to_float32

if TYPE_CHECKING:
    from stcon.engine.sampling import Float32
    from stcon.models.mlx.model import MlxModel

_PROBE = 17


class MlxRows(BatchModel):
    """Rows of `model`.

    Args:
        model: its caches must merge (`supports`).
        num_rows: most active rows.
    """

    max_span = 1

    def __init__(self, model: MlxModel, num_rows: int = 8) -> None:
        import mlx.utils

        self.model = model
        self.network = model
        self.num_rows = num_rows
        self.row_tokens = model.context_length
        session = model.session()
        self.can_truncate = session.can_truncate
        session.append([0])
        first = caches.nbytes(session.cache)
        session.append([0] * (_PROBE - 1))
        # attention caches grow in steps, so the bytes of a token are those of a step's arrays by its tokens
        self.token_bytes = max(1, _token_bytes(session.cache))
        self.row_bytes = max(0, first - self.token_bytes * _held(session.cache))
        parameters = mlx.utils.tree_flatten(model.network.parameters())
        self.weight_bytes = sum(int(array.nbytes) for _, array in parameters)
        self._sessions: dict[int, MlxSession] = {}  # rows on caches of their own
        self._joined: list[int] = []  # rows in `_shared`, in its order
        self._lengths: dict[int, int] = {}
        self._shared: list[Any] = []
        self._next = 0

    @staticmethod
    def supports(model: MlxModel) -> bool:
        """Whether the caches of all layers can be merged into a batch's, and taken out of it again."""
        return all(hasattr(cache, "merge") for cache in model.new_cache())

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        return self._keep(self.network.session())

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        if self._sessions.pop(row, None) is None:
            self._filter([one for one in self._joined if one != row])
        del self._lengths[row]

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`."""
        session = self._own(row).copy()
        if length < session.length:
            session.truncate(length)
        return self._keep(session)

    def truncate(self, row: int, length: int) -> None:
        """See `BatchModel.truncate`."""
        self._own(row).truncate(length)
        self._lengths[row] = length

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._lengths[row]

    def park(self, row: int) -> None:
        """See `BatchModel.park`."""
        self._own(row)

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`. Cost: one call for all spans of one token, and one for each longer one."""
        together = [span for span in spans if len(span.tokens) == 1 and self._lengths[span.row]]
        if len(together) < 2 and not self._joined:
            together = []
        found: dict[int, list[Float32]] = self._feed_together(together) if together else {}
        for span in spans:
            if span.row not in found:
                found[span.row] = self._feed_alone(span)
        return HostLogits([logits for span in spans for logits in found[span.row]])

    def _feed_together(self, spans: Sequence[Span]) -> dict[int, list[Float32]]:
        import mlx.core as mx

        rows = {span.row: span for span in spans}
        for row in [row for row in self._joined if row not in rows]:
            self._own(row)  # it rests in this step, and would be moved on with the others
        self._merge([row for row in rows if row not in self._joined])
        tokens = mx.array([[rows[row].tokens[0]] for row in self._joined])
        logits = self.network.forward(tokens, self._shared)[:, -1]
        wanted = [index for index, row in enumerate(self._joined) if rows[row].wanted]
        if wanted:
            values = to_float32(logits[mx.array(wanted)])
        else:
            mx.eval(caches.arrays(self._shared))
        for row in rows:
            self._lengths[row] += 1
        places = {self._joined[index]: place for place, index in enumerate(wanted)}
        return {row: [values[places[row]].copy()] if row in places else [] for row in rows}

    def _feed_alone(self, span: Span) -> list[Float32]:
        session, tokens = self._own(span.row), list(span.tokens)
        if span.positions is None:
            logits = session.append(tokens)
            found = [logits] if span.wants_logits else []
        else:
            every = session.append(tokens, all_positions=True)
            found = [every[index] for index in span.positions]
        self._lengths[span.row] = session.length
        return found

    def _merge(self, rows: Sequence[int]) -> None:
        """Move rows from their own caches to the shared ones."""
        if not rows:
            return
        layers = list(zip(*(self._sessions.pop(row).cache for row in rows), strict=True))
        new = [layer[0].merge(list(layer)) for layer in layers]
        if self._shared:
            for cache, other in zip(self._shared, new, strict=True):
                cache.extend(other)
        else:
            self._shared = new
        self._joined += rows

    def _own(self, row: int) -> MlxSession:
        """The row on caches of its own."""
        session = self._sessions.get(row)
        if session is None:
            index = self._joined.index(row)
            own = [cache.extract(index) for cache in self._shared]
            session = self._sessions[row] = MlxSession(self.network, own, self._lengths[row])
            self._filter([one for one in self._joined if one != row])
        return session

    def _filter(self, rows: list[int]) -> None:
        """Keep only `rows` in the shared caches."""
        import mlx.core as mx

        if not rows:
            self._shared = []
        elif len(rows) < len(self._joined):
            indices = mx.array([self._joined.index(row) for row in rows])
            for cache in self._shared:
                cache.filter(indices)
        self._joined = rows

    def _keep(self, session: MlxSession) -> int:
        self._next += 1
        self._sessions[self._next] = session
        self._lengths[self._next] = session.length
        return self._next


def _held(layers: Sequence[Any]) -> int:
    """Tokens that an attention cache of these has room for; 0 where there is none."""
    sizes = [int(cache.keys.shape[2]) for cache in layers if getattr(cache, "keys", None) is not None]
    return max(sizes, default=0)


def _token_bytes(layers: Sequence[Any]) -> int:
    """Bytes that one more token takes in all attention caches."""
    found = 0
    for cache in layers:
        keys, values = getattr(cache, "keys", None), getattr(cache, "values", None)
        if keys is not None and values is not None:
            found += (int(keys.nbytes) + int(values.nbytes)) // int(keys.shape[2])
    return found
