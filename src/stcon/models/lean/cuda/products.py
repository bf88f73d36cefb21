"""Operations with a product: of a few tokens by our kernels, everything around it fused; of more by the library's.

A weight is a matrix, or a `FourBit`. Up to `plans.FEW` tokens (of a `FourBit`, `plans.FEW_FOUR`) go through `linear`
and `four`. More have norm and gate as kernels of their own, and four bits are written out as a matrix first, each time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton

from stcon.models.lean.cuda import four, linear, plans, pointwise
from stcon.models.lean.four_bit import FourBit
from stcon.models.lean.shapes import Step

Tensor = Any


def norm_linear(
    x: Tensor,
    norm: Tensor,
    eps: float,
    weight: Tensor | FourBit,
    step: Step,
    bias: Tensor | None = None,
    exact: bool = False,
) -> Tensor:
    """See `reference.norm_linear`."""
    if not _few(x, weight):
        y = rms_norm(x, norm, eps)
        if exact and y.dtype != torch.float32:
            return torch.mm(y, dense(weight, x.dtype).t(), out_dtype=torch.float32)
        return F.linear(y, dense(weight, x.dtype), bias)
    out = torch.empty(x.shape[0], weight.shape[0], device=x.device, dtype=torch.float32 if exact else x.dtype)
    return _product(x, weight, out, step, norm=norm, eps=eps, bias=bias)


def linear_add(x: Tensor, weight: Tensor | FourBit, residual: Tensor, step: Step) -> Tensor:
    """See `reference.linear_add`."""
    if not _few(x, weight):
        return residual.addmm_(x, dense(weight, x.dtype).t())
    return _product(x, weight, residual, step, add=True)


def gate_up(x: Tensor, norm: Tensor, eps: float, weight: Tensor | FourBit, step: Step) -> Tensor:
    """See `reference.gate_up`."""
    rows, inner = x.shape[0], weight.shape[0] // 2
    out = torch.empty(rows, inner, device=x.device, dtype=x.dtype)
    if _few(x, weight):
        return _product(x, weight, out, step, norm=norm, eps=eps, swiglu=True)
    both = F.linear(rms_norm(x, norm, eps), dense(weight, x.dtype))
    pointwise.swiglu_kernel[(rows, triton.cdiv(inner, 1024))](both, out, inner, BLOCK=1024)
    return out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.rms_norm`; x[M, K] contiguous."""
    out = torch.empty_like(x)
    size = x.shape[1]
    pointwise.rms_norm_kernel[(x.shape[0],)](x, weight, out, eps, K=size, BLOCK_K=triton.next_power_of_2(size))
    return out


def dense(weight: Tensor | FourBit, dtype: Any) -> Tensor:
    """The matrix itself; of a packed one a copy in `dtype`. Cost: writing it."""
    if not isinstance(weight, FourBit):
        return weight
    rows, size = weight.shape
    out = torch.empty(rows, size, device=weight.words.device, dtype=dtype)
    grid = (triton.cdiv(rows, 16), triton.cdiv(size, 512))
    four.dense_kernel[grid](weight.words, weight.scales, out, rows, four.ONE, K=size, BLOCK_N=16, BLOCK_G=16)
    return out


def precision(dtype: Any) -> str:
    """Float32 in full: the type's users want logits to compare with, not speed."""
    return "ieee" if dtype == torch.float32 else "tf32"


def _few(x: Tensor, weight: Tensor | FourBit) -> bool:
    return bool(x.shape[0] <= (plans.FEW_FOUR if isinstance(weight, FourBit) else plans.FEW))


def _product(
    x: Tensor,
    weight: Tensor | FourBit,
    out: Tensor,
    step: Step,
    norm: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    add: bool = False,
    swiglu: bool = False,
) -> Tensor:
    """x[M, K] · weightᵀ by our kernels, with what is asked for fused."""
    assert x.is_contiguous() and out.is_contiguous()  # noqa: PT018
    fused = {"NORM": norm is not None, "BIAS": bias is not None, "ADD": add, "SWIGLU": swiglu}
    ends = (out if norm is None else norm, out if bias is None else bias)  # not read if not fused
    if isinstance(weight, FourBit):
        return _four(x, weight, out, step, ends, eps, fused)
    assert weight.is_contiguous()
    rows, size = x.shape
    columns = out.shape[1]
    if rows == 1:
        plan = plans.vector(columns, size, swiglu, weight.element_size())
        grid = (triton.cdiv(columns, plan.block_n),)
        linear.vector_kernel[grid](x, ends[0], weight, ends[1], out, columns, size, eps, **fused, **plan.options(rows))
        return out
    plan = plans.rows(rows, columns, size, swiglu, weight.element_size())
    tiles = triton.cdiv(columns * (2 if swiglu else 1), plan.block_n)
    linear.rows_kernel[(tiles, plan.splits)](
        x,
        ends[0],
        weight,
        ends[1],
        out,
        *_shared(step),
        x.stride(0),
        rows,
        columns,
        size,
        eps,
        **fused,
        PRECISION=precision(x.dtype),
        SPLITS=plan.splits,
        BLOCK_M=max(16, triton.next_power_of_2(rows)),
        **plan.options(rows),
    )
    return out


def _four(
    x: Tensor, weight: FourBit, out: Tensor, step: Step, ends: tuple[Tensor, Tensor], eps: float, fused: dict[str, bool]
) -> Tensor:
    """The same with four-bit weights."""
    rows, size = x.shape
    columns, swiglu = out.shape[1], fused["SWIGLU"]
    stored = (weight.words, weight.scales)
    if rows == 1:
        plan = plans.four_vector(columns, size, swiglu)
        grid = (triton.cdiv(columns, plan.block_n),)
        four.four_vector_kernel[grid](
            x, ends[0], *stored, ends[1], out, columns, four.ONE, size, eps, **fused, **plan.options(rows)
        )
        return out
    plan = plans.four_rows(rows, columns, size, swiglu)
    tiles = triton.cdiv(columns * (2 if swiglu else 1), plan.block_n)
    four.four_rows_kernel[(tiles, plan.splits)](
        x,
        ends[0],
        *stored,
        ends[1],
        out,
        *_shared(step),
        x.stride(0),
        rows,
        columns,
        four.ONE,
        size,
        eps,
        **fused,
        PRECISION=precision(x.dtype),
        SPLITS=plan.splits,
        BLOCK_M=max(16, triton.next_power_of_2(rows)),
        **plan.options(rows),
    )
    return out


def _shared(step: Step) -> tuple[Tensor, Tensor, Tensor]:
    """Where programs that share a tile leave their parts."""
    return step.workspace.partial, step.workspace.stats, step.workspace.arrived
