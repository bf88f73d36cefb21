"""OpenAI's request bodies as requests to a batch. What is not known or cannot be enforced is refused by name.

Constraints are taken in the spellings that clients send: ``response_format`` (``text``, ``json_object``,
``json_schema``, strict or not: all are enforced; ``structural_tag``), ``structured_outputs`` (``json``, ``regex``,
``choice``, ``grammar``, ``structural_tag``), vLLM's older ``guided_json``, ``guided_regex``, ``guided_choice``,
``guided_grammar`` and llama.cpp's ``grammar`` (GBNF) and ``json_schema``; at most one of them in a request.

With ``tools`` a reply is free text, or a value of the schema of ``response_format``, or calls (`stcon.server.tools`).

Our own settings stand in ``stcon``: ``budget`` (default true: a constrained answer is complete within its limit),
``mode``, ``guards`` (``repeat``, ``max_calls``, ``same_call``), ``trace`` (streams say which tokens were forced),
``thinking`` (`stcon.server.thinking`) and ``tool_format`` (`stcon.server.tools`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stcon.engine.adjust import Adjustment
from stcon.engine.batch import Guards, Request
from stcon.engine.sampling import Sampling
from stcon.errors import GrammarError, RequestError
from stcon.server.grammars import Grammars
from stcon.server.messages import plain_messages
from stcon.server.refusals import BadRequest
from stcon.server.thinking import Wish, read_wish, thinking_prompt
from stcon.server.tools import Offer, messages_for, read_offer, refused

if TYPE_CHECKING:
    from stcon.engine.thinking import Thinking
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

DEFAULT_MAX_TOKENS = 1024  # where a request gives no limit; less where the context ends before
DEFAULT_TEXT_TOKENS = 16  # the same of /v1/completions, as OpenAI has it

_IGNORED = frozenset({"model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
_SHARED = frozenset({
    "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "stream", "stream_options", "presence_penalty",
    "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "stcon", "response_format", "structured_outputs",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema",
})  # fmt: skip
_KNOWN = {
    "chat": _SHARED
    | {"messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"}
    | {"chat_template_kwargs", "reasoning_effort", "thinking_token_budget", "include_reasoning"},
    "text": _SHARED | {"prompt", "echo", "suffix", "best_of"},
}
_OPEN_OBJECT = {"type": "object"}
# how each constraint is spelled → the method of `Grammars` that compiles it
_STRUCTURED = {
    "json": "schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
    "structural_tag": "structural_tag",
}
_GUIDED = {
    "guided_json": "schema",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "grammar": "gbnf",
    "json_schema": "schema",
}


def chat_request(body: Mapping[str, Any], model: Model, grammars: Grammars) -> Request:
    """A body of /v1/chat/completions.

    Raises:
        BadRequest: with the parameter at fault.
    """
    _check_known(body, "chat")
    offer = read_offer(body, model.chat_template)
    if not isinstance(body.get("messages"), list):
        raise BadRequest("messages: expected a list of messages", "messages")
    limit = _limit(body, "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens")
    wish = read_wish(body, limit)
    rendered = _guarded("messages", lambda: _rendered(model, body["messages"], offer, wish))
    text, thinking = thinking_prompt(model, rendered, wish)
    prompt = _guarded("messages", lambda: model.encode_prompt(text))
    wants = _typed(body, "logprobs", bool, False)
    top = _typed(body, "top_logprobs", int, 0)
    if top and not wants:
        raise BadRequest("top_logprobs needs logprobs: true", "top_logprobs")
    grammar = constraint(body, grammars) if offer is None else reply_grammar(body, offer, grammars)
    return _request(body, prompt, limit, top if wants else None, grammar, thinking)


def _rendered(model: Model, messages: list[Any], offer: Offer | None, wish: Wish) -> str:
    """The conversation as the prompt's text."""
    shown = messages_for(plain_messages(messages), offer, model.chat_template)
    tools = offer.entries if offer is not None and offer.in_template else None
    return model.render_chat(shown, tools=tools, options=wish.options)


def text_request(body: Mapping[str, Any], model: Model, grammars: Grammars) -> Request:
    """A body of /v1/completions.

    Raises:
        BadRequest: with the parameter at fault.
    """
    _check_known(body, "text")
    for name in ("echo", "suffix", "best_of"):
        if body.get(name):
            raise BadRequest(f"{name} is not supported", name)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        text = prompt
        ids = _guarded("prompt", lambda: model.prompt_ids(text, raw=True))
    elif isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        if not all(0 <= token < model.vocabulary.size for token in prompt):
            raise BadRequest(f"prompt: token ids are 0 to {model.vocabulary.size - 1}", "prompt")
        ids = prompt
    else:
        raise BadRequest("prompt: expected one text, or a list of token ids", "prompt")
    limit = _limit(body, "max_tokens", DEFAULT_TEXT_TOKENS)
    return _request(body, ids, limit, _typed(body, "logprobs", int, None), constraint(body, grammars))


def _request(
    body: Mapping[str, Any],
    prompt: list[int],
    limit: int,
    logprobs: int | None,
    grammar: Grammar | None,
    thinking: Thinking | None = None,
) -> Request:
    """What both kinds of bodies share."""
    own = _typed(body, "stcon", dict, {})
    known = {
        "budget",
        "mode",
        "guards",
        "trace",
        "parallel",
        "decide",
        *(("tool_format", "thinking") if "messages" in body else ()),
    }
    unknown = set(own) - known
    if unknown:
        raise BadRequest(f"stcon: unknown setting {min(unknown)!r}", f"stcon.{min(unknown)}")
    stop = body.get("stop") or ()
    guards = _guards(_typed(own, "guards", dict, {}, "stcon."))
    request = _guarded(
        None,
        lambda: Request(
            prompt,
            grammar,
            max_tokens=limit,
            mode=own.get("mode", "canonical"),
            sampling=_sampling(body),
            n=_number(body, "n", 1),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            budget=_typed(own, "budget", bool, True, "stcon."),
            logprobs=logprobs,
            adjustment=_adjustment(body),
            guards=guards,
            report_need=_typed(own, "trace", bool, False, "stcon."),
            thinking=thinking,
            parallel=_typed(own, "parallel", bool, False, "stcon."),
            decide=_typed(own, "decide", str, "token", "stcon."),
        ),
    )
    assert isinstance(request, Request), "built above"
    return request


def constraint(body: Mapping[str, Any], grammars: Grammars) -> Grammar | None:
    """The grammar that a body asks for, or None.

    Raises:
        BadRequest: several constraints, an unknown one, or one that does not compile; names the JSON pointer.
    """
    found = body_constraints(body)
    if not found:
        return None
    if len(found) > 1:
        raise BadRequest(f"{found[0][0]} and {found[1][0]}: give one constraint", found[1][0])
    param, kind, value = found[0]
    build: Callable[[Any], Grammar] = getattr(grammars, kind)
    grammar: Grammar = _guarded(param, lambda: build(value))
    return grammar


def reply_grammar(body: Mapping[str, Any], offer: Offer, grammars: Grammars) -> Grammar:
    """The grammar of the replies to a body that offers tools, with the answer's schema if it has one too.

    Raises:
        BadRequest: as `constraint`; names the tool that cannot be enforced.
    """
    from stcon.grammar.tools import ToolError

    if body.get("stop"):
        raise BadRequest("stop: it could cut a tool call; leave it out, or the tools", "stop")
    found = body_constraints(body)
    for param, kind, _ in found:
        if kind != "schema" or not param.startswith("response_format"):
            raise BadRequest(f"tools and {param}: beside tools give response_format with a schema, or nothing", param)
    param, answer = (found[0][0], found[0][2]) if found and not offer.required else ("tools", None)
    try:
        grammar: Grammar = _guarded(param, lambda: grammars.reply(offer, answer))
    except BadRequest as error:
        if isinstance(error.__cause__, ToolError):
            raise refused(error.__cause__) from None
        raise
    return grammar


def body_grammar(body: Mapping[str, Any], model: Model, grammars: Grammars) -> Grammar | None:
    """The grammar that a body asks for, tools or not, or None. Raises `BadRequest`."""
    offer = read_offer(body, model.chat_template)
    return constraint(body, grammars) if offer is None else reply_grammar(body, offer, grammars)


def body_constraints(body: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Every constraint of a body as (parameter, method of `Grammars`, what). Raises `BadRequest`."""
    found = []
    format_ = body.get("response_format")
    if format_ is not None:
        kind = format_.get("type") if isinstance(format_, dict) else None
        if kind == "json_object" and format_.get("schema") is not None:  # as llama.cpp takes it
            found.append(("response_format.schema", "schema", format_["schema"]))
        elif kind == "json_object":
            found.append(("response_format", "schema", _OPEN_OBJECT))
        elif kind == "json_schema":
            inner = format_.get("json_schema")
            if not isinstance(inner, dict) or "schema" not in inner:
                raise BadRequest("response_format.json_schema: expected an object with 'schema'", "response_format")
            found.append(("response_format.json_schema.schema", "schema", inner["schema"]))
        elif kind == "structural_tag":
            found.append(("response_format", "structural_tag", format_))
        elif kind != "text":
            raise BadRequest(f"response_format: unknown type {kind!r}", "response_format.type")
    structured = _typed(body, "structured_outputs", dict, {})
    for name, value in structured.items():
        if name == "json_object" and value in (None, True, False):
            found += [("structured_outputs.json_object", "schema", _OPEN_OBJECT)] if value else []
            continue
        kind = _STRUCTURED.get(name)
        if kind is None:
            raise BadRequest(f"structured_outputs: {name!r} is not supported", f"structured_outputs.{name}")
        if value is not None:
            found.append((f"structured_outputs.{name}", kind, value))
    for name, kind in _GUIDED.items():
        if body.get(name) is not None:
            found.append((name, kind, body[name]))
    return found


def _sampling(body: Mapping[str, Any]) -> Sampling:
    """OpenAI's defaults: temperature 1."""
    return Sampling(
        temperature=_number(body, "temperature", 1.0),
        top_k=max(0, _number(body, "top_k", 0)),  # -1 is vLLM's "off"
        top_p=_number(body, "top_p", 1.0),
        min_p=_number(body, "min_p", 0.0),
        seed=_typed(body, "seed", int, None),
    )


def _adjustment(body: Mapping[str, Any]) -> Adjustment:
    bias = _typed(body, "logit_bias", dict, {})
    try:
        numbers = {int(token): value for token, value in bias.items()}
    except ValueError:
        raise BadRequest("logit_bias: keys are token ids", "logit_bias") from None
    if any(token < 0 for token in numbers):
        raise BadRequest("logit_bias: keys are token ids", "logit_bias")
    return Adjustment(_number(body, "presence_penalty", 0.0), _number(body, "frequency_penalty", 0.0), numbers)


def _guards(given: Mapping[str, Any]) -> Guards:
    kinds = {"repeat": bool, "max_calls": int, "same_call": bool}
    if unknown := sorted(set(given) - set(kinds)):
        raise BadRequest(f"stcon.guards: unknown guard {unknown[0]!r}", f"stcon.guards.{unknown[0]}")
    read = {name: _typed(given, name, kind, None, "stcon.guards.") for name, kind in kinds.items()}
    said = {name: value for name, value in read.items() if value is not None}
    guards: Guards = _guarded("stcon.guards", lambda: Guards(**said))
    return guards


def _limit(body: Mapping[str, Any], name: str, default: int = DEFAULT_MAX_TOKENS) -> int:
    limit = body.get(name)
    if limit is None:
        return default
    if type(limit) is not int or limit < 1:
        raise BadRequest(f"{name}: expected an integer from 1, got {limit!r}", name)
    return limit


def _number(body: Mapping[str, Any], name: str, default: Any) -> Any:
    """The value of `name` (null is the default), checked by whoever takes it."""
    value = body.get(name)
    return default if value is None else value


def _typed(body: Mapping[str, Any], name: str, kind: type, default: Any, prefix: str = "") -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        expected = {dict: "an object", bool: "true or false", int: "an integer"}[kind]
        raise BadRequest(f"{prefix}{name}: expected {expected}, got {value!r}", f"{prefix}{name}")
    return value


def _check_known(body: Mapping[str, Any], kind: str) -> None:
    unknown = sorted(set(body) - _KNOWN[kind] - _IGNORED)
    if unknown:
        raise BadRequest(f"unknown parameter {unknown[0]!r}", unknown[0], "unknown_parameter")


def _guarded(param: str | None, build: Callable[[], Any]) -> Any:
    """What `build` gives; its errors become those of the parameter."""
    try:
        return build()
    except BadRequest:
        raise
    except GrammarError as error:
        place = f"{param}{error.pointer or ''}" if param else None
        raise BadRequest(f"{param}: {error}", place, error.reason.replace(" ", "_")) from error
    except UnicodeEncodeError as error:
        raise BadRequest(f"{param}: half of a surrogate pair is no character", param) from error
    except (RequestError, TypeError, OverflowError) as error:
        name = param or str(error).split(":", 1)[0]
        raise BadRequest(str(error) if param is None else f"{param}: {error}", name) from error
