"""llguidance as the control of our own decode loop: the peer runs on the same model, kernels and sampler.

It gets what the paper's comparison gives it: its mask is computed while the model runs where the loop can do that
(`Step.later`), and with fast-forward the tokens that it says are forced are fed with the drawn one. Matchers are kept
from answer to answer, so that its lexer is warm.

Source: the paper's Tables 4 and 18.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.engine.control import Mode, Step
from stcon.errors import DecodingError

if TYPE_CHECKING:
    from stcon.engine.sampling import Int32
    from stcon.vocab.vocabulary import Vocabulary

# the spelling of our grammars' default, so that both engines write the same language
_COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


class Llguidance:
    """llguidance over a vocabulary: matchers of JSON Schemas without whitespace, as our grammars are.

    Raises:
        ImportError: llguidance is not installed (the extra ``bench``).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        from stcon.bench.masks_peers import Spelling

        wrapper = TokenizerWrapper(Spelling(vocabulary))
        self.vocabulary = vocabulary
        self._tokenizer = LLTokenizer(wrapper, n_vocab=vocabulary.size, eos_token=list(vocabulary.end_ids))
        self._matchers: dict[str, Any] = {}

    def matcher(self, schema: Mapping[str, Any]) -> Any:
        """A matcher at the start of an answer.

        Raises:
            DecodingError: it does not take the schema.
        """
        from llguidance import LLMatcher

        key = json.dumps(schema)
        matcher = self._matchers.get(key)
        if matcher is None:
            grammar = LLMatcher.grammar_from_json_schema(key, defaults=_COMPACT)
            matcher = self._matchers[key] = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise DecodingError(f"llguidance: {matcher.get_error()}")
        matcher.reset()
        return matcher


class LlguidanceControl:
    """llguidance as a `stcon.engine.control.Control`.

    Args:
        peer: makes the matcher.
        schema: what the answer must satisfy.
        forward: feed the tokens that it forces.
    """

    mode: Mode = "mask"

    def __init__(self, peer: Llguidance, schema: Mapping[str, Any], *, forward: bool) -> None:
        self.matcher = peer.matcher(schema)
        self.forward = forward
        self._words = np.zeros(peer.vocabulary.num_words, np.int32)

    def begin(self) -> Step:
        """What it forces at the start."""
        return self._step(())

    def choose(self, token: int) -> Step:
        """The token and what it forces after it."""
        self._consume([token])
        return self._step((token,))

    def need(self) -> None:
        """Not known."""

    def is_quiet(self, token: int | None) -> bool:
        """Never: its mask comes from the host."""
        return False

    def _step(self, tokens: tuple[int, ...]) -> Step:
        forced = self.matcher.compute_ff_tokens() if self.forward and not self.matcher.is_stopped() else []
        if forced:
            self._consume(forced)
        is_done = self.matcher.is_stopped()
        return Step((*tokens, *forced), is_done=is_done, later=None if is_done else self._mask)

    def _consume(self, tokens: list[int]) -> None:
        if not self.matcher.consume_tokens(tokens):
            raise DecodingError(f"llguidance: {self.matcher.get_error()}")

    def _mask(self) -> Int32:
        self.matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        return self._words
