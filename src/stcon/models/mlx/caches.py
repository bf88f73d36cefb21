"""mlx-lm's caches as a session needs them: how far they hold, copied, cut back.

The caches of attention layers are cut back by moving an index; those of recurrent layers (``ArraysCache``) hold the
state after the last token and nothing else, so a session with one of them cannot go back, only be copied before. An
array of mlx is a value behind a name: `mlx.core.array` of an array shares its data until one of the two is written to,
which is what makes a copy cheap.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any


def copied(cache: Any) -> Any:
    """An independent cache with the same content. Cost: none until one of the two is written to."""
    other = copy.copy(cache)
    for name, value in vars(cache).items():
        setattr(other, name, _copied_value(value))
    return other


def can_trim(caches: Sequence[Any]) -> bool:
    """Whether all of a model's caches can be cut back now (a sliding window only before it is full)."""
    return all(cache.is_trimmable() for cache in caches)


def trim(caches: Sequence[Any], num_tokens: int) -> None:
    """Forget the last `num_tokens` tokens."""
    for cache in caches:
        cache.trim(num_tokens)


def arrays(caches: Sequence[Any]) -> list[Any]:
    """Every array in the caches: what `mlx.core.eval` is given so that a chunk is computed and its logits are not."""
    return list(_arrays([vars(cache) for cache in caches]))


def nbytes(caches: Sequence[Any]) -> int:
    """Bytes of the arrays."""
    return sum(int(array.nbytes) for array in arrays(caches))


def _copied_value(value: Any) -> Any:
    import mlx.core as mx

    if isinstance(value, mx.array):
        return mx.array(value)
    if isinstance(value, list | tuple):
        return type(value)(_copied_value(part) for part in value)
    if hasattr(value, "is_trimmable"):  # a cache of caches
        return copied(value)
    return value


def _arrays(value: Any) -> Iterator[Any]:
    import mlx.core as mx

    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _arrays(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)
    elif hasattr(value, "is_trimmable"):
        yield from _arrays(vars(value))
