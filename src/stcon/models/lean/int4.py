"""Matrices in four bits a weight, for decode steps, where a step is reading the weights.

Groups of 32 weights have a scale and an offset, bfloat16 each. A GGUF matrix in a 4-bit block format keeps its numbers
as they are; any other is rounded to nearest between each group's least and largest. The head stays in bfloat16: it is
where rounding shows most. Scales and offsets of a 4-bit file are wider, so its weights come out up to 2⁻⁸ of a scale
aside.

On the CPU the four-bit form stands *beside* the bfloat16 one: a step of up to `FEW` tokens multiplies by it with
torch's own kernel (which torchao calls, too); more tokens at once use the other form, which is quicker then. On CUDA it
stands *instead* (`four_bit.FourBit`, `cuda.four`), and memory shrinks with it.
"""

from __future__ import annotations

from typing import Any

from stcon.errors import ModelUnavailable
from stcon.models.lean.checkpoint import Entry, Source
from stcon.models.lean.four_bit import GROUP, Groups, pack

Tensor = Any
FEW = 4  # measured: quicker up to here on a processor with AVX-512
MATRICES = ("qkv", "out", "gate_up", "down", "mixed")
_ROWS_MULTIPLE = 16  # of the CPU's kernel


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


def require_kernel(device: Any) -> None:
    """Raise `ModelUnavailable` unless four-bit products run on `device`."""
    import torch

    if device.type == "cpu" and not hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu"):
        raise ModelUnavailable("four-bit weights need a newer torch; leave weights='int4' out")


def four_bits(source: Source, name: str, entry: Entry, parameter: Tensor) -> Any:
    """What to keep of a parameter: itself, or its four-bit form, or both, if it is a matrix of the layers that fits."""
    rows, columns = parameter.shape[0], parameter.shape[-1]
    if name.rsplit(".", 1)[-1] not in MATRICES or columns % GROUP:
        return parameter
    if parameter.device.type == "cuda":
        return pack(_stored(source, entry, parameter.device) or rounded(parameter))
    if rows % _ROWS_MULTIPLE == 0:
        parameter.int4 = Int4(_stored(source, entry, parameter.device) or rounded(parameter))
    return parameter


def rounded(weight: Tensor) -> Groups:
    """Round to nearest, each group between its least and largest weight."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    least, largest = groups.aminmax(dim=-1, keepdim=True)
    scale = ((largest - least) / 15).clamp(min=1e-12)
    numbers = ((groups - least) / scale).round().clamp(0, 15).byte()
    return Groups(numbers.flatten(1), scale[..., 0], least[..., 0])


def _stored(source: Source, entry: Entry, device: Any) -> Groups | None:
    """The numbers of the file, where all of a parameter's tensors are stored in four bits and taken as they are."""
    import torch

    read = getattr(source, "groups", None)
    if read is None or entry.change is not None or entry.changes:
        return None
    parts = [read(name) for name in entry.names]
    if None in parts:
        return None
    return Groups(*(torch.cat(tensors).to(device) for tensors in zip(*parts, strict=True)))
