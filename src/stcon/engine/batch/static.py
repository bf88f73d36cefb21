"""A `StaticModel` as rows of a batch: caches at fixed addresses, padded steps, CUDA graphs by (rows, tokens) bucket.

Rows that write stand in the first slots of the cache, without gaps: when one leaves, the last one is moved into its
place. So a step is one call over the first B slots, and each shape is a graph of its own (`models.graphs.Replayed`; on
the CPU the same code runs as it is). Shapes are few: B is rounded up to a power of two, and so is S, the longest span
of the step, to which rows are padded; `counts` keeps padding out of caches, states and logits. A model that packs
(`Network.packs`) computes the real tokens alone, their number M rounded up likewise; then S is 1 or `MAX_STEP`. Spans
of more than `MAX_STEP` tokens (prompts) run row by row, without a graph.

**Who waits.** On a GPU `feed` only starts a step, and the host goes on; whoever wants a token waits for it. A step that
nobody wants a token of is waited for, so that its time is known.

Parked rows, for the prompt cache, have slots of their own at the end of the cache, so their number is fixed.

**Exact lengths.** Where a model cannot take spans of different lengths in one call (`StaticTransformers` with recurrent
layers), pass ``ragged=False``: a step then makes one call for each length that occurs.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.engine.batch.memory import device_free_bytes
from stcon.engine.batch.model import BatchModel, Span, StepLogits
from stcon.engine.batch.torch_logits import Part, TorchLogits
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.engine.batch.walking import DeviceDraws
    from stcon.models.base import Model
    from stcon.models.static import StaticModel

MAX_STEP = 16


class StaticRows(BatchModel):
    """Slots of one `StaticCache`.

    Args:
        model: vocabulary and prompts.
        static: computes.
        num_rows: most active rows.
        row_tokens: most tokens of a row; None: the context.
        num_parked: slots for the prompt cache.
        ragged: see the module; None: as the model says.
        draws: draws on the device, for at least `num_rows` rows; None: see `TorchLogits`.
    """

    def __init__(
        self,
        model: Model,
        static: StaticModel,
        num_rows: int = 16,
        *,
        row_tokens: int | None = None,
        num_parked: int = 0,
        ragged: bool | None = None,
        draws: DeviceDraws | None = None,
    ) -> None:
        import torch

        from stcon.models.graphs import Inbox

        longest = min(model.context_length, static.context_length)
        if row_tokens is not None and not 1 <= row_tokens <= longest:
            raise InvalidOption(f"row_tokens: expected 1 to {longest:,}, got {row_tokens:,}")
        self.model = model
        self.static = static
        self.num_rows = num_rows
        self.row_tokens = row_tokens or longest
        self.weight_bytes = _weight_bytes(static)
        self._draws = draws
        self._num_slots = num_rows + 1  # one more: what is copied to be parked
        self.cache = static.new_cache(self._num_slots + num_parked, cache_capacity(static, self.row_tokens))
        self.can_truncate = not self.cache.recurrent
        self.ragged = not _takes_exact_spans(static) if ragged is None else ragged
        self.packs = self.ragged and bool(getattr(static, "packs", False))
        self.max_span = MAX_STEP
        slot_bytes = self.cache.nbytes // self.cache.rows
        self.row_bytes, self.token_bytes = slot_bytes, 0  # a slot is taken whole, however long the row
        self.allocated_bytes = self.cache.nbytes
        self.most_parked_bytes = num_parked * slot_bytes
        self._slot: dict[int, int] = {}
        self._active: list[int] = []  # by slot
        self._free = list(range(self._num_slots, self.cache.rows))
        self._length = np.zeros(self.cache.rows, np.int32)
        self._numbers = itertools.count(1)
        slots, device = self._num_slots, torch.device(static.device)
        self._inbox = Inbox(
            {
                "tokens": (np.int64, (slots, MAX_STEP)),
                "lengths": (np.int32, (slots,)),
                "counts": (np.int32, (slots,)),
            },
            device,
        )
        self._device = device
        self.is_async = device.type == "cuda"
        self._sent: Any = torch.cuda.Event() if self.is_async else None
        self._steps: dict[tuple[int, int, int], _Call] = {}
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @property
    def free_bytes(self) -> int:
        """See `BatchModel.free_bytes`: of the device's memory, where that is another's."""
        free = device_free_bytes(self._device)
        return super().free_bytes if free is None else free

    # ------------------------------------------------------------------------------------------------- rows

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        row = next(self._numbers)
        self._slot[row] = len(self._active)
        assert self._slot[row] < self._num_slots, "the batch keeps to num_rows"
        self._length[self._slot[row]] = 0
        self._active.append(row)
        return row

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`. Cost: a copy of one row, unless it is the last."""
        slot = self._slot.pop(row)
        if slot >= self._num_slots:
            self._free.append(slot)
        else:
            self._close_gap(slot)

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`."""
        number = self.join(num_tokens)
        self._move(self._slot[row], self._slot[number], length)
        return number

    def truncate(self, row: int, length: int) -> None:
        """See `BatchModel.truncate`."""
        assert self.can_truncate, "states only go forward"
        self._length[self._slot[row]] = length

    def park(self, row: int) -> None:
        """See `BatchModel.park`. Cost: two copies of a row."""
        slot, place = self._slot[row], self._free.pop()
        self._move(slot, place, int(self._length[slot]))
        self._slot[row] = place
        self._close_gap(slot)

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return int(self._length[self._slot[row]])

    def _move(self, source: int, target: int, length: int) -> None:
        if length:
            self.cache.copy_rows([source], [target], length)
        self._length[target] = length

    def _close_gap(self, slot: int) -> None:
        last = len(self._active) - 1
        row = self._active.pop()
        if slot != last:
            self._move(last, slot, int(self._length[last]))
            self._active[slot] = row
            self._slot[row] = slot

    # ------------------------------------------------------------------------------------------------- steps

    def computed(self, counts: Sequence[int]) -> int:
        """See `BatchModel.computed`."""
        steps = [count for count in counts if count <= MAX_STEP]
        rows, size, total = self._shape(len(steps), steps)
        return sum(counts) - sum(steps) + (total or rows * size)

    def _shape(self, slots: int, counts: Sequence[int]) -> tuple[int, int, int]:
        """(B, S, M) of a step over the first `slots` slots; M is 0 where nothing is packed."""
        rows, size = min(_bucket(slots), self._num_slots), max(counts, default=0)
        if not self.ragged:
            return rows, size, 0
        if not self.packs or size <= 1:
            return rows, _bucket(size), 0
        total = _bucket(sum(counts))
        return rows, MAX_STEP, total if total < rows * MAX_STEP else 0

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`.

        Cost: a call for the short spans (for each length, if not `ragged`), and one for each long one.
        """
        import torch

        groups: dict[int, list[Span]] = defaultdict(list)
        alone: list[Span] = []
        for span in spans:
            if len(span.tokens) > MAX_STEP or span.positions is not None:
                alone.append(span)
            else:
                groups[0 if self.ragged else len(span.tokens)].append(span)
        parts: list[Part] = []
        with torch.inference_mode():
            entries = _entries(spans)
            for group in groups.values():
                logits = self._feed_together(group)
                wanted = [span for span in group if span.wants_logits]
                slots = [self._slot[span.row] for span in wanted]
                if len(groups) > 1:
                    logits, slots = logits[slots], list(range(len(slots)))  # the next call may write to the same place
                parts.append(Part(logits, slots, [entries[span.row] for span in wanted]))
            for span in alone:
                rows = self._feed_alone(span)
                first = entries.get(span.row, 0)
                places = list(range(len(span.wanted)))
                parts.append(Part(rows, places, [first + place for place in places]))
        parts = [part for part in parts if part.entries]
        if not parts and self._sent is not None:
            self._sent.record()
            self._sent.synchronize()
        return TorchLogits(parts, self.model.vocabulary.size, draws=self._draws)

    def _feed_together(self, spans: Sequence[Span]) -> Any:
        """One call over the first slots; float32[B, V] by slot, valid until the next call."""
        slots = [self._slot[span.row] for span in spans]
        shape = self._shape(max(slots) + 1, [len(span.tokens) for span in spans])
        host = self._inbox.host
        if self._sent is not None:
            self._sent.synchronize()  # what was written last has been sent
        host["lengths"][:] = self._length[: self._num_slots]
        host["counts"][:] = 0
        for slot, span in zip(slots, spans, strict=True):
            host["tokens"][slot, : len(span.tokens)] = span.tokens
            host["counts"][slot] = len(span.tokens)
        self._inbox.send()
        if self._sent is not None:
            self._sent.record()
        call = self._steps.get(shape)
        if call is None:
            call = self._steps[shape] = _Call(self, *shape)
        logits = call()
        for slot, span in zip(slots, spans, strict=True):
            self._length[slot] += len(span.tokens)
        return logits

    def _feed_alone(self, span: Span) -> Any:
        """A long span, or one whose logits are wanted at several places: float32[places, V]."""
        import torch

        slot = self._slot[span.row]
        tokens = torch.tensor([list(span.tokens)], dtype=torch.int64, device=self._device)
        lengths = torch.tensor([int(self._length[slot])], dtype=torch.int32, device=self._device)
        every = span.positions is not None
        logits = self.static.forward(tokens, lengths, self.cache.slice(slot, slot + 1), all_positions=every)
        self._length[slot] += len(span.tokens)
        return logits[0][list(span.wanted)].float() if every else logits[:1].float()


class _Call:
    """The step of B slots of S tokens, M in all if that is not 0: a graph from its second call on, if on a GPU."""

    def __init__(self, batch: StaticRows, rows: int, size: int, total: int) -> None:
        from stcon.models.graphs import Replayed

        self._logits: Any = None
        packed: dict[str, Any] = {"total": total} if total else {}

        def run() -> None:
            inbox = batch._inbox.device
            lengths, counts = inbox["lengths"][:rows], inbox["counts"][:rows]
            tokens = inbox["tokens"][:rows, :size]
            self._logits = batch.static.forward(tokens, lengths, batch.cache, counts, **packed).float()

        self._run = Replayed(run, batch._pool)

    def __call__(self) -> Any:
        """float32[B, V], valid until the next step."""
        self._run()
        return self._logits


def cache_capacity(static: StaticModel, row_tokens: int) -> int:
    """Tokens of a slot for rows of at most `row_tokens`: padding needs a place too."""
    return min(row_tokens + MAX_STEP, static.context_length)


def _entries(spans: Sequence[Span]) -> dict[int, int]:
    """The first entry of each row that wants logits."""
    entries, number = {}, 0
    for span in spans:
        if span.wanted:
            entries[span.row] = number
            number += len(span.wanted)
    return entries


def _takes_exact_spans(static: StaticModel) -> bool:
    """Whether all rows of a call must have the same number of tokens, or none (see the module)."""
    return type(static).__module__ == "stcon.models.static_transformers" and bool(getattr(static, "recurrent", False))


def _weight_bytes(static: Any) -> int:
    """Bytes of the parameters, wherever the model keeps them."""
    network = getattr(static, "network", None)
    tensors = network.parameters() if network is not None else getattr(static, "parameters", {}).values()
    return sum(int(tensor.nbytes) for tensor in tensors)


def _bucket(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()
