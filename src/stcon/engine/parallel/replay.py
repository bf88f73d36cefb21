"""A draft as the sequential decoder would write it: its tokens, and the places where that decoder would draw.

A draft is text, with the tokens that were drawn in it. `replay` takes a copy of the output's own control from where the
output stands, draws at each place the token that the draft has there, and lets the control do the rest: forced text,
healing, covers and limits are the sequential decoder's, not the draft's, so that canonical splits across the borders of
fields come out right whatever the rows that wrote the draft saw of them.

What results is still a guess. The certificate (`stcon.engine.parallel.decoder`) looks at every token of it again.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from stcon.engine.control import Control, Step
from stcon.engine.parallel.drafts import chosen
from stcon.engine.parallel.draws import admits

if TYPE_CHECKING:
    from stcon.engine.parallel.guide import Guide
    from stcon.vocab.vocabulary import Vocabulary

LOOK_AHEAD = 64  # bytes of text that are split where a draft has no token


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
