"""Logits of a step as tensors of torch: brought to the host row by row, or drawn from where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stcon.engine.batch.model import StepLogits, stack
from stcon.engine.sampling import Float32, Int32

if TYPE_CHECKING:
    from stcon.engine.batch.walking import DeviceDraws
    from stcon.engine.output import Output

Tensor = Any


class Part(NamedTuple):
    """Logits that one call gave.

    Attributes:
        rows: float32[B, V or more], on some device; may be valid until the model's next call only.
        slots: rows of it that are wanted.
        entries: which of the step's entries these are, in the same order.
    """

    rows: Tensor
    slots: Sequence[int]
    entries: Sequence[int]


class TorchLogits(StepLogits):
    """The logits of a step, in one or several parts.

    Args:
        parts: all entries of the step, each in one of them.
        size: V; logits past it (padding of the embedding) are dropped, missing ones are -inf.
        on_device: whether greedy rows are drawn by torch; None: unless the logits are on the host, where numpy does it.
        draws: draws for all rows (`stcon.engine.batch.walking`); None: greedy rows only, by masks sent from the host.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        size: int,
        *,
        on_device: bool | None = None,
        draws: DeviceDraws | None = None,
    ) -> None:
        self._parts = parts
        self._size = size
        self._draws = draws
        self._places = {
            entry: (part.rows, slot) for part in parts for entry, slot in zip(part.entries, part.slots, strict=True)
        }
        is_away = any(part.rows.device.type != "cpu" for part in parts)
        self._on_device = is_away if on_device is None else on_device

    @classmethod
    def of(cls, rows: Tensor, size: int) -> TorchLogits:
        """The rows of one tensor, all of them and in their order."""
        return cls([Part(rows, range(len(rows)), range(len(rows)))], size)

    def row(self, index: int) -> Float32:
        """See `StepLogits.row`. Cost: 4·V bytes from the device."""
        rows, slot = self._places[index]
        row: Float32 = rows[slot, : self._size].cpu().numpy().copy()
        if len(row) < self._size:
            row = np.concatenate([row, np.full(self._size - len(row), -np.inf, np.float32)])
        return row

    def draw(self, outputs: Sequence[Output]) -> Sequence[int] | None:
        """See `StepLogits.draw`."""
        if self._draws is None and not self._on_device:
            return None
        tokens = [-1] * len(outputs)
        for part in self._parts:
            mine = [outputs[entry] for entry in part.entries]
            for entry, token in zip(part.entries, self._drawn(part, mine), strict=True):
                tokens[entry] = token
        return tokens

    def greedy(self, masks: Sequence[Int32 | None]) -> Sequence[int] | None:
        """See `StepLogits.greedy`."""
        if not self._on_device:
            return None
        tokens = [-1] * len(masks)
        for part in self._parts:
            found = greedy(part.rows[list(part.slots)], [masks[entry] for entry in part.entries], self._size)
            for entry, token in zip(part.entries, found, strict=True):
                tokens[entry] = token
        return tokens

    def _drawn(self, part: Part, outputs: Sequence[Output]) -> Sequence[int]:
        if self._draws is not None:
            return self._draws(part.rows, outputs, part.slots)
        masks = [output.mask for output in outputs]
        tokens = greedy(part.rows[list(part.slots)], masks, self._size)
        return [token if output.sampling.greedy else -1 for token, output in zip(tokens, outputs, strict=True)]


def greedy(rows: Tensor, masks: Sequence[Int32 | None], size: int) -> Sequence[int]:
    """The largest logit of each row under its mask, the lowest id on a tie.

    Args:
        rows: float32[B, V or more, or less].
        masks: for each row int32[W], or None for every token.
        size: V.

    Returns:
        Token ids, -1 where nothing is admissible or the logits are not numbers.

    Cost: B·V/8 bytes to the device, one synchronisation.
    """
    import torch

    rows = rows[:, :size]
    width = rows.shape[1]
    words = torch.from_numpy(stack(masks, -(-size // 32))).to(rows.device)
    bits = (words[:, :, None] >> torch.arange(32, device=rows.device, dtype=torch.int32)) & 1
    admissible = bits.reshape(len(masks), -1)[:, :width].bool()
    masked = torch.where(admissible, rows, float("-inf"))
    tokens = torch.argmax(masked, dim=1)  # of equal ones the first, on the CPU and in practice on CUDA
    best = masked.gather(1, tokens[:, None])[:, 0]
    usable = torch.isfinite(best) & ~torch.isnan(rows).any(dim=1)
    found: list[int] = torch.where(usable, tokens, -1).tolist()
    return found
