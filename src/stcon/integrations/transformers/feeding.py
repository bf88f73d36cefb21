"""How rows' tokens get into a user's model and its cache: exactly, or one token a pass where more cannot be exact.

A pass takes from every row what it has pending:

- **one row**: all of it, if every layer of the cache keeps its past by position (`SPANS`); else one token a pass;
- **several rows**: all of it, behind gaps that are masked out from then on, so that all rows end in the same column, if
  every layer is plain full attention in a growing cache; else one token of each row a pass, which makes no gaps. A
  cache of fixed size has no room for gaps, a sliding window counts them, and a recurrent layer reads them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.integrations.transformers.rows import ForcedRow

Tensor = Any

# cache layers in which a span of tokens gives what its tokens give one by one
SPANS = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer", "StaticLayer"})
GAPS = frozenset({"DynamicLayer"})

_CACHES = ("cache", "past_key_values", "cache_params")
_KEEPS = ("logits_to_keep", "num_logits_to_keep")
_KNOWN = frozenset({*_CACHES, *_KEEPS, "attention_mask", "position_ids", "use_cache", "cache_position"})


class Feeder:
    """A model, a cache, and the rows in it.

    Args:
        network: the causal LM.
        input_ids: int64[R, N], the prompts, padded on the left.
        options: what ``generate`` prepared for the model: cache, attention mask and the like.
        mask_length: columns that an attention mask had, where all of it was ones and it was left out.
        pad: the id that fills gaps; what is computed from it is never read.

    Attributes:
        cache: as the last pass left it.
        takes_spans: whether a pass may take several tokens of a row.

    Raises:
        InvalidOption: the model has inputs besides text, positions of its own, or no cache.
    """

    def __init__(
        self, network: Any, input_ids: Tensor, options: Mapping[str, Any], *, mask_length: int | None, pad: int
    ) -> None:
        _refuse_inputs(options)
        self.network = network
        self._parameters = inspect.signature(network.forward).parameters
        self.cache_name = next((name for name in _CACHES if options.get(name) is not None), "")
        if not self.cache_name:
            raise InvalidOption(
                f"a {type(network).__name__} has no cache here (use_cache=False, or one that generate does not make); "
                "use Constrained(…, mode='mask')"
            )
        self.cache = options[self.cache_name]
        self._pad = pad
        self._device = input_ids.device
        self._length = past = int(self.cache.get_seq_length())
        mask = options.get("attention_mask")
        whole = (mask_length or input_ids.shape[1]) if mask is None else mask.shape[1]
        # the whole text was given, or what follows the cache alone: generate tells them apart in the same way
        self._prompt = input_ids[:, past:] if whole == input_ids.shape[1] else input_ids
        if mask is None and len(input_ids) > 1:
            mask = input_ids.new_ones((len(input_ids), whole))
        self._columns = None if mask is None else mask.to(self._device)
        self._uses_positions = "position_ids" in self._parameters
        _check_positions(options.get("position_ids"), self._columns)
        kinds = {type(layer).__name__ for layer in getattr(self.cache, "layers", ())}
        one = len(input_ids) == 1
        self.takes_spans = bool(kinds) and kinds <= (SPANS if one else GAPS) and (one or self._uses_positions)

    def prompt(self, rows: Sequence[ForcedRow]) -> Tensor:
        """Feed the prompts, and with them what `rows` have pending if spans are taken.

        Returns:
            float[R, V or more], the logits after each row's last token.
        """
        import torch

        if not self.takes_spans or not any(row.pending for row in rows):
            return self._forward(self._prompt)
        span, real = self._span(rows)
        if self._columns is None:
            return self._forward(torch.cat([self._prompt, span], dim=1))
        # gaps go before the prompts, so that a row with nothing pending ends in the last column as well
        width = self._prompt.shape[1]
        before = self._columns[:, -width:].to(real.dtype)
        num_gaps = (real == 0).sum(1).tolist()
        self._columns = torch.cat([self._columns[:, :-width].to(real.dtype), _inside(real, before, num_gaps)], dim=1)
        return self._forward(_inside(span, self._prompt, num_gaps))

    def feed(self, rows: Sequence[ForcedRow]) -> Tensor:
        """Feed what `rows` have pending, or one token of each (see the module). Returns as `prompt` does."""
        span, real = self._span(rows)
        self._add_columns(real)
        return self._forward(span)

    def _span(self, rows: Sequence[ForcedRow]) -> tuple[Tensor, Tensor]:
        """The next tokens of all rows, ending in the same column, and which of them are no gaps: int64[R, S] both."""
        import torch

        parts = []
        for row in rows:
            count = len(row.pending) if self.takes_spans else 1
            parts.append(row.pending[:count])
            del row.pending[:count]
        width = max(map(len, parts))
        span = [[self._pad] * (width - len(part)) + part for part in parts]
        # without gaps, a row that is done reads what fills it like any other
        real = [[0] * (width - len(part)) + [1] * len(part) if self.takes_spans else [1] for part in parts]
        return torch.tensor(span, device=self._device), torch.tensor(real, device=self._device)

    def _add_columns(self, real: Tensor) -> None:
        import torch

        if self._columns is not None:
            self._columns = torch.cat([self._columns.to(real.dtype), real], dim=1)

    def _forward(self, tokens: Tensor) -> Tensor:
        import torch

        options: dict[str, Any] = {self.cache_name: self.cache, "use_cache": True}
        if self._columns is not None:
            options["attention_mask"] = self._columns
            if self._uses_positions:
                options["position_ids"] = _positions(self._columns)[:, -tokens.shape[1] :]
        options.update({name: 1 for name in _KEEPS if name in self._parameters})
        if "cache_position" in self._parameters:  # older versions, whose fixed caches cannot tell padding from nothing
            options["cache_position"] = torch.arange(tokens.shape[1], device=self.network.device) + self._length
        self._length += tokens.shape[1]
        output = self.network(input_ids=tokens.to(self.network.device), return_dict=True, **options)
        after = getattr(output, self.cache_name, None)
        self.cache = self.cache if after is None else after
        return output.logits[:, -1]


def _inside(outer: Tensor, inner: Tensor, at: Sequence[int]) -> Tensor:
    """`outer` with `inner` put in, row by row, before the column that `at` names."""
    import torch

    rows = zip(outer, inner, at, strict=True)
    return torch.stack([torch.cat([row[:column], part, row[column:]]) for row, part, column in rows])


def _positions(columns: Tensor) -> Tensor:
    """The position of every column: the columns of its row before it that are no gaps."""
    return (columns.long().cumsum(-1) - 1).clamp(min=0)


def _refuse_inputs(options: Mapping[str, Any]) -> None:
    others = sorted(name for name, value in options.items() if name not in _KNOWN and value is not None)
    if others:
        raise InvalidOption(
            f"forced text is written for inputs of text alone, and not with {', '.join(others)}; "
            "use Constrained(…, mode='mask')"
        )


def _check_positions(given: Tensor | None, columns: Tensor | None) -> None:
    """Raise `InvalidOption` for positions that do not follow from the attention mask."""
    import torch

    if given is None:
        return
    if given.dim() == 2:
        if columns is None:
            columns = torch.ones_like(given)
            wanted = _positions(columns) + given[:, :1]
        else:
            wanted = _positions(columns)[:, -given.shape[1] :]
            columns = columns[:, -given.shape[1] :]
        if torch.equal(torch.where(columns.bool(), wanted, 0), torch.where(columns.bool(), given, 0)):
            return
    raise InvalidOption("forced text is not written with position_ids of one's own; use Constrained(…, mode='mask')")
