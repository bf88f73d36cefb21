"""A submitted request's events as an answer: one body when it is over, or server-sent events as it is written."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

from stcon.engine.batch import Failed, Finished, Handle, Piece
from stcon.server.replies import FINISH, Reply, new_reply
from stcon.server.responses import chat_response, chat_scores, error_body, text_response, text_scores, usage

if TYPE_CHECKING:
    from stcon.engine.output import Generation
    from stcon.engine.stream import Token
    from stcon.vocab.vocabulary import Vocabulary

Kind: TypeAlias = Literal["chat", "text"]


@dataclass(frozen=True)
class Answer:
    """What an answer's bodies share.

    Attributes:
        kind: of which endpoint.
        model: the model's id.
        vocabulary: for the texts of tokens.
        with_usage: a stream ends with the counts.
        with_trace: a stream's chunks say which tokens were forced, and how few complete the output.
        with_reasoning: the text of the thinking is given as well.
    """

    kind: Kind
    model: str
    vocabulary: Vocabulary
    with_usage: bool = False
    with_trace: bool = False
    with_reasoning: bool = True
    name: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    async def whole(self, handle: Handle) -> tuple[int, dict[str, Any]]:
        """Status and body when every output is over."""
        generations: dict[int, Generation] = {}
        cached = 0
        async for event in handle:
            if isinstance(event, Failed):
                handle.cancel()  # the others are of no use
                return error_body(event.error)
            if isinstance(event, Finished):
                generations[event.index] = event.generation
                cached = max(cached, event.cached_tokens)
        respond = chat_response if self.kind == "chat" else text_response
        ordered = [generations[index] for index in sorted(generations)]
        about: dict[str, Any] = {"name": self.name, "model": self.model, "created": self.created, "cached": cached}
        if self.kind == "chat":
            about |= {"grammar": handle.request.grammar, "with_reasoning": self.with_reasoning}
        return 200, respond(ordered, self.vocabulary, **about)

    async def stream(self, handle: Handle) -> AsyncIterator[str]:
        """Server-sent events. Leaving it early cancels the request.

        An error after the first chunk is an event of its own: the status was sent already.
        """
        generations: list[Generation] = []
        cached = 0
        replies = {index: new_reply(handle.request.grammar) for index in range(handle.request.n)}
        offsets = dict.fromkeys(replies, 0)  # where the next piece's tokens begin in the text
        try:
            if self.kind == "chat":
                for index in range(handle.request.n):
                    yield self._chunk([self._choice(index, {"role": "assistant", "content": ""})])
            async for event in handle:
                if isinstance(event, Failed):
                    yield _sse(error_body(event.error)[1])
                    return
                if isinstance(event, Piece):
                    for chunk in self._pieces(event, replies[event.index], offsets[event.index]):
                        yield chunk
                    offsets[event.index] += sum(len(token.text) for token in event.tokens)
                    continue
                generations.append(event.generation)
                cached = max(cached, event.cached_tokens)
                for chunk in self._last(event, replies[event.index]):
                    yield chunk
            if self.with_usage:
                yield self._chunk([], usage=usage(generations, cached))
            yield "data: [DONE]\n\n"
        finally:
            handle.cancel()  # nothing is lost if it is over

    def _pieces(self, piece: Piece, reply: Reply | None, offset: int) -> Iterator[str]:
        """The chunks of a piece; the last one has what is said of its tokens, if asked for."""
        deltas: list[dict[str, Any]] = [{"content": piece.text}] if piece.text else []
        if reply is not None:
            deltas = reply.feed(piece.text)
        if piece.thought and self.with_reasoning:
            deltas.insert(0, {"reasoning_content": piece.thought})
        if not deltas and (self.with_trace or any(piece.logprobs or ())):
            deltas = [{"content": ""}]
        for delta in deltas[:-1]:
            yield self._chunk([self._choice(piece.index, delta)])
        for delta in deltas[-1:]:
            yield self._chunk(
                [self._choice(piece.index, delta, scores=self._scores(piece, offset))], **self._trace(piece)
            )

    def _scores(self, piece: Piece, offset: int) -> dict[str, Any] | None:
        if self.kind == "chat":
            return chat_scores(piece.tokens, piece.logprobs, self.vocabulary, piece.thinking_tokens)
        return text_scores(piece.tokens, piece.logprobs, self.vocabulary, offset)

    def _trace(self, piece: Piece) -> dict[str, Any]:
        """Where a piece's tokens came from, and how few would complete the output."""
        if not self.with_trace:
            return {}
        tokens = [_traced(token) for token in piece.tokens]
        return {"stcon": {"index": piece.index, "tokens": tokens, "need": piece.need}}

    def _last(self, event: Finished, reply: Reply | None) -> Iterator[str]:
        """The chunks that end an output."""
        reason = FINISH[event.generation.finish_reason]
        if reply is not None:
            for delta in reply.finish():
                yield self._chunk([self._choice(event.index, delta)])
            reason = reply.finish_reason(event.generation.finish_reason)
        yield self._chunk([self._choice(event.index, {}, reason)])

    def _choice(
        self, index: int, delta: Mapping[str, Any], reason: str | None = None, scores: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        said = {"delta": delta} if self.kind == "chat" else {"text": delta.get("content", "")}
        return {"index": index, **said, "logprobs": scores, "finish_reason": reason}

    def _chunk(self, choices: Sequence[Mapping[str, Any]], **more: Any) -> str:
        object_, prefix = ("chat.completion.chunk", "chatcmpl") if self.kind == "chat" else ("text_completion", "cmpl")
        head = {"id": f"{prefix}-{self.name}", "object": object_, "created": self.created, "model": self.model}
        return _sse({**head, "choices": choices, **more})


def _traced(token: Token) -> dict[str, Any]:
    """A token and where it came from; with its bytes, where they are not whole characters."""
    traced: dict[str, Any] = {"text": token.text, "kind": token.kind}
    return {**traced, "bytes": list(token.data)} if "\ufffd" in token.text else traced


def _sse(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=True)}\n\n"
