"""A lean network (`stcon.models.lean`) in packed steps, recurrent layers included (`stcon.engine.batch.packed`).

The families' layers are written in five operations. Three work token by token and are taken as they are; the other two
come with a packed form here: attention by `PackedStep.attend`, Gated DeltaNet by the reference operation, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stcon.engine.batch.packed import PackedRows, PackedStep, RowCache, agrees

if TYPE_CHECKING:
    from stcon.models.lean.settings import Delta
    from stcon.models.lean.shapes import Heads

Tensor = Any


class PackedLean(PackedRows):
    """Rows of a `LeanModel` on the CPU; made by `packed_lean`.

    Args:
        model: a `LeanModel`: the network and its vocabulary.
        num_rows: most active rows.
    """

    def __init__(self, model: Any, num_rows: int = 16) -> None:
        from stcon.models.lean.cache import rotary_table

        network = model.network
        self.network = network
        settings = network.settings
        super().__init__(
            model,
            num_rows,
            shape=(2 * settings.layers.count("attention"), settings.kv_heads, settings.head_dim),
            like=network.embed,
            token_width=8 * settings.hidden + 3 * network.parameters["0.gate_up"].shape[0],
        )
        self.can_truncate = settings.delta is None
        self.row_bytes = sum(int(state.nbytes) for state in self.new_states())
        self.weight_bytes = sum(int(tensor.nbytes) for tensor in network.parameters.values())
        self._cos, self._sin = rotary_table(settings, model.context_length, network.device)

    def new_states(self) -> list[Tensor]:
        """States and recent inputs of the recurrent layers: two tensors, or none."""
        from stcon.models.lean.cache import new_cache

        if self.network.settings.delta is None:
            return []
        empty = new_cache(self.network.settings, 1, 1, self.network.device, self.network.dtype)
        return [empty.states, empty.recent]

    def run(self, tokens: Sequence[int], step: PackedStep, wanted: Sequence[int]) -> Tensor:
        """See `PackedRows.run`."""
        import torch

        from stcon.models.lean import llama, qwen3_5

        network, settings = self.network, self.network.settings
        positions = torch.tensor(step.positions, dtype=torch.long)
        ops: Any = _Operations(step, self._cos[positions][None, :, None], self._sin[positions][None, :, None])
        heads = llama.heads(settings)
        x = torch.nn.functional.embedding(torch.tensor(list(tokens), dtype=torch.long), network.embed)
        place: Any = None  # the operations know where the rows stand
        attentions = deltas = 0
        for w, kind in zip(network.layers, settings.layers, strict=True):
            if kind == "attention":
                x = llama.attention(ops, w, x, heads, attentions, place)
                attentions += 1
            elif settings.delta is not None:
                x = qwen3_5.delta(ops, w, x, settings.delta, settings.eps, (deltas, None), place)
                deltas += 1
            x = llama.feed_forward(ops, w, x, settings.eps, place)
        last = x[torch.tensor(list(wanted), dtype=torch.long)]
        return ops.norm_linear(last, network.parameters["norm"], settings.eps, network.head, place, exact=True)


class _Operations:
    """The five operations over a packed step.

    Args:
        step: whose tokens they are.
        cos, sin: float32[1, M, 1, n], of each token's position.
    """

    def __init__(self, step: PackedStep, cos: Tensor, sin: Tensor) -> None:
        from stcon.models.lean import reference

        self._step = step
        self._cos, self._sin = cos, sin
        self._reference = reference
        self.norm_linear, self.linear_add, self.gate_up = reference.norm_linear, reference.linear_add, reference.gate_up

    def attend(self, qkv: Tensor, shape: Heads, norms: tuple[Tensor, Tensor] | None, layer: int, _: Any) -> Tensor:
        """`stcon.models.lean.reference.attend`, packed; `layer` in place of its cache."""
        ours, dim = self._reference, shape.dim
        num_q, num_kv = shape.heads * dim, shape.kv_heads * dim
        q, k, v, gates = qkv.split([num_q, num_kv, num_kv, qkv.shape[-1] - num_q - 2 * num_kv], -1)
        q, k, v = (part.unflatten(-1, (-1, dim)) for part in (q, k, v))
        if norms is not None:
            q, k = ours.rms_norm(q, norms[0], shape.eps), ours.rms_norm(k, norms[1], shape.eps)
        q, k = (ours.rotate(part[None], self._cos, self._sin)[0] for part in (q, k))
        mixed = self._step.attend(layer, q.contiguous(), k, v).reshape(len(qkv), num_q)
        return mixed * gates.sigmoid() if shape.gated else mixed

    def delta(
        self,
        mixed: Tensor,
        shape: Delta,
        weights: Mapping[str, Tensor],
        eps: float,
        layer: int,
        *_: Any,
    ) -> Tensor:
        """`stcon.models.lean.reference.delta`, row by row; `layer` in place of the state."""
        import torch

        parts = []
        for cache, count, stop in zip(self._step.caches, self._step.counts, self._step.ends, strict=True):
            state, recent = (tensor[layer] for tensor in cache.states)
            row = self._row(cache, count)
            parts.append(self._reference.delta(mixed[stop - count : stop], shape, weights, eps, state, recent, row))
        return torch.cat(parts)

    def _row(self, cache: RowCache, count: int) -> Any:
        """The step of one row alone."""
        import torch

        from stcon.models.lean.shapes import Step

        return Step(1, count, torch.tensor([cache.length], dtype=torch.int32), None, self._cos, self._sin)


def packed_lean(model: Any, num_rows: int = 16) -> PackedLean | None:
    """`model` as packed rows, or None if it is not a lean one on the CPU. Cost: five passes over a few tokens."""
    if type(model).__module__ != "stcon.models.lean.model" or not str(model.device).startswith("cpu"):
        return None
    rows = PackedLean(model, num_rows)
    return rows if agrees(rows) else None
