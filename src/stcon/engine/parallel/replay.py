"""A draft as the sequential decoder would write it: its tokens, and the places where that decoder would draw.

A draft is text, with the tokens that were drawn in it. `replay` takes a copy of the output's own control from where the
output stands, draws at each place the token that the draft has there, and lets the control do the rest: forced text,
healing, covers and limits are the sequential decoder's, not the draft's, so that canonical splits across the borders of
fields come out right whatever the rows that wrote the draft saw of them.

What results is still a guess. The certificate (`stcon.engine.parallel.decoder`) looks at every token of it again.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stcon.engine.control import Control, Step
from stcon.engine.parallel.drafts import Draft, admits, chosen

if TYPE_CHECKING:
    from stcon.engine.parallel.fields import Field
    from stcon.vocab.vocabulary import Vocabulary

LOOK_AHEAD = 64  # bytes of text that are split where a draft has no token
LOOK_BACK = 24  # bytes of the output that are looked for in the prompt


@dataclass(frozen=True)
class Guide:
    """The drafts from where the output stands on, as one text.

    Attributes:
        text: what comes next, if they are right.
        drawn: offset in `text` → the token drawn there.
        starts: where the fields' parts begin in `text`, ascending; the first is 0.
        fields: the field of each part.
        skipped: bytes of that field, from its anchor on, before the part.
        is_found: it was found in the prompt, and nobody drafted it.
    """

    text: bytes
    drawn: dict[int, int]
    starts: list[int]
    fields: list[int]
    skipped: list[int]
    is_found: bool = False

    def place(self, offset: int) -> tuple[int, int]:
        """(field, offset in its draft's text) of an offset in `text`."""
        part = bisect_right(self.starts, offset) - 1
        return self.fields[part], offset - self.starts[part] + self.skipped[part]


def guide(fields: Sequence[Field], drafts: dict[int, Draft], index: int, written: bytes) -> Guide | None:
    """The drafts of the fields from `index` on, of which `written` (from its anchor on) is written.

    Returns:
        None if there is no draft of field `index`, or it says something else than `written`.
    """
    found = Guide(b"", {}, [], [], [])
    text = bytearray()
    while (draft := drafts.get(index)) is not None and draft.text.startswith(written):
        skipped = len(written)
        found.starts.append(len(text))
        found.fields.append(index)
        found.skipped.append(skipped)
        found.drawn.update({len(text) + at - skipped: token for at, token in draft.drawn.items() if at >= skipped})
        text += draft.text[skipped:]
        if not draft.is_complete or index + 1 == len(fields):
            break
        index, written = index + 1, b""
    return Guide(bytes(text), found.drawn, found.starts, found.fields, found.skipped) if found.starts else None


def looked_up(prompt: bytes, written: bytes, least: int) -> bytes:
    """What `prompt` has behind the longest end of `written` that it has, of `least` bytes or more; b"" if it has none.

    Source: prompt lookup, the paper's Appendix I; of several places the last.
    """
    for size in range(min(len(written), LOOK_BACK), least - 1, -1):
        at = prompt.rfind(written[-size:])
        if at >= 0:
            return prompt[at + size : at + size + LOOK_AHEAD]
    return b""


class Point(NamedTuple):
    """A place where the sequential decoder draws, if the draft before it is right.

    Attributes:
        at: tokens of the replay before it.
        token: what the draft draws there; None at the end of the draft, where it says nothing.
        expected: the tokens that it emits there.
        offset: in the guide's text.
        control: as it stands before the draw; copy before use.
        step: what may be drawn.
    """

    at: int
    token: int | None
    expected: tuple[int, ...]
    offset: int
    control: Control
    step: Step


class Replay(NamedTuple):
    """A draft's tokens.

    Attributes:
        tokens: of all points, one after another.
        points: where tokens are drawn, in order; the last one is the end of the draft unless the text is over there.
    """

    tokens: list[int]
    points: list[Point]


def replay(control: Control, step: Step, guide: Guide, vocabulary: Vocabulary, most: int) -> Replay:
    """The tokens that lead along `guide`.

    Args:
        control: of the output; not changed.
        step: what it said last.
        most: tokens that may still be emitted.

    Cost: a plan a drawn token, and a split of at most `LOOK_AHEAD` bytes where the draft has no token that fits.
    """
    tokens: list[int] = []
    points: list[Point] = []
    offset, control = 0, copy.copy(control)
    while not step.is_done:
        before = copy.copy(control)
        token = _next(guide, offset, step, vocabulary)
        if token is not None and token in vocabulary.end_ids:
            points.append(Point(len(tokens), token, (token,), offset, before, step))
            tokens.append(token)
            break
        following = None if token is None else chosen(control, step, token)
        data = b"" if following is None else vocabulary.decode(following.tokens)
        if following is None or len(tokens) + len(following.tokens) > most or not _agree(data, guide.text, offset):
            points.append(Point(len(tokens), None, (), offset, before, step))
            break
        points.append(Point(len(tokens), token, following.tokens, offset, before, step))
        tokens += following.tokens
        offset += len(data)
        step = following
    return Replay(tokens, points)


def _next(guide: Guide, offset: int, step: Step, vocabulary: Vocabulary) -> int | None:
    """The token that the draft has at `offset`, else the first of the tokenizer's own split from there."""
    token = guide.drawn.get(offset)
    if token is not None and admits(step, token) and _agree(vocabulary.token_bytes(token) or b"", guide.text, offset):
        return token
    text = guide.text[offset : offset + LOOK_AHEAD].decode("utf-8", "ignore")
    split = vocabulary.encode(text)
    return split[0] if split and admits(step, split[0]) else None


def _agree(data: bytes, text: bytes, offset: int) -> bool:
    """Whether `data` is what `text` has at `offset`, as far as it goes."""
    there = text[offset : offset + len(data)]
    return data[: len(there)] == there
