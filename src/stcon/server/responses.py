"""Finished outputs as OpenAI's response bodies, and errors as its error body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stcon.errors import GrammarError, Overloaded, RequestError
from stcon.server.refusals import BadRequest
from stcon.server.replies import FINISH, message_of

if TYPE_CHECKING:
    from stcon.engine.output import Decision, Generation, Logprobs
    from stcon.engine.parallel import Report
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
    with_reasoning: bool = True,
) -> dict[str, Any]:
    """A ``chat.completion`` object.

    Args:
        generations: the n outputs.
        name: the response's id.
        model: the model's id.
        created: seconds since 1970.
        cached: prompt tokens that a cache had.
        grammar: of the outputs; with tools, it takes them apart.
        with_reasoning: messages have the text of the thinking, where there was any.
    """
    choices = []
    for index, generation in enumerate(generations):
        message, reason = message_of(generation, grammar)
        if with_reasoning and generation.thinking is not None:
            message["reasoning_content"] = generation.thinking
        scores = chat_scores(generation.tokens, generation.logprobs, vocabulary, generation.thinking_tokens)
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
            "logprobs": text_scores(generation.tokens, generation.logprobs, vocabulary),
            "finish_reason": FINISH[generation.finish_reason],
        }
        for index, generation in enumerate(generations)
    ]
    head = {"id": f"cmpl-{name}", "object": "text_completion", "created": created, "model": model}
    return {**head, "choices": choices, "usage": usage(generations, cached)}


def usage(generations: Sequence[Generation], cached: int) -> dict[str, Any]:
    """Token counts, OpenAI's and ours."""
    prompt = generations[0].prompt_tokens if generations else 0
    completion = sum(len(generation.tokens) for generation in generations)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(one.thinking_tokens for one in generations)},
        "stcon": own_usage(generations),
    }


def own_usage(generations: Sequence[Generation]) -> dict[str, Any]:
    """What is ours: passes of the model, tokens written without asking it, and the fewest an output could take.

    The last is None where nothing is enforced, or no limit is kept. With ``"parallel"``, how it came about; with
    ``"decide": "sequence"``, what was decided, with the log-probability of each option.
    """
    own: dict[str, Any] = {
        "passes": sum(generation.passes for generation in generations),
        "forced_tokens": sum(generation.forced for generation in generations),
        "need": generations[0].need if generations else None,
    }
    for generation in generations[:1]:  # these come alone
        if generation.parallel is not None:
            own["parallel"] = _parallel(generation.parallel)
        if generation.decisions is not None:
            own["decisions"] = [_decision(decision) for decision in generation.decisions]
    return own


def _parallel(report: Report) -> dict[str, Any]:
    return {
        "fields": report.fields,
        "sequential_passes": report.sequential_passes,
        "rounds": report.num_rounds,
        "looks": len(report.rounds) - report.num_rounds,
        "row_passes": report.row_passes,
        "accepted": sum(round.accepted for round in report.rounds),
        "repaired": sum(len(round.failed) for round in report.rounds),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {"at": decision.at, "options": [option._asdict() for option in decision.options]}


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


def chat_scores(
    tokens: Sequence[Token], logprobs: Sequence[Logprobs | None] | None, vocabulary: Vocabulary, first: int
) -> dict[str, Any] | None:
    """Chat's ``logprobs`` of the tokens from `first` on: one entry a token of the text that was drawn.

    Forced tokens were never scored and have none.
    """
    if logprobs is None:
        return None
    content = []
    for token, entry in list(zip(tokens, logprobs, strict=True))[first:]:
        if entry is not None and token.data:
            top = [_entry(vocabulary.token_bytes(other) or b"", value) for other, value in entry.top]
            content.append({**_entry(token.data, entry.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _entry(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}


def text_scores(
    tokens: Sequence[Token], logprobs: Sequence[Logprobs | None] | None, vocabulary: Vocabulary, offset: int = 0
) -> dict[str, Any] | None:
    """Text completions' ``logprobs``, of tokens whose text begins `offset` characters into the output's."""
    if logprobs is None:
        return None
    drawn: list[tuple[int, Token, Logprobs]] = []
    for token, entry in zip(tokens, logprobs, strict=True):
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
