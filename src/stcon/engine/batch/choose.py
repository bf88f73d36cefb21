"""Which rows a model gets: the fastest that it can run on, each checked against the model's own sessions first."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from stcon.engine.batch.model import BatchModel
from stcon.engine.batch.sessions import SessionRows
from stcon.errors import ModelUnavailable

if TYPE_CHECKING:
    from stcon.engine.batch.walking import DeviceDraws
    from stcon.models.base import Model

DEFAULT_ROW_TOKENS = 4096
_PROBE = 17


def rows_for(model: Model, num_rows: int = 16, *, row_tokens: int | None = None) -> BatchModel:
    """Rows for `model`.

    On a GPU a model with a static form runs on static caches, whose slots are set aside at once, so there `row_tokens`
    matters; on the CPU steps are packed (`stcon.engine.batch.packed`), and llama.cpp packs them itself. What none of
    these can run goes by its sessions.

    Args:
        num_rows: most active rows.
        row_tokens: most tokens of a row on static caches; None: `DEFAULT_ROW_TOKENS`, or the context if less.
    """
    static = model.static
    if static is not None:
        from stcon.engine.batch.static import StaticRows

        longest = min(model.context_length, static.context_length, row_tokens or DEFAULT_ROW_TOKENS)
        draws = _draws(model, static.device, num_rows)
        return StaticRows(model, static, num_rows, row_tokens=longest, num_parked=num_rows // 2, draws=draws)
    if type(model).__module__.startswith("stcon.models.llama_cpp."):
        from stcon.engine.batch.llama_cpp import LlamaCppRows

        return LlamaCppRows(model, num_rows, row_tokens=row_tokens)  # type: ignore[arg-type]
    for pack in (_packed_lean, _packed_transformers):
        rows = pack(model, num_rows)
        if rows is not None:
            return rows
    return session_rows(model, num_rows)


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
