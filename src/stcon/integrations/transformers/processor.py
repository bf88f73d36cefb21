"""`GrammarProcessor`: a ``LogitsProcessor`` under which ``generate`` writes only what a grammar admits.

It finds out by itself which row is which (`stcon.integrations.prefixes`): greedy search and sampling, beams, several
sequences a prompt, left padding, assisted generation and prompt lookup all work. It asks the model for every token;
`stcon.integrations.transformers.Constrained` also saves passes.

**One output each.** A processor belongs to one call of ``generate``. Called with another prompt it starts anew; text
that goes on after an output it has seen is the one thing it cannot tell from that output, so call `reset` before a
next turn of a conversation, or make a new one: making one costs microseconds once the grammar is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from stcon.errors import DecodingError, InvalidOption
from stcon.integrations.prefixes import Prefixes, Row
from stcon.integrations.transformers.masks import Mask, Masks, masks_for
from stcon.vocab.shared import vocabulary_of

if TYPE_CHECKING:
    import torch

    from stcon.grammar.grammar import Grammar


class GrammarProcessor:
    """Masks scores; put it into ``generate(logits_processor=[…])``.

    Args:
        grammar: what every output must be, or one for each prompt of the batch (None: that prompt is free).
        tokenizer: the model's fast tokenizer, or its `Vocabulary`.
        max_new_tokens: the same as in ``generate``; outputs are complete within it. None: ``generate`` may cut them.
        eos_token_id: the tokens at which ``generate`` stops, where they are not the tokenizer's own; give
            ``model.generation_config.eos_token_id``.
        masks: applies the masks; None: by where the scores are.

    Raises:
        LimitTooSmall: no text of a grammar has so few tokens.
        ModelUnavailable: the tokenizer's tokens have no exact bytes.
    """

    supports_continuous_batching = False

    def __init__(
        self,
        grammar: Grammar | Sequence[Grammar | None],
        tokenizer: Any,
        max_new_tokens: int | None = None,
        *,
        eos_token_id: int | Sequence[int] | None = None,
        masks: Masks | None = None,
    ) -> None:
        grammars = tuple(grammar) if isinstance(grammar, Sequence) else (grammar,)
        self.vocabulary = vocabulary_of(tokenizer, eos_token_id)
        ends = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id or ())
        if not ends:
            own = getattr(tokenizer, "eos_token_id", None)
            ends = [] if own is None else [own]
        self.prefixes = Prefixes(grammars, self.vocabulary, max_new_tokens, ends)
        self._masks = masks
        self._prompt: torch.Tensor | None = None
        self._longest = 0

    def reset(self) -> None:
        """Start anew: the next call is the first of another ``generate``."""
        self._prompt = None
        self.prefixes.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask the scores of the next tokens.

        Args:
            input_ids: int64[R, N], prompts (padded on the left) and outputs so far.
            scores: float[R, V or more].

        Returns:
            A masked copy.

        Raises:
            DecodingError: what the grammar admits next is forbidden by other processors.
            InvalidOption: the rows are no multiple of the grammars, or `input_ids` skips tokens.
        """
        outputs = input_ids[:, self._begin(input_ids) :].tolist()
        rows = self.prefixes.follow(outputs)
        if self._masks is None:
            self._masks = masks_for(self.vocabulary, scores.device, len(rows))
        masked: torch.Tensor = self._masks.apply([self._mask(row) for row in rows], scores)
        _check(masked, rows)
        return masked

    def _mask(self, row: Row) -> Mask:
        if row.matcher is None:
            return Mask(None)
        words = partial(self.prefixes.mask, row)
        place = self.prefixes.place(row)
        return Mask(words) if place is None else Mask(words, *place)

    def _begin(self, input_ids: torch.Tensor) -> int:
        """Where outputs begin; a new prompt is taken as such."""
        import torch

        prompt, length = self._prompt, int(input_ids.shape[1])
        if prompt is not None:
            begin = int(prompt.shape[1])
            is_known = length >= begin and len(prompt) == len(input_ids)
            if is_known and torch.equal(prompt, input_ids[:, :begin].to(prompt.device)):
                if length > self._longest + 1:
                    raise InvalidOption(
                        f"the input grew by {length - self._longest} tokens since the last call: a processor is for "
                        "one generate; make a new one, or call reset() before"
                    )
                self._longest = max(self._longest, length)
                return begin
            self.reset()
        self._prompt, self._longest = input_ids.clone(), length
        return length


def _check(masked: torch.Tensor, rows: Sequence[Row]) -> None:
    """Raise `DecodingError` if a row that goes on has no token left: another processor took what the grammar admits."""
    import torch

    dead = torch.isneginf(masked.amax(-1)).tolist()
    for number, (row, is_dead) in enumerate(zip(rows, dead, strict=True)):
        if is_dead and row.matcher is not None and not row.is_over:
            raise nothing_left(number)


def nothing_left(number: int) -> DecodingError:
    """What to say where no token of row `number` has a finite score."""
    return DecodingError(
        f"row {number}: every token that the grammar admits has score -inf; another processor or option "
        "(min_new_tokens, bad_words_ids, suppress_tokens …) forbids it: leave that out"
    )
