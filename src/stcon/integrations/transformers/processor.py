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
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption
from stcon.integrations.prefixes import Prefixes
from stcon.integrations.transformers.masks import Masks, check_scores, masks_for
from stcon.integrations.transformers.vocabulary import vocabulary_of

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
        masked = self._masks.apply(self.prefixes, rows, scores)
        check_scores(masked, rows)
        return masked

    def _begin(self, input_ids: torch.Tensor) -> int:
        """Where outputs begin; a new prompt is taken as such."""
        import torch

        prompt, length = self._prompt, input_ids.shape[1]
        if prompt is not None:
            begin = prompt.shape[1]
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
