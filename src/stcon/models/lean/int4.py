"""Matrices in four bits beside their bfloat16 selves, for decode steps on the CPU, where a step is reading the weights.

A step of up to `FEW` tokens multiplies by the four-bit form with torch's own kernel (which torchao calls, too); more
tokens at once use the bfloat16 form, which is quicker then. Groups of 32 weights have a scale and an offset. A GGUF
matrix in a 4-bit block format keeps its numbers as they are; any other is rounded to nearest between each group's
least and largest. The head stays in bfloat16: it is where rounding shows most.

The kernel takes scales and offsets in bfloat16, so even a 4-bit file's weights come out up to 2⁻⁸ of a scale aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stcon.errors import ModelUnavailable
from stcon.models.lean.checkpoint import Entry, Parameters, Source

Tensor = Any
GROUP = 32
FEW = 4  # measured: quicker up to here on a processor with AVX-512
MATRICES = ("qkv", "out", "gate_up", "down", "mixed")
_ROWS_MULTIPLE = 16  # of the kernel


class Groups(NamedTuple):
    """w[n, k] = numbers[n, k] · scale[n, k / 32] + offset[n, k / 32], numbers uint8 in 0 … 15."""

    numbers: Tensor
    scale: Tensor
    offset: Tensor


class Int4:
    """A packed matrix; `multiply` is x · wᵀ for bfloat16[M, K]."""

    def __init__(self, groups: Groups) -> None:
        import torch

        zeros = groups.offset + 8 * groups.scale  # the kernel's weight is (number − 8) · scale + zero
        self.scales = torch.stack((groups.scale, zeros), -1).transpose(0, 1).contiguous().to(torch.bfloat16)
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(groups.numbers.int(), 2)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.packed.nbytes + self.scales.nbytes)

    def multiply(self, x: Tensor) -> Tensor:
        """[M, K] → [M, N]. Cost: the packed bytes, read once for all M."""
        import torch

        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, GROUP, self.scales)


def attach(parameters: Parameters, source: Source, table: Mapping[str, Entry]) -> None:
    """Give every matrix of the layers that fits the kernel its packed form, as the attribute ``int4``.

    Raises:
        ModelUnavailable: this torch has no such kernel.
    """
    import torch

    if not hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu"):
        raise ModelUnavailable("four-bit weights need a newer torch; leave weights='int4' out")
    for name, parameter in parameters.items():
        rows, columns = parameter.shape[0], parameter.shape[-1]
        if name.split(".")[-1] in MATRICES and rows % _ROWS_MULTIPLE == 0 and columns % GROUP == 0:
            parameter.int4 = Int4(_stored(source, table[name]) or rounded(parameter))


def rounded(weight: Tensor) -> Groups:
    """Round to nearest, each group between its least and largest weight."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    least, largest = groups.aminmax(dim=-1, keepdim=True)
    scale = ((largest - least) / 15).clamp(min=1e-12)
    numbers = ((groups - least) / scale).round().clamp(0, 15).byte()
    return Groups(numbers.flatten(1), scale[..., 0], least[..., 0])


def _stored(source: Source, entry: Entry) -> Groups | None:
    """The numbers of the file, where all of a parameter's tensors are stored in four bits and taken as they are."""
    import torch

    read = getattr(source, "groups", None)
    if read is None or entry.change is not None or entry.changes:
        return None
    parts = [read(name) for name in entry.names]
    return None if None in parts else Groups(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
