"""The Llama family: SmolLM2, Llama 3, Qwen2 and Qwen3. A layer is five operations; what differs is data.

Qwen2 adds a bias to queries, keys and values; Qwen3 normalises queries and keys head by head instead; Llama 3.1 changes
the rotary frequencies (`cache.rotary_frequencies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from stcon.models.lean.checkpoint import Entry
from stcon.models.lean.settings import Settings
from stcon.models.lean.shapes import Heads, Step

Tensor = Any
Weights = Mapping[str, Tensor]
IGNORED: tuple[str, ...] = ()


def heads(settings: Settings) -> Heads:
    """The shape of an attention layer."""
    return Heads(settings.heads, settings.kv_heads, settings.head_dim, settings.eps, settings.gated)


def attention(ops: ModuleType, w: Weights, x: Tensor, shape: Heads, kv: Tensor, step: Step) -> Tensor:
    """x + attention(norm(x))."""
    qkv = ops.norm_linear(x, w["norm1"], shape.eps, w["qkv"], step, w.get("qkv_bias"))
    norms = (w["q_norm"], w["k_norm"]) if "q_norm" in w else None
    return ops.linear_add(ops.attend(qkv, shape, norms, kv, step), w["out"], x, step)


def feed_forward(ops: ModuleType, w: Weights, x: Tensor, eps: float, step: Step) -> Tensor:
    """x + down(silu(gate) · up) of norm(x)."""
    return ops.linear_add(ops.gate_up(x, w["norm2"], eps, w["gate_up"], step), w["down"], x, step)


def table(settings: Settings) -> dict[str, Entry]:
    """Our parameters from the checkpoint's."""
    found = ends(settings, "model.")
    for i in range(len(settings.layers)):
        found |= layer_table(settings, f"model.layers.{i}.", f"{i}.")
    return found


def ends(settings: Settings, prefix: str) -> dict[str, Entry]:
    """What comes before and after the layers."""
    found = {"embed": Entry((f"{prefix}embed_tokens.weight",)), "norm": Entry((f"{prefix}norm.weight",), exact=True)}
    if not settings.tied:
        found["head"] = Entry(("lm_head.weight",))
    return found


def layer_table(settings: Settings, theirs: str, ours: str) -> dict[str, Entry]:
    """One layer's parameters."""
    attn = f"{theirs}self_attn."
    found = {
        "norm1": Entry((f"{theirs}input_layernorm.weight",), exact=True),
        "qkv": Entry(tuple(f"{attn}{part}_proj.weight" for part in "qkv")),
        "out": Entry((f"{attn}o_proj.weight",)),
        "norm2": Entry((f"{theirs}post_attention_layernorm.weight",), exact=True),
        "gate_up": Entry((f"{theirs}mlp.gate_proj.weight", f"{theirs}mlp.up_proj.weight")),
        "down": Entry((f"{theirs}mlp.down_proj.weight",)),
    }
    if settings.qkv_bias:
        found["qkv_bias"] = Entry(tuple(f"{attn}{part}_proj.bias" for part in "qkv"))
    if settings.qk_norm:
        found |= {f"{part}_norm": Entry((f"{attn}{part}_norm.weight",), exact=True) for part in "qk"}
    return {f"{ours}{name}": entry for name, entry in found.items()}


def shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter in `table`."""
    found = end_shapes(settings)
    for i in range(len(settings.layers)):
        found |= {f"{i}.{name}": shape for name, shape in layer_shapes(settings).items()}
    return found


def end_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Shapes of what `ends` names."""
    matrix = (settings.vocab_size, settings.hidden)
    return {"embed": matrix, "norm": (settings.hidden,)} | ({} if settings.tied else {"head": matrix})


def layer_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Shapes of what `layer_table` names."""
    hidden, inner, shape = settings.hidden, settings.intermediate, heads(settings)
    found: dict[str, tuple[int, ...]] = {
        "norm1": (hidden,),
        "qkv": (shape.width, hidden),
        "out": (hidden, shape.heads * shape.dim),
        "norm2": (hidden,),
        "gate_up": (2 * inner, hidden),
        "down": (hidden, inner),
    }
    if settings.qkv_bias:
        found["qkv_bias"] = (shape.width,)
    if settings.qk_norm:
        found |= {"q_norm": (shape.dim,), "k_norm": (shape.dim,)}
    return found
