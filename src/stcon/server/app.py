"""The HTTP server: OpenAI's endpoints over a `Batch`, as an ASGI application.

Requests are parsed, their constraints compiled and their beginnings planned in worker threads, a bounded number at a
time and each within a time limit; the batch's thread never waits for them. A client that goes away cancels its request.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from stcon.engine.batch import Batch, Handle
from stcon.errors import InvalidOption, Overloaded, RequestError
from stcon.server.answers import Answer, Kind
from stcon.server.checks import grammar_report
from stcon.server.grammars import Grammars
from stcon.server.metrics import render
from stcon.server.openapi import document
from stcon.server.playground import playground_routes
from stcon.server.refusals import BadRequest
from stcon.server.requests import chat_request, text_request
from stcon.server.responses import error_body
from stcon.server.responses_api import ResponseAnswer, as_chat_body, renamed

if TYPE_CHECKING:
    from stcon.models.base import Model

_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Limits:
    """What keeps one client from taking all.

    Attributes:
        body_bytes: of a request.
        body_s: seconds in which it must have come.
        prepare_s: seconds that compiling and planning may take before the client is told to wait no longer.
        preparing: requests prepared at a time.
        queued: requests that may wait to be prepared; more are refused with 429.
    """

    body_bytes: int = 8 << 20
    body_s: float = 60.0
    prepare_s: float = 30.0
    preparing: int = 2
    queued: int = 256


class Refused(Exception):
    """An answer that is known before the request is understood: status, message, OpenAI's code."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Server:
    """The endpoints.

    Args:
        batch: running.
        name: the model's id; ``"default"`` names it too.
        api_key: what clients must send as a bearer token; None: nothing.
        limits: see `Limits`.
        parallel: constrained outputs are decoded side by side where that goes with the request and it says nothing.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        name: str,
        api_key: str | None = None,
        limits: Limits | None = None,
        parallel: bool = False,
    ) -> None:
        self.batch = batch
        self.parallel = parallel
        self.name = name
        self.limits = limits or Limits()
        self.grammars = Grammars(vocabulary=batch.model.model.vocabulary)
        self._api_key = api_key
        self._pool = ThreadPoolExecutor(self.limits.preparing, thread_name_prefix="stcon-prepare")
        self._num_preparing = 0

    @property
    def model(self) -> Model:
        """The batch's model."""
        return self.batch.model.model

    def app(self, hosts: Sequence[str] | None = None) -> Starlette:
        """The ASGI application; its shutdown lets rows finish.

        Args:
            hosts: names by which it may be called; others get a 400, so that a page of another name that resolves to
                this machine (DNS rebinding) cannot use it. None: any.
        """
        guard = [] if hosts is None else [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))]
        routes = [
            Route("/health", self.health),
            Route("/metrics", self._open(self.metrics)),
            Route("/openapi.json", self._open(self.openapi)),
            Route("/v1/models", self._open(self.models)),
            Route("/v1/chat/completions", self._open(functools.partial(self.complete, "chat")), methods=["POST"]),
            Route("/v1/completions", self._open(functools.partial(self.complete, "text")), methods=["POST"]),
            Route("/v1/responses", self._open(self.respond), methods=["POST"]),
            Route("/v1/grammar/check", self._open(self.check), methods=["POST"]),
            *playground_routes(),
        ]
        return Starlette(
            routes=routes,
            lifespan=self._lifespan,
            middleware=guard,
            exception_handlers={HTTPException: _not_found},
        )

    # ------------------------------------------------------------------------------------------------- endpoints

    async def health(self, _: Request) -> Response:
        """Whether the batch takes requests."""
        return JSONResponse({"status": "ok", "active": self.batch.num_active, "waiting": self.batch.num_waiting})

    async def metrics(self, _: Request) -> Response:
        """Prometheus."""
        return PlainTextResponse(render(self.batch, self.grammars), media_type="text/plain; version=0.0.4")

    async def openapi(self, _: Request) -> Response:
        """What the endpoints take and give."""
        return JSONResponse(document())

    async def models(self, _: Request) -> Response:
        """The one model."""
        model = {"id": self.name, "object": "model", "created": 0, "owned_by": "stcon"}
        return JSONResponse({"object": "list", "data": [{**model, "max_model_len": self.model.context_length}]})

    async def check(self, request: Request) -> Response:
        """Compile the constraint of a body and say what it became; the model is not asked."""
        body = await self._body(request)
        return JSONResponse(await self._prepare(functools.partial(grammar_report, body, self.model)))

    async def complete(self, kind: Kind, request: Request) -> Response:
        """Chat and text completions."""
        body = await self._body(request)
        self._check_model(body)
        handle: Handle = await self._prepare(functools.partial(self._submit, kind, body))
        options = body.get("stream_options") or {}
        answer = Answer(
            kind,
            self.name,
            self.model.vocabulary,
            with_usage=isinstance(options, dict) and bool(options.get("include_usage")),
            with_trace=handle.request.report_need,
            with_reasoning=body.get("include_reasoning") is not False,
        )
        if body.get("stream"):
            return StreamingResponse(answer.stream(handle), media_type="text/event-stream", headers=_STREAM_HEADERS)
        status, found = await _unless_gone(request, handle, answer.whole(handle))
        return JSONResponse(found, status)

    async def respond(self, request: Request) -> Response:
        """OpenAI's responses."""
        body = await self._body(request)
        self._check_model(body)
        handle: Handle = await self._prepare(functools.partial(self._submit_response, body))
        answer = ResponseAnswer(self.name, body)
        if body.get("stream"):
            return StreamingResponse(answer.stream(handle), media_type="text/event-stream", headers=_STREAM_HEADERS)
        status, found = await _unless_gone(request, handle, answer.whole(handle))
        return JSONResponse(found, status)

    def _submit_response(self, body: dict[str, Any]) -> Handle:
        try:
            return self._submit("chat", as_chat_body(body))
        except BadRequest as error:
            raise renamed(error) from None

    def _submit(self, kind: Kind, body: dict[str, Any]) -> Handle:
        build = chat_request if kind == "chat" else text_request
        request = build(body, self.model, self.grammars)
        if self.parallel and not request.is_aside and "parallel" not in (body.get("stcon") or {}):
            with suppress(InvalidOption):  # with something that does not go together
                request = replace(request, parallel=True)
        return self.batch.submit(request)

    # ------------------------------------------------------------------------------------------------- inside

    def _open(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint` for those with the key, its errors as OpenAI's error body."""

        async def opened(request: Request) -> Response:
            try:
                self._check_key(request)
                return await endpoint(request)
            except Refused as refused:
                error = {"message": str(refused), "type": "invalid_request_error", "param": None, "code": refused.code}
                return JSONResponse({"error": error}, refused.status)
            except Overloaded as error:
                status, body = error_body(error)
                return JSONResponse(body, status, headers={"Retry-After": "1"})
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                status, body = error_body(error)
                return JSONResponse(body, status)

        return opened

    def _check_key(self, request: Request) -> None:
        if self._api_key is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), self._api_key.encode()):
            raise Refused(401, "a valid API key is needed (Authorization: Bearer …)", "invalid_api_key")

    def _check_model(self, body: dict[str, Any]) -> None:
        if body.get("model", "default") not in (self.name, "default"):
            raise Refused(404, f"model: this server has {self.name!r} alone (or 'default')", "model_not_found")

    async def _body(self, request: Request) -> dict[str, Any]:
        """The body as an object.

        Raises:
            Refused: it is too large or too slow, or not an object in JSON.
        """
        try:
            async with asyncio.timeout(self.limits.body_s):
                data = await self._received(request)
        except TimeoutError:
            raise Refused(408, f"the body did not come within {self.limits.body_s:g} s", "body_too_slow") from None
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON", "invalid_json") from None
        if not isinstance(body, dict):
            raise Refused(400, "the body is not a JSON object", "invalid_json")
        return body

    async def _received(self, request: Request) -> bytes:
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > self.limits.body_bytes:
                raise Refused(413, f"the body has more than {self.limits.body_bytes:,} bytes", "body_too_large")
        return bytes(data)

    async def _prepare(self, work: Callable[[], Any]) -> Any:
        """`work` in a worker thread.

        Raises:
            Overloaded: too many wait for one.
            RequestError: it takes longer than it may.
        """
        if self._num_preparing >= self.limits.queued:
            raise Overloaded(self._num_preparing, self.limits.queued)
        self._num_preparing += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._prepared)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.limits.prepare_s)
        except TimeoutError:
            future.add_done_callback(_cancel_result)
            raise RequestError(f"the request was not prepared within {self.limits.prepare_s:g} s") from None
        except asyncio.CancelledError:
            future.add_done_callback(_cancel_result)
            raise

    def _prepared(self, _: object) -> None:
        self._num_preparing -= 1

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, self.batch.close)


async def _unless_gone(request: Request, handle: Handle, answer: Awaitable[Any]) -> Any:
    """`answer`, unless the client goes away first, which cancels the request."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    watcher = asyncio.ensure_future(gone())
    answering = asyncio.ensure_future(answer)
    try:
        await asyncio.wait({watcher, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        handle.cancel()
        for task in (watcher, answering):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _not_found(_: Request, error: Exception) -> Response:
    """No such endpoint, or not with this method, as OpenAI's error body."""
    assert isinstance(error, HTTPException), "what the handler is for"
    body = {"message": error.detail, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": body}, error.status_code, headers=error.headers)


def _cancel_result(future: asyncio.Future[Any]) -> None:
    """A request that was submitted after its client had gone is cancelled."""
    if not future.cancelled() and future.exception() is None and isinstance(future.result(), Handle):
        future.result().cancel()
