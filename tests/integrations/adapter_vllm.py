"""vLLM's CPU build with stcon's scheduler, in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from integration_matrix import Adapter, Answer, Asked, model_directory, package_missing
from vllm_process import VllmProcess, request, why_no_vllm


class VllmAdapter(Adapter):
    """``LLM(model, **options())``."""

    mode: ClassVar[str] = "mask"
    same_arithmetic: ClassVar[bool] = True
    forced: ClassVar[bool] = False

    @classmethod
    def missing(cls) -> str | None:
        """See `Adapter.missing`."""
        return why_no_vllm() or package_missing("transformers", "gguf")

    def open(self) -> None:
        """See `Adapter.open`."""
        self._folder = tempfile.TemporaryDirectory()
        log = Path(self._folder.name) / "vllm.log"
        self.engine = VllmProcess(model_directory(), log, {"forced": self.forced}, max_model_len=2048, max_num_seqs=8)

    def answer(self, requests: Sequence[Asked]) -> list[Answer]:
        """See `Adapter.answer`."""
        result = self.engine.generate([request(one.prompt_ids, one.max_tokens, _structured(one)) for one in requests])
        passes = result["counts"]["steps"] if len(requests) == 1 else None
        return [Answer(one["text"], len(one["tokens"]), passes) for (one,) in result["answers"]]

    def close(self) -> None:
        """See `Adapter.close`."""
        self.engine.close()
        self._folder.cleanup()


class ForcedVllmAdapter(VllmAdapter):
    """``LLM(model, **options(forced=True))``. Our own engine heals, which tokens already shown cannot be."""

    mode: ClassVar[str] = "canonical"
    same_arithmetic: ClassVar[bool] = False
    forced: ClassVar[bool] = True


def _structured(asked: Asked) -> dict[str, Any] | None:
    if asked.regex is not None:
        return {"regex": asked.regex}
    return None if asked.schema is None else {"json": asked.schema}
