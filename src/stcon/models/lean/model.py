"""A lean network behind the `Model` and `Session` interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from stcon.models.base import Float32, Model, Session, check_append, check_truncate
from stcon.models.lean.cache import Cache, grown
from stcon.models.lean.network import Network

if TYPE_CHECKING:
    from stcon.models.static import StaticModel
    from stcon.models.text import PromptText
    from stcon.vocab.vocabulary import Vocabulary

CHUNK = 512
_FIRST_CAPACITY = 256


class LeanModel(Model):
    """A network of our own with its vocabulary; `stcon.models.load_model` makes one where it knows the family.

    Args:
        network: the weights and the forward pass.
        vocabulary: its tokens.
        text: how its prompts are written.
        name: for people.
    """

    def __init__(self, network: Network, vocabulary: Vocabulary, text: PromptText, *, name: str) -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.text = text
        self.name = name
        self.context_length = network.context_length

    @property
    def device(self) -> str:
        """Where the weights are."""
        return str(self.network.device)

    @property
    def static(self) -> StaticModel | None:
        """On a GPU: the network, for graphs (`stcon.models.static`); on the CPU there is no launch to save."""
        if self.network.device.type != "cuda":
            return None
        return self.network

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

    def session(self) -> LeanSession:
        """A new, empty session."""
        capacity = min(_FIRST_CAPACITY, self.context_length)
        return LeanSession(self, self.network.new_cache(1, capacity))


class LeanSession(Session):
    """One row of a cache that doubles when it is full."""

    def __init__(self, model: LeanModel, cache: Cache, length: int = 0) -> None:
        self.model = model
        self.cache = cache
        self._length = length

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._length

    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """See `Session.append`. Cost: ceil(S / CHUNK) passes; logits for the positions that are returned."""
        check_append(self, tokens, self.model.context_length)
        self._reserve(self._length + len(tokens))
        parts = []
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            ids = torch.tensor([list(part)], dtype=torch.int64, device=self.model.network.device)
            lengths = torch.tensor([self._length], dtype=torch.int32, device=self.model.network.device)
            logits = self.model.network.forward(ids, lengths, self.cache, all_positions=all_positions)
            self._length += len(part)
            parts.append(logits[0] if all_positions else logits)
        rows = _fitted(torch.cat(parts) if all_positions else parts[-1], self.model.vocabulary.size)
        return rows if all_positions else rows[0]

    @property
    def can_truncate(self) -> bool:
        """Whether there are no recurrent layers."""
        return not self.cache.recurrent

    def truncate(self, length: int) -> None:
        """See `Session.truncate`. Cost: none, the cache stays as it is."""
        if length == self._length:
            return
        check_truncate(self, length)
        self._length = length

    def copy(self) -> LeanSession:
        """See `Session.copy`. Cost: the filled part of the cache."""
        settings = self.model.network.settings
        return LeanSession(self.model, grown(self.cache, settings, self.cache.capacity, self._length), self._length)

    def _reserve(self, length: int) -> None:
        if length <= self.cache.capacity:
            return
        capacity = min(max(2 * self.cache.capacity, length), self.model.context_length)
        self.cache = grown(self.cache, self.model.network.settings, capacity, self._length)


def _fitted(logits: torch.Tensor, size: int) -> Float32:
    """float32[S, size] on the host: cut or padded to the vocabulary; the caller may write to it."""
    found = logits[:, :size].float().cpu().numpy()
    if found.shape[1] == size:
        return np.array(found)  # a copy: an inference tensor may not be shared
    padded = np.full((len(found), size), -np.inf, np.float32)
    padded[:, : found.shape[1]] = found
    return padded
