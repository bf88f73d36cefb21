"""Attention for one token a row: what most decode steps are, and when few rows run, all latency.

One program a query head and split of its row's keys, adding and multiplying in registers. The older keys and values of
a split's first two tiles, the rotary row and the norms are loaded before the kernel waits for the one before it, which
writes none of them; what remains after the wait is the query, the dot products and the sum. Two tiles stay under way.
Heads that share keys read them through the L2 cache, so this is for few rows; `attention.decode_kernel` is for many.
"""

import triton
import triton.language as tl

from stcon.models.lean.cuda.dependent import begin


@triton.jit
def turned(x, norm, partner, cosine, sine, first, eps, NORM: tl.constexpr, D: tl.constexpr):
    """One head normalised and rotated, float32[D]; the norm's weights come as they are and as their partners'."""
    d = tl.arange(0, D)
    a = tl.load(x + d).to(tl.float32)
    b = tl.load(x + first).to(tl.float32)
    if NORM:
        scale = tl.rsqrt(tl.sum(a * a, 0) / D + eps)
        a = a * scale * norm
        b = b * scale * partner
    return a * cosine + b * sine


@triton.jit
def add_tile(q, k, v, filled, scale, best, total, acc):
    """Online softmax of one query over one more tile, k[T, D] and v[T, D], a softmax for each of the T places.

    Best and total [T], acc[T, D]. So no tile waits for what all its threads have found: `merged` adds up once.
    """
    scores = tl.where(filled, tl.sum(k.to(tl.float32) * q[None, :], 1) * scale, float("-inf"))
    new = tl.maximum(best, scores)
    safe = tl.where(new == float("-inf"), 0.0, new)
    p, keep = tl.exp2(scores - safe), tl.exp2(best - safe)
    return new, total * keep + p, acc * keep[:, None] + p[:, None] * v.to(tl.float32)


@triton.jit
def merged(best, total, acc, own, new_v, is_first):
    """One softmax out of those of all places and, in the first split, the new token: best, total, acc[D]."""
    most = tl.max(best, 0)
    most = tl.where(is_first, tl.maximum(most, own), most)
    weight = tl.exp2(best - most)
    p = tl.where(is_first, tl.exp2(own - most), 0.0)
    return most, tl.sum(total * weight, 0) + p, tl.sum(acc * weight[:, None], 0) + p * new_v.to(tl.float32)


@triton.jit
def tile_at(keys, values, base, start, stop, D: tl.constexpr, BLOCK_T: tl.constexpr):
    """Keys and values [BLOCK_T, D] from token `start` on, nothing read from `stop` on."""
    token = start + tl.arange(0, BLOCK_T)
    place = base + token[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
    inside = (token < stop)[:, None]
    return tl.load(keys + place, mask=inside, other=0.0), tl.load(values + place, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["capacity"])
def one_token_kernel(
    qkv,  # [B, stride]: queries, keys, values, gates
    q_norm,
    k_norm,
    cos,
    sin,
    keys,  # [B, KVH, capacity, D], rows and heads apart by the strides
    values,
    lengths,  # int32[B]
    out,  # [B, H D]
    partial,  # float32[programs, D]
    stats,  # float32[programs, 2]
    arrived,  # int32[B H], all zero between launches
    stride,
    row_stride,
    head_stride,
    capacity,
    eps,
    scale,  # of the scores, times log2 e
    H: tl.constexpr,
    KVH: tl.constexpr,
    D: tl.constexpr,
    ROT: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    SPLITS: tl.constexpr,
    LEAST: tl.constexpr,  # keys of a split at least, a multiple of BLOCK_T
    BLOCK_T: tl.constexpr,
    PDL: tl.constexpr,
):
    split, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + b)  # written by the caller, before the step
    share = tl.maximum(tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_T) * BLOCK_T, LEAST)
    active = tl.maximum(tl.cdiv(length, share), 1)
    if split >= active:
        return
    start, stop = split * share, tl.minimum(split * share + share, length)
    d, rt = tl.arange(0, D), tl.arange(0, BLOCK_T)
    head = h // (H // KVH)
    base = b * row_stride + head.to(tl.int64) * head_stride
    k, v = tile_at(keys, values, base, start, stop, D, BLOCK_T)
    next_k, next_v = tile_at(keys, values, base, start + BLOCK_T, stop, D, BLOCK_T)
    half: tl.constexpr = ROT // 2
    first = tl.where(d < half, d + half, tl.where(d < ROT, d - half, d))  # the other one of a rotated pair
    inside = (d < ROT) & (length < capacity)
    cosine = tl.load(cos + length.to(tl.int64) * half + d % half, mask=inside, other=1.0)
    sine = tl.load(sin + length.to(tl.int64) * half + d % half, mask=inside, other=0.0)
    sine = tl.where(d < half, -sine, sine)
    weight, partner, key_weight, key_partner = cosine, cosine, cosine, cosine
    if NORM:
        weight, partner = tl.load(q_norm + d), tl.load(q_norm + first)
        key_weight, key_partner = tl.load(k_norm + d), tl.load(k_norm + first)
    begin(PDL)

    line = qkv + b * stride
    source = line + (H + head) * D
    dtype = keys.dtype.element_ty
    q = turned(line + h * D, weight, partner, cosine, sine, first, eps, NORM, D).to(dtype).to(tl.float32)
    new_k = turned(source, key_weight, key_partner, cosine, sine, first, eps, NORM, D).to(dtype)
    new_v = tl.load(source + KVH * D + d)
    gate = tl.load(line + (H + 2 * KVH + h) * D + d).to(tl.float32) if GATED else cosine
    if (split == 0) & (h % (H // KVH) == 0) & (length < capacity):
        tl.store(keys + base + length.to(tl.int64) * D + d, new_k)
        tl.store(values + base + length.to(tl.int64) * D + d, new_v)

    own = tl.sum(q * new_k.to(tl.float32), 0) * scale
    slots = tl.full((BLOCK_T,), float("-inf"), tl.float32)
    totals = tl.zeros((BLOCK_T,), tl.float32)
    sums = tl.zeros((BLOCK_T, D), tl.float32)
    for t in range(start, stop, BLOCK_T):
        slots, totals, sums = add_tile(q, k, v, t + rt < stop, scale, slots, totals, sums)
        k, v = next_k, next_v
        next_k, next_v = tile_at(keys, values, base, t + 2 * BLOCK_T, stop, D, BLOCK_T)
    best, total, acc = merged(slots, totals, sums, own, new_v, split == 0)

    if active > 1:
        group = tl.program_id(2) * H + h
        slot = group * SPLITS + split
        tl.store(partial + slot * D + d, acc)
        tl.store(stats + slot * 2, best)
        tl.store(stats + slot * 2 + 1, total)
        tl.debug_barrier()  # all threads' stores come before the one thread's release
        if tl.atomic_add(arrived + group, 1, sem="acq_rel") < active - 1:
            return
        tl.store(arrived + group, 0)
        ri = tl.arange(0, SPLITS)
        place = stats + (group * SPLITS + ri) * 2
        bests = tl.load(place, mask=ri < active, other=float("-inf"), cache_modifier=".cg")
        shares = tl.load(place + 1, mask=ri < active, other=0.0, cache_modifier=".cg")
        parts = partial + (group * SPLITS + ri)[:, None] * D + d[None, :]
        parts = tl.load(parts, mask=(ri < active)[:, None], other=0.0, cache_modifier=".cg")
        part_weight = tl.exp2(bests - tl.max(bests, 0))
        total = tl.sum(part_weight * shares, 0)
        acc = tl.sum(part_weight[:, None] * parts, 0)
    y = acc / total
    if GATED:
        y = y * tl.sigmoid(gate)
    tl.store(out + (b * H + h) * D + d, y.to(out.dtype.element_ty))
