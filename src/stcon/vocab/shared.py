"""One `Vocabulary` for each tokenizer object, made when first asked for."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from threading import Lock
from typing import Any

from stcon.vocab.vocabulary import Vocabulary

_Key = tuple[int, tuple[int, ...]]

_known: weakref.WeakKeyDictionary[Any, dict[_Key, Vocabulary]] = weakref.WeakKeyDictionary()
_lock = Lock()


def vocabulary_of(tokenizer: Any, end_ids: int | Sequence[int] | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer (itself, if it is one), shared by all who ask with the same tokenizer object.

    Args:
        tokenizer: a fast tokenizer of transformers, a `tokenizers.Tokenizer` (these are not remembered), or a
            `Vocabulary`.
        end_ids: end tokens besides those that the tokenizer has (``generation_config.eos_token_id``).

    Raises:
        ModelUnavailable: the tokenizer's tokens have no exact bytes.

    Cost: seconds for a large tokenizer, the first time.
    """
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    ends = (end_ids,) if isinstance(end_ids, int) else tuple(end_ids or ())
    if not hasattr(tokenizer, "__len__") or not hasattr(tokenizer, "__weakref__"):
        return Vocabulary.from_tokenizer(tokenizer, end_ids=ends)
    key = len(tokenizer), ends  # a tokenizer can be given more tokens
    with _lock:
        found = _known.setdefault(tokenizer, {})
        if key not in found:
            found[key] = Vocabulary.from_tokenizer(tokenizer, end_ids=ends)
        return found[key]
