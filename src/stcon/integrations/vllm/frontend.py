"""Requests are refused where they come in, with the reason: HTTP 400 in the server, ``VLLMValidationError`` in Python.

vLLM's front end has its own backends judge a constraint, which is of no use here: they refuse what we take, and take
what we refuse. For an engine with our scheduler that is switched off, and instead everything that the engine will do to
open a request is done here first: the grammar compiled (`stcon.integrations.vllm.gate`), the limit compared with what
the shortest output takes.

The server does most of it in a thread before its event loop gets to the request, so that others go on meanwhile.

Source: vLLM 0.32.0, ``v1/engine/input_processor.py``, ``v1/engine/async_llm.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

from vllm.exceptions import VLLMValidationError

from stcon.errors import DecodingError, RequestError
from stcon.integrations.vllm import SCHEDULER

_MARK = "_stcon_front"
_THREADS = 32  # they mostly wait


class Front:
    """What an engine's front end needs of us.

    Args:
        vllm_config: the engine's.
        tokenizer: the model's.
    """

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        from stcon.integrations.vllm.backend import Engine
        from stcon.integrations.vllm.gate import Gate

        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stcon-front")
        self.engine = Engine(vllm_config, tokenizer)
        self.gate = Gate(self.engine.compiler.seconds)

    def is_prepared(self, params: Any) -> bool:
        """Whether `prepare` would have nothing to do, as for most requests."""
        try:
            return self.gate.knows(self.engine.constraint(params))
        except RequestError:
            return True  # `check` says so at once

    def prepare(self, params: Any) -> None:
        """Compile what ``SamplingParams`` ask for. Raises ``VLLMValidationError``."""
        _told(lambda: self._prepare(params))

    def check(self, request: Any) -> None:
        """Open a request's session, and drop it. Raises ``VLLMValidationError``."""
        if request.resumable:
            raise VLLMValidationError("structured outputs of requests that are resumed are not supported")
        num_prompt = len(request.prompt_token_ids if request.prompt_embeds is None else request.prompt_embeds)
        self.prepare(request.sampling_params)
        _told(lambda: self.engine.session(request.sampling_params, num_prompt))

    def _prepare(self, params: Any) -> None:
        constraint = self.engine.constraint(params)
        self.gate.check(constraint)
        self.engine.compiler.prepare(constraint)


def install() -> None:
    """Put the hooks into vLLM's classes, once."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.input_processor import InputProcessor

    if hasattr(InputProcessor, _MARK):
        return
    setattr(InputProcessor, _MARK, None)
    _hook_init(InputProcessor)
    _hook_process_inputs(InputProcessor)
    _hook_add_request(AsyncLLM)


def _hook_init(processor_class: Any) -> None:
    original = processor_class.__init__

    @wraps(original)
    def init(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        original(self, vllm_config, *args, **kwargs)
        if vllm_config.scheduler_config.scheduler_cls == SCHEDULER:
            setattr(self, _MARK, Front(vllm_config, self.tokenizer))
            self.structured_outputs_config = None  # vLLM's own check is for its own backends

    processor_class.__init__ = init


def _hook_process_inputs(processor_class: Any) -> None:
    original = processor_class.process_inputs

    @wraps(original)
    def process_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = original(self, *args, **kwargs)
        front = getattr(self, _MARK)
        if front is not None and is_constrained(request.sampling_params):
            front.check(request)
        return request

    processor_class.process_inputs = process_inputs


def _hook_add_request(engine_class: Any) -> None:
    original = engine_class.add_request

    @wraps(original)
    async def add_request(self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        front = getattr(self.input_processor, _MARK)
        if front is not None and is_constrained(params) and not front.is_prepared(params):
            await asyncio.get_running_loop().run_in_executor(front.threads, front.prepare, params)
        return await original(self, request_id, prompt, params, *args, **kwargs)

    engine_class.add_request = add_request


def is_constrained(params: Any) -> bool:
    """Whether ``SamplingParams`` (or others) ask for a structured output."""
    asked = getattr(params, "structured_outputs", None)
    return asked is not None and not asked.all_constraints_none()


def _told(ask: Callable[[], object]) -> None:
    """Do `ask`; a refusal becomes vLLM's."""
    try:
        ask()
    except (RequestError, DecodingError) as error:
        raise VLLMValidationError(f"structured outputs: {error}") from error
