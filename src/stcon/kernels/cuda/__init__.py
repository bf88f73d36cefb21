"""Masks on NVIDIA GPUs: the walk, the choice of a token and the step, without the host. See ``docs/gpu.md``.

The C++ is in ``source/``, compiled at first use (`compiler`). `CudaGrammars` holds machines, `CudaWalker` the rows.
"""

from stcon.kernels.cuda.grammars import CudaGrammars as CudaGrammars
from stcon.kernels.cuda.sampling import DeviceSampling as DeviceSampling
from stcon.kernels.cuda.walker import CudaWalker as CudaWalker

__all__ = ["CudaGrammars", "CudaWalker", "DeviceSampling"]
