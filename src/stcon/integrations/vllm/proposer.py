"""`NoDrafts`: a proposer that proposes nothing, so that vLLM makes room for drafts; the scheduler has them.

vLLM sets up verification (rejection sampler, slots, mask rows) only where a speculative method is configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NoDrafts:
    """vLLM's ``custom_class`` proposer.

    Args:
        vllm_config: not looked at.
    """

    def __init__(self, vllm_config: Any) -> None:
        pass

    def propose(self, sampled_token_ids: Sequence[Any], *args: Any, **kwargs: Any) -> list[list[int]]:
        """No drafts, for each request of the batch."""
        return [[] for _ in sampled_token_ids]

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is none."""
