"""Models for the benchmarks: three shapes with random weights, and small random ones that transformers knows too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from stcon.models.lean import int4, llama, qwen3_5
from stcon.models.lean.checkpoint import Entry, Parameters, load
from stcon.models.lean.four_bit import FourBit
from stcon.models.lean.network import Network
from stcon.models.lean.settings import Settings, from_config

QWEN3_5_2B = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 248077,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}
QWEN3_1_7B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "rope_theta": 1e6,
}
SMOLLM2_135M = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "rope_theta": 1e5,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "Qwen3.5-2B": QWEN3_5_2B,
    "Qwen3-1.7B": QWEN3_1_7B,
    "SmolLM2-135M": SMOLLM2_135M,
}

_SMALL = {
    "vocab_size": 300,
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "initializer_range": 0.1,
    "max_position_embeddings": 1024,
}
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "llama": {**_SMALL, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, **_LLAMA3}},
    "qwen2": {**_SMALL, "tie_word_embeddings": True},
    "qwen3": _SMALL,
    "qwen3_5_text": {
        **_SMALL,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
    },
}


class StateDict:
    """A module's parameters as a `checkpoint.Source`."""

    def __init__(self, network: Any, tied: bool) -> None:
        self.tensors = {n: t for n, t in network.state_dict().items() if not (tied and n == "lm_head.weight")}

    def names(self) -> list[str]:
        """Every parameter."""
        return list(self.tensors)

    def tensor(self, name: str) -> torch.Tensor:
        """One of them."""
        return self.tensors[name]


def theirs(model_type: str) -> Any:
    """A small random network of transformers, float32, no two rows or norms alike."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **SMALL[model_type])).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return network


def ours(network: Any, device: str, dtype: torch.dtype) -> Network:
    """The lean network with the weights of `theirs`."""
    settings = from_config({**network.config.to_dict(), "architectures": [type(network).__name__]})
    assert settings is not None
    if settings.family == "qwen3_5":
        table, shapes = qwen3_5.table(settings, "model."), qwen3_5.shapes(settings)
    else:
        table, shapes = llama.table(settings), llama.shapes(settings)
    parameters = load(StateDict(network, settings.tied), table, shapes, torch.device(device), dtype)
    return Network(settings, parameters)


def random_network(name: str, device: str, dtype: torch.dtype) -> Network:
    """A network of one of `SHAPES` with random weights."""
    settings = from_config(SHAPES[name])
    assert settings is not None
    generator = torch.Generator(device).manual_seed(0)
    return Network(settings, _random_parameters(settings, device, dtype, generator))


def four_bit(network: Network) -> Network:
    """The same with the layers' matrices in four bits, rounded to nearest."""
    kept = {name: int4.four_bits(NoFile(), name, Entry((name,)), weight) for name, weight in network.parameters.items()}
    return Network(network.settings, kept)


def unrounded(network: Network, device: str) -> Network:
    """The float32 network with the numbers that a four-bit one's matrices stand for."""
    kept = {
        name: (weight.dense() if isinstance(weight, FourBit) else weight).to(device, torch.float32)
        for name, weight in network.parameters.items()
    }
    return Network(network.settings, kept)


class NoFile:
    """A `checkpoint.Source` without four-bit numbers of its own."""

    def names(self) -> list[str]:
        """None."""
        return []

    def tensor(self, name: str) -> torch.Tensor:
        """None."""
        raise KeyError(name)


def _random_parameters(settings: Settings, device: str, dtype: torch.dtype, generator: torch.Generator) -> Parameters:
    shapes = (qwen3_5 if settings.family == "qwen3_5" else llama).shapes(settings)
    found = {}
    for name, shape in shapes.items():
        if len(shape) == 1:  # norms near one, decays negative, all float32
            vector = 1 + 0.1 * torch.randn(shape, device=device, generator=generator)
            found[name] = -vector if name.endswith("decay") else vector
        else:
            found[name] = (torch.randn(shape, device=device, generator=generator) * shape[1] ** -0.5).to(dtype)
    return found
