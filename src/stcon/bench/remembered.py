"""A model whose logits are remembered by prefix: of outputs that begin alike, the beginning is computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from stcon.models.base import Float32, Model, Session, check_append, check_truncate

MAX_REMEMBERED_BYTES = 1 << 30


class RememberedModel(Model):
    """`model`, computing each prefix once; for greedy decoding, where its logits may be changed by no one.

    Logits after a prefix are those of the first time it was met, so that two outputs differ only where what was
    admitted does (a model's own may differ in the last bits with how a prefix was split into passes).

    Args:
        model: whose session is kept, one at a time; must be able to go back (`Session.can_truncate`).
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = model.name
        self.vocabulary = model.vocabulary
        self.context_length = model.context_length
        self._session = model.session()
        self._read: list[int] = []
        self._logits: OrderedDict[tuple[int, ...], Float32] = OrderedDict()

    @property
    def chat_template(self) -> str | None:
        """The model's."""
        return self.model.chat_template

    def session(self) -> _RememberedSession:
        """A new, empty session."""
        return _RememberedSession(self)

    def encode_prompt(self, text: str) -> list[int]:
        """The model's."""
        return self.model.encode_prompt(text)

    def prompt_ids(self, prompt: object, *, raw: bool = False) -> list[int]:
        """The model's."""
        return self.model.prompt_ids(prompt, raw=raw)  # type: ignore[arg-type]

    def logits(self, tokens: Sequence[int]) -> Float32:
        """float32[V] after `tokens`; a copy."""
        key = tuple(tokens)
        known = self._logits.get(key)
        if known is None:
            known = self._logits[key] = self._compute(key)
            if len(self._logits) * known.nbytes > MAX_REMEMBERED_BYTES:
                self._logits.popitem(last=False)
        return known.copy()

    def _compute(self, tokens: tuple[int, ...]) -> Float32:
        same = 0
        while same < min(len(tokens) - 1, len(self._read)) and tokens[same] == self._read[same]:
            same += 1
        if same < len(self._read):
            self._session.truncate(same)
        self._read = list(tokens)
        return self._session.append(tokens[same:])


class _RememberedSession(Session):
    def __init__(self, model: RememberedModel) -> None:
        self.model = model
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        """Tokens in the session."""
        return len(self.tokens)

    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """See `Session.append`; one position only."""
        assert not all_positions, "a loop asks for the last position"
        check_append(self, tokens, self.model.context_length)
        self.tokens += tokens
        return self.model.logits(self.tokens)

    @property
    def can_truncate(self) -> bool:
        """Always."""
        return True

    def truncate(self, length: int) -> None:
        """See `Session.truncate`."""
        check_truncate(self, length)
        del self.tokens[length:]

    def copy(self) -> _RememberedSession:
        """See `Session.copy`."""
        other = _RememberedSession(self.model)
        other.tokens = list(self.tokens)
        return other
