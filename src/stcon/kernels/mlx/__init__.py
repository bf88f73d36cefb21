"""Masks and steps on mlx arrays, without a table: by Metal's or CUDA's kernels, or by plain operations anywhere.

**When to use.** Logits on a GPU of mlx (docs/mlx.md). On a CPU the host's kernel (`stcon.kernels.cpu`) is faster.
"""

from stcon.kernels.mlx.kernels import DeviceKernels, kernels_for_device
from stcon.kernels.mlx.walker import MlxGrammars, MlxWalker

__all__ = ["DeviceKernels", "MlxGrammars", "MlxWalker", "kernels_for_device"]
