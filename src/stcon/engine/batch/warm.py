"""What should not happen in the first request: kernels compiled, tables made."""

from __future__ import annotations

from stcon.engine.batch.batch import Batch
from stcon.engine.batch.request import Request

_SCHEMA = {"type": "array", "items": {"type": ["string", "integer", "object"]}, "maxItems": 2}


def warm_up(batch: Batch) -> None:
    """Write two small constrained outputs with `batch`, which was not started yet."""
    from stcon.grammar import compile_json_schema

    grammar = compile_json_schema(_SCHEMA)
    batch.generate([Request([0], grammar, max_tokens=limit, cache_prompt=False) for limit in (2, 12)])
