"""A GGUF model of llama.cpp as the engine's `Model`: forced spans are one decode call, copies share cells.

Token bytes come from the file's own vocabulary (`stcon.vocab.gguf`), end tokens from there and from llama.cpp.

**Arithmetic.** llama.cpp multiplies quantised weights with quantised activations, by other kernels for one token than
for several. So its outputs are not those of our runners on the same file, and a span fed at once may differ from its
tokens fed one by one where two logits are nearly equal. Validity depends on none of this.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stcon.models.base import Float32, Model, Session, check_append, check_truncate
from stcon.models.llama_cpp.context import LlamaContext, LlamaWeights, Part

if TYPE_CHECKING:
    from stcon.models.text import PromptText
    from stcon.vocab.vocabulary import Vocabulary

DEFAULT_CONTEXT = 8_192
DEFAULT_SEQUENCES = 32


class LlamaCppModel(Model):
    """A GGUF file.

    Args:
        path: the file.
        gpu_layers: layers to keep on a GPU; -1 for all, 0 for none. Without effect in builds without a GPU.
        context_length: tokens of the memory that all sessions share; None: what the model was made for, at most
            `DEFAULT_CONTEXT`.
        num_sequences: most sessions at a time.
        num_threads: of a decode call; 0: llama.cpp's own choice.

    Raises:
        ModelUnavailable: llama-cpp-python is missing, or the file is none that it loads.
    """

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int = -1,
        context_length: int | None = None,
        num_sequences: int = DEFAULT_SEQUENCES,
        num_threads: int = 0,
    ) -> None:
        from stcon.models import text
        from stcon.vocab.vocabulary import Vocabulary

        self.text: PromptText = text.from_gguf(path)  # first, so that a broken file ends here
        self.weights = LlamaWeights(path, gpu_layers)
        self.vocabulary: Vocabulary = Vocabulary.from_gguf(
            path, size=self.weights.vocab_size, end_ids=self.weights.end_ids()
        )
        self.name = path.stem
        self.num_threads = num_threads
        self.num_sequences = num_sequences
        self.context_length = context_length or min(self.weights.train_tokens, DEFAULT_CONTEXT)

    @cached_property
    def context(self) -> LlamaContext:
        """The memory of sessions, made when first asked for."""
        return LlamaContext(self.weights, self.context_length, self.num_sequences, self.num_threads)

    @property
    def chat_template(self) -> str | None:
        """The template in the file."""
        return self.text.chat_template

    def special_names(self) -> Mapping[str, str]:
        """See `Model.special_names`."""
        return self.text.special_names

    def encode_prompt(self, text: str) -> list[int]:
        """See `Model.encode_prompt`."""
        return self.text.encode(text)

    def raw_prompt_ids(self, text: str) -> list[int]:
        """See `Model.raw_prompt_ids`."""
        return self.text.encode_raw(text)

    def session(self) -> LlamaCppSession:
        """A new, empty session. Raises `NoRoom` if `num_sequences` are in use."""
        return LlamaCppSession(self)


class LlamaCppSession(Session):
    """A sequence of the model's context; given back when nobody holds the session any more."""

    def __init__(self, model: LlamaCppModel) -> None:
        self.model = model
        self._context = model.context
        self._sequence = self._context.take()
        self._length = 0
        weakref.finalize(self, self._context.release, self._sequence)

    @property
    def length(self) -> int:
        """Tokens in the sequence."""
        return self._length

    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """See `Session.append`. Raises `NoRoom` where other sessions have taken the memory."""
        check_append(self, tokens, self.model.context_length)
        wanted = range(len(tokens)) if all_positions else (len(tokens) - 1,)
        rows = self._context.decode([Part(self._sequence, self._length, tokens, wanted)])
        self._length += len(tokens)
        return np.stack(rows) if all_positions else rows[0]

    @property
    def can_truncate(self) -> bool:
        """Unless some layers are recurrent."""
        return not self.model.weights.is_recurrent

    def truncate(self, length: int) -> None:
        """See `Session.truncate`."""
        if length == self._length:
            return
        check_truncate(self, length)
        if not self._context.cut(self._sequence, length):
            raise NotImplementedError("this model's memory cannot go back; keep a copy of the session instead")
        self._length = length

    def copy(self) -> LlamaCppSession:
        """See `Session.copy`. Cost: none a token, for attention."""
        other = LlamaCppSession(self.model)
        if self._length:
            self._context.copy(self._sequence, other._sequence)
        other._length = self._length
        return other
