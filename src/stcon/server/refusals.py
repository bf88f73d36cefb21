"""`BadRequest`: a body that cannot be served, with the parameter at fault."""

from __future__ import annotations

from stcon.errors import RequestError


class BadRequest(RequestError):
    """A body that cannot be served.

    Attributes:
        param: the parameter at fault, None if it is the body as a whole.
        code: OpenAI's short name of the error, or None.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
