"""Logits of a step as a tensor of torch: brought to the host row by row, or drawn from where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.engine.batch.model import StepLogits, stack
from stcon.engine.sampling import Float32, Int32

if TYPE_CHECKING:
    from stcon.engine.batch.walking import DeviceDraws
    from stcon.engine.output import Output


class TorchLogits(StepLogits):
    """float32[B, ≥ V] on some device.

    Args:
        rows: the tensor; may be written to.
        size: V; logits past it (padding of the embedding) are dropped, missing ones are -inf.
        on_device: whether greedy rows are drawn by torch; None: unless the tensor is on the host, where numpy does it.
        draws: draws for all rows (`stcon.engine.batch.walking`); None: greedy rows only, by masks sent from the host.
    """

    def __init__(
        self, rows: Any, size: int, *, on_device: bool | None = None, draws: DeviceDraws | None = None
    ) -> None:
        self._rows = rows
        self._size = size
        self._draws = draws
        self._on_device = rows.device.type != "cpu" if on_device is None else on_device

    def row(self, index: int) -> Float32:
        """See `StepLogits.row`. Cost: 4·V bytes from the device."""
        row: Float32 = self._rows[index, : self._size].cpu().numpy().copy()
        if len(row) < self._size:
            row = np.concatenate([row, np.full(self._size - len(row), -np.inf, np.float32)])
        return row

    def draw(self, outputs: Sequence[Output]) -> Sequence[int] | None:
        """See `StepLogits.draw`."""
        if self._draws is not None:
            return self._draws(self._rows, outputs)
        if not self._on_device:
            return None
        tokens = self.greedy([output.mask for output in outputs])
        greedy = [output.sampling.greedy for output in outputs]
        return [token if is_greedy else -1 for token, is_greedy in zip(tokens, greedy, strict=True)]

    def greedy(self, masks: Sequence[Int32 | None]) -> Sequence[int]:
        """The largest logit of each row under its mask, the lowest id on a tie.

        Args:
            masks: for each row int32[W], or None for every token.

        Returns:
            Token ids, -1 where nothing is admissible or the logits are not numbers.

        Cost: B·V/8 bytes to the device, one synchronisation.
        """
        import torch

        rows = self._rows[:, : self._size]
        width = rows.shape[1]
        words = torch.from_numpy(stack(masks, -(-self._size // 32))).to(rows.device)
        bits = (words[:, :, None] >> torch.arange(32, device=rows.device, dtype=torch.int32)) & 1
        admissible = bits.reshape(len(masks), -1)[:, :width].bool()
        masked = torch.where(admissible, rows, float("-inf"))
        tokens = torch.argmax(masked, dim=1)  # of equal ones the first, on the CPU and in practice on CUDA
        best = masked.gather(1, tokens[:, None])[:, 0]
        usable = torch.isfinite(best) & ~torch.isnan(rows).any(dim=1)
        found: list[int] = torch.where(usable, tokens, -1).tolist()
        return found
