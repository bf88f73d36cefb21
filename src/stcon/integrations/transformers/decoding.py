"""The loop behind `Constrained`: feed, mask, let the user's processors work, draw, emit what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stcon.engine.output import MAX_REDRAWS
from stcon.integrations.transformers.masks import Masks, masks_for
from stcon.integrations.transformers.processor import nothing_left

if TYPE_CHECKING:
    from stcon.integrations.transformers.feeding import Feeder
    from stcon.integrations.transformers.rows import ForcedRow
    from stcon.vocab.vocabulary import Vocabulary

Tensor = Any


class Decoding:
    """One call of ``generate``.

    Args:
        feeder: model and cache.
        input_ids: int64[R, N], the prompts.
        vocabulary: the model's.
        processors: the library's and the user's; they see masked scores.
        config: the generation config.
        pad: fills rows that end before others.
        streamer: gets the tokens of the one row; None: nobody does.

    Attributes:
        passes: made so far.
    """

    def __init__(
        self,
        feeder: Feeder,
        input_ids: Tensor,
        vocabulary: Vocabulary,
        processors: Any,
        config: Any,
        *,
        pad: int,
        streamer: Any = None,
    ) -> None:
        self.passes = 0
        self._feeder = feeder
        self._prompt = input_ids
        self._processors = processors
        self._config = config
        self._pad = pad
        self._streamer = streamer
        self._num_streamed = 0
        self._masks: Masks = masks_for(vocabulary, input_ids.device, len(input_ids))
        self._keeps_scores = bool(config.return_dict_in_generate and config.output_scores)
        self._scores: list[list[Tensor]] = [[] for _ in range(len(input_ids))]

    def run(self, rows: Sequence[ForcedRow]) -> Any:
        """Decode all rows to their ends; what ``generate`` returns."""
        for row in rows:
            row.begin()
        self._stream(rows)
        feed = self._feeder.prompt
        while not all(row.is_done for row in rows):
            logits = feed(rows).to(self._prompt.device)
            self.passes += 1
            feed = self._feeder.feed
            ready = [row for row in rows if not row.is_done and not row.pending]
            if ready:
                self._draw(ready, logits.float())
                self._stream(rows)
        if self._streamer is not None:
            self._streamer.end()
        return self._result(rows)

    def stops(self, criteria: Any) -> Callable[[ForcedRow], bool]:
        """Whether the user's stopping criteria end a row; its length and its end tokens are counted elsewhere."""
        from transformers import MaxLengthCriteria, StoppingCriteriaList
        from transformers.generation import EosTokenCriteria

        own = (MaxLengthCriteria, EosTokenCriteria)
        others = StoppingCriteriaList(criterion for criterion in criteria if not isinstance(criterion, own))
        return lambda row: bool(others) and bool(others(self._ids(row), None).all())

    # ------------------------------------------------------------------------------------------------- drawing

    def _draw(self, rows: Sequence[ForcedRow], logits: Tensor) -> None:
        """Draw a token for each of `rows` and emit it."""
        raw = logits[[row.number for row in rows]]
        scores = self._processed(rows, self._masks.apply([row.mask for row in rows], raw))
        for index, (row, first) in enumerate(zip(rows, self._picked(rows, scores), strict=True)):
            token, final = first, scores[index]
            if not row.fits(token):
                token, final = self._draw_within(row, raw[index : index + 1])
            if self._keeps_scores:
                self._scores[row.number].append(final)
            row.take(token)

    def _draw_within(self, row: ForcedRow, raw: Tensor) -> tuple[int, Tensor]:
        """A token behind which a completion fits, and the scores it was drawn from."""
        scores = self._processed([row], self._masks.apply([row.mask_within(certain=False)], raw))
        for _ in range(MAX_REDRAWS):
            if not scores.isneginf().all():
                (token,) = self._picked([row], scores)
                if row.fits(token):
                    return token, scores[0]
                scores[0, token] = -float("inf")
        scores = self._processed([row], self._masks.apply([row.mask_within(certain=True)], raw))
        return self._picked([row], scores)[0], scores[0]

    def _processed(self, rows: Sequence[ForcedRow], scores: Tensor) -> Tensor:
        """`scores` after the processors, which may not bring back what is masked: some set scores anew."""
        import torch

        if not self._processors:
            return scores
        # one by one: rows are not equally long
        parts = [self._processors(self._ids(row), scores[i : i + 1].clone()) for i, row in enumerate(rows)]
        return torch.cat(parts).masked_fill(scores.isneginf(), -float("inf"))

    def _picked(self, rows: Sequence[ForcedRow], scores: Tensor) -> list[int]:
        """A token for each row of `scores`."""
        import torch

        for row, is_dead in zip(rows, scores.amax(-1).isneginf().tolist(), strict=True):
            if is_dead:
                raise nothing_left(row.number)
        if self._config.do_sample:
            drawn = torch.multinomial(torch.softmax(scores, dim=-1), num_samples=1)[:, 0]
        else:
            drawn = scores.argmax(-1)
        tokens: list[int] = drawn.tolist()
        return tokens

    # ------------------------------------------------------------------------------------------------- output

    def _ids(self, row: ForcedRow) -> Tensor:
        """int64[1, N + tokens]: prompt and output of a row."""
        import torch

        prompt = self._prompt[row.number : row.number + 1]
        return torch.cat([prompt, prompt.new_tensor([row.tokens])], dim=1)

    def _stream(self, rows: Sequence[ForcedRow]) -> None:
        import torch

        if self._streamer is not None:
            for token in rows[0].tokens[self._num_streamed :]:
                self._streamer.put(torch.tensor([token]))
            self._num_streamed = len(rows[0].tokens)

    def _result(self, rows: Sequence[ForcedRow]) -> Any:
        import torch

        width = max(len(row.tokens) for row in rows)
        padded = [row.tokens + [self._pad] * (width - len(row.tokens)) for row in rows]
        sequences = torch.cat([self._prompt, self._prompt.new_tensor(padded)], dim=1)
        if not self._config.return_dict_in_generate:
            return sequences
        from transformers.generation import GenerateDecoderOnlyOutput

        # the columns of several rows' cache are not those of the sequences
        kept = self._feeder.cache if len(rows) == 1 else None
        scores = tuple(self._column(rows, index) for index in range(width)) if self._keeps_scores else None
        fields = GenerateDecoderOnlyOutput.__dataclass_fields__
        name = next(name for name in ("cache", "past_key_values") if name in fields)
        return GenerateDecoderOnlyOutput(sequences=sequences, scores=scores, **{name: kept})

    def _column(self, rows: Sequence[ForcedRow], index: int) -> Tensor:
        """float32[R, V]: the scores of the tokens in one column; a forced token has score 0, and all others -inf."""
        import torch

        width = self._width()
        column = torch.full((len(rows), width), -torch.inf, device=self._prompt.device)
        for number, row in enumerate(rows):
            if index >= len(row.tokens):
                column[number, self._pad] = 0
            elif row.drawn[index]:
                column[number] = self._scores[number][sum(row.drawn[:index])]
            else:
                column[number, row.tokens[index]] = 0
        return column

    def _width(self) -> int:
        drawn = next((scores[0] for scores in self._scores if scores), None)
        return int(self._feeder.network.config.get_text_config().vocab_size if drawn is None else len(drawn))


def token_ids(config: Any, name: str) -> tuple[int, ...]:
    """The end (``"eos"``) or padding (``"pad"``) tokens of a generation config that ``generate`` has prepared."""
    value = getattr(config, f"_{name}_token_tensor", None)
    if value is None:
        value = getattr(config, f"{name}_token_id", None)
    if value is None:
        return ()
    values = value.tolist() if hasattr(value, "tolist") else value
    return tuple(values) if isinstance(values, list | tuple) else (values,)
