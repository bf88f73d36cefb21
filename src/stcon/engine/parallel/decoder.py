"""Certified decoding: fields are drafted side by side, and the sequential decoder runs over the drafts.

One row, the **front**, is the sequential decoder itself: an `Output`, fed what it emitted, drawing from the logits
after it. Other rows of the same batch draft the fields ahead of it. Every pass feeds the front its pending tokens,
and behind them a guess at what comes next (`stcon.engine.parallel.guide`, `stcon.engine.parallel.replay`), and asks
for the logits at each place where a token would be drawn. Then the output draws: from the first of these logits; if
what it emits is what was fed, from the next; and so on until it emits something else. That is the **certificate**, and
it is all there is to Theorem 23: every token is drawn by the sequential decoder from logits after exactly the tokens
that it has emitted. So nothing is emitted that was not certified; and sampling, limits, histories, penalties and stop
strings are the output's own.

**Repair.** Past the first token that was wrong, the same pass says which tokens of later fields the model would not
draw, given the guess before them. Each such field goes on from there in a row of its own, with the token drawn there,
behind the guess that it was looked at with. A field that was looked at whole, and found right, is drafted.

**Bounds.** Each pass emits at least one drawn token, as each pass of the sequential decoder does; so there are never
more passes than it takes, plus one where the prompt must be read apart (recurrent states cannot go back). The paper
drafts in waves and certifies between them; here a pass does both. A pass that looks at a guess of the output's own
field is a round; after `max_rounds` of them the front finishes alone.

**Exactness.** Identical to sequential decoding where logits do not depend on how tokens are split into passes or on
which rows share a pass. In floating point they do, by rounding, so that near-ties may fall otherwise.

**Sampling** is by common random numbers: the draw at position n of the output is a function of the seed, of n and of
the logits (`stcon.engine.sampling`), so the argument above holds as it stands. A draft that does not know its
position draws greedily; one that is repaired knows it, as long as the drafts before it keep their lengths.

Source: the paper's Theorem 23 and Section D.5.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from stcon.engine.batch.model import BatchModel, Span
from stcon.engine.output import Output
from stcon.engine.parallel.drafting import Drafting
from stcon.engine.parallel.drafts import Cursor, DraftRow, chosen
from stcon.engine.parallel.draws import Draws
from stcon.engine.parallel.fields import segments_of
from stcon.engine.parallel.front import Front
from stcon.engine.parallel.guide import Guesses, Guide
from stcon.engine.parallel.replay import Point, Replay, replay
from stcon.engine.parallel.report import Report, Round
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.engine.control import Step
    from stcon.engine.parallel.guide import Part
    from stcon.grammar.machine import Machine

MAX_ROUNDS = 24
MAX_DRAWN = 64
MAX_PLANS = 5
RECALL = 3
MAX_AHEAD = 256


@dataclass(frozen=True)
class Settings:
    """How far drafting goes. None of it changes the output.

    Attributes:
        max_rounds: certificates before the front goes on alone.
        max_drawn: tokens that a row draws for a field (the paper's cap of the first wave; here a draft that runs away
            costs no pass).
        max_plans: how often the fields are looked for in one output, besides those known from outputs before.
        max_ahead: tokens of a guess that a pass is fed. (A pass takes about as long as one over a single token while
            its tokens are fewer than the operations a byte at which a GPU is bound by arithmetic, some 200.)
        recall: where no draft says what comes next, what followed the last bytes before, in the output or a draft, at
            least so many of them, is taken for a guess; 0: never.
        lookup: so is what the prompt has after them (prompt lookup); 0: never. It pays where a model copies, and else
            makes passes larger.
    """

    max_rounds: int = MAX_ROUNDS
    max_drawn: int = MAX_DRAWN
    max_plans: int = MAX_PLANS
    max_ahead: int = MAX_AHEAD
    recall: int = RECALL
    lookup: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidOption(f"{name}: expected an integer from 0, got {value!r}")


class Decoder:
    """Decodes one output over the rows of a batch, a pass at a time.

    Args:
        rows: computes; used by nobody else during a pass.
        output: begun, with the prompt `prompt_ids`.
        machine: of the output's grammar.
        planner: of its control.
        chunk: most tokens of the prompt in a pass; None: any number, all of it where rows can be cut.
    """

    def __init__(
        self,
        rows: BatchModel,
        output: Output,
        prompt_ids: Sequence[int],
        machine: Machine,
        planner: Planner,
        settings: Settings,
        *,
        chunk: int | None = None,
    ) -> None:
        self.rows = rows
        self.output = output
        self.prompt = list(prompt_ids)
        self.settings = settings
        self.chunk = chunk
        self.front = Front(machine, settings.max_plans)
        room = min(rows.row_tokens, rows.model.context_length)
        self.drafting = Drafting(rows, planner, machine, output.control.mode, settings.max_drawn, room)
        prompt = output.vocabulary.decode(prompt_ids) if settings.lookup else b""
        self.guesses = Guesses(segments_of(machine), settings.recall, prompt, settings.lookup)
        self._rounds: list[Round] = []
        self._num_fields = 0
        self._row: int = -1  # the front's
        self._trial: int | None = None  # a copy of it, which holds a guess, where it cannot go back
        self._prompt_row: int | None = None  # what drafts are copied from, where the front's row cannot be cut
        # tokens of the prompt that a draft's row is given by copying
        self._num_shared = len(self.prompt) if rows.can_truncate else 0
        self._num_read = 0  # tokens of the output that `front` has read
        self._row_passes = self._fed = 0

    def run(self) -> None:
        """Decode to the end.

        Raises:
            DecodingError, LimitTooSmall: as the sequential decoder does.
        """
        for _ in self.passes():
            pass
        self.output.parallel = self.report()

    def passes(self) -> Iterator[None]:
        """Decode to the end, and stop after each pass; rows are given back at the end, or when the iterator is closed.

        Raises:
            InvalidOption: there is nothing to feed: the prompt is empty.
            DecodingError, LimitTooSmall: as the sequential decoder does.
        """
        try:
            self.front.plan()
            self._num_fields = len(self.front.fields)
            self._read_output()
            if self.output.finish is None:
                if not self.output.pending:
                    raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")
                self._row = self.rows.join(min(self.drafting.room, len(self.prompt) + self.output.limit))
                yield from self._read_prompt()
            while self.output.finish is None:
                self._pass()
                self._look_around()
                self.output.parallel = self.report()
                yield
        finally:
            self._leave_all()

    def report(self) -> Report:
        """How it came about so far."""
        return Report(
            fields=self._num_fields,
            plans=self.front.num_plans,
            passes=self.output.passes,
            sequential_passes=self.output.sampled,
            row_passes=self._row_passes,
            fed=self._fed,
            rounds=tuple(self._rounds),
        )

    # ------------------------------------------------------------------------------------------------- passes

    def _read_prompt(self) -> Iterator[None]:
        """Read so much of the prompt as must be read apart: by chunks, and where rows cannot be cut up to its end.

        There drafts begin after a copy of a row that holds it but for its last token.
        """
        pending, has_drafts = self.output.pending, not self.rows.can_truncate and len(self.front.fields) > 1
        left = len(self.prompt) - 1 if has_drafts else len(pending) - 1
        chunk = self.chunk or (left if has_drafts else len(pending))
        while left >= chunk or (has_drafts and left):
            size = min(left, chunk)
            self._feed([Span(self._row, pending[:size], False)], [])
            del pending[:size]
            left -= size
            if self.chunk:
                yield
        if has_drafts and len(self.prompt) > 1:
            self._num_shared = len(self.prompt) - 1
            self._prompt_row = self.rows.copy(self._row, self._num_shared, self._num_shared)

    def _pass(self) -> None:
        """One pass: the front with a guess at what comes next, and every row that drafts."""
        output, found = self.output, self._expected()
        drafting = self.drafting.spans()
        front_row, pending = self._row, output.pending[:]
        tokens, positions, steps = pending, None, [output.step]
        if found is not None:
            way = found[1]
            tokens = pending + way.tokens
            positions = [len(pending) - 1 + point.at for point in way.points]
            steps = [point.step for point in way.points]
            if not self.rows.can_truncate:
                front_row = self._trial = self.rows.copy(self._row, self.rows.length(self._row), self.drafting.room)
        draws = self._feed([Span(front_row, tokens, True, positions), *drafting], [*steps, *self.drafting.steps])
        self.drafting.take(draws, len(steps))
        if found is None:
            output.pending.clear()
            draws.take(0, output)
        else:
            self._certify(*found, draws, front_row, pending)

    def _feed(self, spans: Sequence[Span], steps: Sequence[Step]) -> Draws:
        output, started = self.output, perf_counter()
        logits = self.rows.feed(spans)
        draws = Draws(logits, steps, output.sampling, greedily=bool(steps) and output.can_take_greedily())
        if not output.passes:
            output.prefill_s = perf_counter() - started
        output.passes += 1
        self._row_passes += len(spans)
        self._fed += sum(len(span.tokens) for span in spans)
        return draws

    def _expected(self) -> tuple[Guide, Replay] | None:
        """What comes next if the guesses are right; None if there is none."""
        there = self.guesses.guide(self.front) if self._rounds_left else None
        if there is None:
            return None
        output = self.output
        most = min(output.limit - len(output.tokens), self.settings.max_ahead)
        way = replay(output.control, output.step, there, output.vocabulary, most)
        return (there, way) if way.tokens else None

    @property
    def _rounds_left(self) -> int:
        """Rounds that may still be made."""
        return max(0, self.settings.max_rounds - sum(not round.is_look for round in self._rounds))

    # ------------------------------------------------------------------------------------------------- certificate

    def _certify(self, there: Guide, way: Replay, draws: Draws, row: int, pending: list[int]) -> None:
        """Let the output draw along `way`, and repair the fields after the first token that is not its own.

        Args:
            row: holds what was fed: the front's own, or a copy of it.
            pending: what was fed before ``way.tokens``.
        """
        output, before = self.output, len(self.output.tokens)
        accepted = 0
        for number, point in enumerate(way.points):
            start = len(output.tokens)
            draws.take(number, output)
            emitted = tuple(token.id for token in output.tokens[start:])
            accepted += emitted == point.expected
            if output.finish is not None or emitted != point.expected:
                break
        wrong = {} if output.finish is not None else self._wrong(there, way, draws, accepted, before)
        self._note(there, way, accepted, wrong, before)
        if output.finish is not None:
            return
        in_front = there.part(way.points[min(accepted, len(way.points) - 1)].offset).field
        for index, (point, token) in wrong.items():
            if index > in_front and token is not None:
                self._repair(there, way, point, token, row, pending, before + point.at)
        self._adopt(there, way, in_front, wrong)
        self._settle(way, row, pending, [token.id for token in output.tokens[before:]])

    def _wrong(
        self, there: Guide, way: Replay, draws: Draws, first: int, before: int
    ) -> dict[int, tuple[Point, int | None]]:
        """The first point of each field at which the model would draw another token, and that token.

        The points before `first` were accepted; there the output itself drew another (so that its logits are used up),
        or the guess ends.
        """
        found: dict[int, tuple[Point, int | None]] = {}
        for number, point in enumerate(way.points[first:], first):
            index = there.part(point.offset).field
            if number == first:
                found[index] = point, None
            elif index not in found and (token := self._drawn_at(point, draws, number, before)) is not None:
                found[index] = point, token
        return found

    def _drawn_at(self, point: Point, draws: Draws, number: int, before: int) -> int | None:
        """The token that the model would draw at `point`, if that leads elsewhere than the guess."""
        token = draws.guess(number, before + point.at)
        if token is None or token == point.token:
            return None
        following = chosen(copy.copy(point.control), point.step, token)
        return None if following is not None and following.tokens == point.expected else token

    def _note(
        self, there: Guide, way: Replay, accepted: int, wrong: dict[int, tuple[Point, int | None]], before: int
    ) -> None:
        guessed = [point for point in way.points if point.token is not None and not there.is_closing(point.offset)]
        failed = {index: point for index, (point, _) in wrong.items() if point.token is not None}
        fields = [there.part(point.offset).field for point in guessed]
        agreed = sum(
            index not in failed or point.at < failed[index].at for point, index in zip(guessed, fields, strict=True)
        )
        self._rounds.append(
            Round(before, len(guessed), agreed, accepted, len(set(fields)), tuple(failed), there.is_look)
        )

    # ------------------------------------------------------------------------------------------------- repair

    def _repair(
        self, there: Guide, way: Replay, point: Point, token: int, row: int, pending: list[int], position: int
    ) -> None:
        """Write a field anew from `point` on, beginning with `token`."""
        part = there.part(point.offset)
        if self._is_written(part, point):
            return
        draft = there.draft(part, point.offset)
        self.drafting.leave(part.field)
        field = self.front.fields[part.field]
        cursor = Cursor(self.front.machine, field.anchor, field.end)
        cursor.read(draft.text)
        fresh = DraftRow(
            draft, cursor, copy.copy(point.control), point.step, position=position, most=self.settings.max_drawn
        )
        fresh.take(token, self.output.vocabulary)
        self.guesses.put(part.field, draft)
        if fresh.is_over or not self._num_free():
            return
        if self.rows.can_truncate:
            self.drafting.start(part.field, fresh, row, self.rows.length(row) - len(way.tokens) + point.at)
        else:
            fresh.pending[:0] = pending + way.tokens[: point.at]
            self.drafting.start(part.field, fresh, self._row, self.rows.length(self._row))

    def _is_written(self, part: Part, point: Point) -> bool:
        """Whether a row is at it already to write what comes at `point`; or it is just where this guess was cut."""
        offset = point.offset - part.start
        if point.token is None and offset < part.num_known:
            return True
        return part.field in self.drafting and offset >= part.num_known == part.num_drafted

    def _adopt(self, there: Guide, way: Replay, in_front: int, wrong: dict[int, tuple[Point, int | None]]) -> None:
        """Take for drafts what was guessed at whole fields, and is what the model would draw there."""
        last = there.part(way.points[-1].offset).field
        for part in there.parts:
            if in_front < part.field < last and part.field not in wrong and len(part.text) > part.num_drafted:
                self.drafting.leave(part.field)
                self.guesses.put(part.field, there.draft(part, part.start + len(part.text), is_complete=True))

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
        front = self.front
        if self.output.finish is not None:
            return
        if not self._rounds_left:
            self.guesses.clear()
            self.drafting.leave_all()
            return
        if front.is_due and (moved := front.plan()) is not None:
            self.guesses.move(moved)
            self.drafting.move(moved)
        self._drop_passed()
        self.drafting.leave_finished()
        for index in range(front.index + 1, len(front.fields)):
            if not self._num_free():
                break
            if index not in self.guesses.drafts and not front.fields[index].remembers:
                self._draft(index)

    def _read_output(self) -> None:
        """Let `front` read what was emitted since."""
        fresh = self.output.tokens[self._num_read :]
        self._num_read += len(fresh)
        self.front.read(b"".join(token.data for token in fresh), sum(token.kind != "forced" for token in fresh))

    def _drop_passed(self) -> None:
        """Drop drafts of what is written, and of the front's field those that say something else than it."""
        front = self.front
        for index in list(self.guesses.drafts):
            if index < front.index or (index == front.index and not self.guesses.is_ahead(front)):
                self.drafting.leave(index)
                self.guesses.drop(index)

    def _draft(self, index: int) -> None:
        """Begin a draft of a field ahead, behind the prompt and the field's path."""
        source = self._row if self.rows.can_truncate else self._prompt_row
        rest = self.prompt[self._num_shared :]
        draft = self.drafting.begin(index, self.front.fields[index], rest, source, self._num_shared)
        self.guesses.put(index, draft)

    def _num_free(self) -> int:
        """Rows that may still join; one is left for the copy that a certificate may need."""
        kept = 1 if self.rows.can_truncate else 2 + (self._prompt_row is not None)
        return max(0, self.rows.num_rows - kept - len(self.drafting.running))

    def _leave_all(self) -> None:
        self.drafting.leave_all()
        for number in (None if self._row < 0 else self._row, self._trial, self._prompt_row):
            if number is not None:
                self.rows.leave(number)
