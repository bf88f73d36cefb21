"""Stock ``transformers.generate`` in one static batch, each row masked by llguidance, as both are documented."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from stcon.bench.throughput import Task
from stcon.vocab.vocabulary import Vocabulary

COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


class Stock(NamedTuple):
    """One batch.

    Attributes:
        rows: how many.
        tokens: written, end tokens counted; what a row gets after its end is not.
        steps: calls of the network.
        seconds: without the prompts' pass and the first token.
        texts: what was written.
    """

    rows: int
    tokens: int
    steps: int
    seconds: float
    texts: list[str]


class Matchers:
    """llguidance's matchers of tasks over a vocabulary, compiled once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        from stcon.bench.masks_peers import Spelling

        wrapper = TokenizerWrapper(Spelling(vocabulary))
        self._tokenizer = LLTokenizer(wrapper, n_vocab=vocabulary.size, eos_token=list(vocabulary.end_ids))

    def of(self, task: Task) -> Any:
        """A fresh matcher, or None for free text."""
        from llguidance import LLMatcher

        if task.schema is None and task.pattern is None:
            return None
        if task.schema is not None:
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(task.schema), defaults=COMPACT)
        else:
            grammar = LLMatcher.grammar_from_regex(task.pattern)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        return matcher


class Processor:
    """Masks a batch's logits; after its end a row gets what the library pads with."""

    def __init__(
        self, matchers: Sequence[Any], prompt: int, vocabulary: Vocabulary, scripts: Sequence[Sequence[int]]
    ) -> None:
        self.matchers = matchers
        self.prompt = prompt
        self.num_seen = prompt
        self.size = vocabulary.size
        self.ends = set(vocabulary.end_ids)
        self.scripts = scripts
        self.is_over = [False] * len(matchers)
        self.words = torch.full((len(matchers), vocabulary.num_words), -1, dtype=torch.int32)
        if torch.cuda.is_available():
            self.words = self.words.pin_memory()
        self.steps = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """[B, V']: what may not come is -inf; the script's token is pushed, as for ours."""
        self.steps += 1
        for tokens in input_ids[:, self.num_seen :].T.tolist():
            self._consume(tokens)
        self.num_seen = input_ids.shape[1]
        width = self.words.shape[1] * 4
        for row, matcher in enumerate(self.matchers):
            if matcher is not None and not self.is_over[row]:
                matcher.unsafe_compute_mask_ptr(self.words.data_ptr() + row * width, width)
        words = self.words.to(scores.device, non_blocking=True)
        bits = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=scores.device)) & 1
        allowed = bits.flatten(1)[:, : self.size].bool()
        place = self.num_seen - self.prompt
        wanted = [script[min(place, len(script) - 1)] for script in self.scripts]
        pushed = torch.zeros_like(scores[:, : self.size])
        pushed.scatter_(1, torch.tensor(wanted, device=scores.device)[:, None], 1e4)
        return (scores[:, : self.size] + pushed).masked_fill(~allowed, -torch.inf)

    def _consume(self, tokens: Sequence[int]) -> None:
        for row, (matcher, token) in enumerate(zip(self.matchers, tokens, strict=True)):
            if self.is_over[row]:
                continue
            if matcher is not None and token not in self.ends:
                assert matcher.consume_token(token), matcher.get_error()
            self.is_over[row] = token in self.ends or (matcher is not None and matcher.is_stopped())
            if self.is_over[row]:
                self.words[row] = -1


def generate(
    network: Any,
    vocabulary: Vocabulary,
    tasks: Sequence[Task],
    prompts: Sequence[Sequence[int]],
    scripts: Sequence[Sequence[int]],
) -> Stock:
    """One batch: two tokens to warm up, one to be taken off, then the whole."""
    peers = Matchers(vocabulary)
    end, longest = vocabulary.end_ids[0], max(map(len, prompts))
    ids = torch.tensor([[end] * (longest - len(row)) + list(row) for row in prompts], device=network.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts], device=network.device)
    limit = max(map(len, scripts))
    times = []
    for most in (2, 1, limit):
        processor = Processor([peers.of(task) for task in tasks], longest, vocabulary, scripts)
        _wait()
        started = perf_counter()
        with torch.inference_mode():
            found = network.generate(
                input_ids=ids,
                attention_mask=mask,
                logits_processor=[processor],
                max_new_tokens=most,
                do_sample=False,
                eos_token_id=list(vocabulary.end_ids),
                pad_token_id=end,
            )
        _wait()
        times.append(perf_counter() - started)
    rows = [_cut(row, vocabulary) for row in found[:, longest:].tolist()]
    texts = [vocabulary.decode([t for t in row if t != end]).decode("utf-8", "replace") for row in rows]
    return Stock(len(rows), int(np.sum([len(row) for row in rows])), processor.steps, times[2] - times[1], texts)


def _cut(row: list[int], vocabulary: Vocabulary) -> list[int]:
    """A row up to its end token, which counts."""
    stop = next((i for i, token in enumerate(row) if token in vocabulary.end_ids), len(row) - 1)
    return row[: stop + 1]


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
