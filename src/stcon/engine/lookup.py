"""Guesses from the text itself: what followed the last few tokens where they stood before.

An extraction copies names, numbers and phrases from its prompt, so the tokens that came after the same two or three
tokens are a good guess of the next ones, and it costs no model. A guess changes no output: it is checked like any other
(`stcon.engine.device_decoding`).
"""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (3, 2)


class Lookup:
    """Where in a text the last tokens stood before.

    Args:
        tokens: the text so far.

    Cost: two dictionary entries a token.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Go on with `tokens`."""
        for token in tokens:
            end = len(self._tokens)
            for size in SIZES:
                if end >= size:
                    self._after[tuple(self._tokens[end - size : end])] = end
            self._tokens.append(token)

    def find(self, *, least: int = SIZES[-1]) -> int | None:
        """Where the text went on after its last tokens when they stood there last.

        Args:
            least: how many tokens must be the same.
        """
        end = self._tokens[-SIZES[0] :]
        for size in SIZES:
            if least <= size <= len(end):
                place = self._after.get(tuple(end[len(end) - size :]))
                if place is not None:
                    return place
        return None

    def following(self, place: int, count: int) -> list[int]:
        """At most `count` tokens from `place` on."""
        return self._tokens[place : place + count]
