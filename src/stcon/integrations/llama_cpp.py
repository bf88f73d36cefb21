"""stcon inside llama-cpp-python's own loop: ``Llama.create_completion``, ``create_chat_completion`` and ``generate``.

::

    from stcon.integrations.llama_cpp import constrained

    llm.create_completion(prompt, **constrained(llm, grammar, max_tokens=200))
    llm.create_chat_completion(messages, **constrained(llm, grammar, max_tokens=200, chat=True))

`constrained` gives the options ``max_tokens``, ``logits_processor`` and ``stopping_criteria``. The processor masks; the
criteria only pass errors on: llama-cpp-python calls processors from C, where exceptions are printed and dropped, so an
error makes the processor admit an end token alone, and is raised right after that was drawn. Chat completions take no
criteria: there an error is a warning, and the message ends early.

Every token is asked for. The engine on the same file (``stcon.load_model(path, runner="llama.cpp")``) also writes
forced text in one pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stcon.engine.sampling import unpack_bitmask
from stcon.errors import DecodingError, InvalidOption
from stcon.integrations.prefixes import Prefixes

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

Float32 = NDArray[np.float32]
Ids = NDArray[np.intc]


class GrammarProcessor:
    """A logits processor for one call of llama-cpp-python; `constrained` makes one.

    Args:
        grammar: what the output must be.
        vocabulary: the model's (`vocabulary_of`).
        max_tokens: the same as in the call; the output is complete within it. None: it may be cut.

    Attributes:
        error: what went wrong; the output is not to be used.

    Raises:
        LimitTooSmall: no text of the grammar has so few tokens.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary, max_tokens: int | None = None) -> None:
        self.vocabulary = vocabulary
        self.prefixes = Prefixes([grammar], vocabulary, max_tokens)
        self.error: Exception | None = None
        self._prompt: list[int] | None = None

    def __call__(self, input_ids: Ids, scores: Float32) -> Float32:
        """Mask `scores` (float32[V], in the order of ids) after `input_ids`, prompt and output so far."""
        try:
            words = self.prefixes.mask(self.prefixes.follow([self._output(input_ids.tolist())])[0])
            masked = np.where(unpack_bitmask(words, len(scores)), scores, np.float32(-np.inf))
            if np.isneginf(masked).all():
                raise DecodingError("every token that the grammar admits has score -inf; leave out other processors")
            return masked
        except Exception as error:  # see the module
            self.error = error
            warnings.warn(f"the output is cut short: {error}", RuntimeWarning, stacklevel=2)
            ends = np.full(len(scores), -np.inf, np.float32)
            ends[list(self.vocabulary.end_ids)] = 0
            return ends

    def check(self, input_ids: Ids, scores: Float32) -> bool:
        """A stopping criterion that never stops, and raises the error that the processor could not raise."""
        if self.error is not None:
            raise self.error
        return False

    def _output(self, tokens: Sequence[int]) -> list[int]:
        """The tokens after the prompt, which is what the first call had."""
        if self._prompt is None:
            self._prompt = list(tokens)
        begin = len(self._prompt)
        if list(tokens[:begin]) != self._prompt:
            raise InvalidOption("a processor is for one call; make a new one with constrained(…)")
        return list(tokens[begin:])


def constrained(
    llm: Any, grammar: Grammar, max_tokens: int = 256, *, budget: bool = True, chat: bool = False
) -> dict[str, Any]:
    """The options that constrain one call of `llm`.

    Args:
        llm: a ``llama_cpp.Llama``.
        grammar: what the output must be.
        max_tokens: limit of the output; it is complete within it.
        budget: False: it may be cut there.
        chat: for ``create_chat_completion``, which takes no stopping criteria.

    Raises:
        LimitTooSmall: no text of the grammar has so few tokens.
        InvalidOption: `llm` has a draft model, whose drafts llama-cpp-python shows to processors as if they were text.
    """
    from llama_cpp import LogitsProcessorList, StoppingCriteriaList

    if getattr(llm, "draft_model", None) is not None:
        raise InvalidOption("llama-cpp-python does not tell processors which tokens are drafts; leave draft_model out")
    processor = GrammarProcessor(grammar, vocabulary_of(llm), max_tokens if budget else None)
    options = {"max_tokens": max_tokens, "logits_processor": LogitsProcessorList([processor])}
    if not chat:
        options["stopping_criteria"] = StoppingCriteriaList([processor.check])
    return options


def vocabulary_of(llm: Any) -> Vocabulary:
    """The vocabulary of the file that `llm` was loaded from, read once."""
    from llama_cpp import llama_cpp

    vocab = llama_cpp.llama_model_get_vocab(llm.model)
    size = int(llm.n_vocab())
    return _read(str(llm.model_path), size, tuple(t for t in range(size) if llama_cpp.llama_vocab_is_eog(vocab, t)))


@lru_cache(maxsize=8)
def _read(path: str, size: int, end_ids: tuple[int, ...]) -> Vocabulary:
    from stcon.vocab.vocabulary import Vocabulary

    return Vocabulary.from_gguf(path, size=size, end_ids=end_ids)
