"""A format's language, declared as patterns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A format as a regular language: the strings that match `pattern` and all of `within`, and none of `without`.

    Attributes:
        name: the value of the ``format`` keyword.
        source: where the language is defined.
        pattern: ECMAScript pattern of the whole string.
        within, without: more such patterns, to intersect with and to take away.
        outer: None if the language is exactly the source's. Else it is a subset, and every string that is valid by
            the source matches `outer`.
        departure: for a subset, what is refused though valid.
    """

    name: str
    source: str
    pattern: str
    within: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    outer: str | None = None
    departure: str = ""

    @property
    def exact(self) -> bool:
        """Whether the language is exactly the source's."""
        return self.outer is None
