"""Which rows a model gets: the fastest that it can run on, each checked against the model's own sessions first."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from stcon.engine.batch.memory import SHARE_OF_CACHE, SHARE_USED, device_free_bytes
from stcon.engine.batch.model import BatchModel
from stcon.engine.batch.sessions import SessionRows
from stcon.errors import ModelUnavailable, NoRoom

if TYPE_CHECKING:
    from stcon.engine.batch.walking import DeviceDraws
    from stcon.models.base import Model
    from stcon.models.static import StaticModel

DEFAULT_ROW_TOKENS = 4096
PARKED = 64  # rows kept for the prompt cache on a GPU, where there is room
_PROBE = 17


def rows_for(model: Model, num_rows: int = 16, *, row_tokens: int | None = None) -> BatchModel:
    """Rows for `model`.

    On a GPU a model with a static form runs on static caches, whose slots are set aside at once, so there `row_tokens`
    matters; on the CPU steps are packed (`stcon.engine.batch.packed`), and llama.cpp packs them itself. What none of
    these can run goes by its sessions.

    Args:
        num_rows: most active rows.
        row_tokens: most tokens of a row on static caches; None: `DEFAULT_ROW_TOKENS`, or the context if less.

    Raises:
        NoRoom: the device has no memory for so many rows.
    """
    static = model.static
    if static is not None:
        return _static_rows(model, static, num_rows, row_tokens or DEFAULT_ROW_TOKENS)
    if type(model).__module__.startswith("stcon.models.llama_cpp."):
        from stcon.engine.batch.llama_cpp import LlamaCppRows

        return LlamaCppRows(model, num_rows, row_tokens=row_tokens)  # type: ignore[arg-type]
    if type(model).__module__.startswith("stcon.models.mlx."):
        from stcon.engine.batch.mlx import MlxRows

        if MlxRows.supports(model):  # type: ignore[arg-type]
            return MlxRows(model, num_rows)  # type: ignore[arg-type]
    for pack in (_packed_lean, _packed_transformers):
        rows = pack(model, num_rows)
        if rows is not None:
            return rows
    return session_rows(model, num_rows)


def _static_rows(model: Model, static: StaticModel, num_rows: int, row_tokens: int) -> BatchModel:
    """Rows on static caches, as many as asked for; parked ones as far as the device's memory goes."""
    from stcon.engine.batch.static import StaticRows, cache_capacity

    longest = min(model.context_length, static.context_length, row_tokens)
    free, parked = device_free_bytes(static.device), num_rows // 2
    if free is not None:
        most, slot = int(SHARE_USED * free), static.new_cache(1, cache_capacity(static, longest)).nbytes
        if (num_rows + 1) * slot > most:
            advice = f"{num_rows} rows of {longest:,} tokens: take fewer rows, or rows of fewer tokens"
            raise NoRoom("bytes on the device", (num_rows + 1) * slot, most, advice)
        room = most // slot - num_rows - 1
        parked = min(max(PARKED, num_rows // 2), int(SHARE_OF_CACHE * room))
    draws = _draws(model, static.device, num_rows)
    return StaticRows(model, static, num_rows, row_tokens=longest, num_parked=parked, draws=draws)


def _draws(model: Model, device: Any, num_rows: int) -> DeviceDraws | None:
    """Draws by the CUDA kernels, where they can be had."""
    if not str(device).startswith("cuda"):
        return None
    from stcon.engine.batch.walking import cuda_draws

    try:
        return cuda_draws(model.vocabulary, device, num_rows)
    except ModelUnavailable as error:
        warnings.warn(f"tokens are drawn without the GPU kernels, slowly: {error}", RuntimeWarning, stacklevel=3)
        return None


def _packed_lean(model: Model, num_rows: int) -> BatchModel | None:
    from stcon.engine.batch.packed_lean import packed_lean

    return packed_lean(model, num_rows)


def _packed_transformers(model: Model, num_rows: int) -> BatchModel | None:
    if type(model).__module__ != "stcon.models.transformers":  # spares the others torch
        return None
    from stcon.engine.batch.packed_transformers import packed_transformers

    return packed_transformers(model, num_rows)


def session_rows(model: Model, num_rows: int = 16) -> SessionRows:
    """`SessionRows` that know what their caches take, as far as that can be measured: two passes over a few tokens."""
    network = getattr(model, "network", None)
    if type(model).__module__ != "stcon.models.transformers" or network is None:
        return SessionRows(model, num_rows, token_bytes=64)  # a model without weights: some bytes a token of lists
    session = model.session()
    session.append([0])
    first = _cache_bytes(session)
    session.append([0] * (_PROBE - 1))
    token_bytes = max(1, (_cache_bytes(session) - first) // (_PROBE - 1))
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    rows = SessionRows(model, num_rows, token_bytes=token_bytes, weight_bytes=weights)
    rows.row_bytes = max(0, first - token_bytes)
    return rows


def _cache_bytes(session: Any) -> int:
    """Bytes of the tensors in a session's cache."""
    return sum(_nbytes(value) for layer in session.cache.layers for value in vars(layer).values())


def _nbytes(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_nbytes, value))
    return int(value.nbytes) if hasattr(value, "nbytes") else 0
