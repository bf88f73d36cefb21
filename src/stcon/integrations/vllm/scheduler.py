"""vLLM's scheduler with stcon behind its structured outputs, and with forced text as drafts.

`make_scheduler` is what ``scheduler_cls`` names: it makes vLLM's own scheduler, the asynchronous one where vLLM would,
and changes two things. The structured-output manager gets our backend, and its grammars are opened for requests, so
that they know the limit and the end tokens. And where drafts were asked for, every running request gets the tokens that
are certain to follow its last one before each step is scheduled; vLLM verifies them with the token after them.

Source: vLLM 0.32.0, ``v1/core/sched/scheduler.py``, ``v1/structured_output/__init__.py``, ``v1/engine/core.py``.
"""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from stcon.errors import DecodingError, ModelUnavailable, RequestError
from stcon.integrations.vllm.backend import StconBackend, StconGrammar, num_drafts
from stcon.integrations.vllm.versions import require_version

logger = init_logger("vllm.stcon")


class _Drafting:
    """Mixed in before a scheduler of vLLM's."""

    structured_output_manager: Any
    running: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        vllm_config = kwargs["vllm_config"]
        self._stcon = attach(self.structured_output_manager, vllm_config)
        self._num_drafts = num_drafts(vllm_config)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """The next step, forced text drafted."""
        if self._num_drafts:
            for request in self.running:
                self._draft(request)
        return super().schedule(*args, **kwargs)  # type: ignore[misc]

    def _draft(self, request: Any) -> None:
        """Draft for a request of which the model has read all but the last token, if its output has begun."""
        asked = request.structured_output_request
        if asked is None or request.num_computed_tokens != request.num_tokens - 1:
            return
        grammar = asked.grammar
        if not isinstance(grammar, StconGrammar):
            return
        if self.structured_output_manager._get_constraint_bounds(request, ()).constraint_start == 0:
            request.spec_token_ids = grammar.drafts(self._num_drafts)


class StconScheduler(_Drafting, Scheduler):  # type: ignore[misc]
    """Steps one after another."""


class StconAsyncScheduler(_Drafting, AsyncScheduler):  # type: ignore[misc]
    """A step is scheduled while the one before runs. Forced drafts are not possible then."""


def make_scheduler(**kwargs: Any) -> Scheduler:
    """The scheduler of an engine; vLLM calls this as it would the class.

    Raises:
        ModelUnavailable: this vLLM, or this model, will not do.
    """
    require_version()
    vllm_config = kwargs["vllm_config"]
    if vllm_config.model_config.is_diffusion:
        raise ModelUnavailable("diffusion models do not write from left to right; stcon cannot constrain them")
    made = (StconAsyncScheduler if vllm_config.scheduler_config.async_scheduling else StconScheduler)(**kwargs)
    logger.info(
        "structured outputs by stcon: %s, %s",
        made._stcon.engine.defaults,
        f"up to {made._num_drafts} forced tokens drafted a step" if made._num_drafts else "nothing drafted",
    )
    return made


def attach(manager: Any, vllm_config: Any) -> StconBackend:
    """Put our backend into vLLM's structured-output manager, which makes one of its own only where it has none."""
    backend = StconBackend(
        vllm_config=vllm_config,
        tokenizer=getattr(manager, "tokenizer", None),
        vocab_size=vllm_config.model_config.get_vocab_size(),
    )

    def create_grammar(request: Any) -> StconGrammar:
        starts_later = manager.reasoner_cls is not None and not manager.enable_in_reasoning
        try:
            return backend.open(request, starts_later)
        except (RequestError, DecodingError) as error:
            logger.warning("request %s is refused: %s", request.request_id, error)
            raise

    manager.backend = backend
    manager._create_grammar = create_grammar
    return backend
