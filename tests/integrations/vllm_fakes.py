"""Stand-ins for the modules of vLLM that `stcon.integrations.vllm` imports, for tests where there is no vLLM.

What is copied from vLLM 0.32.0 is the order of its calls: `FakeManager` fills bitmasks, tries drafts and takes tokens
as ``StructuredOutputManager`` does, `FakeScheduler` schedules and verifies as ``Scheduler`` and the workers do, with a
`FakeModel` for the network.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm_lab import END

import stcon.integrations.vllm
from stcon.models.fake import FakeModel

KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


class FakeGrammar(ABC):
    """The abstract methods of vLLM's class."""

    @abstractmethod
    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool: ...
    @abstractmethod
    def validate_tokens(self, tokens: list[int]) -> list[int]: ...
    @abstractmethod
    def rollback(self, num_tokens: int) -> None: ...
    @abstractmethod
    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None: ...
    @abstractmethod
    def is_terminated(self) -> bool: ...
    @abstractmethod
    def reset(self) -> None: ...


@dataclass
class FakeBackend(ABC):
    """The abstract methods and fields of vLLM's class."""

    vllm_config: Any
    tokenizer: Any
    vocab_size: int

    @abstractmethod
    def compile_grammar(self, request_type: Any, grammar_spec: str, stop_token_ids: Any = None) -> FakeGrammar: ...
    @abstractmethod
    def allocate_token_bitmask(self, max_num_seqs: int) -> Any: ...
    @abstractmethod
    def destroy(self) -> None: ...


class FakeValidationError(Exception):
    """vLLM's error for what a server answers with 400."""


@dataclass
class FakeParams:
    """``SamplingParams`` after vLLM completed them."""

    structured_outputs: Any
    max_tokens: int = 60
    eos_token_id: int | None = END
    stop_token_ids: Sequence[int] = ()
    extra_args: dict[str, Any] | None = None
    ignore_eos: bool = False
    min_tokens: int = 0


class FakeAsked:
    """``StructuredOutputsParams``: one constraint."""

    whitespace_pattern: str | None = None

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text

    def all_constraints_none(self) -> bool:
        """Whether there is none."""
        return False


@dataclass
class FakeRequest:
    """``Request``."""

    request_id: str
    prompt: list[int]
    sampling_params: FakeParams
    output: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    spec_token_ids: list[int] = field(default_factory=list)
    structured_output_request: Any = None
    status: str = "waiting"
    resumable: bool = False
    prompt_embeds: Any = None

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt."""
        return self.prompt

    @property
    def num_output_tokens(self) -> int:
        """Tokens written."""
        return len(self.output)

    @property
    def num_tokens(self) -> int:
        """All tokens."""
        return len(self.prompt) + len(self.output)


class FakeManager:
    """``StructuredOutputManager``, reasoning included: an output begins after the token `think_end`."""

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        self.backend: Any = None
        self.tokenizer = vllm_config.tokenizer
        self.think_end: int | None = vllm_config.think_end
        self.reasoner_cls = None if self.think_end is None else object
        self.enable_in_reasoning = False

    def _create_grammar(self, request: Any) -> Any:
        raise AssertionError("stcon puts its own here")

    def grammar_init(self, request: FakeRequest) -> None:
        """Make the grammar; an error is kept for the scheduler."""
        future: Future[Any] = Future()
        try:
            future.set_result(self._create_grammar(request))
        except Exception as error:
            future.set_exception(error)
        grammar = future.exception() or future.result()
        request.structured_output_request = SimpleNamespace(grammar=grammar, reasoning_ended=self.think_end is None)

    def _get_constraint_bounds(self, request: FakeRequest, tokens: Sequence[int]) -> Any:
        start = 0 if request.structured_output_request.reasoning_ended else len(tokens) + 1
        return SimpleNamespace(grammar_start=start, constraint_start=start)

    def bitmasks(self, request: FakeRequest, drafts: Sequence[int]) -> np.ndarray:
        """Rows for each draft and one more, the drafts tried and taken back."""
        bitmask = self.backend.allocate_token_bitmask(1 + len(drafts))
        grammar, tried = request.structured_output_request.grammar, 0
        applies = self._get_constraint_bounds(request, drafts).constraint_start == 0
        for row, token in enumerate([*drafts, None]):
            if applies and not grammar.is_terminated():
                grammar.fill_bitmask(bitmask, row)
            else:
                bitmask[row].fill_(-1)
            if applies and token is not None:
                assert not grammar.is_terminated()
                assert grammar.accept_tokens(request.request_id, [token]), "vLLM calls this unexpected"
                tried += 1
        if tried:
            grammar.rollback(tried)
        found: np.ndarray = bitmask.numpy()
        return found

    def accept_tokens(self, request: FakeRequest, new: list[int]) -> bool:
        """Take tokens that were written, those after the reasoning."""
        asked = request.structured_output_request
        if not asked.reasoning_ended:
            if self.think_end not in new:
                return True
            asked.reasoning_ended = True
            new = new[new.index(self.think_end) + 1 :]
        accepted: bool = asked.grammar.accept_tokens(request.request_id, new)
        return accepted


class FakeScheduler:
    """``Scheduler``, the engine's step and the worker's sampler in one: greedy, requests one after another."""

    def __init__(self, **kwargs: Any) -> None:
        self.structured_output_manager = kwargs["structured_output_manager"]
        self.running: list[FakeRequest] = []
        self.steps = self.num_drafted = self.num_accepted = 0

    def schedule(self) -> list[tuple[FakeRequest, list[int]]]:
        """What runs next: each request with its drafts, which it loses."""
        scheduled = [(request, request.spec_token_ids) for request in self.running]
        for request, drafts in scheduled:
            request.num_computed_tokens = request.num_tokens + len(drafts)
            request.spec_token_ids = []
        return scheduled

    def run(self, requests: Sequence[FakeRequest], model: FakeModel) -> None:
        """Answer all of them."""
        for request in requests:
            if request.sampling_params.structured_outputs is not None:
                self.structured_output_manager.grammar_init(request)
            grammar = getattr(request.structured_output_request, "grammar", None)
            if isinstance(grammar, Exception):
                request.status = "error"
            else:
                self.running.append(request)
        while self.running:
            self.steps += 1
            for request, drafts in self.schedule():
                self._update(request, drafts, self._sample(request, drafts, model))

    def preempt(self, request: FakeRequest) -> None:
        """Give a request's cache up: everything is read again."""
        request.num_computed_tokens = 0
        request.spec_token_ids = []

    def _sample(self, request: FakeRequest, drafts: list[int], model: FakeModel) -> list[int]:
        is_constrained = request.structured_output_request is not None
        masks = self.structured_output_manager.bitmasks(request, drafts) if is_constrained else None
        new: list[int] = []
        for row, draft in enumerate([*drafts, None]):
            logits = model.session().append([*request.prompt, *request.output, *new])
            if masks is not None:
                allowed = np.unpackbits(masks[row].view(np.uint8), bitorder="little")[: len(logits)].astype(bool)
                logits = np.where(allowed, logits, -np.inf)
            new.append(int(logits.argmax()))
            if new[-1] != draft:
                break
        self.num_drafted += len(drafts)
        self.num_accepted += len(new) - 1
        return new

    def _update(self, request: FakeRequest, drafts: list[int], new: list[int]) -> None:
        request.num_computed_tokens -= len(drafts) - (len(new) - 1)
        params, taken = request.sampling_params, []
        for token in new:
            request.output.append(token)
            taken.append(token)
            if token == params.eos_token_id or token in params.stop_token_ids:
                request.status = "stop"
            elif request.num_output_tokens >= params.max_tokens:
                request.status = "length"
            if request.status != "waiting":
                break
        manager = self.structured_output_manager
        if request.structured_output_request is not None and not manager.accept_tokens(request, taken):
            request.status = "error"
        if request.status != "waiting":
            self.running.remove(request)


class FakeAsyncScheduler(FakeScheduler):
    """``AsyncScheduler``."""


def _get_structured_output_key(asked: FakeAsked) -> tuple[Any, str]:
    return Kinds[asked.kind.upper()], asked.text


Kinds = Enum("Kinds", [kind.upper() for kind in KINDS])  # type: ignore[misc]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins into ``sys.modules``, and take our modules that import them out."""
    contents: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.exceptions": {"VLLMValidationError": FakeValidationError},
        "vllm.v1": {},
        "vllm.v1.structured_output": {},
        "vllm.v1.structured_output.backend_types": {
            "StructuredOutputBackend": FakeBackend,
            "StructuredOutputGrammar": FakeGrammar,
        },
        "vllm.v1.structured_output.request": {"get_structured_output_key": _get_structured_output_key},
        "vllm.v1.core": {},
        "vllm.v1.core.sched": {},
        "vllm.v1.core.sched.async_scheduler": {"AsyncScheduler": FakeAsyncScheduler},
        "vllm.v1.core.sched.output": {"SchedulerOutput": object},
        "vllm.v1.core.sched.scheduler": {"Scheduler": FakeScheduler},
    }
    for name, names in contents.items():
        module = ModuleType(name)
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, module)
    forget_ours()


def forget_ours() -> None:
    """Take the modules of ours that import vLLM out, so that they are imported anew."""
    for name in ("backend", "scheduler", "frontend"):
        sys.modules.pop(f"stcon.integrations.vllm.{name}", None)
        vars(stcon.integrations.vllm).pop(name, None)
