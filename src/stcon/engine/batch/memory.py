"""What a batch may use: M ≈ W + C + P + n(s + τT) + G (the paper's App. F.1), and which requests fit.

====  ================================================================================
W     the weights
C     the prompt cache's limit
P     what a step needs for a while: activations of its tokens, logits of its rows
n     rows writing at a time
s     bytes of a row whatever its length (recurrent states)
τ     bytes of a cached token
T     tokens of a row, prompt and output together
G     the constraints: the cached mask rows of the grammars kept warm
====  ================================================================================

The rows' share is a pool: a request takes n·(s + τ·(prompt + max_tokens)) of it while it runs, its own T rather than
the largest. One that does not fit now waits; one that does not fit an empty pool is refused with the numbers.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.errors import NoRoom

if TYPE_CHECKING:
    from stcon.engine.batch.model import BatchModel

SHARE_USED = 0.8  # of what is free: the rest is for everything that the plan does not know
SHARE_OF_CACHE = 0.25  # of what is left for rows, unless told
WARM_GRAMMARS_BYTES = 8 * (64 << 20)  # constraint.sharing keeps 8 kernels, each with at most 64 MiB of rows
UNKNOWN_FREE_BYTES = 4 << 30


@dataclass(frozen=True)
class MemoryPlan:
    """The terms of the sum, in bytes.

    Attributes:
        weights, cache, step, rows, grammars: W, C, P, n(s + τT) as a pool, G.
        num_rows: n.
        row, token: s and τ.
        row_tokens: most tokens that a row can hold.
    """

    weights: int
    cache: int
    step: int
    rows: int
    grammars: int
    num_rows: int
    row: int
    token: int
    row_tokens: int = sys.maxsize

    @property
    def total(self) -> int:
        """M."""
        return self.weights + self.cache + self.step + self.rows + self.grammars

    @property
    def tokens_a_row(self) -> int:
        """T, if all n rows take the same."""
        if not self.token:
            return self.row_tokens
        return min(self.row_tokens, max(0, (self.rows // self.num_rows - self.row) // self.token))

    def need(self, num_tokens: int, n: int = 1) -> int:
        """Bytes of n rows of `num_tokens` tokens."""
        return n * (self.row + self.token * num_tokens)

    def check(self, num_tokens: int, n: int) -> None:
        """Raise `NoRoom` if a request of n rows of `num_tokens` tokens cannot fit even alone."""
        if n > self.num_rows:
            raise NoRoom("rows", n, self.num_rows, "ask for fewer outputs")
        if num_tokens > self.row_tokens:
            raise NoRoom("tokens", num_tokens, self.row_tokens, "shorten the prompt or max_tokens")
        if self.need(num_tokens, n) > self.rows:
            advice = f"{num_tokens:,} tokens at {self.token:,} bytes each: shorten the prompt or max_tokens"
            raise NoRoom("bytes of cache", self.need(num_tokens, n), self.rows, advice)

    def __str__(self) -> str:
        row = f"{self.tokens_a_row:,} tokens each at {_size(self.token)} a token, {_size(self.row)} a row"
        return (
            f"memory {_size(self.total)} = weights {_size(self.weights)} + prompt cache {_size(self.cache)} "
            f"+ step {_size(self.step)} + {self.num_rows} rows {_size(self.rows)} ({row}) "
            f"+ constraints {_size(self.grammars)}"
        )


def plan_memory(
    model: BatchModel, *, chunk: int, free_bytes: int | None = None, cache_bytes: int | None = None
) -> MemoryPlan:
    """The plan for `model`.

    Args:
        model: its weights are loaded already.
        chunk: most prompt tokens of a step.
        free_bytes: what may be used besides the weights; None: `SHARE_USED` of what the model's device has free.
        cache_bytes: C; None: a share of what is left.

    Raises:
        NoRoom: nothing is left for rows.
    """
    free = int(SHARE_USED * model.free_bytes) + model.allocated_bytes if free_bytes is None else free_bytes
    step = model.step_bytes(chunk + model.num_rows, model.num_rows)
    left = free - step - WARM_GRAMMARS_BYTES
    cache = int(max(0, left) * SHARE_OF_CACHE) if cache_bytes is None else cache_bytes
    cache = cache if model.most_parked_bytes is None else min(cache, model.most_parked_bytes)
    rows = left - cache
    fixed = free - rows
    if rows <= 0 or rows < model.num_rows * model.row_bytes:
        advice = "free memory, or take fewer rows, a smaller chunk or a smaller prompt cache"
        raise NoRoom("bytes", fixed + model.num_rows * (model.row_bytes + model.token_bytes), free, advice)
    most = model.num_rows * (model.row_bytes + model.token_bytes * model.row_tokens)
    return MemoryPlan(
        weights=model.weight_bytes,
        cache=cache,
        step=step,
        rows=min(rows, most) or rows,
        grammars=WARM_GRAMMARS_BYTES,
        num_rows=model.num_rows,
        row=model.row_bytes,
        token=model.token_bytes,
        row_tokens=model.row_tokens,
    )


def available_bytes() -> int:
    """Main memory that this process may still take: the machine's, or its control group's if that is less."""
    free = [found for found in (_machine_bytes(), _group_bytes()) if found is not None]
    return min(free, default=UNKNOWN_FREE_BYTES)


def device_free_bytes(device: Any) -> int | None:
    """Memory that a GPU has free for this process; None for a device that has none of its own."""
    if str(device).partition(":")[0] != "cuda":
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes
    return int(free) + int(kept)


def _machine_bytes() -> int | None:
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # no sysconf, or it does not know
        return None


def _group_bytes() -> int | None:
    """What is left of a Linux control group's limit (version 2)."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def _size(num_bytes: int) -> str:
    """Bytes for people."""
    number = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
