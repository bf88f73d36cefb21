"""What a checkpoint's configuration says, reduced to what our definitions need, or None where it says anything else.

Known to the last key or not at all: a setting that changes the arithmetic and is not listed here (another activation,
another rotary scaling, sliding windows, quantised weights) sends the model to the generic runner, which knows it.

Source: ``config.json`` as transformers writes it (both the older ``rope_theta`` + ``rope_scaling`` and the newer
``rope_parameters``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Family = Literal["llama", "qwen2", "qwen3", "qwen3_5"]
LayerKind = Literal["attention", "delta"]

# architecture named by the checkpoint → our family
ARCHITECTURES: Mapping[str, Family] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3_5ForCausalLM": "qwen3_5",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
}
_MODEL_TYPES: Mapping[Family, tuple[str, ...]] = {
    "llama": ("llama",),
    "qwen2": ("qwen2",),
    "qwen3": ("qwen3",),
    "qwen3_5": ("qwen3_5", "qwen3_5_text"),
}
# settings that change the arithmetic: the values our definitions compute
_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "rope_interleaved": (False, None),
    "quantization_config": (None,),
    "attn_output_gate": (True, None),
    "mlp_only_layers": ([], None),
}
_MOST_LAYERS = 10_000  # past any model, and what a damaged file can make us count to
_LAYER_KINDS: Mapping[str, LayerKind] = {"full_attention": "attention", "linear_attention": "delta"}


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's change of the rotary frequencies: low ones divided by `factor`, the band between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the first `dim` dimensions of a head."""

    theta: float
    dim: int
    scaling: Llama3Scaling | None = None


@dataclass(frozen=True)
class Delta:
    """Shape of a Gated DeltaNet layer: heads of keys and of values, their sizes, taps of the convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True)
class Settings:
    """One model's shape. `delta` is None where every layer is attention."""

    family: Family
    vocab_size: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    context_length: int
    tied: bool
    rope: Rope
    layers: tuple[LayerKind, ...]
    delta: Delta | None = None

    @property
    def qkv_bias(self) -> bool:
        """Whether query, key and value projections add a bias (Qwen2)."""
        return self.family == "qwen2"

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normalised head by head (Qwen3 and later)."""
        return self.family in ("qwen3", "qwen3_5")

    @property
    def gated(self) -> bool:
        """Whether attention's output is gated (Qwen3.5)."""
        return self.family == "qwen3_5"


def from_config(config: Mapping[str, Any]) -> Settings | None:
    """The settings in a ``config.json``; None if it is of no family here, or says something not computed here."""
    family = next((ARCHITECTURES[name] for name in config.get("architectures") or () if name in ARCHITECTURES), None)
    if family is None or config.get("model_type") not in _MODEL_TYPES[family]:
        return None
    text: Mapping[str, Any] = config.get("text_config") or config
    if any(text.get(key, allowed[-1]) not in allowed for key, allowed in _ALLOWED.items()):
        return None
    if config.get("quantization_config") is not None:
        return None
    try:
        return _build(family, text, config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None  # a key missing or of another kind: whatever this is, it is not known here


def _build(family: Family, text: Mapping[str, Any], config: Mapping[str, Any]) -> Settings | None:
    heads, count = int(text["num_attention_heads"]), int(text["num_hidden_layers"])
    head_dim = int(text.get("head_dim") or text["hidden_size"] // heads)
    rope = _rope(text, head_dim, 0.25 if family == "qwen3_5" else 1.0)
    layers = _layers(text, count, family)
    if rope is None or not layers or int(text.get("pretraining_tp") or 1) != 1:
        return None
    return Settings(
        family=family,
        vocab_size=int(text["vocab_size"]),
        hidden=int(text["hidden_size"]),
        intermediate=int(text["intermediate_size"]),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        eps=float(text["rms_norm_eps"]),
        context_length=int(text["max_position_embeddings"]),
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        rope=rope,
        layers=layers,
        delta=_delta(text) if "delta" in layers else None,
    )


def _rope(text: Mapping[str, Any], head_dim: int, partial: float) -> Rope | None:
    """The rotary embedding, in the older or the newer spelling; None for a scaling not known here."""
    old = text.get("rope_scaling") or {}
    options: Mapping[str, Any] = text.get("rope_parameters") or old
    kind = options.get("rope_type", options.get("type", "default"))
    theta = float(options.get("rope_theta") or text.get("rope_theta") or 10000.0)
    share = options.get("partial_rotary_factor", text.get("partial_rotary_factor", partial))
    dim = int(head_dim * float(share))
    if kind == "default" or (kind == "mrope" and partial < 1.0):  # of text, all three positions are the same
        return Rope(theta, dim)
    if kind != "llama3":
        return None
    original = options.get("original_max_position_embeddings") or text["max_position_embeddings"]
    factor, low, high = (float(options[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    return Rope(theta, dim, Llama3Scaling(factor, low, high, int(original)))


def _layers(text: Mapping[str, Any], count: int, family: Family) -> tuple[LayerKind, ...] | None:
    """The kind of every layer; None for a kind not known here."""
    if count > _MOST_LAYERS:
        return None
    named: Sequence[str] | None = text.get("layer_types")
    if named is None:
        interval = int(text.get("full_attention_interval") or 4) if family == "qwen3_5" else 1
        return tuple("delta" if (i + 1) % interval else "attention" for i in range(count))
    known = [_LAYER_KINDS[name] for name in named if name in _LAYER_KINDS]
    if len(known) != count or len(named) != count or ("delta" in known and family != "qwen3_5"):
        return None
    return tuple(known)


def _delta(text: Mapping[str, Any]) -> Delta:
    return Delta(
        key_heads=int(text.get("linear_num_key_heads", 16)),
        value_heads=int(text.get("linear_num_value_heads", 32)),
        key_dim=int(text.get("linear_key_head_dim", 128)),
        value_dim=int(text.get("linear_value_head_dim", 128)),
        taps=int(text.get("linear_conv_kernel_dim", 4)),
    )
