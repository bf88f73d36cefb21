"""Drafts of fields: their text, the tokens drawn in it, and the rows of the batch that write them.

A draft is a guess. What it says is never emitted; it says which tokens the certificate looks at first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stcon.engine.control import Control, PlannedControl, Step
from stcon.engine.sampling import Float32, Int32, Sampling, apply_bitmask
from stcon.errors import StconError

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.grammar.machine import Configuration, Machine
    from stcon.vocab.vocabulary import Vocabulary


@dataclass
class Draft:
    """What a field may be.

    Attributes:
        text: from the field's anchor on: its lead and as much of its body as is drafted.
        drawn: offset in `text` → the token that was drawn there; it may reach past the end.
        is_complete: `text` ends where the field does.
    """

    text: bytes = b""
    drawn: dict[int, int] = field(default_factory=dict)
    is_complete: bool = False

    def before(self, offset: int) -> Draft:
        """The part that ends at `offset`."""
        return Draft(self.text[:offset], {at: token for at, token in self.drawn.items() if at < offset})


class Cursor:
    """Follows a text through the machine until it leaves a field.

    Args:
        begin: where `Draft.text` begins.
        end: the cut configuration after the field; None: it has no end but the text's.
    """

    def __init__(self, machine: Machine, begin: Configuration, end: Configuration | None) -> None:
        self.machine = machine
        self.config: Configuration | None = begin
        self.end = None if end is None else (end.state, end.stack)

    def read(self, data: bytes) -> int | None:
        """How much of `data` belongs to the field, if the field ends in it."""
        for number, byte in enumerate(data, 1):
            if self.config is None:
                return None
            self.config = self.machine.step(self.config, byte)
            if self.config is not None and (self.config.state, self.config.stack) == self.end:
                return number
        return None


class DraftRow:
    """A row of the batch that writes one field.

    Args:
        index: which field it writes.
        draft: what it has written.
        cursor: stands at the end of ``draft.text``.
        control: what follows a token; changed.
        step: what may be drawn next.
        sampling: how tokens are drawn; None: greedily.
        position: of the next token in the output.
        most: tokens to draw at most.

    Attributes:
        number: the row's number in the batch, once it has one.
        pending: tokens of the draft, or before it, that the row was not fed yet.
        is_over: nothing more is to be drawn.
    """

    def __init__(
        self,
        index: int,
        draft: Draft,
        cursor: Cursor,
        control: Control,
        step: Step,
        *,
        sampling: Sampling | None = None,
        position: int = 0,
        most: int,
    ) -> None:
        self.index = index
        self.draft = draft
        self.cursor = cursor
        self.control = control
        self.step = step
        self.sampling = sampling or Sampling()
        self.position = position
        self.number = -1
        self.pending: list[int] = []
        self.is_over = False
        self._left = most

    def take(self, logits: Float32, vocabulary: Vocabulary) -> None:
        """Draw the next token (float32[V], written to) and write it, unless the draft ends here."""
        token = drawn(logits, self.step, self.sampling, self.position)
        if token is None:
            self.is_over = True
        else:
            self.write(token, vocabulary)

    def write(self, token: int, vocabulary: Vocabulary) -> None:
        """Write `token` and what it implies."""
        self.draft.drawn[len(self.draft.text)] = token
        self._left -= 1
        following = chosen(self.control, self.step, token)
        if following is None:  # an end token, or one that leads nowhere
            self.is_over = True
            self.draft.is_complete = token in vocabulary.end_ids
            return
        self.step = following
        self.position += len(following.tokens)
        self.pending.extend(following.tokens)
        data = vocabulary.decode(following.tokens)
        size = self.cursor.read(data)
        self.draft.text += data if size is None else data[:size]
        self.draft.is_complete = size is not None or following.is_done
        self.is_over = self.draft.is_complete or self._left <= 0


def drawn(logits: Float32, step: Step, sampling: Sampling, position: int) -> int | None:
    """The token that would be drawn after `step`, as far as that can be told without a search; `logits` is written to.

    Where a limit is near, only what it surely admits is drawn, so this is a guess there.
    """
    if step.mask is not None:
        apply_bitmask(logits, step.mask)
    if step.limit is not None:
        apply_bitmask(logits, step.limit.mask)
    try:
        return sampling.draw(logits, position)
    except StconError:
        return None


def chosen(control: Control, step: Step, token: int) -> Step | None:
    """What follows `token` after `step`; None after an end token, and where it is not known to be admissible."""
    if not admits(step, token):
        return None
    try:
        return control.choose(token)
    except StconError:
        return None


def admits(step: Step, token: int) -> bool:
    """Whether `token` may be drawn after `step`; where a limit is near, only if that is known without a search."""
    return all(mask is None or _has(mask, token) for mask in (step.mask, step.limit and step.limit.certain))


def _has(mask: Int32, token: int) -> bool:
    return bool(np.int64(mask[token >> 5]) >> (token & 31) & 1)


def new_control(planner: Planner, anchor: Configuration, mode: str) -> tuple[PlannedControl, Step, bytes]:
    """(control, first step, text committed) of a draft that begins at `anchor`, as if a block of text began there.

    Raises:
        DecodingError: nothing can be written from there.
    """
    plan = planner.plan(anchor.pack())
    control = PlannedControl(planner, mode, plan)  # type: ignore[arg-type]
    return control, Step(tuple(plan.tokens), mask=plan.mask, is_done=plan.is_done), plan.committed
