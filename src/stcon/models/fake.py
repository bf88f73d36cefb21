"""A model without weights: logits from a hash of the whole prefix, for testing decode loops in milliseconds.

Causal and exact by construction: the logits after a prefix are a function of its tokens alone, bit for bit, however the
prefix was split into passes, so that two decoders can be compared for equality rather than closeness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stcon.models.base import Float32, Model, Session, check_append, check_truncate

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

Bias: TypeAlias = Callable[[Sequence[int]], Float32]
_MASK64 = (1 << 64) - 1


class FakeModel(Model):
    """Deterministic logits of a uniform spread, plus a bias.

    Args:
        vocabulary: gives V and the tokenizer.
        seed: another seed is another model.
        bias: added to the logits: float32[V], or a callable from the prefix's tokens to one.
        spread: the hash gives logits in [-spread, spread).
        context_length: most tokens a session takes.
        chat_template: Jinja source, if the model shall take messages.

    Attributes:
        num_passes, num_appended: over all sessions: calls of `Session.append`, and the tokens they were given.
        passes: the tokens of every pass, in order.

    Cost: O(V) a returned row.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        seed: int = 0,
        *,
        bias: Float32 | Bias | None = None,
        spread: float = 4.0,
        context_length: int = 4096,
        chat_template: str | None = None,
    ) -> None:
        self.name = f"fake-{seed}"
        self.vocabulary = vocabulary
        self.context_length = context_length
        self.bias = bias
        self.spread = spread
        self.seed = seed
        self.passes: list[tuple[int, ...]] = []
        self._chat_template = chat_template
        self._positions = np.arange(1, vocabulary.size + 1, dtype=np.uint64)

    @property
    def num_passes(self) -> int:
        """Passes over all sessions."""
        return len(self.passes)

    @property
    def num_appended(self) -> int:
        """Tokens fed over all sessions."""
        return sum(len(tokens) for tokens in self.passes)

    @property
    def chat_template(self) -> str | None:
        """The template given to the constructor."""
        return self._chat_template

    def session(self) -> FakeSession:
        """A new, empty session."""
        return FakeSession(self)

    def encode_prompt(self, text: str) -> list[int]:
        """The vocabulary's own tokens; a fake model has no special text."""
        return list(self.vocabulary.encode(text))

    def logits(self, tokens: Sequence[int], digest: int | None = None) -> Float32:
        """float32[V]: the logits after the prefix `tokens` (`digest`: its `hash_prefix`, if known)."""
        state = hash_prefix(self.seed, tokens) if digest is None else digest
        uniform = _mix(self._positions * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(state)) >> np.uint64(40)
        row = (uniform.astype(np.float32) / np.float32(1 << 23) - np.float32(1)) * np.float32(self.spread)
        if self.bias is not None:
            row = row + (self.bias(tokens) if callable(self.bias) else self.bias)
        return np.asarray(row, np.float32)


class FakeSession(Session):
    """A session of `FakeModel`: the tokens, and the hash of each of their prefixes."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        self.tokens: list[int] = []
        self._digests = [hash_prefix(model.seed, ())]

    @property
    def length(self) -> int:
        """Tokens in the session."""
        return len(self.tokens)

    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """See `Session.append`."""
        check_append(self, tokens, self.model.context_length)
        self.model.passes.append(tuple(tokens))
        rows = []
        for number, token in enumerate(tokens):
            self.tokens.append(token)
            self._digests.append(_absorb(self._digests[-1], token))
            if all_positions or number == len(tokens) - 1:
                rows.append(self.model.logits(self.tokens, self._digests[-1]))
        return np.stack(rows) if all_positions else rows[-1]

    @property
    def can_truncate(self) -> bool:
        """Always."""
        return True

    def truncate(self, length: int) -> None:
        """See `Session.truncate`."""
        check_truncate(self, length)
        del self.tokens[length:]
        del self._digests[length + 1 :]

    def copy(self) -> FakeSession:
        """See `Session.copy`."""
        other = FakeSession(self.model)
        other.tokens = list(self.tokens)
        other._digests = list(self._digests)
        return other


def hash_prefix(seed: int, tokens: Sequence[int]) -> int:
    """A 64-bit hash of `seed` and the tokens in their order."""
    digest = int(_mix(np.uint64((seed + 0x51ED270B) & _MASK64)))
    for token in tokens:
        digest = _absorb(digest, token)
    return digest


def prefer(vocabulary: Vocabulary, wanted: Callable[[bytes], bool], strength: float = 20.0) -> Float32:
    """float32[V]: `strength` on every token whose bytes are `wanted`, for `FakeModel`'s bias."""
    row = np.zeros(vocabulary.size, np.float32)
    for token in range(vocabulary.size):
        data = vocabulary.token_bytes(token)
        if data and wanted(data):
            row[token] = strength
    return row


def prefer_longest(vocabulary: Vocabulary, strength: float = 20.0) -> Float32:
    """float32[V]: `strength` a byte, so that the longest admissible token wins; for `FakeModel`'s bias."""
    lengths = [len(vocabulary.token_bytes(token) or b"") for token in range(vocabulary.size)]
    return (np.asarray(lengths, np.float32) * np.float32(strength)).astype(np.float32)


def _absorb(digest: int, token: int) -> int:
    return int(_mix(np.uint64((digest * 0x100000001B3 + token + 1) & _MASK64)))


def _mix(value: NDArray[np.uint64] | np.uint64) -> Any:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), elementwise."""
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))
