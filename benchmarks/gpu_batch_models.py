"""Rows that write given texts: a static model whose logits get a push, row by row, towards the tokens of a script.

Random weights write nothing sensible, so what is measured is the time of steps, masks and plans over realistic text
(`gpu_batch_answers`), the same for every way to run it; the push is one addition a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from stcon.engine.batch import Batch
from stcon.engine.batch.model import Span, StepLogits
from stcon.engine.batch.rows import Job
from stcon.engine.batch.static import StaticRows
from stcon.models.static import StaticModel

PUSH = 1e4


class Scripted:
    """A `StaticModel` whose logits are pushed towards ``scripts[owner[b], p]`` for row b's token at position p.

    Args:
        inner: computes.
        slots: most rows.
        scripts: most scripts.
        length: most tokens of a row.
    """

    packs = True

    def __init__(self, inner: StaticModel, *, slots: int, scripts: int, length: int) -> None:
        self.inner = inner
        self.vocab_size, self.device, self.dtype = inner.vocab_size, inner.device, inner.dtype
        self.context_length = inner.context_length
        self.scripts = torch.full((scripts, length), -1, dtype=torch.int64, device=inner.device)
        self.owner = torch.zeros(slots, dtype=torch.int64, device=inner.device)
        self.alone: int | None = None  # the slot of a call for one row

    def new_cache(self, rows: int, capacity: int) -> Any:
        """The inner model's."""
        return self.inner.new_cache(rows, capacity)

    def forward(self, tokens: Any, lengths: Any, cache: Any, counts: Any = None, **options: Any) -> Any:
        """The inner model's logits after each row's last token, with the push."""
        with torch.inference_mode():
            logits = self.inner.forward(tokens, lengths, cache, counts, **options)
            first = self.alone or 0
            owner = self.owner[first : first + len(tokens)]
            ends = lengths.long() + (tokens.shape[1] if counts is None else counts.long())
            wanted = self.scripts[owner, ends][:, None]
            return logits.scatter_add(1, wanted.clamp(min=0), (wanted >= 0).to(logits.dtype) * PUSH)

    def write(self, script: int, prompt: int, tokens: Sequence[int]) -> None:
        """Let `tokens` be what script `script` writes after a prompt of so many tokens."""
        row = torch.full((self.scripts.shape[1],), -1, dtype=torch.int64)
        row[prompt : prompt + len(tokens)] = torch.tensor(list(tokens))
        self.scripts[script] = row.to(self.scripts.device)


class ScriptedRows(StaticRows):
    """`StaticRows` over `Scripted`: each row has a script, `next_script` when it joins."""

    static: Scripted
    next_script = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._script_of: dict[int, int] = {}
        self._owners = np.zeros(self._num_slots, np.int64)

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        row = super().join(num_tokens)
        self._script_of[row] = self.next_script
        return row

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        super().leave(row)
        del self._script_of[row]

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`."""
        owners = np.zeros(self._num_slots, np.int64)
        for slot, row in enumerate(self._active):
            owners[slot] = self._script_of[row]
        if not np.array_equal(owners, self._owners):
            self._owners = owners
            self.static.owner[: len(owners)] = torch.from_numpy(owners).to(self.static.device)
        return super().feed(spans)

    def _feed_alone(self, span: Span) -> Any:
        self.static.alone = self._slot[span.row]
        try:
            return super()._feed_alone(span)
        finally:
            self.static.alone = None


class ScriptedBatch(Batch):
    """A batch that tells its rows whose script comes; `scripts` by the number of a request's handle."""

    model: ScriptedRows

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.scripts: dict[int, int] = {}

    def _join(self, job: Job) -> None:
        self.model.next_script = self.scripts[job.handle.number]
        super()._join(job)
