"""A causal language model of mlx-lm as the engine's `Model`.

A pass over S tokens is one call; a prompt is fed in chunks, each evaluated before the next, so that memory is bounded.
mlx is lazy: the logits of a chunk that nobody reads are never computed.

**Recurrent layers** (Qwen3.5, Qwen3-Next): a session is copied where others are cut back (`stcon.models.mlx.caches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.models.base import Float32, Model, Session, check_append, check_truncate
from stcon.models.mlx import caches

if TYPE_CHECKING:
    from stcon.models.text import PromptText
    from stcon.vocab.vocabulary import Vocabulary

DEFAULT_CHUNK = 512
UNKNOWN_CONTEXT = 1 << 20


class MlxModel(Model):
    """A loaded model; `stcon.models.mlx.load` makes one from a folder, a GGUF file or a hub id.

    Args:
        network: mlx-lm's module: ``network(tokens[1, S], cache=…)`` gives logits[1, S, V].
        vocabulary: its tokens.
        text: how its prompts are written.
        name: for people.
        context_length: most tokens of a session.
        chunk: most tokens of one call.
    """

    def __init__(
        self,
        network: Any,
        vocabulary: Vocabulary,
        text: PromptText,
        *,
        name: str,
        context_length: int = UNKNOWN_CONTEXT,
        chunk: int = DEFAULT_CHUNK,
    ) -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.text = text
        self.name = name
        self.context_length = context_length
        self.chunk = chunk

    @property
    def chat_template(self) -> str | None:
        """The template of the tokenizer or of the GGUF file."""
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

    def session(self) -> MlxSession:
        """A new, empty session."""
        return MlxSession(self, self.new_cache())

    def new_cache(self) -> list[Any]:
        """A cache a layer, empty."""
        from mlx_lm.models.cache import make_prompt_cache

        return list(make_prompt_cache(self.network))

    def forward(self, tokens: Any, cache: Sequence[Any]) -> Any:
        """Logits [B, S, V] after each of `tokens` (mlx int array [B, S]), not computed yet; `cache` holds them then."""
        return self.network(tokens, cache=cache)


class MlxSession(Session):
    """One stream's caches.

    Args:
        model: its model.
        cache: a cache a layer.
        length: tokens they hold.
    """

    def __init__(self, model: MlxModel, cache: list[Any], length: int = 0) -> None:
        self.model = model
        self.cache = cache
        self._length = length

    @property
    def length(self) -> int:
        """See `Session.length`."""
        return self._length

    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """See `Session.append`. Cost: one call a chunk."""
        import mlx.core as mx

        check_append(self, tokens, self.model.context_length)
        found = []
        for first in range(0, len(tokens), self.model.chunk):
            part = tokens[first : first + self.model.chunk]
            logits = self.model.forward(mx.array([list(part)]), self.cache)[0]
            self._length += len(part)
            if all_positions:
                found.append(to_float32(logits))
            elif first + len(part) == len(tokens):
                return to_float32(logits[-1])
            else:
                mx.eval(caches.arrays(self.cache))
        return np.concatenate(found)

    @property
    def can_truncate(self) -> bool:
        """See `Session.can_truncate`."""
        return caches.can_trim(self.cache)

    def truncate(self, length: int) -> None:
        """See `Session.truncate`."""
        check_truncate(self, length)
        caches.trim(self.cache, self._length - length)
        self._length = length

    def copy(self) -> MlxSession:
        """See `Session.copy`. Cost: none until one of the two goes on."""
        return MlxSession(self.model, [caches.copied(cache) for cache in self.cache], self._length)


def to_float32(logits: Any) -> Float32:
    """An array of mlx on the host, its own memory."""
    import mlx.core as mx

    return np.array(logits.astype(mx.float32))
