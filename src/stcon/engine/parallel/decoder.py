"""Certified decoding: fields are drafted side by side, and the sequential decoder runs over the drafts.

One row, the **front**, is the sequential decoder itself: an `Output`, fed what it emitted, drawing from the logits
after it. Other rows of the same batch draft the fields ahead of it. Every pass feeds the front its pending tokens,
and behind them whatever is drafted of what comes next (`stcon.engine.parallel.replay`), and asks for the logits at
each place where a token would be drawn. Then the output draws: from the first of these logits; if what it emits is
what was fed, from the next; and so on until it emits something else. That is the **certificate**, and it is all there
is to Theorem 23: every token is drawn by the sequential decoder from logits after exactly the tokens that it has
emitted. So nothing is emitted that was not certified; and sampling, limits, histories, penalties and stop strings are
the output's own.

**Repair.** Past the first token that was wrong, the same pass says which tokens of later fields the model would not
draw, given the draft before them. Each such field goes on from there in a row of its own, with the token drawn there,
behind the draft that it was looked at with.

**Bounds.** Each pass emits at least one drawn token, as each pass of the sequential decoder does; so there are never
more passes than it takes, plus one where the prompt must be read apart (recurrent states cannot go back). The paper
drafts in waves and certifies between them; here a pass does both. A pass that looks at a draft is a round; after
`max_rounds` of them the front finishes alone.

**Exactness.** Identical to sequential decoding where logits do not depend on how tokens are split into passes or on
which rows share a pass. In floating point they do, by rounding, so that near-ties may fall otherwise.

**Sampling** is by common random numbers: the draw at position n of the output is a function of the seed, of n and of
the logits (`stcon.engine.sampling`), so the argument above holds as it stands. A draft that does not know its
position draws greedily; one that is repaired knows it, as long as the drafts before it keep their lengths.

Source: the paper's Theorem 23 and Section D.5.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from stcon.engine.batch.model import BatchModel, Span, StepLogits
from stcon.engine.output import Output
from stcon.engine.parallel.drafts import Cursor, Draft, DraftRow, chosen, drawn, new_control
from stcon.engine.parallel.front import Front
from stcon.engine.parallel.replay import Guide, Point, Replay, guide, looked_up, replay
from stcon.engine.parallel.report import Report, Round
from stcon.errors import DecodingError, InvalidOption

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.grammar.machine import Machine

MAX_ROUNDS = 24
MAX_DRAWN = 64
MAX_PLANS = 5


@dataclass(frozen=True)
class Settings:
    """How far drafting goes. None of it changes the output.

    Attributes:
        max_rounds: certificates before the front goes on alone.
        max_drawn: tokens that a row draws for a field (the paper's cap of the first wave; here a draft that runs away
            costs no pass).
        max_plans: how often the fields are looked for in one output, besides those known from outputs before.
        lookup: where no field is drafted, what the prompt has after the last bytes written, at least so many of them,
            is taken for a draft (prompt lookup); 0: never. It pays where a model copies, and else makes passes larger.
    """

    max_rounds: int = MAX_ROUNDS
    max_drawn: int = MAX_DRAWN
    max_plans: int = MAX_PLANS
    lookup: int = 0

    def __post_init__(self) -> None:
        for name in ("max_rounds", "max_drawn", "max_plans", "lookup"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidOption(f"{name}: expected an integer from 0, got {value!r}")


class Decoder:
    """Decodes one output over the rows of a batch.

    Args:
        rows: computes; used by nobody else meanwhile.
        output: begins with the prompt `prompt_ids`; not begun.
        machine: of the output's grammar.
        planner: of its control.

    Attributes:
        drafts: by the index of their field.
    """

    def __init__(
        self,
        rows: BatchModel,
        output: Output,
        prompt_ids: Sequence[int],
        machine: Machine,
        planner: Planner,
        settings: Settings,
    ) -> None:
        self.rows = rows
        self.output = output
        self.prompt = list(prompt_ids)
        self.machine = machine
        self.planner = planner
        self.settings = settings
        self.front = Front(machine, settings.max_plans)
        self.drafts: dict[int, Draft] = {}
        self._drafting: dict[int, DraftRow] = {}
        self._rounds: list[Round] = []
        self._prompt_text = output.vocabulary.decode(prompt_ids) if settings.lookup else b""
        self._row: int = -1  # the front's
        self._trial: int | None = None  # a copy of it, which holds a draft, where it cannot go back
        self._prompt_row: int | None = None  # what drafts are copied from, where the front's row cannot be cut
        self._num_shared = 0  # tokens of the prompt that a draft's row is given by copying
        self._num_read = 0  # tokens of the output that `front` has read
        self._row_passes = self._fed = 0
        self._room = min(rows.row_tokens, rows.model.context_length)

    def run(self) -> Report:
        """Decode to the end.

        Raises:
            DecodingError, LimitTooSmall: as the sequential decoder does.
        """
        try:
            self.output.begin()
            self.front.plan()
            num_fields = len(self.front.fields)
            self._read_output()
            if self.output.finish is None:
                self._read_prompt()
            while self.output.finish is None:
                self._pass()
                self._look_around()
        finally:
            self._leave_all()
        return Report(
            fields=num_fields,
            plans=self.front.num_plans,
            passes=self.output.passes,
            sequential_passes=self.output.sampled,
            row_passes=self._row_passes,
            fed=self._fed,
            rounds=tuple(self._rounds),
        )

    # ------------------------------------------------------------------------------------------------- passes

    def _read_prompt(self) -> None:
        """Make the front's row; where it cannot be cut later, read the prompt first, but for its last token."""
        pending = self.output.pending
        if not pending:
            raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")
        self._row = self.rows.join(min(self._room, len(self.prompt) + self.output.limit))
        self._num_shared = len(self.prompt)
        if not self.rows.can_truncate:
            self._num_shared = max(0, len(self.prompt) - 1) if len(self.front.fields) > 1 else 0
            if self._num_shared:
                self._feed([Span(self._row, pending[: self._num_shared], False)])
                del pending[: self._num_shared]
                self._prompt_row = self.rows.copy(self._row, self._num_shared, self._num_shared)

    def _pass(self) -> None:
        """One pass: the front with what is drafted of what comes next, and every row that drafts."""
        output, found = self.output, self._expected()
        for row in [row for row in self._drafting.values() if self._length(row) > self._room]:
            self._leave(row.index)
        front_row, pending = self._row, output.pending[:]
        tokens, positions = pending, None
        if found is not None:
            way = found[1]
            tokens = pending + way.tokens
            positions = [len(pending) - 1 + point.at for point in way.points]
            if not self.rows.can_truncate:
                front_row = self._trial = self.rows.copy(self._row, self.rows.length(self._row), self._room)
        drafting = list(self._drafting.values())
        spans = [Span(front_row, tokens, True, positions), *(Span(row.number, row.pending, True) for row in drafting)]
        logits = self._feed(spans)
        for number, row in enumerate(drafting, len(positions or (0,))):
            row.pending = []
            row.take(logits.row(number), output.vocabulary)
        if found is None:
            output.pending.clear()
            output.take(logits.row(0))
        else:
            self._certify(*found, logits, front_row, pending)

    def _feed(self, spans: Sequence[Span]) -> StepLogits:
        started = perf_counter()
        logits = self.rows.feed(spans)
        if not self.output.passes:
            self.output.prefill_s = perf_counter() - started
        self.output.passes += 1
        self._row_passes += len(spans)
        self._fed += sum(len(span.tokens) for span in spans)
        return logits

    def _expected(self) -> tuple[Guide, Replay] | None:
        """What comes next if the drafts are right; None if they say nothing."""
        front, output = self.front, self.output
        drafted = guide(front.fields, self.drafts, front.index, front.written) if self._rounds_left else None
        for there in (drafted, self._looked_up()):
            if there is not None:
                way = replay(output.control, output.step, there, output.vocabulary, output.limit - len(output.tokens))
                if way.tokens:
                    return there, way
        return None

    def _looked_up(self) -> Guide | None:
        """What the prompt has after the last bytes of the field; None if it does not have them."""
        if not self.settings.lookup:
            return None
        found = looked_up(self._prompt_text, self.front.body, self.settings.lookup)
        return Guide(found, {}, [0], [self.front.index], [len(self.front.written)], is_found=True) if found else None

    @property
    def _rounds_left(self) -> int:
        """Rounds over drafts of fields that may still be made."""
        return max(0, self.settings.max_rounds - sum(round.fields > 0 for round in self._rounds))

    # ------------------------------------------------------------------------------------------------- certificate

    def _certify(self, there: Guide, way: Replay, logits: StepLogits, row: int, pending: list[int]) -> None:
        """Let the output draw along `way`, and repair the fields after the first token that is not its own.

        Args:
            row: holds what was fed: the front's own, or a copy of it.
            pending: what was fed before ``way.tokens``.
        """
        output, before = self.output, len(self.output.tokens)
        accepted = 0
        for number, point in enumerate(way.points):
            start = len(output.tokens)
            output.take(logits.row(number))
            emitted = tuple(token.id for token in output.tokens[start:])
            if output.finish is not None or emitted != point.expected:
                accepted += emitted == point.expected
                break
            accepted += 1
        rest = [] if output.finish is not None else way.points[accepted:]
        wrong = self._wrong(there, rest, logits, accepted, before)
        self._note(there, way, accepted, wrong, before)
        if output.finish is not None:
            return
        in_front = there.place(way.points[min(accepted, len(way.points) - 1)].offset)[0]
        for index, (point, token) in wrong.items():
            if index > in_front and token is not None:
                self._repair(there, way, point, token, row, pending, before + point.at)
        self._settle(way, row, pending, [token.id for token in output.tokens[before:]])

    def _wrong(
        self, there: Guide, points: Sequence[Point], logits: StepLogits, first: int, before: int
    ) -> dict[int, tuple[Point, int | None]]:
        """The first point of each field at which the model would draw another token, and that token.

        The first of `points` is where the output itself drew another (so its logits are used up), or the draft's end.
        """
        found: dict[int, tuple[Point, int | None]] = {}
        for number, point in enumerate(points):
            index, _ = there.place(point.offset)
            if number == 0:
                found[index] = point, None
            elif (
                index not in found and (token := self._drawn_at(point, logits.row(first + number), before)) is not None
            ):
                found[index] = point, token
        return found

    def _drawn_at(self, point: Point, logits: object, before: int) -> int | None:
        """The token that the model would draw at `point`, if that leads elsewhere than the draft."""
        token = drawn(logits, point.step, self.output.sampling, before + point.at)  # type: ignore[arg-type]
        if token is None or token == point.token:
            return None
        following = chosen(copy.copy(point.control), point.step, token)
        return None if following is not None and following.tokens == point.expected else token

    def _note(
        self, there: Guide, way: Replay, accepted: int, wrong: dict[int, tuple[Point, int | None]], before: int
    ) -> None:
        drafted = sum(point.token is not None for point in way.points)
        failed = {index: point for index, (point, _) in wrong.items() if point.token is not None}
        agreed = drafted
        for index, point in failed.items():
            agreed -= sum(
                later.token is not None and later.at >= point.at and there.place(later.offset)[0] == index
                for later in way.points
            )
        fields = 0 if there.is_found else len(there.fields)
        self._rounds.append(Round(before, drafted, agreed, accepted, fields, tuple(failed)))

    def _repair(
        self, there: Guide, way: Replay, point: Point, token: int, row: int, pending: list[int], position: int
    ) -> None:
        """Write a field anew from `point` on, beginning with `token`."""
        index, offset = there.place(point.offset)
        running = self._drafting.get(index)
        if running is not None and point.token is None:
            return  # the draft ends here because its row is still at it
        field, draft = self.front.fields[index], self.drafts[index].before(offset)
        self._leave(index)
        cursor = Cursor(self.machine, field.anchor, field.end)
        cursor.read(draft.text)
        fresh = DraftRow(
            index,
            draft,
            cursor,
            copy.copy(point.control),
            point.step,
            sampling=self.output.sampling,
            position=position,
            most=self.settings.max_drawn,
        )
        fresh.write(token, self.output.vocabulary)
        self.drafts[index] = draft
        if fresh.is_over or not self._num_free():
            return
        if self.rows.can_truncate:
            self._start(fresh, row, self.rows.length(row) - len(way.tokens) + point.at)
        else:
            fresh.pending[:0] = pending + way.tokens[: point.at]
            self._start(fresh, self._row, self.rows.length(self._row))

    def _settle(self, way: Replay, row: int, pending: list[int], emitted: list[int]) -> None:
        """Make the front's row hold what was fed and is right; the rest of what was emitted is pending.

        At least one token is left pending, since the logits after it are needed.
        """
        most = min(len(way.tokens), len(emitted) - 1)
        right = next((i for i in range(most) if way.tokens[i] != emitted[i]), most)
        if self.rows.can_truncate:
            self.rows.truncate(row, self.rows.length(row) - len(way.tokens) + right)
            self.output.pending = emitted[right:]
            return
        if right == len(way.tokens):
            self.rows.leave(self._row)
            self._row, self.output.pending = row, emitted[right:]
        else:
            self.rows.leave(row)
            self.output.pending = pending + emitted
        self._trial = None

    # ------------------------------------------------------------------------------------------------- drafting

    def _look_around(self) -> None:
        """After a pass: where is the output now, which drafts are of use, which fields need one?"""
        self._read_output()
        if self.output.finish is not None:
            return
        if not self._rounds_left:
            self.drafts.clear()
            for index in list(self._drafting):
                self._leave(index)
            return
        if self.front.is_due and (moved := self.front.plan()) is not None:
            self._move(moved)
        self._drop_passed()
        for index in range(self.front.index + 1, len(self.front.fields)):
            if not self._num_free():
                break
            if index not in self.drafts and not self.front.fields[index].remembers:
                self._draft(index)

    def _read_output(self) -> None:
        """Let `front` read what was emitted since."""
        fresh = self.output.tokens[self._num_read :]
        self._num_read += len(fresh)
        self.front.read(b"".join(token.data for token in fresh), sum(token.kind != "forced" for token in fresh))

    def _move(self, moved: dict[int, int]) -> None:
        """The fields have new indices; drafts of those that are no fields any more are dropped."""
        for index in [index for index in self.drafts if index not in moved]:
            self._leave(index)
            del self.drafts[index]
        self.drafts = {moved[index]: draft for index, draft in self.drafts.items()}
        self._drafting = {moved[index]: row for index, row in self._drafting.items()}
        for index, row in self._drafting.items():
            row.index = index

    def _drop_passed(self) -> None:
        """Drop drafts of what is written, and give back the rows of drafts that are over."""
        front = self.front
        for index, draft in list(self.drafts.items()):
            if index < front.index or (index == front.index and not self._is_ahead(draft)):
                self._leave(index)
                del self.drafts[index]
        for index in [index for index, row in self._drafting.items() if row.is_over]:
            self._leave(index)

    def _is_ahead(self, draft: Draft) -> bool:
        """Whether the draft of the front's field says what comes next."""
        written = self.front.written
        if len(written) <= len(self.front.fields[self.front.index].lead):
            return True
        return draft.text.startswith(written) and (draft.is_complete or len(draft.text) > len(written))

    def _draft(self, index: int) -> None:
        """Begin a draft of a field ahead, behind the prompt and the field's path."""
        field, vocabulary = self.front.fields[index], self.output.vocabulary
        self.drafts[index] = draft = Draft()
        try:
            control, step, committed = new_control(self.planner, field.anchor, self.output.control.mode)
            held = len(field.lead) - len(committed)
            context = field.path[: len(field.path) - held] if held > 0 else field.path + committed[len(field.lead) :]
            pending = self.prompt[self._num_shared :] + vocabulary.encode_bytes(context)
        except (DecodingError, UnicodeDecodeError):
            return  # an empty draft: not tried again
        if step.is_done or not pending:
            return
        draft.text = committed
        cursor = Cursor(self.machine, field.anchor, field.end)
        cursor.read(committed)
        row = DraftRow(index, draft, cursor, control, step, most=self.settings.max_drawn)
        row.pending = pending
        source = self._row if self.rows.can_truncate else self._prompt_row
        self._start(row, source, self._num_shared)

    def _start(self, row: DraftRow, source: int | None, length: int) -> None:
        """Give `row` a row of the batch with the first `length` tokens of `source`; None: an empty one."""
        room = min(self._room, length + len(row.pending) + 2 * self.settings.max_drawn)
        row.number = self.rows.join(room) if source is None else self.rows.copy(source, length, room)
        self._drafting[row.index] = row

    # ------------------------------------------------------------------------------------------------- rows

    def _num_free(self) -> int:
        """Rows that may still join; one is left for the copy that a certificate may need."""
        kept = 1 if self.rows.can_truncate else 2 + (self._prompt_row is not None)
        return max(0, self.rows.num_rows - kept - len(self._drafting))

    def _length(self, row: DraftRow) -> int:
        """Tokens that `row` will hold after the next pass."""
        return self.rows.length(row.number) + len(row.pending)

    def _leave(self, index: int) -> None:
        """Give back the row that drafts field `index`, if there is one; its draft stays."""
        row = self._drafting.pop(index, None)
        if row is not None:
            self.rows.leave(row.number)

    def _leave_all(self) -> None:
        for index in list(self._drafting):
            self._leave(index)
        for number in (None if self._row < 0 else self._row, self._trial, self._prompt_row):
            if number is not None:
                self.rows.leave(number)
