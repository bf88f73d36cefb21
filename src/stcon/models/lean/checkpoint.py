"""Weights by name from a safetensors folder or a GGUF file, put together as a family's table says.

A family describes its parameters as data: our name → `Entry`, the checkpoint's tensors that make it up, one below the
other, and what is done to them. So query, key and value projections become one matrix, and one pass reads it.

Files are memory-mapped. A parameter that is one tensor of the wanted type is used where it lies, read by the system
page by page when it is first needed; one that is joined or converted is copied, tensor by tensor, to its place on the
device, so that no second copy of the model is ever held.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stcon.errors import ModelUnavailable

Tensor = Any
Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Entry:
    """Where a parameter comes from.

    Attributes:
        names: tensors of the checkpoint, joined along their rows.
        exact: kept in float32 whatever the model's type (norms, decays: small, and the arithmetic is float32).
        change: done to every tensor on its way, in float32 if `exact`.
        changes: the same, one a name.
    """

    names: tuple[str, ...]
    exact: bool = False
    change: Callable[[Tensor], Tensor] | None = None
    changes: tuple[Callable[[Tensor], Tensor] | None, ...] = ()


class Source(Protocol):
    """Tensors of a checkpoint under the names that transformers gives them."""

    def names(self) -> Iterable[str]:
        """All of them."""

    def tensor(self, name: str) -> Tensor:
        """One of them, on the CPU, mapped if possible."""


class Safetensors:
    """The safetensors files of a folder.

    Raises:
        ModelUnavailable: a file is missing or broken.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._where = dict(self._directory())

    def names(self) -> Iterable[str]:
        """See `Source.names`."""
        return self._where

    def tensor(self, name: str) -> Tensor:
        """See `Source.tensor`."""
        return self._open(self._where[name]).get_tensor(name)

    def _directory(self) -> Iterator[tuple[str, str]]:
        """(tensor, file) for every tensor: from the index where there is one, else from the single file."""
        index = self.folder / "model.safetensors.index.json"
        if index.is_file():
            try:
                yield from json.loads(index.read_text("utf-8"))["weight_map"].items()
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ModelUnavailable(f"{index}: cannot be loaded ({error!r}); fetch it again") from error
            return
        yield from ((name, "model.safetensors") for name in self._open("model.safetensors").keys())  # noqa: SIM118

    def _open(self, file: str) -> Any:
        from safetensors import SafetensorError, safe_open

        if file not in self._files:
            try:
                self._files[file] = safe_open(str(self.folder / file), framework="pt", device="cpu")
            except (OSError, SafetensorError) as error:
                raise ModelUnavailable(f"{self.folder / file}: cannot be loaded ({error}); fetch it again") from error
        return self._files[file]


def has_safetensors(folder: Path) -> bool:
    """Whether `folder` holds weights that `Safetensors` reads."""
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def complete(source: Source, table: Mapping[str, Entry], ignored: tuple[str, ...] = ()) -> bool:
    """Whether the checkpoint has exactly the tensors that `table` names, but for the prefixes `ignored`.

    A tensor that nobody asked for means that the model computes something that ours would not.
    """
    wanted = {name for entry in table.values() for name in entry.names}
    found = {name for name in source.names() if not name.startswith(ignored) and not name.endswith(".inv_freq")}
    return wanted == found


def load(
    source: Source,
    table: Mapping[str, Entry],
    shapes: Mapping[str, tuple[int, ...]],
    device: Any,
    dtype: Any,
    keep: Callable[[Source, str, Entry, Tensor], Any] | None = None,
) -> Parameters:
    """Every parameter of `table` on its device, in `dtype` or float32.

    Args:
        keep: what is kept of a parameter instead of itself, asked for one after the other.

    Raises:
        ModelUnavailable: a tensor has another shape than the settings give it.
    """
    loaded = {}
    for name, entry in table.items():
        parameter = _join(source, entry, device, dtype)
        if tuple(parameter.shape) != shapes[name]:
            raise ModelUnavailable(
                f"its tensor {entry.names[0]} does not fit its settings "
                f"({name}: expected {shapes[name]}, got {tuple(parameter.shape)}); fetch the model again"
            )
        loaded[name] = parameter if keep is None else keep(source, name, entry, parameter)
    return loaded


def _join(source: Source, entry: Entry, device: Any, dtype: Any) -> Tensor:
    import torch

    wanted = torch.float32 if entry.exact else dtype
    changes = entry.changes or (entry.change,) * len(entry.names)
    parts = []
    for name, change in zip(entry.names, changes, strict=True):
        part = source.tensor(name)
        if not part.is_floating_point():
            raise ModelUnavailable(f"its tensor {name} holds {part.dtype}, not weights")
        part = part.to(device=device, dtype=wanted)
        parts.append(part if change is None else change(part))
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)
