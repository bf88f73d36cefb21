"""transformers with the logits processor, and with our decoding loop as its custom generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from integration_matrix import Adapter, Answer, Asked, gguf_file, own_text_of, package_missing

import stcon


class TransformersAdapter(Adapter):
    """``generate(logits_processor=[GrammarProcessor(…)])``; batches are padded on the left."""

    mode: ClassVar[str] = "mask"
    same_arithmetic: ClassVar[bool] = True

    @classmethod
    def missing(cls) -> str | None:
        """See `Adapter.missing`."""
        return package_missing("torch", "transformers", "gguf")

    def open(self) -> None:
        """See `Adapter.open`."""
        import torch

        torch.set_num_threads(1)
        self.model: Any = stcon.load_model(
            gguf_file(), device="cpu", dtype="float32", runner="transformers", progress=False
        )
        self.pad = self.model.end_ids[0]

    def answer(self, requests: Sequence[Asked]) -> list[Answer]:
        """See `Adapter.answer`."""
        import torch

        prompts = [request.prompt_ids for request in requests]
        width = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (width - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts])
        with torch.inference_mode():
            output = self.model.network.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                pad_token_id=self.pad,
                eos_token_id=list(self.model.end_ids),
                **self.constraint(requests),
            )
        return [self.read(row[width:].tolist(), request) for row, request in zip(output, requests, strict=True)]

    def constraint(self, requests: Sequence[Asked]) -> dict[str, Any]:
        """The options that constrain a call of generate."""
        from stcon.integrations.transformers import GrammarProcessor

        limit = min(request.max_tokens for request in requests) if len(requests) == 1 else 160
        grammars = [request.grammar for request in requests]
        processor = GrammarProcessor(grammars, self.model.vocabulary, limit)
        return {"max_new_tokens": limit, "logits_processor": [processor]}

    def read(self, tokens: list[int], request: Asked) -> Answer:
        """An output's tokens up to its end."""
        ends = [index for index, token in enumerate(tokens) if token in self.model.end_ids]
        tokens = tokens[: ends[0] + 1] if ends else tokens
        text = self.model.vocabulary.decode(tokens).decode("utf-8", "replace")
        return Answer(text, len(tokens))

    def reference(self, request: Asked) -> str:
        """See `Adapter.reference`."""
        return own_text_of(self.model, request, self.mode)


class ForcedTransformersAdapter(TransformersAdapter):
    """``generate(custom_generate=Constrained(…))``."""

    mode: ClassVar[str] = "canonical"

    def constraint(self, requests: Sequence[Asked]) -> dict[str, Any]:
        """See `TransformersAdapter.constraint`."""
        from stcon.integrations.transformers import Constrained

        limit = requests[0].max_tokens if len(requests) == 1 else 160
        loop = Constrained([request.grammar for request in requests], self.model.vocabulary)
        return {"max_new_tokens": limit, "custom_generate": loop}
