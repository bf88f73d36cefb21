"""What torch.compile makes of the lean runner's plain arithmetic, beside what runs: why it is no option of ours.

On the CPU a layer's step is compiled once for all layers; on CUDA the three operations with a product are, between our
attention kernels and inside the same graph. Compiling is timed the first time; torch keeps its results for later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from stcon.models.lean import llama, reference
from stcon.models.lean.network import Network
from stcon.models.lean.shapes import Step

PROMPT_TOKENS = 80
ROUNDS = 15


def on_cuda(network: Network, decode_ms: Callable[[Network, int], float]) -> dict[str, Any]:
    """Milliseconds of a step of 1 and of 16 tokens, ours and with compiled products."""
    compiled = {
        name: torch.compile(getattr(reference, name), dynamic=False)
        for name in ("norm_linear", "linear_add", "gate_up")
    }
    ours = network.ops
    found: dict[str, Any] = {"ours_ms": {size: decode_ms(network, size) for size in (1, 16)}, "compiled_ms": {}}
    network.ops = SimpleNamespace(attend=ours.attend, delta=ours.delta, **compiled)
    started = time.perf_counter()
    for size in (1, 16):
        found["compiled_ms"][size] = decode_ms(network, size)
    network.ops = ours
    return found | {"seconds": round(time.perf_counter() - started, 1)}


def on_cpu(weights: str, dtype: str) -> dict[str, Any]:
    """Milliseconds of processor time a token of the default model: as it runs and with compiled layers, in turns."""
    import stcon

    network = stcon.load_model(device="cpu", runner="lean", dtype=dtype, weights=weights).network
    cache = network.new_cache(1, 512)
    network.forward(torch.arange(100, 100 + PROMPT_TOKENS)[None], torch.zeros(1, dtype=torch.int32), cache)

    def layer(w: Any, x: Any, kv: Any, lengths: Any, positions: Any, cos: Any, sin: Any, length: int) -> Any:
        step = Step(1, 1, lengths, None, cos, sin)
        # what the step would find out by itself, in ways that cannot be compiled
        step.__dict__.update(host_lengths=[length], positions=positions, rotation=(cos, sin))
        x = llama.attention(network.ops, w, x, llama.heads(network.settings), kv, step)
        return llama.feed_forward(network.ops, w, x, network.settings.eps, step)

    def token(layer: Callable[..., Any], length: int) -> Any:
        lengths = torch.full((1,), length, dtype=torch.int32)
        positions = lengths.long()[:, None]
        cos, sin = cache.cos[positions][:, :, None], cache.sin[positions][:, :, None]
        x = network.embed[torch.tensor([5])]
        for i, w in enumerate(network.layers):
            x = layer(w, x, cache.kv[:, i], lengths, positions, cos, sin, length)
        return network.ops.norm_linear(
            x, network.parameters["norm"], network.settings.eps, network.head, None, exact=True
        )

    compiled, found = torch.compile(layer), {"as it runs": [], "compiled": []}
    with torch.inference_mode():
        started = time.perf_counter()
        for i in range(3):  # the second length makes lengths a variable
            token(compiled, PROMPT_TOKENS + i)
        seconds = time.perf_counter() - started
        for i in range(ROUNDS):
            for name, how in (("as it runs", layer), ("compiled", compiled)):
                began = time.process_time()
                token(how, PROMPT_TOKENS + i)
                found[name].append(time.process_time() - began)
    medians = {f"{name}_ms": round(sorted(taken)[ROUNDS // 2] * 1e3, 1) for name, taken in found.items()}
    return medians | {"seconds": round(seconds, 1)}
