"""Chat templates: the Jinja program a model ships to turn messages into a prompt.

Run in Jinja's immutable sandbox, with the environment that transformers documents for templates (trimmed blocks,
``tojson``, ``raise_exception``, ``strftime_now``), so that a template means the same wherever the model's file came
from. Source: transformers, ``utils/chat_template_utils.py``. Not supported: ``{% generation %}`` masks for training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from stcon.errors import InvalidOption, ModelUnavailable


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    special: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """The prompt that `template` makes of `messages`, ending where the assistant's answer begins.

    Args:
        template: Jinja source.
        messages: each with ``role`` and ``content`` (and whatever else the template reads).
        tools: JSON Schemas of functions, passed to the template as they are.
        special: text of the special tokens a template may name (``bos_token`` …).
        options: what else the template reads (``enable_thinking`` …).

    Raises:
        InvalidOption: not a list of messages, or the template refuses them.
        ModelUnavailable: the template does not parse, or Jinja is not installed.
    """
    for message in messages:
        if not isinstance(message, Mapping) or "role" not in message:
            raise InvalidOption("messages: each must be an object with 'role' and 'content'")
    if not messages:
        raise InvalidOption("messages: at least one is needed")
    from jinja2.exceptions import TemplateError

    compiled = _compile(template)
    try:
        own = {"messages": list(messages), "tools": tools, "documents": None, "add_generation_prompt": True}
        text: str = compiled.render({**(options or {}), **own, **(special or {})})
    except (
        TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InvalidOption(f"the model's chat template refuses these messages: {_one_line(error)}") from error
    return text


@lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    """The compiled template."""
    try:
        from jinja2 import Environment
        from jinja2.exceptions import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ModelUnavailable("chat templates need jinja2; run: pip install 'stcon[torch]'") from error
    environment: Environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise ModelUnavailable(f"the model's chat template does not parse: {_one_line(error)}") from error


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without Jinja's HTML escapes, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__
