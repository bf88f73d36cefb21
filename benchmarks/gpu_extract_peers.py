"""llguidance in our loop, and stock ``transformers.generate`` with llguidance as a logits processor.

In our loop llguidance gets what the paper's comparison gives it: its mask is computed on the CPU while the GPU runs
the pass that it is for (`Step.later`), and, with fast-forward, the tokens that it says are forced are fed with the
drawn one. Its matchers are kept from round to round, so that its lexer is warm.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from stcon.bench.masks_peers import Spelling
from stcon.bench.workloads import Workload
from stcon.engine.control import Mode, Step
from stcon.vocab.vocabulary import Vocabulary

COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


class Llguidance:
    """llguidance over a vocabulary: matchers of JSON Schemas without whitespace, as our grammars are."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        wrapper = TokenizerWrapper(Spelling(vocabulary))
        self.vocabulary = vocabulary
        self._tokenizer = LLTokenizer(wrapper, n_vocab=vocabulary.size, eos_token=list(vocabulary.end_ids))
        self._matchers: dict[str, Any] = {}

    def matcher(self, task: Workload) -> Any:
        """A matcher at the start of an answer to `task`."""
        from llguidance import LLMatcher

        matcher = self._matchers.get(task.name)
        if matcher is None:
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(task.schema), defaults=COMPACT)
            matcher = self._matchers[task.name] = LLMatcher(self._tokenizer, grammar, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        matcher.reset()
        return matcher


class LlguidanceControl:
    """llguidance as a `stcon.engine.control.Control`.

    Args:
        peer: makes the matcher.
        task: whose schema.
        forward: feed the tokens that it forces.
    """

    mode: Mode = "mask"

    def __init__(self, peer: Llguidance, task: Workload, *, forward: bool) -> None:
        self.matcher = peer.matcher(task)
        self.forward = forward
        self._words = np.zeros(peer.vocabulary.num_words, np.int32)

    def begin(self) -> Step:
        """What it forces at the start."""
        return self._step(())

    def choose(self, token: int) -> Step:
        """The token and what it forces after it."""
        assert self.matcher.consume_token(token), self.matcher.get_error()
        return self._step((token,))

    def need(self) -> None:
        """Not known."""

    def is_quiet(self, token: int | None) -> bool:
        """Never: its mask comes from the host."""
        return False

    def _step(self, tokens: tuple[int, ...]) -> Step:
        forced = self.matcher.compute_ff_tokens() if self.forward and not self.matcher.is_stopped() else []
        if forced:
            assert self.matcher.consume_tokens(forced), self.matcher.get_error()
        is_done = self.matcher.is_stopped()
        return Step((*tokens, *forced), is_done=is_done, later=None if is_done else self._mask)

    def _mask(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        self.matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        return self._words


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
