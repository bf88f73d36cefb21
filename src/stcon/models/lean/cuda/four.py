"""The products of `linear` with weights of four bits: unpacked in registers, so that a quarter of the bytes is read.

Eight weights are one word: nibble t of word i of a group of 32 is weight 4 t + i, so a thread that loads a group's four
words (16 bytes) has all of it, and its sum needs no other thread; scale and offset are the halves of one more word,
bfloat16 each. A number becomes a float without a conversion, which would be slow: as bits of a mantissa.

`four_vector_kernel`, M = 1: as `linear.vector_kernel`; groups first, so that neighbouring threads read neighbouring
groups. `four_rows_kernel`, M = 2 … 64: as `linear.rows_kernel`, the weights rounded to bfloat16 on their way to the
tensor cores. `dense_kernel` writes the matrix out, for the library's products of more rows.
"""

import triton
import triton.language as tl

from stcon.models.lean.cuda.dependent import begin
from stcon.models.lean.cuda.linear import deliver, gathered, store_rows, store_vector

ONE = 0x3F800000  # the float 1; an argument, since an instruction takes one constant and the mask is one


@triton.jit
def halves(word):
    """The two bfloat16 of a word: scale and offset."""
    return (word << 16).to(tl.float32, bitcast=True), (word & -65536).to(tl.float32, bitcast=True)


@triton.jit
def group_sums(x, norm, words, start, one, NORM: tl.constexpr, K: tl.constexpr):
    """Σ number · x over each group of words[G, N, 4]: [G, N]; Σ x of each group: [G]; and Σ x² before the norm.

    A nibble at bits 16 … 19 (12 … 15) of a mantissa is the float 1 + number / 2⁷ (2¹¹): what the ones add is Σ x, which
    costs a few digits and saves an instruction a weight.
    """
    G: tl.constexpr = words.shape[0]
    N: tl.constexpr = words.shape[1]
    rg, ri = start + tl.arange(0, G), tl.arange(0, 4)
    inside = (rg < K // 32)[:, None]
    part = tl.zeros((G, N), tl.float32)
    total = tl.zeros((G,), tl.float32)
    squares = tl.zeros((G, 4), tl.float32)
    for odd in tl.static_range(2):  # nibbles 0, 2, 4, 6 at bit 16, then 1, 3, 5, 7 at bit 12
        acc = tl.zeros((G, N, 4), tl.float32)
        ones = tl.zeros((G, 4), tl.float32)
        for step in tl.static_range(4):
            place = 32 * rg[:, None] + 4 * (2 * step + odd) + ri[None, :]
            a = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
            if NORM:
                squares += a * a
                a *= tl.load(norm + place, mask=inside, other=0.0)
            ones += a
            moved = words << 8 * (2 - step - odd) if step + odd < 2 else words >> 8 * (step + odd - 2)
            number = (moved & (15 << (16 - 4 * odd)) | one).to(tl.float32, bitcast=True)
            acc += number * a[:, None, :]
        alone = tl.sum(ones, 1)
        part += (tl.sum(acc, 2) - alone[:, None]) * (128.0 * 16**odd)
        total += alone
    return part, total, tl.sum(tl.sum(squares, 1), 0)


@triton.jit(do_not_specialize=["one"])
def four_vector_kernel(
    x,  # [K]
    norm,  # float32[K] if NORM
    words,  # int32[N, K / 32, 4], or [2 N, …] if SWIGLU: gates, then ups
    scales,  # int32[N, K / 32]: two bfloat16
    bias,  # [N] if BIAS
    out,  # [N]; if ADD also the residual that is added to
    N,
    one,  # `ONE`
    K: tl.constexpr,
    eps,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    SWIGLU: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_G: tl.constexpr,
    PDL: tl.constexpr,
):
    G: tl.constexpr = K // 32
    PARTS: tl.constexpr = 2 if SWIGLU else 1
    rn = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    # gates' rows, then ups': one after the other in the tile
    line = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N * PARTS) % BLOCK_N
    inside = line < N
    line = (tl.where(inside, line, 0) + tl.arange(0, BLOCK_N * PARTS) // BLOCK_N * N).to(tl.int64) * G
    rg, ri = tl.arange(0, BLOCK_G), tl.arange(0, 4)
    places = line[None, :] + rg[:, None]
    there = inside[None, :] & (rg < G)[:, None]
    w = tl.load(words + places[:, :, None] * 4 + ri[None, None, :], mask=there[:, :, None], other=0)
    s = tl.load(scales + places, mask=there, other=0)
    begin(PDL)

    acc = tl.zeros((BLOCK_G, BLOCK_N * PARTS), tl.float32)
    squares = 0.0
    for start in tl.static_range(0, G, BLOCK_G):
        if start > 0:
            there = inside[None, :] & (start + rg < G)[:, None]
            w = tl.load(words + (places + start)[:, :, None] * 4 + ri[None, None, :], mask=there[:, :, None], other=0)
            s = tl.load(scales + places + start, mask=there, other=0)
        part, total, more = group_sums(x, norm, w, start, one, NORM, K)
        scale, offset = halves(s)
        acc += part * scale + offset * total[:, None]
        squares += more
    y = tl.sum(acc, 0)
    if NORM:
        y *= tl.rsqrt(squares / K + eps)
    if SWIGLU:
        y, z = tl.split(tl.trans(tl.reshape(y, (2, BLOCK_N))))
    else:
        z = y
    store_vector(y, z, bias, out, rn, N, BIAS, ADD, SWIGLU)


@triton.jit
def unpacked(words, scales, lines, groups, inside, one, G: tl.constexpr):
    """Weights as float32[N, 32 · groups]: rows that begin at group `lines`[N], groups `groups`."""
    N: tl.constexpr = lines.shape[0]
    SIZE: tl.constexpr = groups.shape[0]
    places = lines[:, None] + groups[None, :]
    there = inside[:, None] & (groups < G)[None, :]
    w = tl.load(words + places[:, :, None] * 4 + tl.arange(0, 4)[None, None, :], mask=there[:, :, None], other=0)
    scale, offset = halves(tl.load(scales + places, mask=there, other=0))
    nibbles = (w[:, :, None, :] >> (4 * tl.arange(0, 8))[None, None, :, None]) & 15
    number = (nibbles << 19 | one).to(tl.float32, bitcast=True)  # 1 + number / 16
    weights = number * (16 * scale)[:, :, None, None] + (offset - 16 * scale)[:, :, None, None]
    return tl.reshape(weights, (N, SIZE * 32))


@triton.jit(do_not_specialize=["M", "one"])
def four_rows_kernel(
    x,  # [M, K], rows x_stride apart
    norm,
    words,
    scales,
    bias,
    out,  # [M, N]
    partial,  # float32[programs, BLOCK_N, BLOCK_M] if SPLITS > 1
    sums,  # float32[programs, BLOCK_M] if SPLITS > 1 and NORM
    arrived,  # int32[tiles], all zero between launches
    x_stride,
    M,
    N,
    one,  # `ONE`
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
    BLOCK_G: tl.constexpr,
    PDL: tl.constexpr,
):
    tile, split = tl.program_id(0), tl.program_id(1)
    G: tl.constexpr = K // 32
    COLUMNS: tl.constexpr = BLOCK_N // 2 if SWIGLU else BLOCK_N
    PART: tl.constexpr = (G + BLOCK_G * SPLITS - 1) // (BLOCK_G * SPLITS) * BLOCK_G
    rw, rm, rk = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_G * 32)
    column = (tile * COLUMNS + rw % COLUMNS).to(tl.int64)
    in_w, in_m = column < N, rm < M
    lines = tl.where(in_w, column + (rw // COLUMNS) * N, 0) * G
    begin(PDL)

    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for g in range(split * PART, split * PART + PART, BLOCK_G):
        b = unpacked(words, scales, lines, g + tl.arange(0, BLOCK_G), in_w, one, G).to(x.dtype.element_ty)
        in_k = g * 32 + rk < K
        place = x + rm[:, None] * x_stride + (g * 32 + rk)[None, :]
        a = tl.load(place, mask=in_m[:, None] & in_k[None, :], other=0.0)
        if NORM:
            wide = a.to(tl.float32)
            squares += tl.sum(wide * wide, 1)
            a = (wide * tl.load(norm + g * 32 + rk, mask=in_k, other=0.0)[None, :]).to(x.dtype.element_ty)
        acc = tl.dot(b, tl.trans(a), acc, input_precision=PRECISION)

    if SPLITS > 1:
        if not deliver(acc, squares, partial, sums, arrived, tile, split, NORM, SPLITS):
            return
        acc, squares = gathered(partial, sums, tile, NORM, SPLITS, BLOCK_N, BLOCK_M)
    if NORM:
        acc *= tl.rsqrt(squares / K + eps)[None, :]
    store_rows(acc, bias, out, tile, M, N, BIAS, ADD, SWIGLU)


@triton.jit(do_not_specialize=["one"])
def dense_kernel(
    words,  # int32[N, K / 32, 4]
    scales,
    out,  # [N, K]
    N,
    one,  # `ONE`
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_G: tl.constexpr,
):
    rn = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    rg = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)
    weights = unpacked(words, scales, rn * (K // 32), rg, rn < N, one, K // 32)
    rk = tl.program_id(1) * BLOCK_G * 32 + tl.arange(0, BLOCK_G * 32)
    inside = (rn < N)[:, None] & (rk < K)[None, :]
    tl.store(out + rn[:, None] * K + rk[None, :], weights.to(out.dtype.element_ty), mask=inside)
