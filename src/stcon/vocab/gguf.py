"""Tokenizers stored in GGUF files: byte-level BPE (``gpt2``) and sentencepiece (``llama``).

A GGUF file has no ``tokenizer.json``; it lists tokens, their types, and merges or scores, and names the pre-tokenizer.
From that a `tokenizers.Tokenizer` is built which gives the ids that transformers gives for the same file (tested), so
a model prompted through transformers sees one tokenizer only.

Source: transformers' ``integrations/gguf`` for the construction; llama.cpp's ``llama-vocab.cpp`` for token types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.errors import ModelUnavailable
from stcon.vocab.byte_level import BYTE_ALPHABET, BYTE_OF
from stcon.vocab.gguf_metadata import read_metadata

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from stcon.vocab.vocabulary import Vocabulary

UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# ``tokenizer.ggml.pre`` → pattern. Any other name, ``smollm`` among them, gets GPT-2's, as in transformers: the merges
# decide alone whether digits are split, and only runs of spaces before a digit come out differently from training.
PATTERNS: Mapping[str, str] = {
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"), _QWEN2),
    "qwen35": _QWEN35,
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"), _LLAMA3),
    **dict.fromkeys(("lfm2", "jina-v5-nano", "dbrx", "smaug-bpe"), _LLAMA3),
    "tekken": _TEKKEN,
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
}


def load(path: str | PathLike[str], *, size: int | None = None, end_ids: Iterable[int] | None = None) -> Vocabulary:
    """See `Vocabulary.from_gguf`."""
    from stcon.vocab import huggingface

    metadata = read_metadata(Path(path))
    tokens, types = _tokens(metadata, path)
    return huggingface.load(
        build_tokenizer(metadata, path),
        size=len(tokens) if size is None else size,
        end_ids=[*(end_ids or ()), *_ends(metadata, len(tokens))],
        special_ids=[token for token, kind in enumerate(types) if kind in (UNKNOWN, CONTROL, UNUSED)],
    )


def build_tokenizer(metadata: Mapping[str, Any], path: str | PathLike[str] = "the file") -> Tokenizer:
    """The tokenizer that `metadata` (see `read_metadata`) describes.

    Raises:
        ModelUnavailable: no tokenizer, or one of another kind.
    """
    from tokenizers import AddedToken

    tokens, types = _tokens(metadata, path)
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(metadata, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(metadata, tokens)
    else:
        raise ModelUnavailable(f"{path} has a tokenizer of kind {kind!r}; stcon reads gpt2 and llama")
    vocab = tokenizer.get_vocab()
    named = [(text, kind) for text, kind in zip(tokens, types, strict=False) if text in vocab]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text, kind in named if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text, kind in named if kind == USER_DEFINED])
    return tokenizer


def _tokens(metadata: Mapping[str, Any], path: str | PathLike[str]) -> tuple[list[str], list[int]]:
    """Tokens and their types (empty where the file gives none)."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelUnavailable(f"{path} carries no tokenizer; use a file that was converted with one")
    types = metadata.get("tokenizer.ggml.token_type")
    return tokens, types if isinstance(types, list) else []


def _ends(metadata: Mapping[str, Any], num_tokens: int) -> list[int]:
    """The file's end-of-text, end-of-turn and end-of-message tokens."""
    found = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return [token for token in found if isinstance(token, int) and 0 <= token < num_tokens]


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    """GPT-2's kind. A token with a character outside the byte alphabet is spelled in it, so that it has its bytes."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocab = {
        token if all(map(BYTE_OF.__contains__, token)) else "".join(BYTE_ALPHABET[b] for b in token.encode()): number
        for number, token in enumerate(tokens)
    }
    tokenizer = Tokenizer(models.BPE(vocab, _merges(metadata, vocab)))
    pattern = PATTERNS.get(metadata.get("tokenizer.ggml.pre", ""))
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = (
        own
        if pattern is None
        else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), own])
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    """Llama 2's kind. Gemma's files write runs of spaces as such and rank merges by position, not by score."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    gemma = str(metadata.get("general.architecture", "")).startswith("gemma")
    if gemma:
        tokens = ["▁" * len(token) if token.strip(" ") == "" else token for token in tokens]
    vocab = {token: number for number, token in enumerate(tokens)}
    scores = [-number for number in range(len(tokens))] if gemma else metadata.get("tokenizer.ggml.scores", [])
    merges = _merges(metadata, vocab, dict(zip(tokens, scores, strict=False)))
    tokenizer = Tokenizer(models.BPE(vocab, merges, fuse_unk=True, byte_fallback=True))
    prefix = not gemma and metadata.get("tokenizer.ggml.add_space_prefix", True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if prefix else "never", split=False)
    strip = [decoders.Strip(content=" ", left=1, right=0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges(
    metadata: Mapping[str, Any], vocab: Mapping[str, int], scores: Mapping[str, float] | None = None
) -> list[tuple[str, str]]:
    """The file's merges, or those that its scores imply: a better score first, then the longer left part."""
    listed = metadata.get("tokenizer.ggml.merges")
    if isinstance(listed, list):
        pairs = [tuple(merge.split(" ")) for merge in listed]
        # a merge must name two tokens and make a third; a broken file must not crash the library
        return [(p[0], p[1]) for p in pairs if len(p) == 2 and {p[0], p[1], p[0] + p[1]} <= vocab.keys()]
    found = []
    for token, score in (scores or {}).items():
        cuts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(left, right) for left, right in cuts if left in vocab and right in vocab]
        found += [(score, *pair) for pair in sorted(known, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))]
    found.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    return [(left, right) for _, left, right in found]
