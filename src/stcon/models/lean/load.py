"""From files to a lean network, or None where the family, a setting or a tensor is not known to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stcon.errors import ModelUnavailable
from stcon.models.lean import llama, qwen3_5
from stcon.models.lean.checkpoint import Entry, Safetensors, Source, complete, has_safetensors, load
from stcon.models.lean.gguf import GgufFile
from stcon.models.lean.int4 import four_bits, require_kernel
from stcon.models.lean.network import Network
from stcon.models.lean.settings import Settings, from_config

Table = dict[str, Entry]


def from_folder(folder: Path, device: Any, dtype: Any, int4: bool = False) -> Network | None:
    """The network in a folder of ``config.json`` and safetensors files.

    Args:
        int4: see `network`.

    Raises:
        ModelUnavailable: it is of a known family and broken.
    """
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None  # the generic loader says what is wrong
    settings = from_config(config) if isinstance(config, dict) else None
    if settings is None or not has_safetensors(folder):
        return None
    return network(Safetensors(folder), settings, device, dtype, str(folder), int4)


def from_gguf(path: Path, device: Any, dtype: Any, int4: bool = False) -> Network | None:
    """The network in a GGUF file.

    Args:
        int4: see `network`.

    Raises:
        ModelUnavailable: it is of a known family and broken.
    """
    file = GgufFile(path)
    return None if file.settings is None else network(file, file.settings, device, dtype, str(path), int4)


def network(
    source: Source, settings: Settings, device: Any, dtype: Any, name: str, int4: bool = False
) -> Network | None:
    """The network, every tensor of `source` in its place; None if the checkpoint has other tensors than the family.

    Args:
        int4: the layers' matrices in four bits (`stcon.models.lean.int4`); with bfloat16 only.
    """
    import torch

    placed = torch.device(device)
    if placed.type not in ("cpu", "cuda") or (placed.type == "cuda" and not _kernels_fit(settings, dtype)):
        return None
    if int4:
        require_kernel(placed)
    ignored = qwen3_5.IGNORED if settings.family == "qwen3_5" else llama.IGNORED
    if settings.tied:  # some checkpoints keep the head all the same
        ignored = (*ignored, "lm_head.")
    for table in _tables(settings):
        if complete(source, table, ignored):
            shapes = (qwen3_5 if settings.family == "qwen3_5" else llama).shapes(settings)
            try:
                parameters = load(source, table, shapes, placed, dtype, four_bits if int4 else None)
            except ModelUnavailable as error:
                raise ModelUnavailable(f"{name}: {error}") from error
            return Network(settings, parameters)
    return None


def _tables(settings: Settings) -> list[Table]:
    """The ways in which a family's checkpoints name their tensors."""
    if settings.family == "qwen3_5":
        return [qwen3_5.table(settings, prefix) for prefix in ("model.", "model.language_model.")]
    return [llama.table(settings)]


def _kernels_fit(settings: Settings, dtype: Any) -> bool:
    """Whether the fused kernels run here and take these sizes (tiles are powers of two) and this type.

    Norms are applied after the product, whose inputs may be past what float16 holds.
    """
    import torch

    if dtype == torch.float16:
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    sizes = [settings.head_dim]
    if settings.delta is not None:
        sizes += [settings.delta.key_dim, settings.delta.value_dim]
    return all(size >= 16 and size & (size - 1) == 0 for size in sizes)
