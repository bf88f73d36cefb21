"""A Gated DeltaNet layer's step for up to 16 tokens in one launch: convolution, gates, delta rule, gated norm.

A row's and head's state is read once and written once: by one program for one token, by several, each with some of
the columns, for more. Several tokens are one chunk: with unit keys K, strengths β and decays, the writes U solve
(I + A) U = β (V − decayed K · state), A strictly lower triangular, so A¹⁶ = 0 and
(I + A)⁻¹ = (I − A)(I + A²)(I + A⁴)(I + A⁸): products only, no loop over tokens. A prompt is such chunks in turn
(`prompt_kernel`), after a convolution in plain torch.

Source: Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule", section 3.2 (the UT transform);
`stcon.models.lean.delta_rule` is the definition.
"""

import triton
import triton.language as tl

from stcon.models.lean.cuda.dependent import begin


@triton.jit
def from_past(recent, conv, channel, length, CHANNELS, WINDOW, TAPS: tl.constexpr, T: tl.constexpr):
    """What the tokens before the step add to its convolution, float32[T, channels]."""
    rt = tl.arange(0, T)
    y = tl.zeros((T, channel.shape[0]), tl.float32)
    for j in tl.static_range(TAPS - 1):
        token = rt - (TAPS - 1) + j
        position = length + token
        old = (token < 0) & (position >= 0)
        place = ((position + WINDOW) % WINDOW)[:, None] * CHANNELS + channel[None, :]
        x = tl.load(recent + place, mask=old[:, None], other=0.0).to(tl.float32)
        y += x * tl.load(conv + channel * TAPS + j).to(tl.float32)[None, :]
    return y


@triton.jit
def convolved(past, mixed, conv, channel, stride, S, TAPS: tl.constexpr, T: tl.constexpr):
    """silu of the causal convolution of tokens 0 … T − 1, float32[T, channels]: `past` and the step's own."""
    rt = tl.arange(0, T)
    y = past
    for j in tl.static_range(TAPS):
        if T > 1 or j == TAPS - 1:
            token = rt - (TAPS - 1) + j
            new = ((token >= 0) & (token < S))[:, None]
            x = tl.load(mixed + token[:, None] * stride + channel[None, :], mask=new, other=0.0).to(tl.float32)
            y += x * tl.load(conv + channel * TAPS + j).to(tl.float32)[None, :]
    return y * tl.sigmoid(y)


@triton.jit
def remember(mixed, recent, channel, length, count, stride, CHANNELS, WINDOW, T: tl.constexpr):
    """Keep the real tokens' inputs. The places written are none of those read in the same step."""
    rt = tl.arange(0, T)
    real = (rt < count)[:, None]
    x = tl.load(mixed + rt[:, None] * stride + channel[None, :], mask=real, other=0.0)
    tl.store(recent + ((length + rt) % WINDOW)[:, None] * CHANNELS + channel[None, :], x, mask=real)


@triton.jit
def chunk_rule(q, k, v, g, beta, state, PRECISION: tl.constexpr):
    """The rule over a chunk of T tokens: outputs[T, columns] and the state after them; q, k [T, DK], g, beta [T]."""
    rt = tl.arange(0, q.shape[0])
    sofar = tl.cumsum(g, 0)
    since = tl.exp(sofar)
    lower = rt[:, None] >= rt[None, :]
    between = tl.where(lower, tl.exp(tl.where(lower, sofar[:, None] - sofar[None, :], 0.0)), 0.0)
    weak = k * beta[:, None]
    A = tl.where(rt[:, None] > rt[None, :], tl.dot(weak, tl.trans(k), input_precision=PRECISION) * between, 0.0)
    one = tl.where(rt[:, None] == rt[None, :], 1.0, 0.0)
    inverse = one - A
    A = tl.dot(A, A, input_precision=PRECISION)
    inverse = tl.dot(inverse, one + A, input_precision=PRECISION)
    A = tl.dot(A, A, input_precision=PRECISION)
    inverse = tl.dot(inverse, one + A, input_precision=PRECISION)
    A = tl.dot(A, A, input_precision=PRECISION)
    inverse = tl.dot(inverse, one + A, input_precision=PRECISION)
    known = tl.dot(weak * since[:, None], state, input_precision=PRECISION)
    written = tl.dot(inverse, v * beta[:, None] - known, input_precision=PRECISION)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * between
    y = tl.dot(q * since[:, None], state, input_precision=PRECISION)
    y = tl.dot(scores, written, y, input_precision=PRECISION)
    end = tl.sum(g, 0)
    state = state * tl.exp(end)
    return y, tl.dot(tl.trans(k * tl.exp(end - sofar)[:, None]), written, state, input_precision=PRECISION)


@triton.jit(do_not_specialize=["S"])
def prompt_kernel(
    q,  # float32[B, S, HK, DK], unit length, scaled
    k,
    v,  # float32[B, S, HV, DV]
    decay,  # float32[B, S, HV], logarithms
    strength,
    states,  # float32[B, HV, DK, DV]
    lengths,  # int32[B]
    out,  # float32[B, S, HV, DV]
    S,
    HK: tl.constexpr,
    HV: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    PRECISION: tl.constexpr,
    T: tl.constexpr,
    BLOCK_V: tl.constexpr,  # columns of the state that one program holds
):
    """The rule over a prompt's tokens, by chunks of T in turn, the state in registers."""
    h, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    dk, dv = tl.arange(0, DK), tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    rt = tl.arange(0, T)
    place = states + (b * HV + h) * DK * DV + dk[:, None] * DV + dv[None, :]
    length = tl.load(lengths + b)
    state = tl.load(place, mask=(length > 0) & (dk[:, None] < DK), other=0.0)
    for t in range(0, S, T):
        real = t + rt < S
        token = b * S + t + rt
        keys = token[:, None] * (HK * DK) + (h // (HV // HK)) * DK + dk[None, :]
        values = token[:, None] * (HV * DV) + h * DV + dv[None, :]
        y, state = chunk_rule(
            tl.load(q + keys, mask=real[:, None], other=0.0),
            tl.load(k + keys, mask=real[:, None], other=0.0),
            tl.load(v + values, mask=real[:, None], other=0.0),
            tl.load(decay + token * HV + h, mask=real, other=0.0),
            tl.load(strength + token * HV + h, mask=real, other=0.0),
            state,
            PRECISION,
        )
        tl.store(out + values, y, mask=real[:, None])
    tl.store(place, state)


@triton.jit(do_not_specialize=["S"])
def delta_kernel(
    mixed,  # [B S, stride]: q, k, v of all heads (CHANNELS), z, b, a
    conv,  # [CHANNELS, TAPS]
    dt_bias,  # float32[HV]
    decay,  # float32[HV], negative
    norm,  # float32[DV]
    states,  # float32[B, HV, DK, DV]
    recent,  # [B, WINDOW, CHANNELS]
    lengths,  # int32[B]
    counts,  # int32[B] if COUNTS
    out,  # [B S, HV DV]
    partial,  # float32[B HV, T, DV] if BLOCK_V < DV
    arrived,  # int32[B HV], all zero between launches
    stride,
    S,
    eps,
    HK: tl.constexpr,
    HV: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    TAPS: tl.constexpr,
    WINDOW: tl.constexpr,
    COUNTS: tl.constexpr,
    PRECISION: tl.constexpr,
    T: tl.constexpr,  # 1, or 16 for 2 … 16 tokens
    BLOCK_V: tl.constexpr,  # columns of the state that one program holds
    PDL: tl.constexpr,
):
    h, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    CHANNELS: tl.constexpr = 2 * HK * DK + HV * DV
    length = tl.load(lengths + b)
    count = S
    if COUNTS:
        count = tl.load(counts + b)
    dk, rt = tl.arange(0, DK), tl.arange(0, T)
    dv = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    mixed += b * S * stride
    recent += b * WINDOW * CHANNELS
    channel_q = h // (HV // HK) * DK + dk
    channel_k = HK * DK + channel_q
    channel_v = 2 * HK * DK + h * DV + dv
    # what steps before left: no kernel of this step writes it
    place = states + (b * HV + h) * DK * DV + dk[:, None] * DV + dv[None, :]
    state = tl.load(place, mask=(length > 0) & (dk[:, None] < DK), other=0.0)
    past_q = from_past(recent, conv, channel_q, length, CHANNELS, WINDOW, TAPS, T)
    past_k = from_past(recent, conv, channel_k, length, CHANNELS, WINDOW, TAPS, T)
    past_v = from_past(recent, conv, channel_v, length, CHANNELS, WINDOW, TAPS, T)
    begin(PDL)

    q = convolved(past_q, mixed, conv, channel_q, stride, S, TAPS, T)
    k = convolved(past_k, mixed, conv, channel_k, stride, S, TAPS, T)
    v = convolved(past_v, mixed, conv, channel_v, stride, S, TAPS, T)
    remember(mixed, recent, channel_q, length, count, stride, CHANNELS, WINDOW, T)
    remember(mixed, recent, channel_k, length, count, stride, CHANNELS, WINDOW, T)
    remember(mixed, recent, channel_v, length, count, stride, CHANNELS, WINDOW, T)
    q *= tl.rsqrt(tl.sum(q * q, 1) + 1e-6)[:, None] * (DK**-0.5)
    k *= tl.rsqrt(tl.sum(k * k, 1) + 1e-6)[:, None]

    real = rt < count
    gates = mixed + rt * stride + CHANNELS + HV * DV + h
    beta = tl.sigmoid(tl.load(gates, mask=real, other=0.0).to(tl.float32))
    beta = tl.where(real, beta, 0.0)
    a = tl.load(gates + HV, mask=real, other=0.0).to(tl.float32) + tl.load(dt_bias + h)
    softplus = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
    g = tl.where(real, tl.load(decay + h) * softplus, 0.0)

    if T == 1:
        state *= tl.exp(tl.sum(g, 0))
        key = tl.sum(k, 0)[:, None]
        written = tl.sum(beta, 0) * (tl.sum(v, 0) - tl.sum(state * key, 0))
        state += key * written[None, :]
        y = tl.sum(state * tl.sum(q, 0)[:, None], 0)[None, :]
    else:
        y, state = chunk_rule(q, k, v, g, beta, state, PRECISION)
    tl.store(place, state)

    dv = tl.arange(0, DV)
    if BLOCK_V < DV:  # the norm needs a head's columns together: whichever program ends last has them
        group = tl.program_id(2) * HV + h
        rows = partial + group * T * DV + rt[:, None] * DV
        tl.store(rows + (tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V))[None, :], y)
        tl.debug_barrier()  # all threads' stores come before the one thread's release
        if tl.atomic_add(arrived + group, 1, sem="acq_rel") < DV // BLOCK_V - 1:
            return
        tl.store(arrived + group, 0)
        y = tl.load(rows + dv[None, :], cache_modifier=".cg")
    y = y.to(out.dtype.element_ty).to(tl.float32)
    y *= tl.rsqrt(tl.sum(y * y, 1) / DV + eps)[:, None] * tl.load(norm + dv)[None, :]
    fed = (rt < S)[:, None]
    z = tl.load(mixed + rt[:, None] * stride + CHANNELS + h * DV + dv[None, :], mask=fed, other=0.0).to(tl.float32)
    y *= z * tl.sigmoid(z)
    tl.store(out + (b * S + rt)[:, None] * (HV * DV) + h * DV + dv[None, :], y.to(out.dtype.element_ty), mask=fed)
