"""vLLM's structured-output interface over `Session`: what its engine process asks of a backend.

`Engine` is the part of one engine that makes sessions: vocabulary, compiler, defaults. `StconGrammar` is a request's
grammar as vLLM drives it: masks at each draft position, tokens tried and taken back, tokens accepted. Whatever goes
wrong in one ends its own request: vLLM gives a request whose tokens are refused the finish reason ``error``, and the
engine goes on.

Bitmasks are vLLM's: int32 [rows, ceil(V / 32)], bit ``t % 32`` of word ``t // 32`` for token t, as ours are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from vllm.logger import init_logger
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
)
from vllm.v1.structured_output.request import get_structured_output_key

from stcon.errors import LimitTooSmall, ModelUnavailable
from stcon.integrations.vllm import CONFIG_KEY, PROPOSER
from stcon.integrations.vllm.compiling import compiler_for
from stcon.integrations.vllm.requests import PREFIX, Constraint, Settings, check_sampling
from stcon.integrations.vllm.session import Session, Stops
from stcon.integrations.vllm.warming import warm_up
from stcon.vocab.vocabulary import Vocabulary

Int32Tensor = Any

logger = init_logger("vllm.stcon")


class Engine:
    """What makes the sessions of one engine. Its own in the engine's process and in the server's.

    Args:
        vllm_config: the engine's.
        tokenizer: the model's, as vLLM has it.

    Raises:
        ModelUnavailable: the tokenizer's tokens have no exact bytes, or drafts are asked for in a pipeline.
        InvalidOption: a default is not one.
    """

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        if tokenizer is None:
            raise ModelUnavailable("stcon needs the tokenizer; start vLLM without skip_tokenizer_init")
        if vllm_config.parallel_config.pipeline_parallel_size > 1 and num_drafts(vllm_config):
            raise ModelUnavailable(
                "vLLM 0.32.0 cannot draft under pipeline parallelism: its V1 runner has no drafter in early stages; "
                "use tensor parallelism, or leave forced out"
            )
        given = vllm_config.additional_config.get(CONFIG_KEY, {})
        self.defaults = Settings().updated(given)
        self.max_model_len: int = vllm_config.model_config.max_model_len
        self.num_drafts: int = vllm_config.num_speculative_tokens
        size = max(vllm_config.model_config.get_vocab_size(), len(tokenizer))
        ends = vllm_config.model_config.try_get_generation_config().get("eos_token_id") or ()
        ends = (ends,) if isinstance(ends, int) else tuple(ends)
        self.vocabulary = _vocabulary_of(tokenizer, size, ends)
        self.compiler = compiler_for(self.vocabulary)

    def constraint(self, params: Any) -> Constraint:
        """What ``SamplingParams`` ask for. Raises InvalidOption where they ask for what cannot be."""
        asked = params.structured_outputs
        check_sampling(params)
        settings = self.defaults.updated(params.extra_args or {}, PREFIX)
        kind, text = get_structured_output_key(asked)
        return Constraint(kind.name.lower(), text, settings, asked.whitespace_pattern)

    def session(self, params: Any, num_prompt: int) -> Session:
        """A session for a request.

        Args:
            params: its ``SamplingParams``, completed by vLLM (limit and end tokens are known).
            num_prompt: tokens of its prompt.

        Raises:
            RequestError: see `Compiler.session`, `Stops` and `constraint`.
            DecodingError: no tokens spell a text of the grammar.
        """
        constraint = self.constraint(params)
        first = [] if params.eos_token_id is None else [params.eos_token_id]
        stops = Stops(self.vocabulary, [*first, *(params.stop_token_ids or ())])
        limit = self.limit(params, num_prompt)
        return self.compiler.session(constraint, stops, limit, max_rollback=2 * self.num_drafts + 16)

    def limit(self, params: Any, num_prompt: int) -> int:
        """Tokens that the output may have: vLLM stops at the request's limit, and where the context ends."""
        room = self.max_model_len - num_prompt
        return room if params.max_tokens is None else min(params.max_tokens, room)


class StconGrammar(StructuredOutputGrammar):  # type: ignore[misc]
    """One request's grammar.

    Args:
        session: its session.
        request: vLLM's request.
        num_ahead: most tokens that may come before the output begins and are not counted by the request yet when it
            does; None: the output begins at once (no reasoning comes before it).
    """

    def __init__(self, session: Session, request: Any, num_ahead: int | None = None) -> None:
        self.session = session
        self._request = request
        self._limit = session.limit
        self._num_ahead = num_ahead
        self._num_before = 0
        self._is_broken = False

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take tokens; False at the first that may not come."""
        accepted = False
        with self._contained():
            accepted = not self._is_broken and all(map(self.session.accept, tokens))
            if self.session.error is not None:
                logger.warning("request %s ends: %s", request_id, self.session.error)
        return accepted

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix that may come next."""
        found: list[int] = []
        with self._contained():
            found = self.session.validate(tokens)
        return found

    def rollback(self, num_tokens: int) -> None:
        """Take tokens back."""
        with self._contained():
            self.session.rollback(num_tokens)

    def fill_bitmask(self, bitmask: Int32Tensor, batch_index: int) -> None:
        """Write the mask of what may come next into a row (int32[rows, W])."""
        row = bitmask[batch_index].numpy()
        with self._contained():
            self._count_what_came_before()
            self.session.fill(row)
        if self._is_broken:
            row[:] = -1  # whatever is drawn is refused

    def drafts(self, count: int) -> list[int]:
        """Tokens that are certain to come next, `count` at most."""
        found: list[int] = []
        with self._contained():
            self._count_what_came_before()
            found = self.session.drafts(count)
        return found

    def is_terminated(self) -> bool:
        """Whether an end token was accepted."""
        return self.session.is_finished

    def reset(self) -> None:
        """Back to the beginning."""
        with self._contained():
            self.session.restart(self._limit)

    def _count_what_came_before(self) -> None:
        """Take what was written before the output, its reasoning, from the limit.

        Where so much was written that no output fits any more, it may be cut.
        """
        if self._limit is None or self._num_ahead is None or self.session.num_accepted:
            return
        before = self._request.num_output_tokens
        if before == self._num_before:
            return
        self._num_before = before
        try:
            self.session.restart(self._limit - before - self._num_ahead)
        except LimitTooSmall as error:
            logger.warning("request %s: after its reasoning, %s", self._request.request_id, error)
            self.session.restart(None)

    @contextmanager
    def _contained(self) -> Iterator[None]:
        """An error of ours ends this request, and no other."""
        try:
            yield
        except Exception:
            self._is_broken = True
            logger.exception("request %s: an error in its grammar ends it", self._request.request_id)


@dataclass
class StconBackend(StructuredOutputBackend):  # type: ignore[misc]
    """vLLM's backend. Requests get their grammars from `open`, which knows the request; vLLM's way in does not."""

    def __post_init__(self) -> None:
        self.engine = Engine(self.vllm_config, self.tokenizer)
        warm_up(self.engine.vocabulary)

    def open(self, request: Any, starts_later: bool) -> StconGrammar:
        """The grammar of a request.

        Args:
            request: vLLM's request.
            starts_later: it may reason before its output begins.

        Raises:
            RequestError, DecodingError: see `Engine.session`; vLLM ends the request.
        """
        session = self.engine.session(request.sampling_params, request.num_prompt_tokens)
        return StconGrammar(session, request, self.engine.num_drafts if starts_later else None)

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, stop_token_ids: set[int] | None = None
    ) -> StructuredOutputGrammar:
        """Not called: the scheduler calls `open`."""
        raise NotImplementedError("stcon's grammars are made for requests")

    def allocate_token_bitmask(self, max_num_seqs: int) -> Int32Tensor:
        """int32[rows, W], all tokens allowed."""
        return torch.full((max_num_seqs, self.engine.vocabulary.num_words), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Nothing is held."""


def num_drafts(vllm_config: Any) -> int:
    """How many tokens an engine's options ask us to draft a step; 0 where another method drafts, or none."""
    speculative = vllm_config.speculative_config
    if speculative is None or speculative.method != "custom_class" or speculative.model != PROPOSER:
        return 0
    return int(speculative.num_speculative_tokens)


_vocabularies: dict[tuple[int, int], tuple[Any, Vocabulary]] = {}


def _vocabulary_of(tokenizer: Any, size: int, end_ids: Sequence[int]) -> Vocabulary:
    """The vocabulary of a tokenizer, made once (the tokenizer is kept, so that its id is never another's)."""
    key = id(tokenizer), size
    if key not in _vocabularies:
        _vocabularies[key] = tokenizer, Vocabulary.from_tokenizer(tokenizer, size=size, end_ids=end_ids)
    return _vocabularies[key][1]
