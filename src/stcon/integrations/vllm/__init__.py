"""stcon inside vLLM: exact constraints, outputs complete within ``max_tokens``, and forced text as certain drafts.

::

    from vllm import LLM
    from stcon.integrations.vllm import options

    llm = LLM(model, **options(forced=True))

and everything else is vLLM as it is: ``StructuredOutputsParams``, ``response_format``, tools. For ``vllm serve`` the
same options are flags, printed by ``python -m stcon.integrations.vllm``. See ``docs/vllm.md``.

The parts: `stcon.integrations.vllm.session` and `.compiling` hold all that can be said without vLLM; `.backend` and
`.scheduler` put it behind vLLM's interfaces in the engine's process, `.frontend` refuses requests in the server's.
"""

from __future__ import annotations

from typing import Any

from stcon.integrations.vllm.requests import Settings

SCHEDULER = "stcon.integrations.vllm.scheduler.make_scheduler"
PROPOSER = "stcon.integrations.vllm.proposer.NoDrafts"
CONFIG_KEY = "stcon"
DEFAULT_DRAFTS = 16

__all__ = ["engine_options", "options"]


def engine_options(*, forced: bool = False, drafts: int = DEFAULT_DRAFTS, **settings: Any) -> dict[str, Any]:
    """The options of `options`, without a look at the vLLM that is installed here."""
    from stcon.errors import InvalidOption

    if not 1 <= drafts <= 128:
        raise InvalidOption(f"drafts is 1 to 128, not {drafts}")
    settings.setdefault("mode", "canonical" if forced else "mask")
    Settings().updated(settings)
    found: dict[str, Any] = {"scheduler_cls": SCHEDULER, "additional_config": {CONFIG_KEY: settings}}
    if forced:
        found["speculative_config"] = {"method": "custom_class", "model": PROPOSER, "num_speculative_tokens": drafts}
    return found


def options(*, forced: bool = False, drafts: int = DEFAULT_DRAFTS, **settings: Any) -> dict[str, Any]:
    """Options for ``vllm.LLM`` or ``vllm.AsyncEngineArgs`` that put stcon in charge of structured outputs.

    Args:
        forced: draft the text that the grammar forces, and have it verified in one step with what follows. Takes
            vLLM's place for a speculative method, and turns asynchronous scheduling off.
        drafts: most tokens drafted a step.
        **settings: defaults of requests (`Settings`): ``mode`` (``"canonical"`` with `forced`, else ``"mask"``),
            ``budget``, ``whitespace``, ``key_order``, ``closed``.

    Raises:
        InvalidOption: no such setting, or not one of its values.
        ModelUnavailable: vLLM is not installed, or not the release that this is made for.
    """
    found = engine_options(forced=forced, drafts=drafts, **settings)
    from stcon.integrations.vllm.versions import require_version

    require_version()
    from stcon.integrations.vllm.plugin import register

    register()
    return found
