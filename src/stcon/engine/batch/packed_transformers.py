"""A transformers network in packed steps (`stcon.engine.batch.packed`).

**Which networks.** Those whose layers are plain causal attention, called through the library's table of attention
functions (Llama, Qwen 2 and 3, Mistral without a window, SmolLM, Phi, Granite …). `packed_transformers` refuses others
by their configuration, by what their layers hand to the attention function, and by comparison with the model's own
sessions.

**Threads.** The network's modules are copied (not its weights), so that the copy's configuration can name our attention
function while sessions of the same model go on with theirs.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stcon.engine.batch.packed import PackedRows, PackedStep, agrees

if TYPE_CHECKING:
    from stcon.models.transformers import TransformersModel

Tensor = Any

ATTENTION = "stcon_packed"
_KNOWN = frozenset(
    {"position_ids", "cache_position", "use_cache", "sliding_window", "output_attentions", "position_bias"}
)


class PackedTransformers(PackedRows):
    """Rows of a `TransformersModel`; made by `packed_transformers`.

    Args:
        model: its network fits (see the module).
        num_rows: most active rows.
    """

    def __init__(self, model: TransformersModel, num_rows: int = 16) -> None:
        config = model.network.config.get_text_config()
        heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        super().__init__(
            model,
            num_rows,
            shape=(2 * int(config.num_hidden_layers), heads, width),
            like=next(model.network.parameters()),
            token_width=8 * int(config.hidden_size) + 3 * int(getattr(config, "intermediate_size", 0) or 0),
        )
        self.weight_bytes = sum(p.numel() * p.element_size() for p in model.network.parameters())
        self._network = _with_packed_attention(model.network)

    def run(self, tokens: Sequence[int], step: PackedStep, wanted: Sequence[int]) -> Tensor:
        """See `PackedRows.run`."""
        import torch

        ids, positions, places = (
            torch.tensor(values, dtype=torch.long, device=self._like.device)
            for values in (tokens, step.positions, wanted)
        )
        output = self._network(
            input_ids=ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=places,
            stcon_step=step,
        )
        return output.logits[0].float()


def packed_transformers(model: Any, num_rows: int = 16) -> PackedTransformers | None:
    """`model` as packed rows, or None if it is not one of transformers, or its network does not fit (see the module).

    Cost: five passes over a few tokens.
    """
    from stcon.models.transformers import TransformersModel

    if not isinstance(model, TransformersModel) or not _may_fit(model.network):
        return None
    try:
        rows = PackedTransformers(model, num_rows)
        return rows if agrees(rows) else None
    except (TypeError, AttributeError, RuntimeError, ValueError):  # a network that takes or does something else
        return None


def _may_fit(network: Any) -> bool:
    """Whether the configuration speaks of nothing but plain causal attention."""
    config = network.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return set(kinds) <= {"full_attention"} and (not windowed or getattr(config, "layer_types", None) is not None)


def _with_packed_attention(network: Any) -> Any:
    """A copy of `network` over the same weights whose layers call `_attention`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)
    shared = {id(tensor): tensor for tensor in itertools.chain(network.parameters(), network.buffers())}
    twin = copy.deepcopy(network, shared)
    for module in twin.modules():
        config = getattr(module, "config", None)
        if config is not None and getattr(config, "_attn_implementation", None) is not None:
            config._attn_implementation = ATTENTION
    return twin.eval()


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    stcon_step: PackedStep,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """The library's signature of an attention function: [1, heads, M, width] in, [1, M, heads, width] out.

    Raises:
        TypeError: the layer wants something that is not done here.
    """
    unknown = {name for name, given in others.items() if given is not None} - _KNOWN
    if unknown or others.get("sliding_window") or attention_mask is not None:
        raise TypeError(f"attention with {', '.join(sorted(unknown)) or 'a mask or window'} is not done packed")
    q, k, v = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    return stcon_step.attend(module.layer_idx, q, k, v, scaling)[None], None
