"""How a chat request thinks before it answers: what the body asks for, and where the rendered prompt leaves off.

A request says so in any of the spellings that clients send: ``chat_template_kwargs`` (``enable_thinking``,
``thinking``), ``reasoning_effort``, vLLM's ``thinking_token_budget``, and our own ``stcon.thinking`` (true, false, or
``{"max_tokens": N}``). If it does not say, the chat template decides: a template that leaves ``<think>`` open, or that
knows the mark and does not close it, is one of a model that thinks.

The mark that opens the thinking stands in the prompt, where the template has not put it already, so the output begins
inside the thinking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stcon.engine.thinking import Thinking
from stcon.server.refusals import BadRequest

if TYPE_CHECKING:
    from stcon.models.base import Model

OPEN, CLOSE = "<think>", "</think>"
GAP = "\n\n"  # between the mark and the answer, as chat templates have it
# shares of max_tokens; source: OpenRouter, "Reasoning tokens", where effort is a ratio of max_tokens
EFFORTS = {"none": 0.0, "minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.95}
_SWITCHES = ("enable_thinking", "thinking")  # of chat templates: Qwen3 and others; Granite, DeepSeek-V3.1
_RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


@dataclass(frozen=True)
class Wish:
    """What a body says of thinking.

    Attributes:
        on: whether to think; None: as the chat template has it.
        max_tokens: of the thinking; None: no cap.
        options: for the chat template.
        is_shown: the answer has the thinking's text.
    """

    on: bool | None
    max_tokens: int | None
    options: Mapping[str, Any]
    is_shown: bool = True


def read_wish(body: Mapping[str, Any], limit: int) -> Wish:
    """What `body` says of thinking.

    Args:
        body: of a chat completion.
        limit: most tokens of the output.

    Raises:
        BadRequest: what is said is not understood, or contradicts itself.
    """
    options = body.get("chat_template_kwargs") or {}
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise BadRequest("chat_template_kwargs: expected an object", "chat_template_kwargs")
    if taken := sorted(_RESERVED & set(options)):
        raise BadRequest(f"chat_template_kwargs: {taken[0]!r} is not for requests to set", "chat_template_kwargs")
    shown = body.get("include_reasoning")
    if shown is not None and not isinstance(shown, bool):
        raise BadRequest(f"include_reasoning: expected true or false, got {shown!r}", "include_reasoning")
    said = [*_switch(options), *_effort(body, limit), *_budget(body), *_own(body)]
    if len({on for _, on, _ in said}) > 1:
        raise BadRequest(f"{said[0][0]} and {said[-1][0]} contradict each other", said[-1][0])
    caps = [cap for _, _, cap in said if cap is not None]
    on = said[0][1] if said else None
    if on is not None:
        options = {**dict.fromkeys(_SWITCHES, on), **options}
    if body.get("reasoning_effort") is not None:
        options = {"reasoning_effort": body["reasoning_effort"], **options}
    return Wish(on, min(caps, default=None), options, shown is not False)


def thinking_prompt(model: Model, rendered: str, wish: Wish) -> tuple[str, Thinking | None]:
    """The prompt as it is fed, and how the output thinks.

    Args:
        model: whose prompt it is.
        rendered: by its chat template, with the wish's options.
        wish: what the request says.
    """
    end = rendered.rstrip()
    is_open, is_closed = end.endswith(OPEN), end.endswith(CLOSE)
    on = wish.on
    if on is None:
        on = is_open or (not is_closed and CLOSE in (model.chat_template or ""))
    if not on:
        return (f"{rendered.rstrip()}{GAP}{CLOSE}{GAP}" if is_open else rendered), None
    if not is_open:
        rendered += OPEN + "\n"
    return rendered, Thinking(CLOSE, GAP, wish.max_tokens, _special(model))


def _special(model: Model) -> int | None:
    """The token without bytes that stands for the mark, if the tokenizer has one."""
    tokens = model.encode_prompt(CLOSE)
    is_special = len(tokens) == 1 and model.vocabulary.token_bytes(tokens[0]) is None
    return tokens[0] if is_special and tokens[0] not in model.end_ids else None


_Said = list[tuple[str, bool, "int | None"]]  # parameter, whether to think, at most how long


def _switch(options: Mapping[str, Any]) -> _Said:
    found: _Said = []
    for name in _SWITCHES:
        if (value := options.get(name)) is not None:
            if not isinstance(value, bool):
                place = f"chat_template_kwargs.{name}"
                raise BadRequest(f"{place}: expected true or false, got {value!r}", place)
            found.append((f"chat_template_kwargs.{name}", value, None))
    return found


def _effort(body: Mapping[str, Any], limit: int) -> _Said:
    effort = body.get("reasoning_effort")
    if effort is None:
        return []
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise BadRequest(f"reasoning_effort: one of {', '.join(EFFORTS)}, not {effort!r}", "reasoning_effort")
    share = EFFORTS[effort]
    return [("reasoning_effort", share > 0, int(share * limit) if share else None)]


def _budget(body: Mapping[str, Any]) -> _Said:
    budget = body.get("thinking_token_budget")
    return [] if budget is None else [("thinking_token_budget", True, _cap(budget, "thinking_token_budget"))]


def _own(body: Mapping[str, Any]) -> _Said:
    own = body.get("stcon")
    value = own.get("thinking") if isinstance(own, dict) else None
    if value is None:
        return []
    if isinstance(value, bool):
        return [("stcon.thinking", value, None)]
    if not isinstance(value, dict) or set(value) - {"max_tokens"}:
        raise BadRequest("stcon.thinking: expected true, false or {'max_tokens': N}", "stcon.thinking")
    cap = value.get("max_tokens")
    return [("stcon.thinking", True, None if cap is None else _cap(cap, "stcon.thinking.max_tokens"))]


def _cap(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise BadRequest(f"{name}: expected an integer from 0, got {value!r}", name)
    return value
