"""mlx-lm with the logits processor in its own loops, and our engine on mlx with forced text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from integration_matrix import Adapter, Answer, Asked, gguf_file, own_text_of, package_missing


class MlxAdapter(Adapter):
    """``BatchGenerator`` with a processor for each constrained sequence: what mlx-lm's server runs."""

    mode: ClassVar[str] = "mask"
    same_arithmetic: ClassVar[bool] = True

    @classmethod
    def missing(cls) -> str | None:
        """See `Adapter.missing`."""
        return package_missing("mlx.core", "mlx_lm", "gguf")

    def open(self) -> None:
        """See `Adapter.open`."""
        self.model = mlx_model()

    def answer(self, requests: Sequence[Asked]) -> list[Answer]:
        """See `Adapter.answer`."""
        from mlx_lm.generate import BatchGenerator

        batch = BatchGenerator(self.model.network, stop_tokens=[[token] for token in self.model.end_ids])
        ids = batch.insert(
            [request.prompt_ids for request in requests],
            max_tokens=[request.max_tokens for request in requests],
            logits_processors=[self._processors(request) for request in requests],
        )
        found: dict[int, list[int]] = {number: [] for number in ids}
        left = set(ids)
        while left:
            _, responses = batch.next()
            for response in responses:
                found[response.uid].append(int(response.token))
                if response.finish_reason is not None:
                    left.discard(response.uid)
        return [self._read(found[number]) for number in ids]

    def reference(self, request: Asked) -> str:
        """See `Adapter.reference`."""
        return own_text_of(self.model, request, self.mode)

    def _processors(self, request: Asked) -> list[Any]:
        from stcon.integrations.mlx_lm import GrammarProcessor

        grammar = request.grammar
        return [] if grammar is None else [GrammarProcessor(grammar, self.model.vocabulary, request.max_tokens)]

    def _read(self, tokens: list[int]) -> Answer:
        text = [token for token in tokens if token not in self.model.end_ids]
        return Answer(self.model.vocabulary.decode(text).decode("utf-8", "replace"), len(tokens))


class ForcedMlxAdapter(MlxAdapter):
    """``load_model(runner="mlx").generate(…)``, our engine itself; a batch is one call a step."""

    mode: ClassVar[str] = "canonical"
    same_arithmetic: ClassVar[bool] = False  # a reference would be the same call again

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


def mlx_model() -> Any:
    """Our engine's model on mlx, in float32."""
    from stcon.models.mlx.load import load

    return load(gguf_file(), progress=False)
