"""The operations of a layer in plain torch: what the CPU runs, and what every fused kernel must match.

Five operations make up a model; `stcon.models.lean.cuda` has the same five, fused. Shapes: M = B·S tokens, H hidden.
Each takes the step, of which products need only what kernels work in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from stcon.models.lean import int4
from stcon.models.lean.delta_rule import delta_rule, short_convolution
from stcon.models.lean.settings import Delta
from stcon.models.lean.shapes import Heads, Step

Tensor = Any


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) · weight over the last dimension, in float32; the type of `x` comes back."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias, for a few tokens by the weight's 4-bit form if it has one."""
    packed = getattr(weight, "int4", None)
    if packed is None or x.shape[0] > int4.FEW:
        return F.linear(x, weight, bias)
    y = packed.multiply(x.contiguous())
    return y if bias is None else y + bias


def norm_linear(
    x: Tensor,
    norm: Tensor,
    eps: float,
    weight: Tensor,
    step: Step,
    bias: Tensor | None = None,
    exact: bool = False,
) -> Tensor:
    """Normalise, then project: x[M, H], weight[N, H] → [M, N]; in float32 if `exact` (logits)."""
    y = product(rms_norm(x, norm, eps), weight, bias)
    return y.float() if exact else y


def linear_add(x: Tensor, weight: Tensor, residual: Tensor, step: Step) -> Tensor:
    """residual[M, N] + x[M, K] · weight[N, K]ᵀ, which replaces `residual`."""
    return residual.add_(product(x, weight))


def gate_up(x: Tensor, norm: Tensor, eps: float, weight: Tensor, step: Step) -> Tensor:
    """Normalise, project to gate and up (rows of `weight` in this order), return silu(gate) · up: [M, H] → [M, I]."""
    gate, up = product(rms_norm(x, norm, eps), weight).chunk(2, -1)
    return F.silu(gate).mul_(up)


def attend(qkv: Tensor, shape: Heads, norms: tuple[Tensor, Tensor] | None, kv: Tensor, step: Step) -> Tensor:
    """Rotate queries and keys, store keys and values, attend to all that the rows hold.

    Args:
        qkv: [M, shape.width].
        shape: heads.
        norms: float32[dim] each: of queries and keys, head by head, before the rotation.
        kv: [2, B, kv_heads, capacity, dim], changed in place.
        step: where the rows stand.

    Returns:
        [M, heads · dim], gated if the layer is.
    """
    if step.packing is not None:
        padded = attend(qkv[step.packing.places], shape, norms, kv, replace(step, packing=None))
        return padded[step.packing.sources]
    rows, size, dim = step.rows, step.size, shape.dim
    num_q, num_kv = shape.heads * dim, shape.kv_heads * dim
    parts = qkv.view(rows, size, -1).split([num_q, num_kv, num_kv, qkv.shape[-1] - num_q - 2 * num_kv], -1)
    q, k, v = (part.unflatten(-1, (-1, dim)) for part in parts[:3])
    if norms is not None:
        q, k = rms_norm(q, norms[0], shape.eps), rms_norm(k, norms[1], shape.eps)
    q, k = rotate(q, *step.rotation), rotate(k, *step.rotation)
    _store(kv, k, v, step)
    mixed = _softmax_attention(q, kv, shape, step).reshape(rows * size, num_q)
    return mixed * parts[3].reshape(rows * size, num_q).sigmoid() if shape.gated else mixed


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding: pairs (i, i + n) of the first 2n dimensions turned by their angle, the rest left.

    Args:
        x: [B, S, heads, dim].
        cos, sin: float32[B, S, 1, n].
    """
    n = cos.shape[-1]
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    a, b = x[..., :n], x[..., n : 2 * n]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, x[..., 2 * n :]), -1)


def _store(kv: Tensor, k: Tensor, v: Tensor, step: Step) -> None:
    """Write the step's keys and values ([B, S, kv_heads, dim]) to their positions, those past the capacity nowhere."""
    for row, length in enumerate(step.host_lengths):
        stop = min(length + step.size, kv.shape[3])
        kv[0, row, :, length:stop] = k[row, : stop - length].transpose(0, 1)
        kv[1, row, :, length:stop] = v[row, : stop - length].transpose(0, 1)


def _softmax_attention(q: Tensor, kv: Tensor, shape: Heads, step: Step) -> Tensor:
    """Causal attention of q[B, S, heads, dim] to the filled cache: [B, S, heads, dim].

    The queries that share a key head are stacked as if they were more tokens, so that keys are never repeated.
    """
    rows, size = step.rows, step.size
    group, limit = shape.heads // shape.kv_heads, min(max(step.host_lengths) + size, kv.shape[3])
    keys, values = kv[0, :rows, :, :limit], kv[1, :rows, :, :limit]
    stacked = q.view(rows, size, shape.kv_heads, group, shape.dim).permute(0, 2, 1, 3, 4)
    stacked = stacked.reshape(rows, shape.kv_heads, size * group, shape.dim)
    mask = None
    if size > 1 or rows > 1:
        mask = torch.arange(limit, device=q.device) <= step.positions[:, :, None]
        mask = mask.repeat_interleave(group, 1)[:, None]
    mixed = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask)
    return mixed.view(rows, shape.kv_heads, size, group, shape.dim).permute(0, 2, 1, 3, 4)


def delta(
    mixed: Tensor,
    shape: Delta,
    weights: Mapping[str, Tensor],
    eps: float,
    state: Tensor,
    recent: Tensor,
    step: Step,
    rule: Callable[..., Tensor] = delta_rule,
) -> Tensor:
    """A Gated DeltaNet layer between its projections: convolution, gates, delta rule, gated norm.

    Args:
        mixed: [M, channels + value_heads · value_dim + 2 · value_heads]: inputs of the convolution, gates z of the
            output, b (write strength) and a (decay).
        shape: heads and sizes.
        weights: ``conv`` [channels, taps], ``dt_bias`` and ``decay`` float32[value_heads], ``delta_norm``
            float32[value_dim].
        eps: of the norm.
        state: float32[B, value_heads, key_dim, value_dim], changed in place.
        recent: [B, WINDOW, channels], changed in place.
        step: where the rows stand.
        rule: what computes the delta rule.

    Returns:
        [M, value_heads · value_dim].

    Source: Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks"; transformers' Qwen3_5GatedDeltaNet.
    """
    if step.packing is not None:
        padded = delta(mixed[step.packing.places], shape, weights, eps, state, recent, replace(step, packing=None))
        return padded[step.packing.sources]
    rows, size = step.rows, step.size
    num_v = shape.value_heads * shape.value_dim
    x, z, b, a = mixed.view(rows, size, -1).split([shape.channels, num_v, shape.value_heads, shape.value_heads], -1)
    x = short_convolution(x, weights["conv"], recent, step)
    num_k = shape.key_heads * shape.key_dim
    q, k, v = x.split([num_k, num_k, num_v], -1)
    q, k = (_unit(part.unflatten(-1, (shape.key_heads, shape.key_dim)).float()) for part in (q, k))
    log_decay = weights["decay"] * F.softplus(a.float() + weights["dt_bias"])
    y = rule(q, k, v.unflatten(-1, (shape.value_heads, -1)).float(), log_decay, b.float().sigmoid(), state, step)
    y = rms_norm(y.to(mixed.dtype), weights["delta_norm"], eps)
    y = y * F.silu(z.unflatten(-1, (shape.value_heads, -1)).float())
    return y.to(mixed.dtype).reshape(rows * size, num_v)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
