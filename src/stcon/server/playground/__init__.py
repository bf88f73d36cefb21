"""The page at ``/``: try a format, watch the tokens come. Plain files, served as they are.

The page is a client of the server's own interface (``/v1/chat/completions`` with ``stcon.trace``,
``/v1/grammar/check``) and of nothing else: it loads nothing from other places, runs no inline code, and builds its
output from text nodes alone, since what a model writes is not to be trusted. The files hold no secrets and are open;
where the server has an API key, the page asks for it and keeps it in its memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join([
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",  # no text ever becomes markup, not even by mistake
    "trusted-types 'none'",
])  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again, answered 304 while unchanged
}


def playground_routes() -> list[Route]:
    """``/``, and one route a file it needs; read once."""
    return [
        Route("/" if path.name == PAGE else f"/playground/{path.name}", _endpoint(path))
        for path in sorted(STATIC.iterdir())
        if path.suffix in MEDIA_TYPES
    ]


def _endpoint(path: Path) -> Callable[[Request], Awaitable[Response]]:
    content, media_type = path.read_bytes(), MEDIA_TYPES[path.suffix]
    headers = {**HEADERS, "ETag": f'"{hashlib.sha256(content).hexdigest()[:20]}"'}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return endpoint
