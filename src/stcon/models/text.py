"""How a model's prompts become ids: special tokens in the text, what is put around it, the chat template."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.models.gguf import named_specials, read_metadata, special_texts

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class PromptText:
    """The text conventions of one tokenizer.

    Attributes:
        encode: text → ids, special tokens' text read as those tokens, nothing added.
        encode_raw: the same with what the tokenizer adds around a text.
        chat_template: Jinja source, or None.
        special_names: ``bos_token`` … with their text.
    """

    encode: Callable[[str], list[int]]
    encode_raw: Callable[[str], list[int]]
    chat_template: str | None = None
    special_names: Mapping[str, str] = field(default_factory=dict)


def from_tokenizer(tokenizer: Any) -> PromptText:
    """The conventions of a transformers tokenizer."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):  # several templates by name
        template = template.get("default")
    names = {name: str(text) for name, text in tokenizer.special_tokens_map.items() if isinstance(text, str)}
    return PromptText(
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
        encode_raw=lambda text: list(tokenizer.encode(text, add_special_tokens=True)),
        chat_template=template if isinstance(template, str) else None,
        special_names=names,
    )


def from_gguf(path: Path, vocabulary: Vocabulary) -> PromptText:
    """The conventions that a GGUF file states, text between special tokens encoded by its vocabulary.

    Raises:
        ModelUnavailable: the file is broken.
    """
    metadata = read_metadata(path)
    encode = special_encoder(special_texts(metadata), vocabulary)
    prefix, suffix = _around(metadata)
    return PromptText(
        encode=encode,
        encode_raw=lambda text: [*prefix, *encode(text), *suffix],
        chat_template=metadata.get("tokenizer.chat_template"),
        special_names=named_specials(metadata),
    )


def special_encoder(specials: Mapping[str, int], vocabulary: Vocabulary) -> Callable[[str], list[int]]:
    """Text → ids where an occurrence of a special token's text (the longest at a place) is that token."""
    if not specials:
        return lambda text: list(vocabulary.encode(text))
    pattern = re.compile("|".join(re.escape(text) for text in sorted(specials, key=len, reverse=True)))

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        start = 0
        for match in pattern.finditer(text):
            ids += vocabulary.encode(text[start : match.start()]) if match.start() > start else []
            ids.append(specials[match.group()])
            start = match.end()
        return ids + (list(vocabulary.encode(text[start:])) if start < len(text) else [])

    return encode


def _around(metadata: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The ids before and after a raw text. A BPE file that does not say adds none, a sentencepiece one a beginning."""
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    around = []
    for flag, token, default in (
        ("add_bos_token", "bos_token_id", sentencepiece),
        ("add_eos_token", "eos_token_id", False),
    ):
        number = metadata.get(f"tokenizer.ggml.{token}")
        around.append([int(number)] if metadata.get(f"tokenizer.ggml.{flag}", default) and number is not None else [])
    return around[0], around[1]
