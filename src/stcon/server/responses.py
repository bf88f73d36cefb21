"""Finished outputs as OpenAI's response bodies, and errors as its error body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stcon.errors import GrammarError, Overloaded, RequestError
from stcon.server.refusals import BadRequest
from stcon.server.replies import FINISH, message_of

if TYPE_CHECKING:
    from stcon.engine.output import Generation, Logprobs
    from stcon.engine.stream import Token
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary


def chat_response(
    generations: Sequence[Generation],
    vocabulary: Vocabulary,
    *,
    name: str,
    model: str,
    created: int,
    cached: int = 0,
    grammar: Grammar | None = None,
) -> dict[str, Any]:
    """A ``chat.completion`` object.

    Args:
        generations: the n outputs.
        name: the response's id.
        model: the model's id.
        created: seconds since 1970.
        cached: prompt tokens that a cache had.
        grammar: of the outputs; with tools, it takes them apart.
    """
    choices = []
    for index, generation in enumerate(generations):
        message, reason = message_of(generation, grammar)
        scores = _chat_logprobs(generation, vocabulary)
        choices.append({"index": index, "message": message, "logprobs": scores, "finish_reason": reason})
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": choices, "usage": usage(generations, cached)}


def text_response(
    generations: Sequence[Generation],
    vocabulary: Vocabulary,
    *,
    name: str,
    model: str,
    created: int,
    cached: int = 0,
    grammar: Grammar | None = None,
) -> dict[str, Any]:
    """A ``text_completion`` object; arguments as for `chat_response`."""
    choices = [
        {
            "index": index,
            "text": generation.text,
            "logprobs": _text_logprobs(generation, vocabulary),
            "finish_reason": FINISH[generation.finish_reason],
        }
        for index, generation in enumerate(generations)
    ]
    head = {"id": f"cmpl-{name}", "object": "text_completion", "created": created, "model": model}
    return {**head, "choices": choices, "usage": usage(generations, cached)}


def usage(generations: Sequence[Generation], cached: int) -> dict[str, Any]:
    """Token counts, and what is ours: passes of the model, and tokens written without asking it."""
    prompt = generations[0].prompt_tokens if generations else 0
    completion = sum(len(generation.tokens) for generation in generations)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "stcon": {
            "passes": sum(generation.passes for generation in generations),
            "forced_tokens": sum(generation.forced for generation in generations),
        },
    }


def error_body(error: Exception) -> tuple[int, dict[str, Any]]:
    """The HTTP status and body for an error; what is not the request's fault says no more than that."""
    if isinstance(error, Overloaded):
        return 429, {"error": {"message": str(error), "type": "overloaded_error", "param": None, "code": "overloaded"}}
    if not isinstance(error, RequestError):
        message, kind = "the request failed in the server", "server_error"
        return 500, {"error": {"message": message, "type": kind, "param": None, "code": None}}
    param = error.param if isinstance(error, BadRequest) else None
    code = error.code if isinstance(error, BadRequest) else None
    if isinstance(error, GrammarError):
        code = error.reason.replace(" ", "_")
    return 400, {"error": {"message": str(error), "type": "invalid_request_error", "param": param, "code": code}}


def _chat_logprobs(generation: Generation, vocabulary: Vocabulary) -> dict[str, Any] | None:
    """One entry a token of the text that was drawn; forced tokens were never scored and have none."""
    if generation.logprobs is None:
        return None
    content = []
    for token, entry in zip(generation.tokens, generation.logprobs, strict=True):
        if entry is not None and token.data:
            top = [_entry(vocabulary.token_bytes(other) or b"", value) for other, value in entry.top]
            content.append({**_entry(token.data, entry.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _entry(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}


def _text_logprobs(generation: Generation, vocabulary: Vocabulary) -> dict[str, Any] | None:
    if generation.logprobs is None:
        return None
    drawn: list[tuple[int, Token, Logprobs]] = []
    offset = 0
    for token, entry in zip(generation.tokens, generation.logprobs, strict=True):
        if entry is not None and token.data:
            drawn.append((offset, token, entry))
        offset += len(token.text)
    return {
        "tokens": [token.text for _, token, _ in drawn],
        "token_logprobs": [entry.logprob for _, _, entry in drawn],
        "top_logprobs": [
            {(vocabulary.token_bytes(other) or b"").decode("utf-8", "replace"): value for other, value in entry.top}
            for _, _, entry in drawn
        ],
        "text_offset": [place for place, _, _ in drawn],
    }
