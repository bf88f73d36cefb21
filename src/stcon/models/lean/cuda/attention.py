"""Grouped-query attention to a cache of which each row has filled its own part: split-KV decode, and prompts in chunks.

The queries of the heads that share a key head, for all tokens of the step, are the rows of one tile, so keys are read
once and never repeated. Lengths are read on the device; what lies past them is not touched.

`decode_kernel`, up to 16 tokens: norms and rotation of queries and keys, storing keys and values, attention, and the
output gate in one launch. The cached keys of a row are split over programs; the new ones belong to split 0, which takes
them from the projection. Splits leave partial sums in a workspace, and whichever ends last adds them, in the order of
the splits, so that the result does not depend on who that is.

`rotate_kernel` and `chunk_kernel`, more tokens: store first, then attend from the cache.

Source: Dao 2023, FlashAttention-2; "Flash-Decoding for long-context inference" (Dao, Haziza, Massa, Sizov 2023).
"""

import triton
import triton.language as tl

from stcon.models.lean.cuda.dependent import begin, prefetch


@triton.jit
def rotated(
    x,  # pointers [R] to the first dimension of each head
    norm,  # float32[D] if NORM
    cos,  # float32[capacity, ROT / 2]
    sin,
    position,  # [R]
    mask,  # [R]
    eps,
    NORM: tl.constexpr,
    ROT: tl.constexpr,
    D: tl.constexpr,
):
    """Heads normalised and rotated, float32[R, D]."""
    d = tl.arange(0, D)
    half: tl.constexpr = ROT // 2
    turns = d < ROT
    other = tl.where(d < half, d + half, tl.where(turns, d - half, d))
    a = tl.load(x[:, None] + d[None, :], mask=mask[:, None], other=0.0).to(tl.float32)
    b = tl.load(x[:, None] + other[None, :], mask=mask[:, None], other=0.0).to(tl.float32)
    if NORM:
        scale = tl.rsqrt(tl.sum(a * a, 1) / D + eps)[:, None]
        a = a * scale * tl.load(norm + d)[None, :]
        b = b * scale * tl.load(norm + other)[None, :]
    place = position[:, None].to(tl.int64) * half + (d % half)[None, :]
    inside = mask[:, None] & turns[None, :]
    c = tl.load(cos + place, mask=inside, other=1.0)
    s = tl.load(sin + place, mask=inside, other=0.0)
    return a * c + tl.where(d < half, -1.0, 1.0)[None, :] * b * s


@triton.jit
def absorb(q, k, v, visible, scale, best, total, acc, PRECISION: tl.constexpr):
    """Online softmax over one more tile of keys: k[T, D], v[T, D], visible[R, T]; state best, total [R], acc [R, D]."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(visible, scores, float("-inf"))
    new = tl.maximum(best, tl.max(scores, 1))
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(scores - safe[:, None])
    keep = tl.exp2(best - safe)
    total = total * keep + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None], input_precision=PRECISION)
    return new, total, acc


@triton.jit(do_not_specialize=["S", "capacity"])
def decode_kernel(
    qkv,  # [B S, stride]: queries, keys, values, gates
    q_norm,
    k_norm,
    cos,
    sin,
    keys,  # [B, KVH, capacity, D], rows and heads apart by the strides
    values,
    lengths,  # int32[B]
    firsts,  # int32[B] if PACKED: where a row's tokens begin
    counts,  # int32[B] if PACKED: its tokens
    out,  # [B S, KVH G D]
    partial,  # float32[programs, BLOCK_Q, D]
    stats,  # float32[programs, 2, BLOCK_Q]
    arrived,  # int32[programs], all zero between launches
    stride,
    row_stride,
    head_stride,
    capacity,
    S,
    eps,
    scale,  # of the scores, times log2 e
    KVH: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    ROT: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    SPLITS: tl.constexpr,
    LEAST: tl.constexpr,  # keys of a split at least, a multiple of BLOCK_T
    PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
    PACKED: tl.constexpr,
    PDL: tl.constexpr,
):
    split, tile, pid = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head, b = pid % KVH, (pid // KVH).to(tl.int64)
    length = tl.load(lengths + b)  # written by the caller, before the step
    first, num = b * S, S
    share = tl.maximum(tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_T) * BLOCK_T, LEAST)
    active = tl.maximum(tl.cdiv(length, share), 1)
    if split >= active:
        return
    d = tl.arange(0, D)
    base = b * row_stride + head.to(tl.int64) * head_stride
    start, stop = split * share, tl.minimum(split * share + share, length)
    lines: tl.constexpr = D * (keys.dtype.element_ty.primitive_bitwidth // 8) // 128
    if lines > 0:
        rp = tl.arange(0, LEAST * lines)  # older tokens' keys and values: no kernel of this step writes them
        ahead = base + start.to(tl.int64) * D + tl.minimum(rp, (stop - start) * lines) * (D // lines)
        prefetch(keys + ahead, PDL)
        prefetch(values + ahead, PDL)
    begin(PDL)
    if PACKED:  # found by the step itself, so not before the kernels before this one have ended
        first, num = tl.load(firsts + b).to(tl.int64), tl.load(counts + b)

    r = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    token, member = r // G, head * G + r % G
    is_query = token < num
    line = (first + token) * stride
    dtype = keys.dtype.element_ty
    rs = tl.arange(0, BLOCK_S)
    is_new = (rs < num) & (split == 0)
    source = qkv + (first + rs) * stride + (KVH * G + head) * D
    # no branch around the new keys: their loads and the queries' are under way together
    q = rotated(qkv + line + member * D, q_norm, cos, sin, length + token, is_query, eps, NORM, ROT, D).to(dtype)
    inside = is_new & (length + rs < capacity)
    k = rotated(source, k_norm, cos, sin, length + rs, inside, eps, NORM, ROT, D).to(dtype)
    v = tl.load(source[:, None] + KVH * D + d[None, :], mask=is_new[:, None], other=0.0)
    where = base + (length + rs)[:, None].to(tl.int64) * D + d[None, :]
    tl.store(keys + where, k, mask=(inside & (tile == 0))[:, None])
    tl.store(values + where, v, mask=(inside & (tile == 0))[:, None])

    best = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, D), tl.float32)
    seen = is_query[:, None] & is_new[None, :] & (rs[None, :] <= token[:, None])
    best, total, acc = absorb(q, k, v, seen, scale, best, total, acc, PRECISION)
    for t in range(start, stop, BLOCK_T):
        rt = t + tl.arange(0, BLOCK_T)
        filled = rt < length
        there = base + rt[:, None].to(tl.int64) * D + d[None, :]
        old_k = tl.load(keys + there, mask=filled[:, None], other=0.0)
        old_v = tl.load(values + there, mask=filled[:, None], other=0.0)
        best, total, acc = absorb(
            q, old_k, old_v, is_query[:, None] & filled[None, :], scale, best, total, acc, PRECISION
        )

    place = (first + token)[:, None] * (KVH * G * D) + (member * D)[:, None] + d[None, :]
    group = pid * tl.num_programs(1) + tile
    if active > 1:
        rq = tl.arange(0, BLOCK_Q)
        slot = group * SPLITS + split
        tl.store(partial + (slot * BLOCK_Q + rq)[:, None] * D + d[None, :], acc, mask=is_query[:, None])
        tl.store(stats + slot * 2 * BLOCK_Q + rq, best)
        tl.store(stats + (slot * 2 + 1) * BLOCK_Q + rq, total)
        tl.debug_barrier()  # all threads' stores come before the one thread's release
        if tl.atomic_add(arrived + group, 1, sem="acq_rel") < active - 1:
            return
        tl.store(arrived + group, 0)
        rows = group * SPLITS * BLOCK_Q + rq
        ri = tl.arange(0, SPLITS)
        bests = tl.load(
            stats + ((group * SPLITS + ri) * 2 * BLOCK_Q)[:, None] + rq[None, :],
            mask=(ri < active)[:, None],
            other=float("-inf"),
            cache_modifier=".cg",
        )
        best = tl.max(bests, 0)
        total = tl.zeros((BLOCK_Q,), tl.float32)
        acc = tl.zeros((BLOCK_Q, D), tl.float32)
        for i in tl.range(0, active, loop_unroll_factor=4):
            here = stats + (group * SPLITS + i) * 2 * BLOCK_Q + rq
            weight = tl.exp2(tl.load(here, cache_modifier=".cg") - best)
            weight = tl.where(is_query, weight, 0.0)
            total += weight * tl.load(here + BLOCK_Q, cache_modifier=".cg")
            part = tl.load(
                partial + (rows + i * BLOCK_Q)[:, None] * D + d[None, :],
                mask=is_query[:, None],
                other=0.0,
                cache_modifier=".cg",
            )
            acc += weight[:, None] * part
    y = acc / tl.where(is_query, total, 1.0)[:, None]
    if GATED:
        gate = qkv + line[:, None] + ((KVH * G + 2 * KVH) * D + member * D)[:, None] + d[None, :]
        y = y * tl.sigmoid(tl.load(gate, mask=is_query[:, None], other=0.0).to(tl.float32))
    tl.store(out + place, y.to(out.dtype.element_ty), mask=is_query[:, None])


@triton.jit(do_not_specialize=["S", "capacity"])
def rotate_kernel(
    qkv,
    q_norm,
    k_norm,
    cos,
    sin,
    keys,
    values,
    lengths,
    out,  # [B S, KVH G D]: the queries, normalised and rotated
    stride,
    row_stride,
    head_stride,
    capacity,
    S,
    eps,
    KVH: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    ROT: tl.constexpr,
    NORM: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Normalise and rotate queries and keys of a chunk; store keys and values."""
    block, head, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    rs = block * BLOCK_S + tl.arange(0, BLOCK_S)
    position = tl.load(lengths + b) + rs
    inside = (rs < S) & (position < capacity)
    d = tl.arange(0, D)
    line = (b * S + rs) * stride
    if head < KVH * G:
        q = rotated(qkv + line + head * D, q_norm, cos, sin, position, inside, eps, NORM, ROT, D)
        place = (b * S + rs)[:, None] * (KVH * G * D) + head * D + d[None, :]
        tl.store(out + place, q.to(out.dtype.element_ty), mask=(rs < S)[:, None])
    else:
        k = rotated(qkv + line + head * D, k_norm, cos, sin, position, inside, eps, NORM, ROT, D)
        v = tl.load(qkv + line[:, None] + (head + KVH) * D + d[None, :], mask=inside[:, None], other=0.0)
        where = b * row_stride + (head - KVH * G).to(tl.int64) * head_stride
        where = where + position[:, None].to(tl.int64) * D + d[None, :]
        tl.store(keys + where, k.to(keys.dtype.element_ty), mask=inside[:, None])
        tl.store(values + where, v, mask=inside[:, None])


@triton.jit(do_not_specialize=["S", "capacity"])
def chunk_kernel(
    q,  # [B S, KVH G D], rotated
    qkv,  # for its gates
    keys,
    values,
    lengths,
    out,
    stride,
    row_stride,
    head_stride,
    capacity,
    S,
    scale,
    KVH: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    GATED: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Causal attention of a chunk whose keys are in the cache already."""
    tile, pid = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)  # the longest first
    head, b = pid % KVH, (pid // KVH).to(tl.int64)
    length = tl.load(lengths + b)
    d = tl.arange(0, D)
    r = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    token, member = r // G, head * G + r % G
    is_query = token < S
    place = (b * S + token)[:, None] * (KVH * G * D) + (member * D)[:, None] + d[None, :]
    query = tl.load(q + place, mask=is_query[:, None], other=0.0)
    best = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, D), tl.float32)
    base = b * row_stride + head.to(tl.int64) * head_stride
    last = tl.minimum(length + tl.minimum((tile * BLOCK_Q + BLOCK_Q - 1) // G + 1, S), capacity)
    for t in range(0, last, BLOCK_T):
        rt = t + tl.arange(0, BLOCK_T)
        where = base + rt[:, None].to(tl.int64) * D + d[None, :]
        k = tl.load(keys + where, mask=(rt < last)[:, None], other=0.0)
        v = tl.load(values + where, mask=(rt < last)[:, None], other=0.0)
        seen = is_query[:, None] & (rt[None, :] <= (length + token)[:, None]) & (rt < last)[None, :]
        best, total, acc = absorb(query, k, v, seen, scale, best, total, acc, PRECISION)
    y = acc / tl.where(is_query, total, 1.0)[:, None]
    if GATED:
        gate = qkv + ((b * S + token) * stride)[:, None] + ((KVH * G + 2 * KVH) * D + member * D)[:, None] + d[None, :]
        y = y * tl.sigmoid(tl.load(gate, mask=is_query[:, None], other=0.0).to(tl.float32))
    tl.store(out + place, y.to(out.dtype.element_ty), mask=is_query[:, None])
