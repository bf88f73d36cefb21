"""A model whose every address and shape is fixed: what CUDA graphs and continuous batching build on.

A `StaticModel` appends S tokens to each of B rows at once. All that changes from step to step (token ids, lengths,
counts) is read from tensors on the model's device; nothing is read back, no shape depends on data. So a call can be
captured in a CUDA graph once for each (B, S) and replayed after writing new values into the same tensors.

Rows. A row is one stream. `lengths[b]` is the number of tokens that row b's cache holds; the caller owns it: `forward`
reads it and leaves it as it was, and the caller adds the counts afterwards. Taking a row back to a shorter prefix is
writing a smaller number, as far as attention goes. Recurrent layers (Gated DeltaNet) also hold a state that only goes
forward: `StaticCache.save` it before tokens that may be taken back, `restore` it afterwards, feed the kept ones again.
A row of length 0 starts from the empty state, whatever was there before: nothing needs clearing.

Padding. Rows with fewer tokens than S are padded at the end; `counts[b]` says how many are real. What is computed for
padding is not defined, but it reaches neither the logits of real positions nor recurrent states, and what it leaves
in the attention cache lies past the row's length and is overwritten by the next tokens. ``counts[b] = 0`` leaves row b
as it was (its logits are meaningless).

Not checked, since that would need the host: ``lengths[b] + S <= capacity`` (tokens past the capacity are not stored)
and ``0 <= tokens < vocab_size``. The caller keeps to both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

# torch's types; spelled so because this module is imported without torch
Tensor = Any
Device = Any
DType = Any


class StaticCache(Protocol):
    """The caches of `rows` streams, at fixed addresses."""

    @property
    def rows(self) -> int:
        """Streams it holds, B at most."""

    @property
    def capacity(self) -> int:
        """Most tokens of one row."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory, saved states included."""

    @property
    def recurrent(self) -> bool:
        """Whether some layer holds a state that cannot be truncated; if not, `save` and `restore` do nothing."""

    def slice(self, start: int, stop: int) -> StaticCache:
        """Rows start … stop − 1 as a cache of their own over the same memory: to prefill one row of a batch."""

    def copy_rows(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of rows `source` (and their recurrent states) over rows `target`.

        The states copied are the rows' current ones: right where `length` is what the source row holds. No row may be
        in both lists. Cost: the copied bytes, read and written; no host synchronisation.
        """

    def save(self) -> None:
        """Copy every row's recurrent state to a second buffer (the first call allocates: make it before capture).

        Cost: the states' bytes, read and written.
        """

    def restore(self, rows: Tensor | None = None) -> None:
        """Undo what happened to recurrent states since `save`.

        Args:
            rows: bool[B] on the device, the rows to restore; None: all of them.
        """


class StaticModel(Protocol):
    """Logits for B rows of S tokens, without synchronisation; `stcon.models.lean` implements it."""

    vocab_size: int
    device: Device
    dtype: DType
    context_length: int

    def new_cache(self, rows: int, capacity: int) -> StaticCache:
        """Room for `rows` streams of `capacity` tokens; nothing needs clearing before use."""

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        cache: StaticCache,
        counts: Tensor | None = None,
        all_positions: bool = False,
    ) -> Tensor:
        """Append tokens to the rows of `cache`.

        Args:
            tokens: int64[B, S] on the device; B ≤ ``cache.rows``, row b continues row b of the cache. S ≥ 1: up to 16
                is a decode step, more is a chunk of a prompt (any S; memory grows with it).
            lengths: int32[B] on the device, tokens already in each row's cache.
            cache: of this model.
            counts: int32[B] on the device, real tokens of each row, 0 … S; None: all S are real.
            all_positions: logits after every token, not only after each row's last real one.

        Returns:
            float32[B, V], or float32[B, S, V]. Inside a CUDA graph: at the same address every replay.
        """
