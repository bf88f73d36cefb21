"""What the engine asks of a model: append tokens to a cached prefix, get logits.

A `Model` holds weights and a vocabulary and is shared; a `Session` holds the cache of one stream and is not. To add a
model, subclass both; `stcon.models.fake` is the shortest example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption, PromptTooLong

if TYPE_CHECKING:
    from stcon.engine.control import Mode
    from stcon.engine.loop import Generation
    from stcon.engine.stream import Token
    from stcon.models.static import StaticModel
    from stcon.vocab.vocabulary import Vocabulary

Float32: TypeAlias = NDArray[np.float32]
Message: TypeAlias = Mapping[str, Any]


class Session(ABC):
    """The cache of one stream. Not safe to share between threads."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens in the cache."""

    @abstractmethod
    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """Feed S ≥ 1 tokens in one pass.

        Args:
            tokens: ids, appended to what the cache holds.
            all_positions: also return the logits after every earlier token of `tokens`.

        Returns:
            float32[V], the logits after the last token (float32[S, V] with `all_positions`); row s depends on the
            cached prefix and ``tokens[:s + 1]`` alone. The caller may write to it.

        Raises:
            PromptTooLong: the tokens do not fit the context; the cache is unchanged.
        """

    @property
    @abstractmethod
    def can_truncate(self) -> bool:
        """Whether `truncate` works here (recurrent layers and filled sliding windows cannot go back)."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Forget every token past the first `length`.

        Raises:
            InvalidOption: `length` is not in 0 … ``self.length``.
            NotImplementedError: `can_truncate` is false.
        """

    @abstractmethod
    def copy(self) -> Session:
        """An independent session with the same prefix. Cost: at most a copy of the cache."""


class Model(ABC):
    """Weights, a vocabulary and the text conventions of one model; safe to share, as far as its library is.

    Attributes:
        name: for people; what it was loaded from.
        vocabulary: token bytes and the tokenizer's text → ids.
        context_length: most tokens a session can hold.
    """

    name: str
    vocabulary: Vocabulary
    context_length: int

    @abstractmethod
    def session(self) -> Session:
        """A new, empty session."""

    @abstractmethod
    def encode_prompt(self, text: str) -> list[int]:
        """`text` as ids, the text of special tokens read as special tokens; nothing is added."""

    def raw_prompt_ids(self, text: str) -> list[int]:
        """`text` as ids with what the tokenizer adds around a text (a beginning-of-text token, for some)."""
        return self.encode_prompt(text)

    @property
    def static(self) -> StaticModel | None:
        """The same weights with caches at fixed addresses, for loops of captured graphs; None where there is none."""
        return None

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The tokens that end an output."""
        return self.vocabulary.end_ids

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that renders a conversation, or None for a model without one."""
        return None

    def render_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as the prompt's text, ending where the model's answer begins.

        Args:
            messages: each with ``role`` and ``content``.
            tools: JSON Schemas of functions.
            options: what else the template reads (``enable_thinking`` …).

        Raises:
            InvalidOption: the model has no chat template, or the template refuses the messages.
        """
        from stcon.models.chat import render_chat

        if self.chat_template is None:
            raise InvalidOption(f"model {self.name!r} has no chat template; pass the prompt as text with raw=True")
        return render_chat(self.chat_template, messages, tools=tools, special=self.special_names(), options=options)

    def special_names(self) -> Mapping[str, str]:
        """What a chat template may name: ``bos_token``, ``eos_token`` and the like, with their text."""
        return {}

    def prompt_ids(self, prompt: str | Sequence[Message], *, raw: bool = False) -> list[int]:
        """The ids of a prompt: messages, or a text, which becomes a user message where there is a chat template.

        Args:
            prompt: text, or messages with ``role`` and ``content``.
            raw: take the text as it is.
        """
        if not isinstance(prompt, str):
            return self.encode_prompt(self.render_chat(prompt))
        if raw or self.chat_template is None:
            return self.raw_prompt_ids(prompt)
        return self.encode_prompt(self.render_chat([{"role": "user", "content": prompt}]))

    def generate(
        self,
        prompt: str | Sequence[Message],
        grammar: Any = None,
        max_tokens: int = 256,
        *,
        mode: Mode | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        stream: Callable[[str], None] | None = None,
        on_token: Callable[[Token], None] | None = None,
        raw: bool = False,
        budget: bool = True,
        parallel: bool = False,
        decide: Literal["token", "sequence"] = "token",
    ) -> Generation:
        """Answer `prompt` in the format of `grammar`; see `stcon.engine.api.generate`, to which this is a shorthand."""
        from stcon.engine.api import generate  # the one upward import: the method is a convenience of the facade

        return generate(
            self,
            prompt,
            grammar,
            max_tokens,
            mode=mode,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            stop=stop,
            stream=stream,
            on_token=on_token,
            raw=raw,
            budget=budget,
            parallel=parallel,
            decide=decide,
        )


def check_append(session: Session, tokens: Sequence[int], context_length: int) -> None:
    """The checks every `Session.append` begins with: at least one token, and room for all of them."""
    if not tokens:
        raise InvalidOption("a pass needs at least one token")
    if session.length + len(tokens) > context_length:
        raise PromptTooLong(session.length + len(tokens), context_length)


def check_truncate(session: Session, length: int) -> None:
    """The checks every `Session.truncate` begins with."""
    if not 0 <= length <= session.length:
        raise InvalidOption(f"cannot truncate a session of {session.length} tokens to {length}")
    if not session.can_truncate:
        raise NotImplementedError("this model's cache cannot go back; keep a copy of the session instead")
