"""llama-cpp-python with the logits processor, and our engine on llama.cpp with forced text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from integration_matrix import Adapter, Answer, Asked, gguf_file, own_text_of, package_missing


class LlamaCppAdapter(Adapter):
    """``Llama.create_completion(**constrained(…))``, one request after another: that is what the library offers."""

    mode: ClassVar[str] = "mask"
    same_arithmetic: ClassVar[bool] = True

    @classmethod
    def missing(cls) -> str | None:
        """See `Adapter.missing`."""
        return package_missing("llama_cpp", "gguf")

    def open(self) -> None:
        """See `Adapter.open`."""
        from llama_cpp import Llama

        self.llm = Llama(
            str(gguf_file()), n_ctx=2048, n_batch=512, n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False
        )
        self.model = llama_cpp_model()

    def answer(self, requests: Sequence[Asked]) -> list[Answer]:
        """See `Adapter.answer`."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """See `Adapter.close`."""
        self.llm.close()

    def reference(self, request: Asked) -> str:
        """See `Adapter.reference`."""
        return own_text_of(self.model, request, self.mode)

    def _answer(self, request: Asked) -> Answer:
        from stcon.integrations.llama_cpp import constrained

        grammar = request.grammar
        options: dict[str, Any] = {"max_tokens": request.max_tokens}
        if grammar is not None:
            options = constrained(self.llm, grammar, request.max_tokens)
        self.llm.reset()  # else a prompt that begins like the last one is not read as a whole
        found = self.llm.create_completion(request.prompt_ids, temperature=0.0, **options)
        return Answer(found["choices"][0]["text"], found["usage"]["completion_tokens"])


class ForcedLlamaCppAdapter(Adapter):
    """``load_model(runner="llama.cpp").generate(…)``; a batch is one decode call a step."""

    mode: ClassVar[str] = "canonical"

    @classmethod
    def missing(cls) -> str | None:
        """See `Adapter.missing`."""
        return LlamaCppAdapter.missing()

    def open(self) -> None:
        """See `Adapter.open`."""
        self.model = llama_cpp_model()

    def answer(self, requests: Sequence[Asked]) -> list[Answer]:
        """See `Adapter.answer`."""
        from stcon.engine.batch.batch import Batch
        from stcon.engine.batch.choose import rows_for
        from stcon.engine.batch.request import Request

        if len(requests) == 1:
            (request,) = requests
            outputs = [self.model.generate(request.prompt, request.grammar, request.max_tokens)]
        else:
            batch = Batch(rows_for(self.model, len(requests), row_tokens=1024))
            asked = [Request(r.prompt_ids, r.grammar, max_tokens=r.max_tokens) for r in requests]
            outputs = [generation for (generation,) in batch.generate(asked)]
        return [Answer(output.text, len(output.tokens), output.passes) for output in outputs]


def llama_cpp_model() -> Any:
    """Our engine's model on llama.cpp, one thread."""
    from stcon.models.llama_cpp import LlamaCppModel

    return LlamaCppModel(gguf_file(), gpu_layers=0, context_length=2048, num_threads=1)
