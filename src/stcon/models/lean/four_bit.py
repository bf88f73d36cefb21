"""A matrix in four bits a weight as CUDA kernels read it (`stcon.models.lean.cuda.four`), instead of its dense self.

Groups of 32 weights of a row are four words of eight: nibble t of word i is weight 4 t + i. One more word holds the
group's scale and offset, bfloat16 each: 5 bits a weight in all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Tensor = Any
GROUP = 32


class Groups(NamedTuple):
    """w[n, k] = numbers[n, k] · scale[n, k / 32] + offset[n, k / 32], numbers uint8 in 0 … 15."""

    numbers: Tensor
    scale: Tensor
    offset: Tensor


class FourBit:
    """A packed matrix [N, K].

    Args:
        words: int32[N, K / 32, 4].
        scales: int32[N, K / 32]: scale in the lower half, offset in the upper.
    """

    def __init__(self, words: Tensor, scales: Tensor) -> None:
        self.words = words
        self.scales = scales
        self.shape = (words.shape[0], words.shape[1] * GROUP)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.words.nbytes + self.scales.nbytes)

    def data_ptr(self) -> int:
        """Where it lies, as of a tensor."""
        return int(self.words.data_ptr())

    def groups(self) -> Groups:
        """What it holds, scale and offset as rounded. Cost: several passes."""
        import torch

        nibbles = torch.arange(0, 32, 4, dtype=torch.int32, device=self.words.device)
        numbers = (self.words[:, :, None] >> nibbles[:, None]) & 15  # [N, groups, t, i]: the weights' own order
        halves = self.scales.view(torch.bfloat16).float().unflatten(1, (-1, 2))
        return Groups(numbers.flatten(1).byte(), halves[..., 0], halves[..., 1])

    def dense(self) -> Tensor:
        """float32[N, K]."""
        numbers, scale, offset = self.groups()
        return (numbers.unflatten(1, (-1, GROUP)) * scale[..., None] + offset[..., None]).flatten(1)


def pack(groups: Groups) -> FourBit:
    """The packed form, where the groups are. Cost: a few passes over the numbers."""
    import torch

    numbers = groups.numbers.unflatten(1, (-1, 8, 4)).int()  # [N, groups, t, i]
    words = torch.zeros_like(numbers[:, :, 0])
    for t in range(8):
        words |= numbers[:, :, t] << (4 * t)
    halves = torch.stack((groups.scale, groups.offset), -1).to(torch.bfloat16)
    return FourBit(words, halves.contiguous().view(torch.int32)[..., 0].contiguous())
