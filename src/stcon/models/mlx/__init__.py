"""Models of mlx-lm on the engine: on Apple silicon, on the CPU of Linux, on CUDA where mlx has it (docs/mlx.md)."""

from stcon.models.mlx.model import MlxModel, MlxSession

__all__ = ["MlxModel", "MlxSession"]
