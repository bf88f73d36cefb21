"""A Gated DeltaNet layer's step, token by token, for rows of different numbers of tokens (`Packing`).

Most rows of such a step have one token or two, and the layer is reading and writing each head's state once: a program
holds it in registers while it goes through its row's tokens. What a row costs is its own tokens, not the longest row's,
which is why `gated_delta.delta_kernel`, one chunk of 16 tokens a row, is not used here.
"""

import triton
import triton.language as tl

from stcon.models.lean.cuda.dependent import begin


@triton.jit
def convolved_at(
    mixed,
    recent,
    conv,
    channel,
    token,
    length,
    stride,
    CHANNELS: tl.constexpr,
    WINDOW: tl.constexpr,
    TAPS: tl.constexpr,
):
    """silu of the causal convolution at one token of the row, float32[channels]."""
    y = tl.zeros((channel.shape[0],), tl.float32)
    for j in tl.static_range(TAPS):
        source = token - (TAPS - 1) + j
        position = length + source
        is_old = (source < 0) & (position >= 0) & (channel >= 0)
        is_new = (source >= 0) & (channel >= 0)
        old = tl.load(recent + ((position + WINDOW) % WINDOW) * CHANNELS + channel, mask=is_old, other=0.0)
        new = tl.load(mixed + source * stride + channel, mask=is_new, other=0.0)
        y += (old.to(tl.float32) + new.to(tl.float32)) * tl.load(conv + channel * TAPS + j).to(tl.float32)
    return y * tl.sigmoid(y)


@triton.jit
def remember_at(mixed, recent, channel, token, length, stride, CHANNELS: tl.constexpr, WINDOW: tl.constexpr):
    """Keep a token's inputs. The place written is none of those read in the same step."""
    tl.store(recent + ((length + token) % WINDOW) * CHANNELS + channel, tl.load(mixed + token * stride + channel))


@triton.jit
def delta_steps_kernel(
    mixed,  # [M, stride]: q, k, v of all heads (CHANNELS), z, b, a
    conv,  # [CHANNELS, TAPS]
    dt_bias,  # float32[HV]
    decay,  # float32[HV], negative
    norm,  # float32[DV]
    states,  # float32[B, HV, DK, DV]
    recent,  # [B, WINDOW, CHANNELS]
    lengths,  # int32[B]
    counts,  # int32[B]
    firsts,  # int32[B]
    out,  # [M, HV DV]
    stride,
    eps,
    HK: tl.constexpr,
    HV: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    TAPS: tl.constexpr,
    WINDOW: tl.constexpr,
    PDL: tl.constexpr,
):
    h, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    CHANNELS: tl.constexpr = 2 * HK * DK + HV * DV
    length, count = tl.load(lengths + b), tl.load(counts + b)
    dk, dv = tl.arange(0, DK), tl.arange(0, DV)
    recent += b * WINDOW * CHANNELS
    channel_q = h // (HV // HK) * DK + dk
    channel_k = HK * DK + channel_q
    channel_v = 2 * HK * DK + h * DV + dv
    place = states + (b * HV + h) * DK * DV + dk[:, None] * DV + dv[None, :]
    # what steps before left: no kernel of this step writes it
    state = tl.load(place, mask=(length > 0) & (count > 0) & (dk[:, None] < DK), other=0.0)
    begin(PDL)
    if count == 0:
        return
    first = tl.load(firsts + b).to(tl.int64)
    mixed += first * stride
    out += first * (HV * DV) + h * DV
    rate, bias, scale = tl.load(decay + h), tl.load(dt_bias + h), tl.load(norm + dv)
    for token in range(count):
        q = convolved_at(mixed, recent, conv, channel_q, token, length, stride, CHANNELS, WINDOW, TAPS)
        k = convolved_at(mixed, recent, conv, channel_k, token, length, stride, CHANNELS, WINDOW, TAPS)
        v = convolved_at(mixed, recent, conv, channel_v, token, length, stride, CHANNELS, WINDOW, TAPS)
        remember_at(mixed, recent, channel_q, token, length, stride, CHANNELS, WINDOW)
        remember_at(mixed, recent, channel_k, token, length, stride, CHANNELS, WINDOW)
        remember_at(mixed, recent, channel_v, token, length, stride, CHANNELS, WINDOW)
        q *= tl.rsqrt(tl.sum(q * q, 0) + 1e-6) * (DK**-0.5)
        k *= tl.rsqrt(tl.sum(k * k, 0) + 1e-6)
        gates = mixed + token * stride + CHANNELS + HV * DV + h
        beta = tl.sigmoid(tl.load(gates).to(tl.float32))
        a = tl.load(gates + HV).to(tl.float32) + bias
        softplus = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
        state *= tl.exp(rate * softplus)
        written = beta * (v - tl.sum(state * k[:, None], 0))
        state += k[:, None] * written[None, :]
        y = tl.sum(state * q[:, None], 0).to(out.dtype.element_ty).to(tl.float32)
        y *= tl.rsqrt(tl.sum(y * y, 0) / DV + eps) * scale
        z = tl.load(mixed + token * stride + CHANNELS + h * DV + dv).to(tl.float32)
        y *= z * tl.sigmoid(z)
        tl.store(out + token * (HV * DV) + dv, y.to(out.dtype.element_ty))
    tl.store(place, state)
