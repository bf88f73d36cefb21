"""Norm and gate for many rows, beside the library's matrix products: a prompt's chunk, or many streams at once."""

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, eps, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """out[m] = x[m] / rms(x[m]) · weight; one program a row of K, contiguous."""
    row = tl.program_id(0).to(tl.int64) * K
    rk = tl.arange(0, BLOCK_K)
    a = tl.load(x + row + rk, mask=rk < K, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(a * a, 0) / K + eps)
    a = a * scale * tl.load(weight + rk, mask=rk < K, other=0.0)
    tl.store(out + row + rk, a.to(out.dtype.element_ty), mask=rk < K)


@triton.jit
def swiglu_kernel(x, out, N, BLOCK: tl.constexpr):
    """out[m, n] = silu(x[m, n]) · x[m, N + n], x[M, 2 N] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    rn = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * N + rn, mask=rn < N, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * N + N + rn, mask=rn < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + rn, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=rn < N)
