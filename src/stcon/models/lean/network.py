"""The forward pass: embed, the layers, the head; implements `stcon.models.static.StaticModel`.

Which arithmetic runs is decided once, by the device: plain torch (`reference`) on the CPU, fused kernels on CUDA.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from stcon.models.lean import cache as caches
from stcon.models.lean import llama, qwen3_5, reference
from stcon.models.lean.cache import Cache
from stcon.models.lean.checkpoint import Parameters
from stcon.models.lean.settings import Settings
from stcon.models.lean.shapes import Step, packing

Tensor = Any


class Network:
    """A model's parameters and its forward pass.

    Args:
        settings: its shape.
        parameters: as the family's ``shapes`` lists them, all on one device.
        ops: the five operations; None: by the device.
    """

    packs = True  # `forward` takes `total`

    def __init__(self, settings: Settings, parameters: Parameters, ops: ModuleType | None = None) -> None:
        self.settings = settings
        self.parameters = parameters
        self.embed = parameters["embed"]
        self.head = parameters.get("head", self.embed)
        self.device = self.embed.device
        self.dtype = self.embed.dtype
        self.vocab_size = settings.vocab_size
        self.context_length = settings.context_length
        self.ops = operations(self.device) if ops is None else ops
        self.layers = [_layer(parameters, f"{i}.") for i in range(len(settings.layers))]
        self._heads = llama.heads(settings)

    def new_cache(self, rows: int, capacity: int) -> Cache:
        """See `StaticModel.new_cache`."""
        return caches.new_cache(self.settings, rows, capacity, self.device, self.dtype)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        cache: Any,
        counts: Tensor | None = None,
        all_positions: bool = False,
        total: int | None = None,
    ) -> Tensor:
        """See `StaticModel.forward`; `cache` is a `Cache`.

        Args:
            total: at least the sum of `counts`: products are of so many tokens instead of B·S. For steps of at most
                `MAX_STEP` tokens, without `all_positions`.
        """
        with torch.inference_mode():
            rows, size = tokens.shape
            packed = None if counts is None or total is None or total >= rows * size else packing(counts, size, total)
            assert packed is None or (size <= caches.MAX_STEP and not all_positions), "packed steps are decode steps"
            step = Step(rows, size, lengths, counts, cache.cos, cache.sin, cache.workspace, packed)
            ids = tokens.reshape(-1)
            x = self._hidden(F.embedding(ids if packed is None else ids[packed.sources], self.embed), cache, step)
            if packed is not None:
                x = x[packed.lasts]
            elif not all_positions:
                x = _last(x.view(rows, size, -1), counts)
            logits = self.ops.norm_linear(x, self.parameters["norm"], self.settings.eps, self.head, step, exact=True)
            return logits.view(rows, size, -1) if all_positions else logits

    def _hidden(self, x: Tensor, cache: Cache, step: Step) -> Tensor:
        """Through every layer: [M, H]; `x` may be overwritten."""
        ops, settings, eps = self.ops, self.settings, self.settings.eps
        attentions = deltas = 0
        for w, kind in zip(self.layers, settings.layers, strict=True):
            if kind == "attention":
                x = llama.attention(ops, w, x, self._heads, cache.kv[:, attentions], step)
                attentions += 1
            elif settings.delta is not None and cache.states is not None and cache.recent is not None:
                memory = cache.states[deltas, : step.rows], cache.recent[deltas, : step.rows]
                x = qwen3_5.delta(ops, w, x, settings.delta, eps, memory, step)
                deltas += 1
            x = llama.feed_forward(ops, w, x, eps, step)
        return x


def operations(device: Any) -> ModuleType:
    """The five operations for a device."""
    if device.type == "cuda":
        from stcon.models.lean import cuda

        return cuda
    return reference


def _last(x: Tensor, counts: Tensor | None) -> Tensor:
    """Each row's last real position: [B, S, H] → [B, H]."""
    if x.shape[1] == 1:
        return x[:, 0].contiguous()
    if counts is None:
        return x[:, -1].contiguous()
    place = (counts.long() - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2])
    return x.gather(1, place)[:, 0]


def _layer(parameters: Parameters, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in parameters.items() if name.startswith(prefix)}
