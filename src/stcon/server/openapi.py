"""The server's OpenAPI document, served at ``/openapi.json``: what its endpoints take and give.

Bodies are described as far as clients need; the checks are those of `stcon.server.requests`, which name what is wrong.
"""

from __future__ import annotations

from functools import cache
from typing import Any

Schema = dict[str, Any]

_JSON = "application/json"
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}
_OBJECT: Schema = {"type": "object"}
_SCHEMA: Schema = {"type": ["object", "boolean"], "description": "A JSON Schema (2020-12)."}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: dict[str, Schema], *required: str, closed: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        **({"additionalProperties": False} if closed else {}),
    }


def _sampling() -> dict[str, Schema]:
    numbers = {
        "temperature": {"minimum": 0, "maximum": 2},
        "top_p": {"exclusiveMinimum": 0, "maximum": 1},
        "min_p": {"minimum": 0, "maximum": 1},
        "presence_penalty": {"minimum": -2, "maximum": 2},
        "frequency_penalty": {"minimum": -2, "maximum": 2},
    }
    return {
        **{name: _nullable({**_NUMBER, **bounds}) for name, bounds in numbers.items()},
        "top_k": _nullable({"type": "integer", "minimum": -1}),
        "seed": _nullable({"type": "integer", "minimum": 0}),
        "n": _nullable({"type": "integer", "minimum": 1, "maximum": 128}),
        "stop": _nullable({"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": 4}]}),
        "max_tokens": _nullable({"type": "integer", "minimum": 1}),
        "logit_bias": _nullable(
            {
                "type": "object",
                "patternProperties": {"^[0-9]+$": {"type": "number", "minimum": -100, "maximum": 100}},
                "additionalProperties": False,
            }
        ),
    }


def _constraints() -> dict[str, Schema]:
    format_ = {
        "anyOf": [
            _object({"type": {"const": "text"}}, "type"),
            _object({"type": {"const": "json_object"}, "schema": _SCHEMA}, "type"),
            _object(
                {
                    "type": {"const": "json_schema"},
                    "json_schema": _object({"name": _TEXT, "schema": _SCHEMA, "strict": _nullable(_FLAG)}, "schema"),
                },
                "type",
                "json_schema",
            ),
            _object({"type": {"const": "structural_tag"}}, "type", closed=False),
        ]
    }
    choice = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
    ours = {"json": _SCHEMA, "regex": _TEXT, "choice": choice, "grammar": _TEXT, "structural_tag": _OBJECT}
    return {
        "response_format": _nullable(format_),
        "structured_outputs": _nullable(_object({**ours, "json_object": _FLAG})),
        **{f"guided_{name}": _nullable(ours[name]) for name in ("json", "regex", "choice", "grammar")},
        "grammar": _nullable(_TEXT),
        "json_schema": _nullable(_SCHEMA),
    }


def _own(*more: str) -> Schema:
    settings = {
        "budget": _FLAG,
        "mode": {"enum": ["canonical", "any", "mask", "free"]},
        "guards": _object({"repeat": _FLAG, "max_calls": _nullable(_COUNT), "same_call": _FLAG}),
        "trace": _FLAG,
        "parallel": _FLAG,
        "decide": {"enum": ["token", "sequence"]},
        "thinking": {"anyOf": [_FLAG, _object({"max_tokens": _nullable(_COUNT)})]},
        "tool_format": _TEXT,
    }
    kept = {"budget", "mode", "guards", "trace", "parallel", "decide", *more}
    return _nullable(_object({name: schema for name, schema in settings.items() if name in kept}))


def _stream() -> dict[str, Schema]:
    return {"stream": _nullable(_FLAG), "stream_options": _nullable(_object({"include_usage": _FLAG}))}


def _tool(*, flat: bool) -> Schema:
    function = {"name": _TEXT, "description": _TEXT, "parameters": _nullable(_OBJECT), "strict": _nullable(_FLAG)}
    kind = {"type": {"const": "function"}}
    if flat:
        return _object({**kind, **function}, "type", "name")
    return _object({**kind, "function": _object(function, "name")}, "type", "function")


def _tools(*, flat: bool = False) -> dict[str, Schema]:
    named = {"type": {"const": "function"}, **({"name": _TEXT} if flat else {"function": _object({"name": _TEXT})})}
    choice = {"anyOf": [{"enum": ["auto", "none", "required"]}, _object(named, "type")]}
    return {
        "tools": _nullable({"type": "array", "items": _tool(flat=flat), "maxItems": 128}),
        "tool_choice": _nullable(choice),
        "parallel_tool_calls": _nullable(_FLAG),
    }


def _thinking() -> dict[str, Schema]:
    return {
        "chat_template_kwargs": _nullable(_OBJECT),
        "reasoning_effort": _nullable({"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]}),
        "thinking_token_budget": _nullable(_COUNT),
        "include_reasoning": _nullable(_FLAG),
    }


def _chat() -> Schema:
    content = {
        "anyOf": [
            _TEXT,
            {"type": "null"},
            {"type": "array", "items": _object({"type": {"const": "text"}, "text": _TEXT}, "type", "text")},
        ]
    }
    message = _object({"role": _TEXT, "content": content}, "role", "content", closed=False)
    properties = {
        "model": _TEXT,
        "messages": {"type": "array", "items": message, "minItems": 1},
        "max_completion_tokens": _nullable({"type": "integer", "minimum": 1}),
        "logprobs": _nullable(_FLAG),
        "top_logprobs": _nullable({"type": "integer", "minimum": 0, "maximum": 20}),
        "stcon": _own("thinking", "tool_format"),
        **_sampling(),
        **_constraints(),
        **_stream(),
        **_tools(),
        **_thinking(),
    }
    return _object(properties, "messages")


def _completion() -> Schema:
    properties = {
        "model": _TEXT,
        "prompt": {"anyOf": [_TEXT, {"type": "array", "items": _COUNT, "minItems": 1}]},
        "logprobs": _nullable({"type": "integer", "minimum": 0, "maximum": 20}),
        "stcon": _own(),
        **_sampling(),
        **_constraints(),
        **_stream(),
    }
    return _object(properties, "prompt")


def _response() -> Schema:
    text = _object({"format": _object({"type": _TEXT, "name": _TEXT, "schema": _SCHEMA}, "type", closed=False)})
    sampling = {name: schema for name, schema in _sampling().items() if name in {"temperature", "top_p", "seed"}}
    properties = {
        "model": _TEXT,
        "input": {"anyOf": [_TEXT, {"type": "array", "items": _OBJECT, "minItems": 1}]},
        "instructions": _nullable(_TEXT),
        "max_output_tokens": _nullable({"type": "integer", "minimum": 1}),
        "text": _nullable(text),
        "reasoning": _nullable(_object({"effort": _thinking()["reasoning_effort"]})),
        "stream": _nullable(_FLAG),
        "stcon": _own("thinking", "tool_format"),
        **sampling,
        **_tools(flat=True),
    }
    return _object(properties, "input")


def _operation(summary: str, body: str | None = None, kind: str = _JSON) -> Schema:
    """An operation: its body by the name of a schema, its answer, and the errors that it shares with others."""
    answers: dict[str, Schema] = {"200": {"description": "The answer.", "content": {kind: {}}}}
    found: Schema = {"summary": summary, "responses": answers}
    if body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        }
        answers["200"]["content"] = {_JSON: {}, "text/event-stream": {}}
    error = {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    meanings = {"401": "No valid API key.", "429": "Too many requests wait; come back after Retry-After."}
    if body is not None:
        meanings |= {
            "400": "What cannot be served, with the parameter and the JSON pointer.",
            "404": "Another model.",
            "408": "The body did not come in time.",
            "413": "The body is too large.",
        }
    answers |= {code: {"description": text, **error} for code, text in sorted(meanings.items())}
    return found


@cache
def document() -> Schema:
    """The document (OpenAPI 3.1)."""
    error = _object(
        {"message": _TEXT, "type": _TEXT, "param": _nullable(_TEXT), "code": _nullable(_TEXT)}, "message", "type"
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "stcon", "version": "1", "description": "OpenAI's interface, with every constraint kept."},
        "paths": {
            "/v1/chat/completions": {"post": _operation("Answer a conversation.", "Chat")},
            "/v1/completions": {"post": _operation("Go on with a text.", "Completion")},
            "/v1/responses": {"post": _operation("Answer, as items.", "Response")},
            "/v1/grammar/check": {"post": _operation("Compile a constraint and say what it became.", "Check")},
            "/v1/models": {"get": _operation("The model.")},
            "/health": {"get": _operation("Whether requests are taken.")},
            "/metrics": {"get": _operation("Counts for Prometheus.", kind="text/plain")},
        },
        "components": {
            "schemas": {
                "Chat": _chat(),
                "Completion": _completion(),
                "Response": _response(),
                "Check": _object({**_constraints(), **_tools(), "text": _nullable(_TEXT)}),
                "Error": _object({"error": error}, "error"),
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
