"""The caches of B streams at fixed addresses: keys and values by position, recurrent states, recent inputs by position.

Attention: ``kv[2, layers, B, kv_heads, capacity, head_dim]``, token p at index p. A shorter length forgets.

Gated DeltaNet: ``states[layers, B, value_heads, key_dim, value_dim]``, float32, which only go forward, and ``recent``,
the inputs of the short convolution, token p at index p mod `WINDOW`: kernels that share a channel may read the old
tokens while another writes the new ones, since a step of at most `MAX_STEP` tokens touches no index that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stcon.models.lean.settings import Settings

Tensor = Any
MAX_STEP = 16
WINDOW = 32  # at least MAX_STEP + taps - 1; a power of two makes the index a mask


@dataclass
class Cache:
    """See the module; implements `stcon.models.static.StaticCache`.

    Attributes:
        cos, sin: float32[capacity, rope.dim / 2], the rotary table.
        workspace: what kernels need between their programs; None on the CPU.
        saved: what `save` kept.
    """

    kv: Tensor
    states: Tensor | None
    recent: Tensor | None
    cos: Tensor
    sin: Tensor
    workspace: Any = None
    saved: tuple[Tensor, Tensor] | None = None

    @property
    def rows(self) -> int:
        """See `StaticCache.rows`."""
        return int(self.kv.shape[2])

    @property
    def capacity(self) -> int:
        """See `StaticCache.capacity`."""
        return int(self.kv.shape[4])

    @property
    def recurrent(self) -> bool:
        """See `StaticCache.recurrent`."""
        return self.states is not None

    @property
    def nbytes(self) -> int:
        """See `StaticCache.nbytes`."""
        tensors = [self.kv, self.cos, self.sin, self.states, self.recent, *(self.saved or ())]
        return sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)

    def slice(self, start: int, stop: int) -> Cache:
        """See `StaticCache.slice`."""
        states, recent = (None if x is None else x[:, start:stop] for x in (self.states, self.recent))
        saved = None if self.saved is None else (self.saved[0][:, start:stop], self.saved[1][:, start:stop])
        return Cache(self.kv[:, :, start:stop], states, recent, self.cos, self.sin, self.workspace, saved)

    def copy_rows(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """See `StaticCache.copy_rows`."""
        for a, b in zip(source, target, strict=True):
            self.kv[:, :, b, :, :length].copy_(self.kv[:, :, a, :, :length])
            for tensor in (self.states, self.recent):
                if tensor is not None:
                    tensor[:, b].copy_(tensor[:, a])

    def save(self) -> None:
        """See `StaticCache.save`."""
        if self.states is None or self.recent is None:
            return
        if self.saved is None:
            self.saved = (self.states.clone(), self.recent.clone())
        else:
            self.saved[0].copy_(self.states)
            self.saved[1].copy_(self.recent)

    def restore(self, rows: Tensor | None = None) -> None:
        """See `StaticCache.restore`."""
        if self.saved is None:
            return
        for tensor, saved in zip((self.states, self.recent), self.saved, strict=True):
            if rows is None:
                tensor.copy_(saved)  # type: ignore[union-attr]
            else:
                mask = rows.view(1, -1, *([1] * (saved.dim() - 2)))
                tensor.copy_(saved.where(mask, tensor))  # type: ignore[union-attr]


def new_cache(settings: Settings, rows: int, capacity: int, device: Any, dtype: Any) -> Cache:
    """An empty cache. Zeros, not what the memory held: a mask hides a number, but nothing hides a NaN."""
    import torch

    num_attention, delta = settings.layers.count("attention"), settings.delta
    kv = torch.zeros(2, num_attention, rows, settings.kv_heads, capacity, settings.head_dim, device=device, dtype=dtype)
    cos, sin = rotary_table(settings, capacity, device)
    workspace = _workspace(settings, rows, device)
    if delta is None:
        return Cache(kv, None, None, cos, sin, workspace)
    layers = settings.layers.count("delta")
    states = torch.zeros(layers, rows, delta.value_heads, delta.key_dim, delta.value_dim, device=device)
    recent = torch.zeros(layers, rows, WINDOW, delta.channels, device=device, dtype=dtype)
    return Cache(kv, states, recent, cos, sin, workspace)


def _workspace(settings: Settings, rows: int, device: Any) -> Any:
    if device.type != "cuda":
        return None
    from stcon.models.lean.cuda.plans import workspace

    return workspace(settings, rows, device)


def grown(cache: Cache, settings: Settings, capacity: int, length: int) -> Cache:
    """A larger copy of a cache whose rows hold `length` tokens. Cost: the filled part's bytes."""
    larger = new_cache(settings, cache.rows, capacity, cache.kv.device, cache.kv.dtype)
    larger.kv[..., :length, :] = cache.kv[..., :length, :]
    larger.states = None if cache.states is None else cache.states.clone()
    larger.recent = None if cache.recent is None else cache.recent.clone()
    return larger


def rotary_table(settings: Settings, capacity: int, device: Any) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, float32[capacity, rope.dim / 2]."""
    import torch

    angles = torch.outer(torch.arange(capacity, dtype=torch.float32), rotary_frequencies(settings))
    return angles.cos().to(device), angles.sin().to(device)


def rotary_frequencies(settings: Settings) -> Tensor:
    """Radians a position, float32[rope.dim / 2], the slow ones changed as Llama 3.1 does if the settings say so."""
    import torch

    rope, scaling = settings.rope, settings.rope.scaling
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, rope.dim, 2, dtype=torch.float32) / rope.dim))
    if scaling is None:
        return frequencies
    turns = scaling.original_context * frequencies / (2 * torch.pi)  # in the context of pretraining
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies
