"""Drafts of fields: their text, the tokens drawn in it, and the rows of the batch that write them.

A draft is a guess. What it says is never emitted; it says which tokens the certificate looks at first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stcon.engine.control import Control, PlannedControl, Step
from stcon.engine.parallel.draws import admits
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


class Cursor:
    """Follows a text through the machine until it leaves a field.

    Args:
        begin: a configuration in the field.
        end: the cut configuration after the field; None: it has no end but the text's.

    Attributes:
        config: where it stands.
        is_over: whether that is the field's end.
    """

    def __init__(self, machine: Machine, begin: Configuration, end: Configuration | None) -> None:
        self.machine = machine
        self.config = begin
        self.is_over = False
        self.end = None if end is None else (end.state, end.stack)

    def read(self, data: bytes) -> int:
        """Go over `data` as far as it belongs to the field; returns how many bytes of it do."""
        for number, byte in enumerate(data):
            following = None if self.is_over else self.machine.step(self.config, byte)
            if following is None:
                return number
            self.config = following
            self.is_over = (following.state, following.stack) == self.end
        return len(data)


class DraftRow:
    """A row of the batch that writes one field.

    Args:
        draft: what it has written.
        cursor: stands at the end of ``draft.text``.
        control: what follows a token; changed.
        step: what may be drawn next.
        position: of the next token in the output; None: it is not known.
        most: tokens to draw at most.

    Attributes:
        number: of the row.
        pending: tokens to feed.
        is_over: nothing more is to be drawn.
    """

    def __init__(
        self, draft: Draft, cursor: Cursor, control: Control, step: Step, *, position: int | None = None, most: int
    ) -> None:
        self.draft = draft
        self.cursor = cursor
        self.control = control
        self.step = step
        self.position = position
        self.number = -1
        self.pending: list[int] = []
        self.is_over = False
        self._left = most

    def take(self, token: int | None, vocabulary: Vocabulary) -> None:
        """Write `token`, which was drawn, and what it implies; None: the draft ends here."""
        following = None
        if token is not None:
            self.draft.drawn[len(self.draft.text)] = token
            self._left -= 1
            following = chosen(self.control, self.step, token)
        if following is None:  # an end token, or one that leads nowhere
            self.is_over = True
            self.draft.is_complete = token in vocabulary.end_ids
            return
        self.step = following
        if self.position is not None:
            self.position += len(following.tokens)
        self.pending.extend(following.tokens)
        data = vocabulary.decode(following.tokens)
        self.draft.text += data[: self.cursor.read(data)]
        self.draft.is_complete = self.cursor.is_over or following.is_done
        self.is_over = self.draft.is_complete or self._left <= 0


def chosen(control: Control, step: Step, token: int) -> Step | None:
    """What follows `token` after `step`; None after an end token, and where it is not known to be admissible."""
    if not admits(step, token):
        return None
    try:
        return control.choose(token)
    except StconError:
        return None


def new_control(planner: Planner, anchor: Configuration, mode: str) -> tuple[PlannedControl, Step, bytes]:
    """(control, first step, text committed) of a draft that begins at `anchor`, as if a block of text began there.

    Raises:
        DecodingError: nothing can be written from there.
    """
    plan = planner.plan(anchor.pack())
    control = PlannedControl(planner, mode, plan)  # type: ignore[arg-type]
    return control, Step(tuple(plan.tokens), mask=plan.mask, is_done=plan.is_done), plan.committed
