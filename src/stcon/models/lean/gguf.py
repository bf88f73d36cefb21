"""Settings and weights of a GGUF file of the Llama family, dequantised tensor by tensor.

Source: the GGUF specification, version 3; llama.cpp's ``convert_hf_to_gguf.py`` for names and the order of Llama's
query and key rows.
"""

from __future__ import annotations

import math
import mmap
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stcon.errors import ModelUnavailable
from stcon.models.gguf_weights import CHECKED, MODULES, SETTINGS, dequantised, read_directory
from stcon.models.gguf_weights import Tensor as Place
from stcon.models.lean import blocks
from stcon.models.lean.checkpoint import Tensor
from stcon.models.lean.four_bit import Groups
from stcon.models.lean.settings import Settings, from_config

# llama.cpp's architecture → transformers'
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


class GgufFile:
    """The tensors of a file under transformers' names; the file stays mapped as long as this object lives.

    Raises:
        ModelUnavailable: the file is cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise ModelUnavailable(f"{path} is not a complete GGUF file ({error}); fetch it again") from error
        self.metadata, self._places = read_directory(self._data, path)
        self._found = {_parameter(name) or name: name for name in self._places}
        self.settings = self._settings()

    def names(self) -> Iterable[str]:
        """See `Source.names`; a tensor not known here keeps llama.cpp's name."""
        return self._found

    def tensor(self, name: str) -> Tensor:
        """See `Source.tensor`: float32."""
        import torch

        theirs = self._found[name]
        place = self._places[theirs]
        try:
            if place.kind not in blocks.BLOCK_BYTES:
                return torch.from_numpy(dequantised(self._data, place, self._permuted_heads(theirs)))
            values = self._from_blocks(place)
        except (ValueError, NotImplementedError, KeyError) as error:
            raise ModelUnavailable(f"{self.path}: a tensor cannot be read ({error}); fetch the file again") from error
        return _unpermuted(values, self._permuted_heads(theirs))

    def groups(self, name: str) -> Groups | None:
        """A matrix's own 4-bit numbers, or None if it is stored otherwise."""
        theirs = self._found[name]
        place, heads = self._places[theirs], self._permuted_heads(theirs)
        if place.kind not in blocks.BLOCK_BYTES:
            return None
        found = blocks.numbers(self._blocks(place), place.kind)
        if found is None:
            return None
        rows = place.shape[0]
        numbers, scale, offset = (_unpermuted(part.reshape(rows, -1), heads) for part in found)
        return Groups(numbers, scale, offset)

    def _from_blocks(self, place: Place) -> Tensor:
        """A tensor in one of the formats of `blocks`."""
        return blocks.dequantise(self._blocks(place), place.kind).view(place.shape)

    def _blocks(self, place: Place) -> Tensor:
        """uint8[blocks, bytes], over the file; ValueError if it ends before the tensor does."""
        import torch

        count, rest = divmod(math.prod(place.shape), blocks.BLOCK)
        if rest or place.shape[-1] % blocks.BLOCK:
            raise ValueError(f"{place.shape[-1]} columns are not whole blocks")
        size = blocks.BLOCK_BYTES[place.kind]
        with warnings.catch_warnings():  # torch warns of memory that may not be written; it is not
            warnings.simplefilter("ignore", UserWarning)
            octets = torch.frombuffer(self._data, dtype=torch.uint8, count=count * size, offset=place.offset)
        return octets.view(count, size)

    def _permuted_heads(self, name: str) -> int:
        """Heads whose rows llama.cpp has reordered in this tensor; 0: none."""
        if self.settings is None or self.settings.family != "llama":
            return 0
        heads = {"attn_q": self.settings.heads, "attn_k": self.settings.kv_heads}
        return heads.get(name.split(".")[-2], 0)

    def _settings(self) -> Settings | None:
        """None where a setting is not of the plain kind."""
        architecture = str(self.metadata.get("general.architecture"))
        if architecture not in _ARCHITECTURES or "mistral" in str(self.metadata.get("general.name", "")).lower():
            return None
        prefix = f"{architecture}."
        found = {k.removeprefix(prefix): v for k, v in self.metadata.items() if k.startswith(prefix)}
        embedding = self._places.get("token_embd.weight")
        if not found.keys() <= SETTINGS.keys() | CHECKED or embedding is None:
            return None
        layers = {name.split(".")[1] for name in self._places if name.startswith("blk.")}
        if len(embedding.shape) != 2 or found.get("block_count") != len(layers):
            raise ModelUnavailable(f"{self.path}: its tensors do not fit its settings; fetch the file again")
        config: dict[str, Any] = {SETTINGS[key]: value for key, value in found.items() if key in SETTINGS}
        config |= {
            "architectures": [_ARCHITECTURES[architecture]],
            "model_type": architecture,
            "vocab_size": embedding.shape[0],
            "tie_word_embeddings": "output.weight" not in self._places,
        }
        settings = from_config(config)
        return settings if settings is not None and _rotates_whole_heads(found, settings) else None


def _unpermuted(values: Tensor, heads: int) -> Tensor:
    """Rows in the order of transformers: rotary pairs (i, i + half), where llama.cpp's are neighbours."""
    if not heads:
        return values
    rows, columns = values.shape
    return values.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _rotates_whole_heads(found: Mapping[str, Any], settings: Settings) -> bool:
    sizes = (found.get("rope.dimension_count"), found.get("attention.value_length"))
    return all(size in (None, settings.head_dim) for size in sizes)


def _parameter(name: str) -> str:
    """The parameter's name in transformers, ``""`` for a tensor not known here."""
    match = _NAME.fullmatch(name)
    module = None if match is None else (MODULES | _HEAD_NORMS).get(match[2])
    if match is None or module is None:
        return ""
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{module}.{match[3]}"
