"""The gated delta rule and its short convolution in plain torch, token by token and by chunks.

For each value head, with state T[key_dim, value_dim], unit key k, query q, value v, decay α = exp(g), strength β:

    T ← α T + β k (v − α kᵀ T)        y = qᵀ T / √key_dim

Source: Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks"; by chunks: Yang et al. 2024, "Parallelizing Linear
Transformers with the Delta Rule", as transformers writes it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from stcon.models.lean.shapes import Step

Tensor = Any
CHUNK = 64
_BY_TOKEN = 4  # up to so many tokens a loop is quicker than a chunk


def short_convolution(x: Tensor, weight: Tensor, recent: Tensor, step: Step) -> Tensor:
    """Causal convolution over each row's tokens, then silu; the row's newest inputs are kept in `recent`.

    Args:
        x: [B, S, channels].
        weight: [channels, taps], the last tap for the token itself.
        recent: [B, window, channels], token p at p mod window; changed in place.
        step: where the rows stand.
    """
    taps, window = weight.shape[1], recent.shape[1]
    rows = torch.arange(step.rows, device=x.device)[:, None]
    before = step.lengths.long()[:, None] - torch.arange(taps - 1, 0, -1, device=x.device)
    past = recent[rows, before % window].masked_fill((before < 0)[..., None], 0)
    inputs = torch.cat((past, x), 1)
    _keep(recent, x, step)
    y = F.conv1d(inputs.transpose(1, 2), weight[:, None], groups=x.shape[2])
    return F.silu(y).transpose(1, 2)


def _keep(recent: Tensor, x: Tensor, step: Step) -> None:
    """Write the last real tokens' inputs to their places, as many as the window holds; others stay."""
    kept = min(recent.shape[1], step.size)
    rows = torch.arange(step.rows, device=x.device)[:, None]
    counts = step.counts.long()[:, None] if step.counts is not None else step.size
    token = counts - kept + torch.arange(kept, device=x.device).expand(step.rows, -1)
    place = (step.lengths.long()[:, None] + token) % recent.shape[1]
    new = torch.where((token >= 0)[..., None], x[rows, token.clamp(min=0)], recent[rows, place])
    recent[rows, place] = new


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor, step: Step
) -> Tensor:
    """The rule over a step's tokens, padding left out.

    Args:
        q, k: float32[B, S, key_heads, key_dim], unit length; each serves value_heads / key_heads value heads.
        v: float32[B, S, value_heads, value_dim].
        log_decay, strength: float32[B, S, value_heads]: g ≤ 0 and β.
        state: float32[B, value_heads, key_dim, value_dim]; changed in place; taken as zero for a row of length 0.
        step: where the rows stand.

    Returns:
        float32[B, S, value_heads, value_dim].
    """
    group = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(group, 2).transpose(1, 2) for x in (q * q.shape[-1] ** -0.5, k))
    v, g, beta = v.transpose(1, 2), log_decay.transpose(1, 2), strength.transpose(1, 2)
    if step.real is not None:  # padding neither decays nor writes
        g, beta = (x.masked_fill(~step.real[:, None], 0) for x in (g, beta))
    start = state.masked_fill((step.lengths == 0)[:, None, None, None], 0)
    y, end = (by_token if step.size <= _BY_TOKEN else by_chunk)(q, k, v, g, beta, start)
    state.copy_(end)
    return y.transpose(1, 2)


def by_token(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The definition: one token after the other. All [B, heads, S, …]; returns outputs and the state after them."""
    outputs = []
    for t in range(q.shape[2]):
        state = state * g[:, :, t].exp()[..., None, None]
        written = beta[:, :, t, None] * (v[:, :, t] - (k[:, :, t, None] @ state).squeeze(2))
        state = state + k[:, :, t, :, None] * written[:, :, None]
        outputs.append((q[:, :, t, None] @ state).squeeze(2))
    return torch.stack(outputs, 2), state


def by_chunk(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, size: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """The same by chunks of `size` tokens: inside one, all writes at once by a triangular solve."""
    tokens = q.shape[2]
    pad = -tokens % size
    q, k, v = (F.pad(x, (0, 0, 0, pad)).unflatten(2, (-1, size)) for x in (q, k, v))
    g, beta = (F.pad(x, (0, pad)).unflatten(2, (-1, size)) for x in (g, beta))
    total = g.cumsum(3)  # log of the decay since the chunk's start
    above = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    between = (total[..., :, None] - total[..., None, :]).masked_fill(above, -torch.inf).exp()
    k_beta = k * beta[..., None]
    system = (k_beta @ k.mT) * between
    sides = torch.cat((v * beta[..., None], k_beta * total.exp()[..., None]), -1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    values, keys = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores = (q @ k.mT) * between
    q_in, k_out = q * total.exp()[..., None], k * (total[..., -1:] - total).exp()[..., None]
    outputs = []
    for c in range(q.shape[2]):
        written = values[:, :, c] - keys[:, :, c] @ state
        outputs.append(q_in[:, :, c] @ state + scores[:, :, c] @ written)
        state = state * total[:, :, c, -1].exp()[..., None, None] + k_out[:, :, c].mT @ written
    return torch.stack(outputs, 2).flatten(2, 3)[:, :, :tokens], state
