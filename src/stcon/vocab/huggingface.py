"""Vocabularies of `tokenizers.Tokenizer` and of the transformers classes around it.

Two families have exact token bytes. **Byte-level** BPE (GPT-2, Llama 3, Qwen, SmolLM) writes each byte as one of 256
printable characters. **Sentencepiece-style** BPE or unigram (Llama 2, Gemma, Mistral) writes a space as ``▁``, and a
byte as ``<0x0A>`` where no token has the character. Anything else (WordPiece, word level) loses text and is refused.

The encoder is the tokenizer's own model behind parts of its own, less what does not belong to text in the middle of an
output: special tokens, the dummy space before the first word, Unicode normalisation, the post-processor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption, ModelUnavailable
from stcon.vocab import byte_level
from stcon.vocab.blocks import PreTokenSplitter, Splitter
from stcon.vocab.ends import known_ends

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from stcon.vocab.vocabulary import Encoder, Vocabulary

SPACE = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load(
    tokenizer: Any,
    *,
    size: int | None = None,
    end_ids: Iterable[int] | None = None,
    special_ids: Iterable[int] = (),
) -> Vocabulary:
    """See `Vocabulary.from_tokenizer`; `special_ids` are special besides those that the tokenizer flags."""
    from stcon.vocab.vocabulary import Vocabulary

    backend = backend_of(tokenizer)
    added = backend.get_added_tokens_decoder()
    special = {token for token, added_token in added.items() if added_token.special} | set(special_ids)
    ends = [*(end_ids or ()), *_own_ends(tokenizer), *known_ends({t.content: token for token, t in added.items()})]
    total = max([*backend.get_vocab(with_added_tokens=True).values(), -1]) + 1
    if size is not None and size < total:
        raise InvalidOption(
            f"size {size:,} is less than the tokenizer's {total:,} tokens; give the model's vocabulary size"
        )
    reading = _ByteLevel(backend) if _is_byte_level(backend) else _SentencePiece(backend)

    token_bytes: list[bytes | None] = [None] * (total if size is None else size)
    model_tokens = backend.get_vocab(with_added_tokens=False)
    for text, token in model_tokens.items():
        token_bytes[token] = reading.token_bytes(text)
    for token, added_token in added.items():
        token_bytes[token] = reading.added_bytes(added_token.content, added_token.content in model_tokens)
    kept = {
        added_token.content: token
        for token, added_token in added.items()
        if token not in special and token not in ends and not _is_picky(added_token)
    }
    encode = reading.encoder(_encoder(reading.plain, kept))
    return Vocabulary(token_bytes, end_ids=ends, special_ids=special, encode=encode, splitter=reading.splitter(kept))


def backend_of(tokenizer: Any) -> Tokenizer:
    """The `tokenizers.Tokenizer` inside `tokenizer`. Raises `ModelUnavailable` if there is none."""
    from tokenizers import Tokenizer

    backend = tokenizer if isinstance(tokenizer, Tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelUnavailable(
            f"{type(tokenizer).__name__} is not built on the tokenizers library; load the fast tokenizer of this model"
        )
    return backend


def _own_ends(tokenizer: Any) -> list[int]:
    """What a transformers tokenizer names as its end token."""
    eos = getattr(tokenizer, "eos_token_id", None)
    return [] if eos is None else [eos]


def _is_picky(added_token: Any) -> bool:
    """Whether the tokenizer matches an added token with more than its text: it then swallows or requires neighbours."""
    return bool(added_token.lstrip or added_token.rstrip or added_token.single_word)


def _encoder(plain: Tokenizer, kept: Mapping[str, int]) -> Encoder:
    """`plain` with the added tokens `kept` (content → id), ids as in the full tokenizer."""
    from tokenizers import AddedToken

    plain.add_tokens([AddedToken(content, normalized=False, special=False) for content in kept])
    renamed = {plain.token_to_id(content): token for content, token in kept.items()}

    def encode(text: str) -> list[int]:
        ids: list[int] = plain.encode(text, add_special_tokens=False).ids
        return [renamed.get(token, token) for token in ids] if renamed else ids

    return encode


class _ByteLevel:
    """Byte-level BPE: each character of a token is one byte."""

    def __init__(self, backend: Tokenizer) -> None:
        self.plain = _plain_copy(backend, pre_tokenizer=_without_prefix(parts(backend.pre_tokenizer)), normalizer=None)

    def token_bytes(self, text: str) -> bytes:
        return byte_level.token_bytes(text)

    def added_bytes(self, content: str, in_model: bool) -> bytes:
        return content.encode()

    def encoder(self, encode: Encoder) -> Encoder:
        return encode

    def splitter(self, kept: Mapping[str, int]) -> Splitter | None:
        pre_tokenizer = self.plain.pre_tokenizer
        if not _splits(parts(pre_tokenizer)):
            return None

        def pieces(text: str) -> list[int]:
            return sorted({start for _, (start, _) in pre_tokenizer.pre_tokenize_str(text)} | {0}) if text else []

        return PreTokenSplitter(pieces, tuple(kept))


class _SentencePiece:
    """Sentencepiece-style: ``▁`` is a space, ``<0xNN>`` a byte."""

    def __init__(self, backend: Tokenizer) -> None:
        self.has_bytes = getattr(backend.model, "byte_fallback", False)
        space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        self.plain = _plain_copy(backend, pre_tokenizer=_space_cuts(parts(backend.pre_tokenizer)), normalizer=space)

    def token_bytes(self, text: str) -> bytes:
        if self.has_bytes and (match := _BYTE_TOKEN.fullmatch(text)):
            return bytes([int(match[1], 16)])
        return text.replace(SPACE, " ").encode()

    def added_bytes(self, content: str, in_model: bool) -> bytes:
        return self.token_bytes(content) if in_model else content.encode()

    def encoder(self, encode: Encoder) -> Encoder:
        """`encode`, with a literal ``▁`` in the text spelled by its bytes: the model would read it as a space."""
        found = [self.plain.token_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]
        mark = [token for token in found if token is not None]
        if not self.has_bytes or len(mark) < len(found):
            return encode

        def exact(text: str) -> list[int]:
            first, *rest = text.split(SPACE)
            ids = encode(first)
            for part in rest:
                ids += mark + encode(part)
            return ids

        return exact

    def splitter(self, kept: Mapping[str, int]) -> Splitter | None:
        return None


def _is_byte_level(backend: Tokenizer) -> bool:
    """Which family `backend` is of. Raises `ModelUnavailable` if of neither."""
    kind = type(backend.model).__name__
    suffix = getattr(backend.model, "end_of_word_suffix", None) or getattr(
        backend.model, "continuing_subword_prefix", None
    )
    if kind not in ("BPE", "Unigram") or suffix:
        raise ModelUnavailable(
            f"a {kind} tokenizer{' with subword marks' if suffix else ''} does not say its tokens' bytes exactly; "
            "stcon reads byte-level BPE and sentencepiece-style tokenizers"
        )
    kinds = {part["type"] for component in (backend.pre_tokenizer, backend.decoder) for part in parts(component)}
    return "ByteLevel" in kinds


def parts(component: Any) -> list[dict[str, Any]]:
    """A normalizer, pre-tokenizer or decoder as its JSON parts, sequences flattened."""
    return [] if component is None else _flatten(json.loads(component.__getstate__()))


def _flatten(part: dict[str, Any]) -> list[dict[str, Any]]:
    if part["type"] != "Sequence":
        return [part]
    inner = next(value for key, value in part.items() if key != "type")
    return [leaf for child in inner for leaf in _flatten(child)]


def _without_prefix(components: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Byte-level pre-tokenizer parts, adding no space before the text."""
    changed = [part | {"add_prefix_space": False} if part["type"] == "ByteLevel" else part for part in components]
    return {"type": "Sequence", "pretokenizers": changed} if changed else None


def _space_cuts(components: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The part of a sentencepiece-style pre-tokenizer that cuts before every space, if it does."""
    cuts = any(part["type"] == "Metaspace" and part.get("split", True) for part in components)
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": True} if cuts else None


def _splits(components: list[dict[str, Any]]) -> bool:
    """Whether the pre-tokenizer cuts text at all."""
    return any(part["type"] != "ByteLevel" or part.get("use_regex", True) for part in components)


def _plain_copy(
    backend: Tokenizer, *, pre_tokenizer: dict[str, Any] | None, normalizer: dict[str, Any] | None
) -> Tokenizer:
    """A tokenizer on the same model (shared, not copied) with these parts and no added tokens."""
    from tokenizers import Tokenizer

    empty = {"type": "BPE", "vocab": {}, "merges": []}
    shell = Tokenizer.from_str(json.dumps({"model": empty, "pre_tokenizer": pre_tokenizer, "normalizer": normalizer}))
    plain = Tokenizer(backend.model)
    if pre_tokenizer:
        plain.pre_tokenizer = shell.pre_tokenizer
    if normalizer:
        plain.normalizer = shell.normalizer
    return plain
