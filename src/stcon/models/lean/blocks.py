"""The commonest block formats of GGUF files to float32, a few rows at a time so that everything stays in the cache.

Same values as the ``gguf`` package gives, bit for bit, several times as fast; other formats go there.

Source: ggml's ``block_q4_0``, ``block_q4_1`` and ``block_q8_0``: 32 weights, a scale in float16, (an offset in
float16,) then 4- or 8-bit numbers; of 4-bit ones, byte j holds weights j and j + 16.
"""

from __future__ import annotations

from typing import Any

Tensor = Any
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8  # ggml's numbers
BLOCK = 32
BLOCK_BYTES = {Q4_0: 18, Q4_1: 20, Q8_0: 34}
_BLOCKS_AT_ONCE = 1 << 14


def dequantise(octets: Tensor, kind: int) -> Tensor:
    """float32[blocks, 32] from uint8[blocks, BLOCK_BYTES[kind]]. Cost: one pass over both."""
    import torch

    out = torch.empty(octets.shape[0], BLOCK, dtype=torch.float32)
    for start in range(0, octets.shape[0], _BLOCKS_AT_ONCE):
        part = slice(start, start + _BLOCKS_AT_ONCE)
        _fill(out[part], octets[part], kind)
    return out


def numbers(octets: Tensor, kind: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Of a 4-bit format: uint8[blocks, 32], and float32[blocks] to multiply with and to add; None for others."""
    import torch

    if kind not in (Q4_0, Q4_1):
        return None
    scale = octets[:, :2].contiguous().view(torch.float16).float()[:, 0]
    packed = octets[:, BLOCK_BYTES[kind] - 16 :]
    found = torch.cat((packed & 15, packed >> 4), 1)
    if kind == Q4_0:
        return found, scale, -8 * scale
    return found, scale, octets[:, 2:4].contiguous().view(torch.float16).float()[:, 0]


def _fill(out: Tensor, octets: Tensor, kind: int) -> None:
    import torch

    scale = octets[:, :2].contiguous().view(torch.float16).float()
    if kind == Q8_0:
        torch.mul(octets[:, 2:].contiguous().view(torch.int8), scale, out=out)
        return
    packed = octets[:, BLOCK_BYTES[kind] - 16 :]
    out[:, :16] = packed & 15
    out[:, 16:] = packed >> 4
    if kind == Q4_0:
        out.sub_(8).mul_(scale)
    else:
        out.mul_(scale).add_(octets[:, 2:4].contiguous().view(torch.float16).float())
