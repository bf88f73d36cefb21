"""The rows of the batch that draft fields: which field each writes, and when it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stcon.engine.batch.model import BatchModel, Span
from stcon.engine.parallel.drafts import Cursor, Draft, DraftRow, new_control
from stcon.errors import DecodingError

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.engine.control import Mode, Step
    from stcon.engine.parallel.draws import Draws
    from stcon.engine.parallel.fields import Field
    from stcon.grammar.machine import Machine


class Drafting:
    """Rows that draft.

    Args:
        rows: the batch; the output has rows of it too.
        planner, machine, mode: of the output.
        most_drawn: tokens that a row draws.
        room: tokens that a row can hold.

    Attributes:
        running: the rows by the index of their field.
    """

    def __init__(
        self, rows: BatchModel, planner: Planner, machine: Machine, mode: Mode, most_drawn: int, room: int
    ) -> None:
        self.rows = rows
        self.planner = planner
        self.machine = machine
        self.mode = mode
        self.most_drawn = most_drawn
        self.room = room
        self.running: dict[int, DraftRow] = {}

    def __contains__(self, index: int) -> bool:
        return index in self.running

    @property
    def steps(self) -> list[Step]:
        """What may be drawn next in each row."""
        return [row.step for row in self.running.values()]

    def spans(self) -> list[Span]:
        """What each row is fed next; rows that cannot hold it leave."""
        for index, row in list(self.running.items()):
            if self.rows.length(row.number) + len(row.pending) > self.room:
                self.leave(index)
        return [Span(row.number, row.pending, True) for row in self.running.values()]

    def take(self, draws: Draws, first: int) -> None:
        """Let each row draw; the entry of the first of them is `first`."""
        for number, row in enumerate(self.running.values(), first):
            row.pending = []
            row.take(draws.guess(number, row.position), self.planner.vocabulary)

    def begin(self, index: int, field: Field, prompt: Sequence[int], source: int | None, length: int) -> Draft:
        """Draft a field behind the prompt and its path.

        Args:
            index: the field's.
            prompt: the part of the prompt that is not copied.
            source: the row of which the first `length` tokens are copied; None: of none.

        Returns:
            The draft, which the row goes on writing; an empty one if nothing can be drafted there.
        """
        draft, vocabulary = Draft(), self.planner.vocabulary
        try:
            control, step, committed = new_control(self.planner, field.anchor, self.mode)
            held = len(field.lead) - len(committed)
            context = field.path[: len(field.path) - held] if held > 0 else field.path + committed[len(field.lead) :]
            pending = [*prompt, *vocabulary.encode_bytes(context)]
        except (DecodingError, UnicodeDecodeError):
            return draft
        if not step.is_done and pending:
            draft.text = committed
            cursor = Cursor(self.machine, field.anchor, field.end)
            cursor.read(committed)
            row = DraftRow(draft, cursor, control, step, most=self.most_drawn)
            row.pending = pending
            self.start(index, row, source, length)
        return draft

    def start(self, index: int, row: DraftRow, source: int | None, length: int) -> None:
        """Give `row` a row of the batch with the first `length` tokens of `source`; None: an empty one."""
        room = min(self.room, length + len(row.pending) + 2 * self.most_drawn)
        row.number = self.rows.join(room) if source is None else self.rows.copy(source, length, room)
        self.running[index] = row

    def leave(self, index: int) -> None:
        """Give back the row that drafts the field, if there is one; its draft stays."""
        row = self.running.pop(index, None)
        if row is not None:
            self.rows.leave(row.number)

    def leave_finished(self) -> None:
        """Give back the rows whose drafts are over."""
        for index in [index for index, row in self.running.items() if row.is_over]:
            self.leave(index)

    def leave_all(self) -> None:
        """Give back every row."""
        for index in list(self.running):
            self.leave(index)

    def move(self, moved: dict[int, int]) -> None:
        """The fields have new indices: old → new; rows of those that are no fields any more leave."""
        for index in [index for index in self.running if index not in moved]:
            self.leave(index)
        self.running = {moved[index]: row for index, row in self.running.items()}
