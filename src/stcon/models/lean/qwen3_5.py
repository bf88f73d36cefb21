"""Qwen3.5's language model: three Gated DeltaNet layers, then one of gated attention, and again.

Text only: the vision tower and the multi-token prediction layers of a checkpoint are left out. For text the three
rotary positions of a token are one, so the interleaved multimodal embedding is the plain one.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stcon.models.lean import llama
from stcon.models.lean.checkpoint import Entry
from stcon.models.lean.llama import Weights
from stcon.models.lean.settings import Delta, Settings
from stcon.models.lean.shapes import Step

Tensor = Any
IGNORED = ("mtp.", "model.visual.", "model.mtp.")


def delta(
    ops: ModuleType, w: Weights, x: Tensor, shape: Delta, eps: float, memory: tuple[Tensor, Tensor], step: Step
) -> Tensor:
    """x + delta_net(norm(x)); `memory` is the layer's state and its recent inputs."""
    mixed = ops.norm_linear(x, w["norm1"], eps, w["mixed"], step)
    return ops.linear_add(ops.delta(mixed, shape, w, eps, *memory, step), w["out"], x, step)


def table(settings: Settings, prefix: str) -> dict[str, Entry]:
    """Our parameters from the checkpoint's, which begin with `prefix`."""
    found = llama.ends(settings, prefix) | {"norm": Entry((f"{prefix}norm.weight",), True, _plus_one)}
    for i, kind in enumerate(settings.layers):
        layer = llama.layer_table(settings, f"{prefix}layers.{i}.", "")
        if kind == "delta":
            layer = {name: layer[name] for name in ("norm1", "norm2", "gate_up", "down")}
            layer |= _delta_table(f"{prefix}layers.{i}.linear_attn.")
        else:
            layer |= _attention_table(settings, f"{prefix}layers.{i}.self_attn.")
        for name in layer.keys() & {"norm1", "norm2", "q_norm", "k_norm"}:  # stored as the distance from one
            layer[name] = Entry(layer[name].names, True, _plus_one)
        found |= {f"{i}.{name}": entry for name, entry in layer.items()}
    return found


def _attention_table(settings: Settings, attn: str) -> dict[str, Entry]:
    """The gates' rows, which the checkpoint keeps head by head after the queries', go last."""
    heads, dim = settings.heads, settings.head_dim

    def queries(w: Tensor) -> Tensor:
        return w.unflatten(0, (heads, 2, dim))[:, 0].flatten(0, 1)

    def gates(w: Tensor) -> Tensor:
        return w.unflatten(0, (heads, 2, dim))[:, 1].flatten(0, 1)

    q, k, v = (f"{attn}{part}_proj.weight" for part in "qkv")
    return {"qkv": Entry((q, k, v, q), changes=(queries, None, None, gates))}


def _delta_table(theirs: str) -> dict[str, Entry]:
    return {
        "mixed": Entry(tuple(f"{theirs}in_proj_{part}.weight" for part in ("qkv", "z", "b", "a"))),
        "conv": Entry((f"{theirs}conv1d.weight",), change=lambda w: w.squeeze(1)),
        "dt_bias": Entry((f"{theirs}dt_bias",), exact=True),
        "decay": Entry((f"{theirs}A_log",), True, lambda w: -w.exp()),
        "delta_norm": Entry((f"{theirs}norm.weight",), exact=True),
        "out": Entry((f"{theirs}out_proj.weight",)),
    }


def _plus_one(w: Tensor) -> Tensor:
    return w + 1


def shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter in `table`."""
    found = llama.end_shapes(settings)
    for i, kind in enumerate(settings.layers):
        layer = llama.layer_shapes(settings)
        if kind == "delta" and settings.delta is not None:
            layer = {name: layer[name] for name in ("norm1", "norm2", "gate_up", "down")}
            layer |= _delta_shapes(settings.hidden, settings.delta)
        found |= {f"{i}.{name}": shape for name, shape in layer.items()}
    return found


def _delta_shapes(hidden: int, shape: Delta) -> dict[str, tuple[int, ...]]:
    values = shape.value_heads * shape.value_dim
    return {
        "mixed": (shape.channels + values + 2 * shape.value_heads, hidden),
        "conv": (shape.channels, shape.taps),
        "dt_bias": (shape.value_heads,),
        "decay": (shape.value_heads,),
        "delta_norm": (shape.value_dim,),
        "out": (hidden, values),
    }
