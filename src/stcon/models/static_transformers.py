"""Any causal language model of the transformers library as a `StaticModel`: fixed addresses, rows of any length.

The network runs as the library wrote it; what is ours are the cache's layers and the mask. Every attention layer keeps
``keys[rows, heads, slots, size]`` and writes at each row's own positions; the 4-dimensional mask that the library
passes through says that position p reads slots 0 … p. So rows of different lengths share a pass, and nothing is read
back.

**What is accepted.** Layers of full attention and recurrent layers (Gated DeltaNet, Mamba) whose state the library
keeps at a fixed address. Sliding windows are accepted up to the window, where they are full attention. Before it is
used, a network is compared with the library's own cache, in passes of several tokens and of one; one that differs is
refused (some families forget their state when several tokens are appended), and then runs by the plain loop.

**Recurrent layers** take exact spans only: a row has all S tokens or none. Their states are kept in one tensor for all
layers of a shape, so that saving, restoring and clearing them is one operation each.

**Cost.** Attention reads all `slots`, filled or not, and the library's kernels are as many as it wrote:
`stcon.models.lean` is the fast one, for the families it knows.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stcon.errors import InvalidOption, ModelUnavailable
from stcon.models.static import StaticCache, Tensor
from stcon.models.transformers import context_length

_ALIGNMENT = 8
_TOLERANCE = {torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
_CHECKED_TOKENS = 12


@dataclass(frozen=True)
class _Attention:
    """What one attention layer keeps of a token: ``heads × key_size`` and ``heads × value_size`` numbers."""

    heads: int
    key_size: int
    value_size: int
    dtype: Any


@dataclass(frozen=True)
class _Recurrent:
    """The states of one recurrent layer, one row's shapes; None for a state that the family does not use."""

    conv: tuple[int, ...] | None
    conv_dtype: Any
    state: tuple[int, ...] | None
    state_dtype: Any


class StaticTransformers:
    """A transformers network behind `stcon.models.static.StaticModel`.

    Args:
        network: the causal LM, in eval mode, on its device.

    Raises:
        ModelUnavailable: it has layers of another kind, or does not give what it gives with the library's cache.
    """

    def __init__(self, network: Any) -> None:
        self.network = network
        self.device = network.device
        self.dtype = network.dtype
        config = network.config.get_text_config()
        self.context_length = min(context_length(network.config), _window(config))
        parameters = inspect.signature(network.forward).parameters
        self._cache_name = next((n for n in ("cache", "past_key_values", "cache_params") if n in parameters), "cache")
        self._keep_name = next((n for n in ("logits_to_keep", "num_logits_to_keep") if n in parameters), None)
        self._bool_mask = getattr(config, "_attn_implementation", "eager") == "sdpa"
        try:
            with torch.no_grad():
                self.vocab_size, self._layers = self._probe()
                self._verify()
        except ModelUnavailable:
            raise
        except Exception as error:  # the library promises no set of errors for what a family cannot do
            raise ModelUnavailable(f"{self._refusal} ({type(error).__name__})") from error

    @property
    def _refusal(self) -> str:
        return f"a {type(self.network).__name__} cannot run on caches of fixed size"

    @property
    def recurrent(self) -> bool:
        """Whether some layer is recurrent."""
        return any(isinstance(layer, _Recurrent) for layer in self._layers)

    def new_cache(self, rows: int, capacity: int) -> RowCache:
        """See `StaticModel.new_cache`."""
        if not 1 <= capacity <= self.context_length:
            raise InvalidOption(f"capacity: expected 1 to {self.context_length}, got {capacity}")
        return RowCache.allocate(self._layers, rows, capacity, self.device)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        cache: StaticCache,
        counts: Tensor | None = None,
        all_positions: bool = False,
    ) -> Tensor:
        """See `StaticModel.forward`. With recurrent layers `counts` may be 0 or S only, which is not checked."""
        rows, span = tokens.shape
        assert isinstance(cache, RowCache), "a cache of this model"
        place = cache if rows == cache.rows else cache.slice(0, rows)
        positions = lengths.long()[:, None] + torch.arange(span, device=self.device)
        with torch.no_grad():
            place.open(positions, lengths)
            before = place.states() if counts is not None and place.recurrent else []
            ragged = counts is not None and span > 1
            logits = self._logits(tokens, positions, place, all_positions or ragged)
            if counts is None:
                return logits if all_positions else logits[:, -1]
            for old, new in before:
                new.copy_(torch.where(_spread(counts > 0, new), new, old))
            if all_positions:
                return logits
            last = (counts.long() - 1).clamp(min=0) if ragged else torch.zeros_like(counts, dtype=torch.long)
            return logits.gather(1, last[:, None, None].expand(rows, 1, logits.shape[2]))[:, 0]

    def _logits(self, tokens: Tensor, positions: Tensor, cache: RowCache, all_positions: bool) -> Tensor:
        """float32[B, S or 1, V]."""
        mask = torch.arange(cache.slots, device=self.device) <= positions[:, None, :, None]
        if not self._bool_mask:
            lowest = torch.finfo(self.dtype).min
            mask = torch.zeros(mask.shape, dtype=self.dtype, device=self.device).masked_fill_(~mask, lowest)
        options: dict[str, Any] = {self._cache_name: cache.library_cache(), "use_cache": True}
        if self._keep_name is not None:
            options[self._keep_name] = 0 if all_positions else 1
        output = self.network(input_ids=tokens, position_ids=positions, attention_mask=mask, **options)
        logits = output.logits if all_positions else output.logits[:, -1:]
        return logits.float()

    def _probe(self) -> tuple[int, list[_Attention | _Recurrent]]:
        """Logits a position has, and what each layer keeps: read off the library's own cache after one token."""
        from transformers import StaticCache as LibraryCache

        cache = LibraryCache(config=self.network.config, max_cache_len=_ALIGNMENT)
        one = torch.zeros((1, 1), dtype=torch.long, device=self.device)
        output = self.network(input_ids=one, **{self._cache_name: cache}, use_cache=True)
        layers = [_described(layer) for layer in cache.layers]
        if any(layer is None for layer in layers):
            names = sorted({type(layer).__name__ for layer in cache.layers})
            raise ModelUnavailable(f"{self._refusal} (its layers are {', '.join(names)})")
        return int(output.logits.shape[-1]), [layer for layer in layers if layer is not None]

    def _verify(self) -> None:
        """Compare with the library's own cache: a start, one token alone, the rest; raise where they differ."""
        size = min(_CHECKED_TOKENS, self.context_length)
        tokens = torch.tensor([[(7 + 31 * i) % self.vocab_size for i in range(size)]], device=self.device)
        expected = self.network(input_ids=tokens).logits[0].float()
        cache, parts, start = self.new_cache(1, size), [], 0
        for stop in sorted({min(5, size), min(6, size), size}):
            lengths = torch.tensor([start], dtype=torch.int32, device=self.device)
            parts.append(self.forward(tokens[:, start:stop], lengths, cache, all_positions=True)[0])
            start = stop
        difference = (torch.cat(parts) - expected).nan_to_num(0.0).abs().max()
        scale = expected[torch.isfinite(expected)].abs().max().clamp(min=1e-6)
        if not float(difference) <= _TOLERANCE.get(self.dtype, 6e-2) * float(scale):
            raise ModelUnavailable(
                f"a {type(self.network).__name__} gives other logits on caches of fixed size "
                f"(by {float(difference):.2g} where the largest is {float(scale):.2g})"
            )


class RowCache:
    """The caches of `rows` streams (`stcon.models.static.StaticCache`); `allocate` makes one."""

    def __init__(self, rows: int, capacity: int, *, layers: list[Any], states: list[Tensor], shape: _Shape) -> None:
        self._rows = rows
        self._capacity = capacity
        self._layers = layers
        self._states = states
        self._shape = shape
        self._saved: list[Tensor] = []

    @classmethod
    def allocate(cls, layers: Sequence[_Attention | _Recurrent], rows: int, capacity: int, device: Any) -> RowCache:
        """Zeros for every layer. One slot past the capacity takes what padding writes."""
        slots = (capacity // _ALIGNMENT + 1) * _ALIGNMENT
        shape = _Shape(slots)
        groups: dict[tuple[Any, Any], list[int]] = defaultdict(list)
        for number, layer in enumerate(layers):
            if isinstance(layer, _Recurrent):
                groups[layer.conv, layer.conv_dtype].append(2 * number)
                groups[layer.state, layer.state_dtype].append(2 * number + 1)
        states: list[Tensor] = []
        views: dict[int, Tensor] = {}
        for (size, dtype), members in groups.items():
            if size is None:
                continue
            stacked = torch.zeros((len(members), rows, *size), dtype=dtype, device=device)
            states.append(stacked)
            views.update(zip(members, stacked, strict=True))
        made: list[Any] = []
        for number, layer in enumerate(layers):
            if isinstance(layer, _Recurrent):
                made.append(_recurrent_layer(views.get(2 * number), views.get(2 * number + 1)))
                continue
            keys = torch.zeros((rows, layer.heads, slots, layer.key_size), dtype=layer.dtype, device=device)
            values = torch.zeros((rows, layer.heads, slots, layer.value_size), dtype=layer.dtype, device=device)
            made.append(_attention_layer(keys, values, shape))
        return cls(rows, capacity, layers=made, states=states, shape=shape)

    @property
    def rows(self) -> int:
        """Streams."""
        return self._rows

    @property
    def capacity(self) -> int:
        """Most tokens of one row."""
        return self._capacity

    @property
    def slots(self) -> int:
        """Places of a row: the capacity, a spare one for padding, rounded up."""
        return self._shape.slots

    @property
    def nbytes(self) -> int:
        """Bytes of device memory, saved states included."""
        attention = [tensor for layer in self._layers for tensor in _tensors(layer)]
        return sum(tensor.nbytes for tensor in (*attention, *self._states, *self._saved))

    @property
    def recurrent(self) -> bool:
        """Whether some layer is recurrent."""
        return bool(self._states)

    def slice(self, start: int, stop: int) -> RowCache:
        """See `StaticCache.slice`. What the slice saves is its own."""
        shape = _Shape(self.slots)
        layers = [_sliced(layer, start, stop, shape) for layer in self._layers]
        states = [state[:, start:stop] for state in self._states]
        return RowCache(stop - start, self.capacity, layers=layers, states=states, shape=shape)

    def copy_rows(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """See `StaticCache.copy_rows`."""
        for old, new in zip(source, target, strict=True):
            for layer in self._layers:
                for tensor in _tensors(layer):
                    tensor[new, :, :length].copy_(tensor[old, :, :length])
            for state in self._states:
                state[:, new].copy_(state[:, old])

    def save(self) -> None:
        """See `StaticCache.save`."""
        if not self._saved:
            self._saved = [torch.empty_like(state) for state in self._states]
        for saved, state in zip(self._saved, self._states, strict=True):
            saved.copy_(state)

    def restore(self, rows: Tensor | None = None) -> None:
        """See `StaticCache.restore`."""
        assert self._saved or not self._states, "save comes first"
        for saved, state in zip(self._saved, self._states, strict=True):
            state.copy_(saved if rows is None else torch.where(_spread(rows, state[0]), saved, state))

    def open(self, positions: Tensor, lengths: Tensor) -> None:
        """Where the next pass writes; rows of length 0 start from empty states."""
        self._shape.positions = positions.clamp(max=self.slots - 1)
        for state in self._states:
            state.masked_fill_(_spread(lengths == 0, state[0]), 0)

    def states(self) -> list[tuple[Tensor, Tensor]]:
        """Copies of the recurrent states, each with the original, as [rows, …] tensors."""
        return [(layer.clone(), layer) for state in self._states for layer in state]

    def library_cache(self) -> Any:
        """The library's `Cache` over these layers."""
        from transformers.cache_utils import Cache

        return Cache(layers=self._layers)


class _Shape:
    """What a cache's layers share: the slots, and the positions int64[B, S] of the pass under way."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.positions: Tensor = None


def _spread(rows: Tensor, like: Tensor) -> Tensor:
    """[B] as [B, 1, …], to broadcast over `like`: [B, …]."""
    return rows.view(-1, *(1,) * (like.dim() - 1))


def _window(config: Any) -> int:
    """The tokens within which every layer is full attention."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    slides = any("sliding" in kind for kind in kinds) if kinds else getattr(config, "use_sliding_window", True)
    return int(window) if window and slides else 1 << 30


def _described(layer: Any) -> _Attention | _Recurrent | None:
    """What a layer of the library's cache keeps, or None for a kind that is not known here."""
    name = type(layer).__name__
    if name in {"StaticLayer", "StaticSlidingWindowLayer"}:
        return _Attention(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3], layer.keys.dtype)
    if name != "LinearAttentionLayer" or getattr(layer, "number_of_states", 1) != 1:
        return None
    conv, state = _first(layer.conv_states), _first(layer.recurrent_states)
    return _Recurrent(
        None if conv is None else tuple(conv.shape[1:]),
        None if conv is None else conv.dtype,
        None if state is None else tuple(state.shape[1:]),
        None if state is None else state.dtype,
    )


def _first(states: Any) -> Any:
    """The one state of a layer: the library keeps a dictionary of them, older versions the tensor itself."""
    return states[0] if isinstance(states, dict) else states


def _attention_layer(keys: Tensor, values: Tensor, shape: _Shape) -> Any:
    """A cache layer of the library's kind that writes each row at its own positions."""
    from transformers.cache_utils import StaticLayer

    class RowLayer(StaticLayer):  # type: ignore[misc]
        """Keys and values of one attention layer."""

        def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            """Write the new tokens and return all slots."""
            places = shape.positions[:, None, :, None]
            self.keys.scatter_(2, places.expand(key_states.shape), key_states)
            self.values.scatter_(2, places.expand(value_states.shape), value_states)
            return self.keys, self.values

    layer = RowLayer(max_cache_len=shape.slots)
    layer.keys, layer.values = keys, values
    layer.is_initialized = True
    return layer


def _recurrent_layer(conv: Tensor | None, state: Tensor | None) -> Any:
    """A cache layer of the library's kind over states that exist from the start: zeros are the empty state."""
    from transformers.cache_utils import LinearAttentionLayer

    layer = LinearAttentionLayer()
    for kept, initialized, tensor in (
        (layer.conv_states, layer.is_conv_states_initialized, conv),
        (layer.recurrent_states, layer.is_recurrent_states_initialized, state),
    ):
        if tensor is not None:
            kept[0] = tensor
            initialized[0] = True
    if conv is not None:
        layer.conv_kernel_size[0] = conv.shape[-1]
    layer.has_previous_state[0] = True
    layer.device = (state if conv is None else conv).device  # type: ignore[union-attr]
    layer.dtype = (state if conv is None else conv).dtype  # type: ignore[union-attr]
    return layer


def _tensors(layer: Any) -> tuple[Tensor, ...]:
    """Keys and values of an attention layer; nothing for a recurrent one."""
    return (layer.keys, layer.values) if hasattr(layer, "keys") and layer.keys is not None else ()


def _sliced(layer: Any, start: int, stop: int, shape: _Shape) -> Any:
    """The rows start … stop − 1 of a layer, over the same memory."""
    if _tensors(layer):
        return _attention_layer(layer.keys[start:stop], layer.values[start:stop], shape)
    conv, state = layer.conv_states[0], layer.recurrent_states[0]
    return _recurrent_layer(None if conv is None else conv[start:stop], None if state is None else state[start:stop])
