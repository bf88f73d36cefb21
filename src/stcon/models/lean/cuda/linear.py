"""Products of a few rows with a weight matrix: the weights stream through once, everything else is fused around them.

A decode step multiplies M tokens with matrices of megabytes: reading the weights is all of the time. Before the
product: the norm, whose factor 1/rms comes out of the same pass over x and is applied at the end. After it: bias,
residual, or silu(gate) · up, for which a program computes both columns.

`vector_kernel`, M = 1: multiplies and adds in registers, every program some rows of weights, whole. The first tile of
weights is loaded before the kernel waits for the one before it.
`rows_kernel`, M = 2 … 16: tensor cores, the weights as the tall operand, x padded to 16 rows. So that x is not fetched
once for each few rows of weights, tiles are tall and K is split over programs; whichever ends last adds the parts, in
the order of the splits, so that the result does not depend on who that is.
"""

import triton
import triton.language as tl

from stcon.models.lean.cuda.dependent import begin, prefetch


@triton.jit
def prefetch_rows(rows, K: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr):
    """Bring whole rows of weights to the L2 cache: pointers [R], LINES lines of 128 bytes each at least K elements."""
    if LINES > 0:
        line = tl.minimum(tl.arange(0, LINES) * (1024 // rows.dtype.element_ty.primitive_bitwidth), K - 1)
        prefetch(rows[:, None] + line[None, :], PDL)


@triton.jit
def vector_kernel(
    x,  # [K]
    norm,  # float32[K] if NORM
    w,  # [N, K], or [2 N, K] if SWIGLU: gates, then ups
    bias,  # [N] if BIAS
    out,  # [N]; if ADD also the residual that is added to
    N,
    K: tl.constexpr,
    eps,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    SWIGLU: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    LINES: tl.constexpr,
    PDL: tl.constexpr,
):
    rn = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    rk = tl.arange(0, BLOCK_K)
    in_n = rn < N
    rows = w + tl.where(in_n, rn, 0) * K
    prefetch_rows(rows, K, LINES, PDL)
    if SWIGLU:
        prefetch_rows(rows + N * K, K, LINES, PDL)
    first = tl.load(rows[:, None] + rk[None, :], mask=in_n[:, None] & (rk < K)[None, :], other=0.0)
    first_up = first
    if SWIGLU:
        first_up = tl.load(rows[:, None] + N * K + rk[None, :], mask=in_n[:, None] & (rk < K)[None, :], other=0.0)
    begin(PDL)

    acc = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    up = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    squares = tl.zeros((BLOCK_K,), tl.float32)
    for k in tl.static_range(0, K, BLOCK_K):
        in_k = k + rk < K
        a = tl.load(x + k + rk, mask=in_k, other=0.0).to(tl.float32)
        if k == 0:
            b = first
        else:
            b = tl.load(rows[:, None] + (k + rk)[None, :], mask=in_n[:, None] & in_k[None, :], other=0.0)
        if NORM:
            squares += a * a
            a = a * tl.load(norm + k + rk, mask=in_k, other=0.0)
        acc += b.to(tl.float32) * a[None, :]
        if SWIGLU:
            if k == 0:
                c = first_up
            else:
                c = tl.load(rows[:, None] + N * K + (k + rk)[None, :], mask=in_n[:, None] & in_k[None, :], other=0.0)
            up += c.to(tl.float32) * a[None, :]

    scale = 1.0
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, 0) / K + eps)
    store_vector(tl.sum(acc, 1) * scale, tl.sum(up, 1) * scale, bias, out, rn, N, BIAS, ADD, SWIGLU)


@triton.jit
def store_vector(y, z, bias, out, rn, N, BIAS: tl.constexpr, ADD: tl.constexpr, SWIGLU: tl.constexpr):
    """What follows the product of one row: bias, silu(y) · z, residual."""
    in_n = rn < N
    if BIAS:
        y += tl.load(bias + rn, mask=in_n, other=0.0).to(tl.float32)
    if SWIGLU:
        y = y * tl.sigmoid(y) * z
    if ADD:
        y += tl.load(out + rn, mask=in_n, other=0.0).to(tl.float32)
    tl.store(out + rn, y.to(out.dtype.element_ty), mask=in_n)


@triton.jit(do_not_specialize=["M"])
def rows_kernel(
    x,  # [M, K], rows x_stride apart
    norm,
    w,
    bias,
    out,  # [M, N]
    partial,  # float32[programs, BLOCK_N, BLOCK_M] if SPLITS > 1
    sums,  # float32[programs, BLOCK_M] if SPLITS > 1 and NORM
    arrived,  # int32[tiles], all zero between launches
    x_stride,
    M,
    N,
    K: tl.constexpr,
    eps,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    SWIGLU: tl.constexpr,
    PRECISION: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,  # rows of weights of a tile; if SWIGLU the first half gates, the second ups
    BLOCK_K: tl.constexpr,
    LINES: tl.constexpr,
    PDL: tl.constexpr,
):
    tile, split = tl.program_id(0), tl.program_id(1)
    COLUMNS: tl.constexpr = BLOCK_N // 2 if SWIGLU else BLOCK_N
    PART: tl.constexpr = (K + BLOCK_K * SPLITS - 1) // (BLOCK_K * SPLITS) * BLOCK_K
    rw, rm, rk = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    column = (tile * COLUMNS + rw % COLUMNS).to(tl.int64)
    in_w, in_m = column < N, rm < M
    rows = w + tl.where(in_w, column + (rw // COLUMNS) * N, 0) * K
    start = split * PART
    prefetch_rows(rows + start, PART, LINES, PDL)
    begin(PDL)

    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for k in range(start, start + PART, BLOCK_K):
        in_k = k + rk < K
        b = tl.load(rows[:, None] + (k + rk)[None, :], mask=in_w[:, None] & in_k[None, :], other=0.0)
        a = tl.load(x + rm[:, None] * x_stride + (k + rk)[None, :], mask=in_m[:, None] & in_k[None, :], other=0.0)
        if NORM:
            wide = a.to(tl.float32)
            squares += tl.sum(wide * wide, 1)
            a = (wide * tl.load(norm + k + rk, mask=in_k, other=0.0)[None, :]).to(w.dtype.element_ty)
        acc = tl.dot(b, tl.trans(a), acc, input_precision=PRECISION)

    if SPLITS > 1:
        if not deliver(acc, squares, partial, sums, arrived, tile, split, NORM, SPLITS):
            return
        acc, squares = gathered(partial, sums, tile, NORM, SPLITS, BLOCK_N, BLOCK_M)
    if NORM:
        acc *= tl.rsqrt(squares / K + eps)[None, :]
    store_rows(acc, bias, out, tile, M, N, BIAS, ADD, SWIGLU)


@triton.jit
def deliver(acc, squares, partial, sums, arrived, tile, split, NORM: tl.constexpr, SPLITS: tl.constexpr):
    """Leave one split's part of a tile; whether this was the last to arrive."""
    BLOCK_N: tl.constexpr = acc.shape[0]
    BLOCK_M: tl.constexpr = acc.shape[1]
    rw, rm = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    slot = tile * SPLITS + split
    tl.store(partial + slot * BLOCK_N * BLOCK_M + rw[:, None] * BLOCK_M + rm[None, :], acc)
    if NORM:
        tl.store(sums + slot * BLOCK_M + rm, squares)
    tl.debug_barrier()  # all threads' stores come before the one thread's release
    last = tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLITS - 1
    if last:
        tl.store(arrived + tile, 0)
    return last


@triton.jit
def gathered(
    partial,
    sums,
    tile,
    NORM: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """The sum of all splits' parts, in their order."""
    rw, rm = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for i in tl.static_range(SPLITS):
        slot = tile * SPLITS + i
        part = partial + slot * BLOCK_N * BLOCK_M + rw[:, None] * BLOCK_M + rm[None, :]
        acc += tl.load(part, cache_modifier=".cg")
        if NORM:
            squares += tl.load(sums + slot * BLOCK_M + rm, cache_modifier=".cg")
    return acc, squares


@triton.jit
def store_rows(acc, bias, out, tile, M, N, BIAS: tl.constexpr, ADD: tl.constexpr, SWIGLU: tl.constexpr):
    """What follows the product of a tile of weights, acc[BLOCK_N, BLOCK_M]: gate · up, bias, residual."""
    BLOCK_N: tl.constexpr = acc.shape[0]
    BLOCK_M: tl.constexpr = acc.shape[1]
    COLUMNS: tl.constexpr = BLOCK_N // 2 if SWIGLU else BLOCK_N
    if SWIGLU:
        gate, up = tl.split(tl.permute(tl.reshape(acc, (2, COLUMNS, BLOCK_M)), (1, 2, 0)))
        acc = gate * tl.sigmoid(gate) * up
    rm = tl.arange(0, BLOCK_M)
    rn = (tile * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    if BIAS:
        acc += tl.load(bias + rn, mask=rn < N, other=0.0).to(tl.float32)[:, None]
    place = out + rm[None, :].to(tl.int64) * N + rn[:, None]
    inside = (rn < N)[:, None] & (rm < M)[None, :]
    if ADD:
        acc += tl.load(place, mask=inside, other=0.0).to(tl.float32)
    tl.store(place, acc.to(out.dtype.element_ty), mask=inside)
