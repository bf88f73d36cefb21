"""A transformers network on all tokens of a step at once, without padding: rows of any lengths, any spans.

The tokens of all spans stand one behind another in one sequence. Everything in a decoder but attention works token by
token, so it takes them as they are: weights are read once a step. Attention is done row by row over the row's own keys
and values, with exact lengths; so a row's result does not depend on its neighbours but for the rounding of matrix
products, and nothing is computed for padding.

**Which networks.** Those whose layers are plain causal attention, called through the library's table of attention
functions (Llama, Qwen 2 and 3, Mistral without a window, SmolLM, Phi, Granite …). Others are refused by `packed_rows`,
which also compares a packed step with the model's own sessions before it takes a network. Such models run by
`SessionRows`.

**Threads.** The network's modules are copied (not its weights), so that the copy's configuration can name our attention
function while sessions of the same model go on with theirs. A packed batch itself is for one thread.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.engine.batch.model import BatchModel, Span, StepLogits
from stcon.engine.batch.torch_logits import TorchLogits

if TYPE_CHECKING:
    from stcon.models.transformers import TransformersModel

ATTENTION = "stcon_packed"
CHUNK = 64  # buffers grow by so many tokens at least
_TOLERANCE = {"float32": 1e-3, "bfloat16": 6e-2, "float16": 2e-2}
_KNOWN = frozenset(
    {"position_ids", "cache_position", "use_cache", "sliding_window", "output_attentions", "position_bias"}
)


class PackedRows(BatchModel):
    """Rows of a `TransformersModel`; made by `packed_rows`.

    Args:
        model: its network fits (see the module).
        num_rows: most active rows.
    """

    row_bytes = 0
    can_truncate = True

    def __init__(self, model: TransformersModel, num_rows: int = 16) -> None:
        import torch

        self.model: TransformersModel = model
        self.num_rows = num_rows
        self.row_tokens = model.context_length
        self._network = _with_packed_attention(model.network)
        config = model.network.config.get_text_config()
        self._num_layers = int(config.num_hidden_layers)
        heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self._shape = (2 * self._num_layers, heads, width)
        size = torch.empty(0, dtype=model.network.dtype).element_size()
        self.token_bytes = 2 * self._num_layers * heads * width * size
        self.weight_bytes = sum(p.numel() * p.element_size() for p in model.network.parameters())
        self._token_step_bytes: int = size * (
            8 * int(config.hidden_size) + 3 * int(getattr(config, "intermediate_size", 0) or 0)
        )
        self._rows: dict[int, _Cache] = {}
        self._numbers = itertools.count(1)

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`. The row's buffer is made in one piece: nothing is copied as it fills."""
        return self._keep(_Cache(self._buffer(num_tokens), 0))

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        del self._rows[row]

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`. Cost: the bytes of `length` tokens."""
        import torch

        buffer = self._buffer(max(num_tokens, length))
        with torch.inference_mode():
            buffer[:, :, :length] = self._rows[row].buffer[:, :, :length]
        return self._keep(_Cache(buffer, length))

    def park(self, row: int) -> None:
        """See `BatchModel.park`. What the row set aside and did not use is given back."""
        cache = self._rows[row]
        if cache.buffer.shape[2] > cache.length + CHUNK:
            import torch

            with torch.inference_mode():
                cache.buffer = cache.buffer[:, :, : cache.length].clone()

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._rows[row].length

    def step_bytes(self, num_tokens: int, num_logits: int) -> int:
        """See `BatchModel.step_bytes`: activations of one layer, logits twice (as computed, and as float32)."""
        return num_tokens * self._token_step_bytes + 8 * num_logits * self.model.vocabulary.size

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`. Cost: one forward call over the sum of the spans."""
        import torch

        caches = [self._rows[span.row] for span in spans]
        counts = [len(span.tokens) for span in spans]
        ends = list(itertools.accumulate(counts))
        places = [range(cache.length, cache.length + count) for cache, count in zip(caches, counts, strict=True)]
        device = self.model.network.device

        def put(values: Sequence[int]) -> Any:
            return torch.tensor(values, dtype=torch.long, device=device)

        wanted = [end - 1 for end, span in zip(ends, spans, strict=True) if span.wants_logits]
        with torch.inference_mode():
            for cache, count in zip(caches, counts, strict=True):
                cache.make_room(cache.length + count)
            output = self._network(
                input_ids=put([token for span in spans for token in span.tokens])[None],
                position_ids=put(list(itertools.chain(*places)))[None],
                use_cache=False,
                logits_to_keep=put(wanted or [0]),
                stcon_step=_Step(caches, counts),
            )
            logits = output.logits[0, : len(wanted)].float()
        for cache, count in zip(caches, counts, strict=True):
            cache.length += count
        return TorchLogits(logits, self.model.vocabulary.size)

    def _buffer(self, num_tokens: int) -> Any:
        """Keys and values of all layers: [2 L, heads, tokens, width]. Pages of main memory are taken as they fill."""
        import torch

        layers, heads, width = self._shape
        with torch.inference_mode():
            return torch.empty(
                (layers, heads, num_tokens, width), dtype=self.model.network.dtype, device=self.model.network.device
            )

    def _keep(self, cache: _Cache) -> int:
        number = next(self._numbers)
        self._rows[number] = cache
        return number


class _Cache:
    """One row's keys and values."""

    def __init__(self, buffer: Any, length: int) -> None:
        self.buffer = buffer
        self.length = length

    def make_room(self, num_tokens: int) -> None:
        """Grow the buffer to hold `num_tokens`, if who set it aside said too few."""
        import torch

        held = self.buffer.shape[2]
        if num_tokens > held:
            layers, heads, _, width = self.buffer.shape
            grown = torch.empty(
                (layers, heads, num_tokens + CHUNK, width), dtype=self.buffer.dtype, device=self.buffer.device
            )
            grown[:, :, : self.length] = self.buffer[:, :, : self.length]
            self.buffer = grown


class _Step:
    """Whose tokens a packed sequence holds: handed through the network to the attention function."""

    def __init__(self, caches: Sequence[_Cache], counts: Sequence[int]) -> None:
        self.caches = caches
        self.counts = counts

    def attend(self, layer: int, query: Any, key: Any, value: Any, scale: float | None) -> Any:
        """Attention of every row over its own tokens.

        Args:
            layer: index of the layer.
            query: [1, H, N, D]; N tokens of all spans.
            key, value: [1, H', N, D]; H' divides H.

        Returns:
            [1, N, H, D], as the library's functions give it.
        """
        import torch

        repeated = query.shape[1] != key.shape[1]
        output = torch.empty_like(query)
        start = 0
        for cache, count in zip(self.caches, self.counts, strict=True):
            stop, before = start + count, cache.length
            keys, values = cache.buffer[2 * layer], cache.buffer[2 * layer + 1]
            keys[:, before : before + count] = key[0, :, start:stop]
            values[:, before : before + count] = value[0, :, start:stop]
            output[:, :, start:stop] = torch.nn.functional.scaled_dot_product_attention(
                query[:, :, start:stop],
                keys[None, :, : before + count],
                values[None, :, : before + count],
                attn_mask=_lower(count, before, query) if count > 1 and before else None,
                is_causal=count > 1 and not before,
                scale=scale,
                enable_gqa=repeated,
            )
            start = stop
        return output.transpose(1, 2)


def packed_rows(model: Any, num_rows: int = 16) -> PackedRows | None:
    """`model` as packed rows, or None if it is not one of transformers, or its network does not fit (see the module).

    Cost: four forward calls over a few tokens.
    """
    from stcon.models.transformers import TransformersModel

    if not isinstance(model, TransformersModel) or not _may_fit(model.network):
        return None
    try:
        rows = PackedRows(model, num_rows)
        return rows if _agrees(rows) else None
    except (TypeError, AttributeError, RuntimeError, ValueError):  # a network that takes or does something else
        return None


def _may_fit(network: Any) -> bool:
    """Whether the configuration speaks of nothing but plain causal attention."""
    config = network.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return set(kinds) <= {"full_attention"} and (not windowed or getattr(config, "layer_types", None) is not None)


def _agrees(rows: PackedRows) -> bool:
    """Whether packed steps give what the model's own sessions give."""
    tokens = [[(7 + 31 * i + 11 * row) % rows.model.vocabulary.size for i in range(9)] for row in range(2)]
    numbers = [rows.join(16), rows.join(16)]
    rows.feed([Span(numbers[0], tokens[0][:5], True), Span(numbers[1], tokens[1][:2], False)])
    logits = rows.feed([Span(numbers[0], tokens[0][5:6], False), Span(numbers[1], tokens[1][2:], True)])
    found = [logits.row(0), rows.feed([Span(numbers[0], tokens[0][6:], True)]).row(0)]
    for number in numbers:
        rows.leave(number)
    expected = [rows.model.session().append(tokens[1]), rows.model.session().append(tokens[0])]
    tolerance = _TOLERANCE.get(str(rows.model.network.dtype).removeprefix("torch."), 1e-3)
    return all(
        bool(np.abs(a[known] - b[known]).max() <= tolerance * np.abs(b[known]).max())
        for a, b in zip(found, expected, strict=True)
        for known in [np.isfinite(a) & np.isfinite(b)]
    )


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
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    stcon_step: _Step,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Any, None]:
    """The library's signature of an attention function. Raises TypeError for what is not done here."""
    unknown = {name for name, given in others.items() if given is not None} - _KNOWN
    if unknown or others.get("sliding_window") or attention_mask is not None:
        raise TypeError(f"attention with {', '.join(sorted(unknown)) or 'a mask or window'} is not done packed")
    return stcon_step.attend(module.layer_idx, query, key, value, scaling), None


def _lower(count: int, before: int, like: Any) -> Any:
    """bool[count, before + count]: token i of a span sees what was before it and the span up to itself."""
    import torch

    return torch.ones((count, before + count), dtype=torch.bool, device=like.device).tril(before)
