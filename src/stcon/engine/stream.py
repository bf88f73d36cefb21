"""From tokens to text: pieces that are always valid UTF-8, and stop strings. No I/O, no model."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stcon.errors import InvalidOption

Kind: TypeAlias = Literal["sampled", "forced", "healed"]


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token.

    Attributes:
        id: the token.
        data: its bytes; ``b""`` for an end token.
        kind: ``"sampled"``: chosen by the model; ``"forced"``: implied by the constraint, written without asking the
            model; ``"healed"``: takes the place of the token the model chose, whose bytes and the forced ones after
            them the tokenizer splits otherwise.
        admissible: for a sampled token, how many tokens the constraint admitted there; 0 for the other kinds.
    """

    id: int
    data: bytes
    kind: Kind
    admissible: int = 0

    @property
    def text(self) -> str:
        """The bytes as text, incomplete characters as U+FFFD; for display (see `TextStream` for exact text)."""
        return self.data.decode("utf-8", "replace")


class TextStream:
    """Bytes in, text pieces out; their concatenation is the output's text.

    A piece never ends inside a character, and never contains the beginning of a stop string that may still be
    completed. Bytes that are not UTF-8 (only a free output can have them) become U+FFFD.

    Args:
        stop: strings that end the output; the text ends before the first of them to be completed, and of two completed
            at once before the one that begins first.

    Raises:
        InvalidOption: a stop string is empty.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        if any(not isinstance(word, str) or not word for word in stop):
            raise InvalidOption("stop: expected non-empty strings")
        self.stop = tuple(stop)
        self.stopped = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._held = ""

    @property
    def text(self) -> str:
        """All pieces so far."""
        return "".join(self._pieces)

    def push(self, data: bytes, *, final: bool = False) -> str:
        """The next piece, maybe empty.

        Args:
            data: the next bytes.
            final: nothing will follow: flush what was held back.
        """
        if self.stopped:
            return ""
        self._held += self._decoder.decode(data, final)
        cut = _first_stop(self._held, self.stop)
        if cut is not None:
            self.stopped = True
            return self._release(cut)
        return self._release(len(self._held) - (0 if final else _longest_overlap(self._held, self.stop)))

    def _release(self, length: int) -> str:
        piece, self._held = self._held[:length], self._held[length:]
        if piece:
            self._pieces.append(piece)
        return piece


def _first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the text must end: the start of the stop string that is completed first (then: that begins first)."""
    found = [(text.find(word) + len(word), text.find(word)) for word in stop if word in text]
    return min(found)[1] if found else None


def _longest_overlap(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins a stop string."""
    longest = 0
    for word in stop:
        for length in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:length]):
                longest = length
                break
    return longest
