"""Two faults of vLLM 0.32.0's CPU build that stand in our way, mended. GPU builds are not concerned.

**Uninitialised temperatures.** The stand-in for the Triton kernel ``expand_kernel`` (one value a request to one a
draft) converts its output to int64 and writes into the copy. Where drafts are verified at temperatures above 0, their
temperature, top-k and top-p are then whatever was in memory. Source: ``utils/cpu_triton_utils.py``.

**Modules of numba.** To put its stand-ins in place, a worker looks through every module's names and takes it for given
that ``vars`` of anything is a mapping. That is not so of llvmlite, on which numba stands: where numba is imported
before, as in a process that has had an engine, the engine does not start. Source: ``triton_utils/dispatcher.py``.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any


def install() -> None:
    """Mend both, where Triton cannot be used: before workers choose their kernels."""
    from vllm.triton_utils import HAS_TRITON

    if HAS_TRITON:
        return
    from vllm.triton_utils import dispatcher
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand
    dispatcher.vars = _vars


def expand(
    output: Any, input_val: Any, cu_num_tokens: Any, replace_from: Any, replace_to: Any, MAX_NUM_TOKENS: Any = None
) -> None:
    """Write each request's value to its drafts.

    Args:
        output: [drafts], written.
        input_val: [requests].
        cu_num_tokens: int[requests], drafts up to and with each request's.
        replace_from, replace_to: a value, and what stands for it.
        MAX_NUM_TOKENS: not looked at.
    """
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1)).to(torch.int64)
    values = torch.where(input_val == replace_from, torch.full_like(input_val, replace_to), input_val)
    output.copy_(torch.repeat_interleave(values, counts))


def _vars(value: Any) -> Mapping[str, Any]:
    """``vars(value)``, or nothing where that is no mapping."""
    found = builtins.vars(value)
    return found if isinstance(found, Mapping) else {}
