"""Llama-family GGUF files without the detour: one walk over the file, one dequantisation, the same network.

The loader of transformers reads the file three times and builds its name table once a module, a quarter of a minute for
the default model where this takes two seconds. It stays the loader for everything that `load_llama` does not know to
the last key: another architecture, scaled rotary embeddings, experts, an unknown tensor. Both give equal weights, bit
for bit (tested).

Source: the GGUF specification, version 3; llama.cpp's ``convert_hf_to_gguf.py`` for the order of query and key rows.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.errors import ModelUnavailable
from stcon.vocab.gguf_metadata import _Reader

SETTINGS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "attention.key_length": "head_dim",
}
CHECKED = {"vocab_size", "rope.dimension_count", "attention.value_length"}
_REQUIRED = ("embedding_length", "block_count", "feed_forward_length", "attention.head_count")

MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.weight")


class Tensor(NamedTuple):
    """A tensor's place in the file: shape (rows first), ggml type, offset in bytes."""

    shape: tuple[int, ...]
    kind: int
    offset: int


def load_llama(path: Path, dtype: Any) -> Any | None:
    """The ``LlamaForCausalLM`` in a GGUF file, in torch's `dtype`; None if it is not plainly one.

    Raises:
        ModelUnavailable: the file is cut short, or its tensors do not fit its settings.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        metadata, tensors = read_directory(data, path)
        config = _config(metadata, tensors)
        if config is None:
            return None
        try:
            state = {
                parameter(name): dequantised(data, tensor, _heads(name, config)) for name, tensor in tensors.items()
            }
        except (ValueError, NotImplementedError, KeyError) as error:
            raise ModelUnavailable(f"{path}: a tensor cannot be read ({error}); fetch the file again") from error
    return _network(config, state, dtype, path)


def read_directory(data: mmap.mmap, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The file's metadata and its list of tensors."""
    try:
        reader = _Reader(data)
        metadata = reader.metadata()
        (count,) = struct.unpack_from("<Q", data, 8)
        found = {}
        for _ in range(count):
            name, rank = reader.string(), reader.scalar("I")
            shape = tuple(reader.scalar("Q") for _ in range(rank))[::-1]
            found[name] = Tensor(shape, reader.scalar("I"), reader.scalar("Q"))
    except (struct.error, ValueError, KeyError, OverflowError) as error:
        raise ModelUnavailable(f"{path} is not a complete GGUF file ({error}); fetch it again") from error
    alignment = int(metadata.get("general.alignment", 32)) or 32
    start = -(-reader.position // alignment) * alignment
    return metadata, {name: tensor._replace(offset=start + tensor.offset) for name, tensor in found.items()}


def llama_settings(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """The settings under transformers' names, or None where one of them or a tensor is not of the plain kind."""
    if metadata.get("general.architecture") != "llama" or "mistral" in str(metadata.get("general.name", "")).lower():
        return None
    settings = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    if not settings.keys() <= SETTINGS.keys() | CHECKED or not all(key in settings for key in _REQUIRED):
        return None
    if not all(parameter(name) for name in tensors) or "token_embd.weight" not in tensors:
        return None
    found = {SETTINGS[key]: value for key, value in settings.items() if key in SETTINGS}
    found["vocab_size"] = tensors["token_embd.weight"].shape[0]
    found["tie_word_embeddings"] = "output.weight" not in tensors
    found.setdefault("num_key_value_heads", found["num_attention_heads"])
    head = found.get("head_dim") or found["hidden_size"] // found["num_attention_heads"]
    rotated = (settings.get("rope.dimension_count"), settings.get("attention.value_length"))
    return found if all(size in (None, head) for size in rotated) else None


def _config(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any | None:
    """The ``LlamaConfig``, or None where the file is not plainly a Llama."""
    from transformers import LlamaConfig

    settings = llama_settings(metadata, tensors)
    if settings is None:
        return None
    return LlamaConfig(
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=metadata.get("tokenizer.ggml.eos_token_id"),
        pad_token_id=metadata.get("tokenizer.ggml.padding_token_id"),
        **settings,
    )


def parameter(name: str) -> str:
    """The parameter's name in transformers, ``""`` for a tensor not known here."""
    match = _NAME.fullmatch(name)
    if match is None or match[2] not in MODULES:
        return ""
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{MODULES[match[2]]}.weight"


def _heads(name: str, config: Any) -> int:
    """Heads whose rows llama.cpp has reordered in this tensor; 0: none."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    return int(heads.get(name.split(".")[-2], 0))


def dequantised(data: mmap.mmap, tensor: Tensor, heads: int) -> NDArray[np.float32]:
    """A tensor as float32 (a copy), query and key rows in the order of transformers."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quant_shape_to_byte_shape

    kind = GGMLQuantizationType(tensor.kind)
    stored = quant_shape_to_byte_shape(tensor.shape, kind)
    octets = np.frombuffer(data, np.uint8, count=int(np.prod(stored)), offset=tensor.offset).reshape(stored)
    values = dequantize(octets, kind).astype(np.float32, copy=False).reshape(tensor.shape)
    if heads:
        rows, columns = tensor.shape
        # rotary pairs: ours are (i, i + half), llama.cpp's are neighbours
        values = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    # float32 tensors are views of the file so far, which is closed soon
    return np.array(values) if np.may_share_memory(values, octets) else np.ascontiguousarray(values)


def _network(config: Any, state: Mapping[str, NDArray[np.float32]], dtype: Any, path: Path) -> Any:
    """The network with these weights, nothing initialised twice."""
    import torch
    from transformers import LlamaForCausalLM

    expected = set(_expected(config))
    if state.keys() != expected:
        missing = sorted(expected - state.keys())[:1] or sorted(state.keys() - expected)[:1]
        raise ModelUnavailable(f"{path}: its tensors do not fit its settings ({missing[0]}); fetch the file again")
    tensors = {name: torch.from_numpy(values).to(dtype) for name, values in state.items()}
    return LlamaForCausalLM.from_pretrained(None, config=config, state_dict=tensors, dtype=dtype)


def _expected(config: Any) -> list[str]:
    """The parameters of a network with this configuration."""
    per_layer = [module for name, module in MODULES.items() if name.startswith(("attn", "ffn"))]
    layers = [f"model.layers.{i}.{module}.weight" for i in range(config.num_hidden_layers) for module in per_layer]
    head = [] if config.tie_word_embeddings else ["lm_head.weight"]
    return [*layers, "model.embed_tokens.weight", "model.norm.weight", *head]
