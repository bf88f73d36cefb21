"""llguidance in our loop, and stock ``transformers.generate`` with llguidance as a logits processor.

In our loop llguidance gets what the paper's comparison gives it: its mask is computed on the CPU while the GPU runs
the pass that it is for (`Step.later`), and, with fast-forward, the tokens that it says are forced are fed with the
drawn one. Its matchers are kept from round to round, so that its lexer is warm.
"""

from __future__ import annotations

from typing import Any

import torch

from stcon.vocab.vocabulary import Vocabulary


class LlguidanceProcessor:
    """The logits processor that llguidance's documentation shows, for ``transformers.generate``.

    Args:
        matcher: at the start.
        prompt: tokens of the prompt.
        size: V.
        script: int64[…] on the device, the token wanted at each position, or None (`gpu_extract_models.Scripted`).
    """

    def __init__(self, matcher: Any, prompt: int, size: int, script: torch.Tensor | None) -> None:
        self.matcher = matcher
        self.num_seen = prompt
        self.size = size
        self.script = script
        self._words = torch.zeros(-(-size // 32), dtype=torch.int32, pin_memory=torch.cuda.is_available())
        self._shifts = torch.arange(32, dtype=torch.int32)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask `scores` [1, V'] by what may follow `input_ids`."""
        for token in input_ids[0, self.num_seen :].tolist():
            assert self.matcher.consume_token(token), self.matcher.get_error()
        self.num_seen = input_ids.shape[1]
        self.matcher.unsafe_compute_mask_ptr(self._words.data_ptr(), self._words.nbytes)
        words = self._words.to(scores.device, non_blocking=True)
        bits = (words[:, None] >> self._shifts.to(scores.device)) & 1
        if self.script is not None:
            scores = scores.clone()
            scores[0, self.script[self.num_seen]] += 1e4
        scores[:, self.size :] = -torch.inf
        return scores[:, : self.size].masked_fill(bits.view(1, -1)[:, : self.size] == 0, -torch.inf)


def stock_generate(
    network: Any, matcher: Any, prompt: list[int], vocabulary: Vocabulary, limit: int, script: torch.Tensor | None
) -> list[int]:
    """Tokens that ``network.generate`` writes, greedily, its own dynamic cache, under the processor."""
    from transformers import LogitsProcessorList

    ids = torch.tensor([prompt], device=network.device)
    processor = LlguidanceProcessor(matcher, len(prompt), vocabulary.size, script)
    with torch.inference_mode():
        output = network.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=list(vocabulary.end_ids),
            pad_token_id=vocabulary.end_ids[0],
            logits_processor=LogitsProcessorList([processor]),
        )
    return [int(token) for token in output[0, len(prompt) :].tolist()]
