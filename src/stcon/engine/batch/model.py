"""What a batch asks of a model: rows that join and leave, spans of tokens in, logits out.

A row is one stream's cache. In one step every row that takes part is fed its own number of tokens (ragged), and gives
logits after its last one if it is asked for them. Rows are known by numbers that the model gives out.

Implementations: `stcon.engine.batch.sessions` runs any model's sessions one by one; `stcon.engine.batch.packed` runs a
transformers network on all tokens of a step at once; `stcon.engine.batch.static` runs a `StaticModel`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.engine.sampling import Float32, Int32

if TYPE_CHECKING:
    from stcon.engine.output import Output
    from stcon.models.base import Model


class Span(NamedTuple):
    """What one row is fed in a step.

    Attributes:
        row: the row's number.
        tokens: at least one.
        wants_logits: whether a token will be drawn after the last of them.
        positions: indices into `tokens`: logits are wanted after each of these, and not after the last alone.
    """

    row: int
    tokens: Sequence[int]
    wants_logits: bool
    positions: Sequence[int] | None = None

    @property
    def wanted(self) -> Sequence[int]:
        """Indices into `tokens`, after which logits are wanted."""
        if self.positions is not None:
            return self.positions
        return (len(self.tokens) - 1,) if self.wants_logits else ()


class StepLogits(ABC):
    """The logits of a step, wherever they are: an entry for each place that a span wanted, in the spans' order."""

    @abstractmethod
    def row(self, index: int) -> Float32:
        """float32[V] of entry `index`, on the host; the caller may write to it."""

    def draw(self, outputs: Sequence[Output]) -> Sequence[int] | None:
        """Each entry's next token, drawn where the logits are: the one that the host would draw.

        Args:
            outputs: whose the entries are: their masks, places and sampling.

        Returns:
            Token ids, -1 where the host must draw; None: all of them (the default).
        """
        return None

    def greedy(self, masks: Sequence[Int32 | None]) -> Sequence[int] | None:
        """The largest logit of each entry under its mask (int32[W], or None for every token), found where they are.

        Returns:
            Token ids, the lowest on a tie, -1 where nothing is admissible; None: the host must look (the default).
        """
        return None


class HostLogits(StepLogits):
    """Logits that are on the host already.

    Args:
        rows: float32[V] each; not shared with anyone.
    """

    def __init__(self, rows: Sequence[Float32]) -> None:
        self._rows = rows

    def row(self, index: int) -> Float32:
        """See `StepLogits.row`."""
        return self._rows[index]


class BatchModel(ABC):
    """Rows of one model.

    Attributes:
        model: the model: vocabulary, context length, prompts.
        num_rows: most rows that are active (not parked) at a time.
        row_tokens: most tokens that a row can hold.
        can_truncate: whether a copy may keep a shorter prefix than the row holds (recurrent layers cannot).
        weight_bytes, row_bytes, token_bytes: W, s and τ of the memory plan (`stcon.engine.batch.memory`): the weights;
            what a row takes whatever its length; and what each of its tokens takes.
        allocated_bytes: of caches that it holds already, before any row joins.
        most_parked_bytes: what parked rows may take at most; None: as much as the plan gives them.
        max_span: most tokens that a writing row is fed in a step; None: any number.
        is_async: `feed` starts a step and returns; drawing from its logits waits for it.
    """

    model: Model
    num_rows: int
    row_tokens: int
    can_truncate: bool
    weight_bytes: int
    row_bytes: int
    token_bytes: int
    allocated_bytes: int = 0
    most_parked_bytes: int | None = None
    max_span: int | None = None
    is_async: bool = False

    @property
    def free_bytes(self) -> int:
        """Memory for rows and steps that is free where they are: on the host, unless the model says otherwise."""
        from stcon.engine.batch.memory import available_bytes

        return available_bytes()

    @abstractmethod
    def join(self, num_tokens: int) -> int:
        """A new, empty row that will hold at most `num_tokens` tokens. At most `num_rows` are active at a time."""

    @abstractmethod
    def leave(self, row: int) -> None:
        """Give the row back; its memory is free at once."""

    @abstractmethod
    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """A new row with the first `length` tokens of `row` (all of them, unless `can_truncate`).

        Args:
            row: active or parked; not changed.
            num_tokens: most tokens that the new row will hold.
        """

    def truncate(self, row: int, length: int) -> None:
        """Forget what `row` holds past its first `length` tokens; only if `can_truncate`."""
        raise NotImplementedError(f"{type(self).__name__} cannot go back; copy the row before")

    @abstractmethod
    def length(self, row: int) -> int:
        """Tokens in the row's cache."""

    @abstractmethod
    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """Append each span's tokens to its row, at most one span a row; rows not named stay as they are."""

    def park(self, row: int) -> None:  # noqa: B027 (most models need do nothing)
        """The row is kept only to be copied from; it is not active any more."""

    def parked_bytes(self, row: int) -> int:
        """Bytes that `row` takes while it is parked."""
        return self.row_bytes + self.token_bytes * self.length(row)

    def computed(self, counts: Sequence[int]) -> int:
        """Token positions that a step over spans of these sizes computes, padding included."""
        return sum(counts)

    def step_bytes(self, num_tokens: int, num_logits: int) -> int:
        """P of the memory plan: what a step needs for a while, by tokens fed and rows of logits wanted."""
        return 4 * num_logits * self.model.vocabulary.size


def stack(masks: Sequence[Int32 | None], num_words: int) -> NDArray[np.int32]:
    """int32[B, W]: the masks one under another, all ones for None."""
    words = np.full((len(masks), num_words), -1, np.int32)
    for row, mask in zip(words, masks, strict=True):
        if mask is not None:
            row[:] = mask
    return words
