"""Loop guards: what ends an output that runs in circles. All off by default: a guard can cut a valid output.

Small models repeat themselves, inside free text or as one tool call after another. Three rules, each on its own:

- *repeat*: the last n tokens, for some n of `SPANS`, stand three times in a row at the end of the output.
- *calls*: the output has begun more than so many calls.
- *same call*: the output has finished the same call twice.

Source: the paper's App. D.8 (n from 8 to 128, three times). We depart in counting any n of a list of lengths, at each
token, and in that the server's own turn-by-turn steering is not done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stcon.errors import InvalidOption

SPANS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
TIMES = 3


@dataclass(frozen=True)
class Guards:
    """Which guards watch an output.

    Args:
        repeat: end an output whose last n tokens stand `TIMES` times in a row.
        max_calls: end an output that begins one more call; None: any number.
        same_call: end an output that repeats a call it has finished.
        call: what a call begins and ends with, for `max_calls` and `same_call`.

    Raises:
        InvalidOption: `max_calls` is negative, or calls are to be counted whose marks are empty.
    """

    repeat: bool = False
    max_calls: int | None = None
    same_call: bool = False
    call: tuple[str, str] = ("<tool_call>", "</tool_call>")

    def __post_init__(self) -> None:
        if self.max_calls is not None and self.max_calls < 0:
            raise InvalidOption(f"max_calls: expected 0 or more, got {self.max_calls}")
        if not all(self.call):
            raise InvalidOption("call: the marks of a call must not be empty")

    def __bool__(self) -> bool:
        """Whether any guard is on."""
        return self.repeat or self.max_calls is not None or self.same_call

    def fires(self, tokens: Sequence[int], text: str) -> bool:
        """Whether the output is to be ended.

        Args:
            tokens: its ids so far.
            text: its text so far.

        Cost: O(sum of `SPANS`) for repeats; O(text) for calls.
        """
        if self.repeat and repeats(tokens):
            return True
        begin, end = self.call
        if self.max_calls is not None and text.count(begin) > self.max_calls:
            return True
        if not self.same_call:
            return False
        calls = [part.split(end, 1)[0] for part in text.split(begin)[1:] if end in part]
        return len(set(calls)) < len(calls)


def repeats(tokens: Sequence[int]) -> bool:
    """Whether the end of `tokens` is some n of them, n in `SPANS`, `TIMES` times in a row."""
    for n in SPANS:
        if n * TIMES > len(tokens):
            return False
        last = tokens[-n:]
        if all(tokens[-n * (k + 1) : -n * k] == last for k in range(1, TIMES)):
            return True
    return False
