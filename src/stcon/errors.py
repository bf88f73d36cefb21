"""Every error stcon raises on purpose, split by whose fault it is.

::

    StconError
    ├── RequestError            the caller's input; the CLI exits with 2, a server answers 400
    │   ├── GrammarError        a schema, pattern or grammar, with the place in it
    │   │   ├── InvalidSchema   not JSON, not a schema, a reference that does not resolve
    │   │   ├── InvalidPattern  not a regular expression
    │   │   ├── InvalidGrammar  not a grammar of its syntax (with line and column)
    │   │   ├── Unsupported     valid, but not enforced exactly here
    │   │   ├── Unsatisfiable   no text can satisfy it
    │   │   └── TooLarge        past a limit (``given``, ``limit``)
    │   ├── PromptTooLong       does not fit the model's context (``given``, ``limit``)
    │   ├── LimitTooSmall       no valid output has so few tokens (``limit``, ``needed``)
    │   ├── NoRoom              needs more memory than a batch has at all (``needed``, ``limit``)
    │   ├── InvalidOption       an argument out of its range
    │   └── ModelUnavailable    no such model, or it cannot be fetched or read
    ├── Overloaded              too many requests wait already (``waiting``, ``limit``); a server answers 429
    └── DecodingError           a constraint left no admissible token (stack cap), or a broken model

The message is one line: what is wrong, where, what to do.
"""

from __future__ import annotations

from typing import ClassVar


class StconError(Exception):
    """Base of every error stcon raises on purpose."""


class RequestError(StconError):
    """The caller's input cannot be served; nothing was changed."""


class GrammarError(RequestError):
    """A schema, pattern or grammar cannot be compiled.

    Args:
        message: what is wrong, one line, without the place.
        pointer: JSON pointer (RFC 6901) of the place in the schema, ``""`` for its root; None where there is no schema.
        keyword: the keyword at fault, if one is.
        advice: what the caller can do, one clause.
    """

    reason: ClassVar[str] = "grammar"

    def __init__(
        self, message: str, *, pointer: str | None = None, keyword: str | None = None, advice: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.at(pointer, keyword)

    def at(self, pointer: str | None, keyword: str | None = None) -> GrammarError:
        """Name the place, for whoever knows it; returns the error itself."""
        self.pointer = pointer
        self.keyword = keyword
        place = f" at #{pointer}" if pointer is not None else ""
        self.args = (f"{self.message}{place}" + (f"; {self.advice}" if self.advice else ""),)
        return self


class InvalidSchema(GrammarError):
    """Not JSON, not a JSON Schema, or a reference that does not resolve."""

    reason = "invalid schema"


class InvalidPattern(GrammarError):
    """Not a regular expression."""

    reason = "invalid pattern"


class InvalidGrammar(GrammarError):
    """Not a context-free grammar of its syntax; the message gives line and column."""

    reason = "invalid grammar"


class Unsupported(GrammarError):
    """Valid, but not something stcon enforces exactly; refused rather than weakened."""

    reason = "not supported"


class Unsatisfiable(GrammarError):
    """No text satisfies the constraint."""

    reason = "unsatisfiable"


class TooLarge(GrammarError):
    """Past a limit: ``what`` had the size ``given`` where ``limit`` is allowed."""

    reason = "too large"

    def __init__(
        self,
        what: str,
        *,
        given: float,
        limit: float,
        pointer: str | None = None,
        keyword: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.what = what
        self.given = given
        self.limit = limit
        super().__init__(
            f"{what}: {given:,} where {limit:,} is the limit", pointer=pointer, keyword=keyword, advice=advice
        )


class PromptTooLong(RequestError):
    """The prompt does not fit the model's context."""

    def __init__(self, given: int, limit: int) -> None:
        self.given = given
        self.limit = limit
        super().__init__(
            f"the prompt has {given:,} tokens where the model's context leaves room for {limit:,}; shorten it"
        )


class LimitTooSmall(RequestError):
    """No valid output has at most ``limit`` tokens; the shortest has ``needed`` (None: none was found)."""

    def __init__(self, limit: int, needed: int | None) -> None:
        self.limit = limit
        self.needed = needed
        shortest = (
            "no valid output was found" if needed is None else f"the shortest valid output takes {needed:,} tokens"
        )
        advice = "" if needed is None else f"; allow {needed:,} or more (max_tokens, and room in the model's context)"
        super().__init__(f"{shortest} where {limit:,} are allowed{advice}")


class NoRoom(RequestError):
    """A request needs more memory, or more rows, than a batch has when nothing else runs.

    ``what`` is counted, ``needed`` of it where ``limit`` is the most.
    """

    def __init__(self, what: str, needed: int, limit: int, advice: str) -> None:
        self.what = what
        self.needed = needed
        self.limit = limit
        super().__init__(f"the request needs {needed:,} {what} where the batch has {limit:,}; {advice}")


class InvalidOption(RequestError):
    """An argument is out of its range."""


class ModelUnavailable(RequestError):
    """The model does not exist, cannot be fetched, or cannot be read."""


class Overloaded(StconError):
    """``waiting`` requests wait already, where ``limit`` may; try again later."""

    def __init__(self, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(f"{waiting:,} requests are waiting where {limit:,} may; try again later")


class DecodingError(StconError):
    """Decoding cannot go on: the constraint admits no token here."""
