"""All tokens of a step at once, without padding: rows of any lengths, any spans. For the CPU, where padding costs.

The tokens of all spans stand one behind another. Everything in a decoder but attention and recurrent layers works token
by token, so it takes them as they are: weights are read once a step. The rest is done row by row over the row's own
keys, values and states, with exact lengths; so a row's result does not depend on its neighbours but for the rounding of
matrix products, and nothing is computed for padding.

Subclasses run a network: `stcon.engine.batch.packed_transformers`, `stcon.engine.batch.packed_lean`. Each is compared
with the model's own sessions before it is used (`agrees`).
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.engine.batch.model import BatchModel, Span, StepLogits
from stcon.engine.batch.torch_logits import TorchLogits

if TYPE_CHECKING:
    from stcon.models.base import Model

Tensor = Any

CHUNK = 64  # buffers grow by so many tokens at least
_TOLERANCE = {"float32": 1e-3, "bfloat16": 6e-2, "float16": 2e-2}


class RowCache:
    """One row: keys and values of all layers, and recurrent states if there are any.

    Attributes:
        buffer: [2 L, heads, capacity, width]: layer i's keys at 2 i, its values at 2 i + 1.
        length: tokens held.
        states: tensors that only go forward.
    """

    def __init__(self, buffer: Tensor, length: int = 0, states: Sequence[Tensor] = ()) -> None:
        self.buffer = buffer
        self.length = length
        self.states = list(states)

    def copied(self, length: int, capacity: int) -> RowCache:
        """Another row with the first `length` tokens, and room for `capacity`."""
        layers, heads, _, width = self.buffer.shape
        buffer = self.buffer.new_empty((layers, heads, max(capacity, length), width))
        buffer[:, :, :length] = self.buffer[:, :, :length]
        return RowCache(buffer, length, [state.clone() for state in self.states])

    def make_room(self, num_tokens: int) -> None:
        """Grow the buffer to hold `num_tokens`, if who set it aside said too few."""
        if num_tokens > self.buffer.shape[2]:
            self.buffer = self.copied(self.length, num_tokens + CHUNK).buffer


class PackedStep:
    """Whose tokens a packed sequence holds.

    Args:
        caches: the rows', in the order of their tokens.
        counts: tokens of each row.
    """

    def __init__(self, caches: Sequence[RowCache], counts: Sequence[int]) -> None:
        self.caches = caches
        self.counts = counts
        self.ends = list(itertools.accumulate(counts))
        self._masks: dict[tuple[int, int, int], Tensor] = {}  # the same in every layer

    @property
    def positions(self) -> list[int]:
        """Where each token stands in its row."""
        return [cache.length + i for cache, count in zip(self.caches, self.counts, strict=True) for i in range(count)]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
        """Store keys and values, and attend row by row to all that the row holds, causally.

        Args:
            layer: index of the layer in the rows' buffers.
            query: [M, heads, width]; M tokens of all rows.
            key, value: [M, kv_heads, width]; `kv_heads` divides `heads`.
            scale: of the products; None: 1 / √width.

        Returns:
            [M, heads, width].
        """
        import torch

        heads, kv_heads, width = query.shape[1], key.shape[1], query.shape[2]
        group = heads // kv_heads  # queries that share a key head are stacked as if they were more tokens
        output = torch.empty_like(query)
        for cache, count, stop in zip(self.caches, self.counts, self.ends, strict=True):
            start, before = stop - count, cache.length
            keys, values = cache.buffer[2 * layer], cache.buffer[2 * layer + 1]
            keys[:, before : before + count] = key[start:stop].transpose(0, 1)
            values[:, before : before + count] = value[start:stop].transpose(0, 1)
            stacked = query[start:stop].view(count, kv_heads, group, width).transpose(0, 1)
            mixed = torch.nn.functional.scaled_dot_product_attention(
                stacked.reshape(1, kv_heads, count * group, width),
                keys[None, :, : before + count],
                values[None, :, : before + count],
                attn_mask=self._mask(count, before, group, query.device) if count > 1 else None,
                scale=scale,
            )
            output[start:stop] = mixed.view(kv_heads, count, group, width).transpose(0, 1).reshape(count, heads, width)
        return output

    def _mask(self, count: int, before: int, group: int, device: Any) -> Tensor:
        """bool[count · group, before + count]: token i of a span sees what was before it and the span up to itself."""
        import torch

        found = self._masks.get((count, before, group))
        if found is None:
            found = torch.ones((count, before + count), dtype=torch.bool, device=device).tril(before)
            found = self._masks[count, before, group] = found.repeat_interleave(group, 0)
        return found


class PackedRows(BatchModel):
    """Rows of a network that takes packed steps.

    Args:
        model: vocabulary, prompts, and sessions to compare with.
        num_rows: most active rows.
        shape: (2 · layers, heads, width) of a row's buffer.
        like: a tensor of the network, for type and device.
        token_width: numbers that a step keeps of each token for a while.
    """

    def __init__(
        self, model: Model, num_rows: int, *, shape: tuple[int, int, int], like: Tensor, token_width: int
    ) -> None:
        self.model = model
        self.num_rows = num_rows
        self.row_tokens = model.context_length
        self.can_truncate = True
        self._shape = shape
        self._like = like
        self._token_width = token_width
        self.token_bytes = shape[0] * shape[1] * shape[2] * like.element_size()
        self.row_bytes = 0
        self._rows: dict[int, RowCache] = {}
        self._numbers = itertools.count(1)

    @abstractmethod
    def run(self, tokens: Sequence[int], step: PackedStep, wanted: Sequence[int]) -> Tensor:
        """One pass: float32[len(wanted), V or more], the logits at the places `wanted` of `tokens`; at least one."""

    def new_states(self) -> Sequence[Tensor]:
        """The recurrent states of an empty row."""
        return ()

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`. The row's buffer is made in one piece: nothing is copied as it fills.

        Pages of main memory are taken as they are written.
        """
        layers, heads, width = self._shape
        return self._keep(RowCache(self._like.new_empty((layers, heads, num_tokens, width)), 0, self.new_states()))

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        del self._rows[row]

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`. Cost: the bytes of `length` tokens."""
        return self._keep(self._rows[row].copied(length, num_tokens))

    def truncate(self, row: int, length: int) -> None:
        """See `BatchModel.truncate`."""
        assert self.can_truncate, "states only go forward"
        self._rows[row].length = length

    def park(self, row: int) -> None:
        """See `BatchModel.park`. What the row set aside and did not use is given back."""
        cache = self._rows[row]
        if cache.buffer.shape[2] > cache.length + CHUNK:
            cache.buffer = cache.copied(cache.length, cache.length).buffer

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._rows[row].length

    def step_bytes(self, num_tokens: int, num_logits: int) -> int:
        """See `BatchModel.step_bytes`: activations of one layer, logits twice (as computed, and as float32)."""
        activations: int = num_tokens * self._token_width * self._like.element_size()
        return activations + 8 * num_logits * self.model.vocabulary.size

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`. Cost: one pass over the sum of the spans."""
        import torch

        caches = [self._rows[span.row] for span in spans]
        counts = [len(span.tokens) for span in spans]
        for cache, count in zip(caches, counts, strict=True):
            cache.make_room(cache.length + count)
        step = PackedStep(caches, counts)
        wanted = [end - n + i for end, n, span in zip(step.ends, counts, spans, strict=True) for i in span.wanted]
        with torch.no_grad():
            logits = self.run([token for span in spans for token in span.tokens], step, wanted or [0])
        for cache, count in zip(caches, counts, strict=True):
            cache.length += count
        return TorchLogits.of(logits[: len(wanted)], self.model.vocabulary.size)

    def _keep(self, cache: RowCache) -> int:
        number = next(self._numbers)
        self._rows[number] = cache
        return number


def agrees(rows: PackedRows) -> bool:
    """Whether packed steps give what the model's own sessions give. Cost: five passes over a few tokens."""
    tokens = [[(7 + 31 * i + 11 * row) % rows.model.vocabulary.size for i in range(9)] for row in range(2)]
    numbers = [rows.join(16), rows.join(16)]
    rows.feed([Span(numbers[0], tokens[0][:5], True), Span(numbers[1], tokens[1][:2], False)])
    logits = rows.feed([Span(numbers[0], tokens[0][5:6], False), Span(numbers[1], tokens[1][2:], True)])
    found = [logits.row(0), rows.feed([Span(numbers[0], tokens[0][6:], True)]).row(0)]
    for number in numbers:
        rows.leave(number)
    expected = [rows.model.session().append(tokens[1]), rows.model.session().append(tokens[0])]
    tolerance = _TOLERANCE.get(str(rows._like.dtype).removeprefix("torch."), 1e-3)
    return all(
        bool(np.abs(a[known] - b[known]).max() <= tolerance * np.abs(b[known]).max())
        for a, b in zip(found, expected, strict=True)
        for known in [np.isfinite(a) & np.isfinite(b)]
    )
