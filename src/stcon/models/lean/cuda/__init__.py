"""The five operations on CUDA, each the equal of its namesake in `stcon.models.lean.reference`.

All launches are fit for CUDA graphs: no synchronisation, shapes and addresses fixed by (B, S) and the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton

from stcon.models.lean import reference
from stcon.models.lean.cache import MAX_STEP, WINDOW
from stcon.models.lean.cuda import attention, delta_steps, gated_delta, one_token, plans
from stcon.models.lean.cuda.products import gate_up, linear_add, norm_linear, precision
from stcon.models.lean.settings import Delta
from stcon.models.lean.shapes import Heads, Step

__all__ = ["attend", "delta", "gate_up", "linear_add", "norm_linear"]
Tensor = Any
LOG2_E = 1.4426950408889634


def attend(qkv: Tensor, shape: Heads, norms: tuple[Tensor, Tensor] | None, kv: Tensor, step: Step) -> Tensor:
    """See `reference.attend`."""
    assert qkv.is_contiguous()
    assert kv.stride()[3:] == (shape.dim, 1)
    out = torch.empty(qkv.shape[0], shape.heads * shape.dim, device=qkv.device, dtype=qkv.dtype)
    if step.size > MAX_STEP:
        return _attend_chunk(qkv, shape, norms, kv, step, out)
    assert step.workspace is not None
    group = shape.heads // shape.kv_heads
    single = plans.one_token(step.rows * shape.heads, shape.dim) if step.size == 1 else None
    if single is not None:
        return _attend_one(qkv, shape, norms, kv, step, out, single)
    plan = plans.decode(step.rows * shape.kv_heads, step.size * group, shape.dim, qkv.element_size())
    firsts, counts = _packed(step)
    q_norm, k_norm = norms or (step.cos, step.cos)
    attention.decode_kernel[(plan.splits, plan.tiles, step.rows * shape.kv_heads)](
        qkv,
        q_norm,
        k_norm,
        step.cos,
        step.sin,
        kv[0],
        kv[1],
        step.lengths,
        firsts,
        counts,
        out,
        step.workspace.partial,
        step.workspace.stats,
        step.workspace.arrived,
        qkv.stride(0),
        kv.stride(1),
        kv.stride(2),
        kv.shape[3],
        step.size,
        shape.eps,
        shape.dim**-0.5 * LOG2_E,
        KVH=shape.kv_heads,
        G=group,
        D=shape.dim,
        ROT=2 * step.cos.shape[1],
        NORM=norms is not None,
        GATED=shape.gated,
        SPLITS=plan.splits,
        LEAST=plan.least,
        PRECISION=precision(qkv.dtype),
        BLOCK_Q=plan.block_q,
        BLOCK_T=plan.block_t,
        BLOCK_S=MAX_STEP,
        PACKED=step.packing is not None,
        PDL=plans.PDL,
        num_warps=plan.warps,
        num_stages=plan.stages,
        **plans.launch(),
    )
    return out


def _attend_one(
    qkv: Tensor,
    shape: Heads,
    norms: tuple[Tensor, Tensor] | None,
    kv: Tensor,
    step: Step,
    out: Tensor,
    plan: plans.AttentionPlan,
) -> Tensor:
    q_norm, k_norm = norms or (step.cos, step.cos)
    one_token.one_token_kernel[(plan.splits, shape.heads, step.rows)](
        qkv,
        q_norm,
        k_norm,
        step.cos,
        step.sin,
        kv[0],
        kv[1],
        step.lengths,
        out,
        step.workspace.partial,
        step.workspace.stats,
        step.workspace.arrived,
        qkv.stride(0),
        kv.stride(1),
        kv.stride(2),
        kv.shape[3],
        shape.eps,
        shape.dim**-0.5 * LOG2_E,
        H=shape.heads,
        KVH=shape.kv_heads,
        D=shape.dim,
        ROT=2 * step.cos.shape[1],
        NORM=norms is not None,
        GATED=shape.gated,
        SPLITS=plan.splits,
        LEAST=plan.least,
        BLOCK_T=plan.block_t,
        PDL=plans.overlap(step.rows),
        num_warps=plan.warps,
        **plans.launch(),
    )
    return out


def _attend_chunk(
    qkv: Tensor, shape: Heads, norms: tuple[Tensor, Tensor] | None, kv: Tensor, step: Step, out: Tensor
) -> Tensor:
    group = shape.heads // shape.kv_heads
    q = torch.empty_like(out)
    q_norm, k_norm = norms or (step.cos, step.cos)
    sizes = (qkv.stride(0), kv.stride(1), kv.stride(2), kv.shape[3], step.size)
    heads = {"KVH": shape.kv_heads, "G": group, "D": shape.dim}
    grid = (triton.cdiv(step.size, 16), shape.heads + shape.kv_heads, step.rows)
    attention.rotate_kernel[grid](
        qkv,
        q_norm,
        k_norm,
        step.cos,
        step.sin,
        kv[0],
        kv[1],
        step.lengths,
        q,
        *sizes,
        shape.eps,
        **heads,
        ROT=2 * step.cos.shape[1],
        NORM=norms is not None,
        BLOCK_S=16,
    )
    plan = plans.chunk(shape.dim, qkv.element_size())
    attention.chunk_kernel[(triton.cdiv(step.size * group, plan.block_q), step.rows * shape.kv_heads)](
        q,
        qkv,
        kv[0],
        kv[1],
        step.lengths,
        out,
        *sizes,
        shape.dim**-0.5 * LOG2_E,
        **heads,
        GATED=shape.gated,
        PRECISION=precision(qkv.dtype),
        BLOCK_Q=plan.block_q,
        BLOCK_T=plan.block_t,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )
    return out


def delta(
    mixed: Tensor,
    shape: Delta,
    weights: Mapping[str, Tensor],
    eps: float,
    state: Tensor,
    recent: Tensor,
    step: Step,
) -> Tensor:
    """See `reference.delta`, which also runs what is around the rule where it is more than a decode step."""
    if step.size > MAX_STEP:
        rule = partial(_prompt_rule, precision=precision(mixed.dtype))
        return reference.delta(mixed, shape, weights, eps, state, recent, step, rule)
    assert all(tensor.is_contiguous() for tensor in (mixed, state, recent))
    out = torch.empty(mixed.shape[0], shape.value_heads * shape.value_dim, device=mixed.device, dtype=mixed.dtype)
    if step.packing is not None:
        return _delta_steps(mixed, shape, weights, eps, state, recent, step, out)
    columns, warps = plans.delta(step.size, shape.value_dim)
    gated_delta.delta_kernel[(shape.value_dim // columns, shape.value_heads, step.rows)](
        mixed,
        weights["conv"],
        weights["dt_bias"],
        weights["decay"],
        weights["delta_norm"],
        state,
        recent,
        step.lengths,
        step.lengths if step.counts is None else step.counts,
        out,
        step.workspace.deltas,
        step.workspace.arrived,
        mixed.stride(0),
        step.size,
        eps,
        HK=shape.key_heads,
        HV=shape.value_heads,
        DK=shape.key_dim,
        DV=shape.value_dim,
        TAPS=shape.taps,
        WINDOW=WINDOW,
        COUNTS=step.counts is not None,
        PRECISION=precision(mixed.dtype),
        T=1 if step.size == 1 else MAX_STEP,
        PDL=plans.overlap(step.rows * step.size),
        BLOCK_V=columns,
        num_warps=warps,
        **plans.launch(),
    )
    return out


def _delta_steps(
    mixed: Tensor,
    shape: Delta,
    weights: Mapping[str, Tensor],
    eps: float,
    state: Tensor,
    recent: Tensor,
    step: Step,
    out: Tensor,
) -> Tensor:
    """The same for packed rows."""
    firsts, counts = _packed(step)
    delta_steps.delta_steps_kernel[(shape.value_heads, step.rows)](
        mixed,
        weights["conv"],
        weights["dt_bias"],
        weights["decay"],
        weights["delta_norm"],
        state,
        recent,
        step.lengths,
        counts,
        firsts,
        out,
        mixed.stride(0),
        eps,
        HK=shape.key_heads,
        HV=shape.value_heads,
        DK=shape.key_dim,
        DV=shape.value_dim,
        TAPS=shape.taps,
        WINDOW=WINDOW,
        PDL=plans.PDL,
        num_warps=plans.delta(1, shape.value_dim)[1],
        **plans.launch(),
    )
    return out


def _prompt_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor, step: Step, *, precision: str
) -> Tensor:
    """See `delta_rule.delta_rule`."""
    if step.real is not None:  # padding neither decays nor writes
        log_decay, strength = (x.masked_fill(~step.real[..., None], 0) for x in (log_decay, strength))
    q, k, v, log_decay, strength = (x.contiguous() for x in (q * q.shape[-1] ** -0.5, k, v, log_decay, strength))
    out = torch.empty_like(v)
    columns = plans.prompt_columns(v.shape[3])
    gated_delta.prompt_kernel[(v.shape[3] // columns, v.shape[2], step.rows)](
        q,
        k,
        v,
        log_decay,
        strength,
        state,
        step.lengths,
        out,
        step.size,
        HK=q.shape[2],
        HV=v.shape[2],
        DK=q.shape[3],
        DV=v.shape[3],
        PRECISION=precision,
        T=MAX_STEP,
        BLOCK_V=columns,
        num_warps=8,
        num_stages=2,
    )
    return out


def _packed(step: Step) -> tuple[Tensor, Tensor]:
    """Where each row's tokens begin, and how many there are; anything where none are packed."""
    if step.packing is None or step.counts is None:
        return step.lengths, step.lengths
    return step.packing.firsts, step.counts
