"""A logits processor of mlx-lm: ``(tokens[T], logits[1, V]) → logits``.

mlx-lm runs it one step ahead of what it yields, also behind the last token and behind an end token: there only end
tokens are admitted, so that nothing is asked of a grammar that has ended. Reading `tokens` waits for the step before,
which is the price of a mask that depends on it. On a GPU the mask itself is walked there, where the machine alone
decides (`stcon.integrations.mlx_lm.masks`); else the host's is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.engine.sampling import unpack_bitmask
from stcon.errors import DecodingError, InvalidOption
from stcon.integrations.prefixes import Prefixes

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.integrations.mlx_lm.masks import DeviceMasks
    from stcon.vocab.vocabulary import Vocabulary


class GrammarProcessor:
    """Masks one output; make a new one for each.

    Args:
        grammar: what the output must be.
        vocabulary: the model's (`vocabulary_of`).
        max_tokens: the same as in the call; the output is complete within it. None: it may be cut.
        prompt_tokens: length of the prompt; None: all that the first call is shown.
        end_ids: the tokens at which the loop stops; None: all of the vocabulary's. Others that a tokenizer has would be
            written as text.
        masks: of the device; None: those of the GPU on which mlx computes, if it does.

    Raises:
        LimitTooSmall: no text of the grammar has so few tokens.
    """

    def __init__(
        self,
        grammar: Grammar,
        vocabulary: Vocabulary,
        max_tokens: int | None = None,
        *,
        prompt_tokens: int | None = None,
        end_ids: Sequence[int] | None = None,
        masks: DeviceMasks | None = None,
    ) -> None:
        from stcon.integrations.mlx_lm.masks import device_masks

        self.prefixes = Prefixes([grammar], vocabulary, max_tokens, end_ids)
        self._masks = masks or device_masks(vocabulary)
        self._prompt_tokens = prompt_tokens

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Mask `logits` (mlx float array [1, V]) after `tokens` (mlx int array [T]), prompt and output so far.

        Raises:
            DecodingError: the grammar admits no token.
            InvalidOption: it was used for another output before.
        """
        import mlx.core as mx

        seen = tokens.tolist()
        if self._prompt_tokens is None:
            self._prompt_tokens = len(seen)
        if len(seen) < self._prompt_tokens:
            raise InvalidOption("a processor is for one output; make a new one with constrained(…)")
        [row] = self.prefixes.follow([seen[self._prompt_tokens :]])
        masks = self._masks if logits.shape[-1] >= self.prefixes.vocabulary.size else None
        if masks and (place := self.prefixes.place(row)) is not None:
            return masks.apply(*place, logits)
        allowed = mx.array(unpack_bitmask(self.prefixes.mask(row), logits.shape[-1]))
        return mx.where(allowed, logits, mx.array(-np.inf, logits.dtype))


def constrained(tokenizer: Any, grammar: Grammar, max_tokens: int = 256, *, budget: bool = True) -> dict[str, Any]:
    """The options that constrain one call of ``mlx_lm.generate`` or ``stream_generate``.

    Args:
        tokenizer: what ``mlx_lm.load`` gave.
        grammar: what the output must be.
        max_tokens: limit of the output; it is complete within it.
        budget: False: it may be cut there.

    Raises:
        LimitTooSmall: no text of the grammar has so few tokens.
    """
    limit = max_tokens if budget else None
    processor = GrammarProcessor(grammar, vocabulary_of(tokenizer), limit, end_ids=ends_of(tokenizer))
    return {"max_tokens": max_tokens, "logits_processors": [processor]}


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of an mlx-lm tokenizer, with the end tokens at which mlx-lm stops.

    Cost: seconds for a large one, the first time.

    Raises:
        DecodingError: the tokenizer names no end token.
    """
    return _vocabulary(tokenizer._tokenizer, ends_of(tokenizer))


def ends_of(tokenizer: Any) -> tuple[int, ...]:
    """The tokens at which mlx-lm stops. Raises `DecodingError` where there is none."""
    ends = tuple(sorted(int(token) for token in tokenizer.eos_token_ids))
    if not ends:
        raise DecodingError("this tokenizer names no end token, so no output could end")
    return ends


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: Any, ends: tuple[int, ...]) -> Vocabulary:
    from stcon.vocab.vocabulary import Vocabulary

    return Vocabulary.from_tokenizer(tokenizer, size=max(len(tokenizer), max(ends) + 1), end_ids=ends)
