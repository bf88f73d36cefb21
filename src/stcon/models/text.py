"""How a model's prompts become ids: special tokens in the text, what is put around it, the chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


def from_gguf(path: Path) -> PromptText:
    """The conventions that a GGUF file states. (Its template is read here: the conversion of some versions loses it.)

    Raises:
        ModelUnavailable: the file is broken or has no tokenizer.
    """
    from stcon.vocab.gguf import build_tokenizer
    from stcon.vocab.gguf_metadata import read_metadata

    metadata = read_metadata(path)
    tokenizer = build_tokenizer(metadata, path)
    prefix, suffix = _around(metadata)
    template = metadata.get("tokenizer.chat_template")

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return PromptText(
        encode=encode,
        encode_raw=lambda text: [*prefix, *encode(text), *suffix],
        chat_template=template if isinstance(template, str) else None,
        special_names=_names(metadata),
    )


def _around(metadata: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The ids before and after a raw text. A BPE file that does not say adds none, a sentencepiece one a beginning."""
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    around = []
    for name, default in (("bos", sentencepiece), ("eos", False)):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        wanted = metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        around.append([number] if wanted and isinstance(number, int) else [])
    return around[0], around[1]


def _names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token``, ``eos_token`` and the like with their text, as chat templates name them."""
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    keys = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    found = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {
        name: tokens[number] for name, number in found.items() if isinstance(number, int) and 0 <= number < len(tokens)
    }
