"""Parts of an output written side by side, each without the others, and put together unchecked: a negative result.

The grammar holds in every part, since each begins at a configuration of the machine and ends where its part does
(Lemma 12). What does not hold is that the model would write it there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stcon.constraint.sharing import machine_of
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.model import Span
from stcon.engine.control import control_for
from stcon.engine.parallel.drafts import Cursor, Draft, DraftRow, new_control
from stcon.engine.parallel.draws import drawn
from stcon.engine.parallel.fields import fields_of, segments_of
from stcon.engine.parallel.generate import planner_of
from stcon.engine.sampling import Sampling
from stcon.errors import DecodingError

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.engine.batch.model import BatchModel
    from stcon.grammar.grammar import Grammar
    from stcon.grammar.machine import Configuration
    from stcon.models.base import Model

LEAST_BRANCHES = 2


class Branch(NamedTuple):
    """An object among siblings.

    Attributes:
        before: the text up to the array that it is in, the opening bracket included.
        head: its text up to the end of its first member.
        text: all of it.
    """

    before: str
    head: str
    text: str


class Written(NamedTuple):
    """A branch as it was written: its text, and the tokens and passes after its head."""

    text: str
    tokens: int
    passes: int


def branches(text: str) -> list[Branch]:
    """The objects of the outermost array of a JSON text that has at least `LEAST_BRANCHES` of them; [] if none has."""
    decoder = json.JSONDecoder()
    for start in _arrays(text):
        found, at = [], start + 1
        while text[at : at + 1] == "{":
            _, end = decoder.raw_decode(text, at)
            found.append(Branch(text[: start + 1], _head(text[at:end]), text[at:end]))
            at = end + 1  # a comma, or the closing bracket
        if len(found) >= LEAST_BRANCHES:
            return found
    return []


def _arrays(text: str) -> Iterator[int]:
    """Where arrays begin."""
    in_string = escaped = False
    for at, char in enumerate(text):
        if in_string:
            in_string, escaped = char != '"' or escaped, char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char == "[":
            yield at


def _head(text: str) -> str:
    """An object's text up to the end of its first member."""
    decoder = json.JSONDecoder()
    _, end = decoder.raw_decode(text, 1)
    _, end = decoder.raw_decode(text, end + 1)
    return text[:end]


def write_side_by_side(
    model: Model, prompt_ids: Sequence[int], grammar: Grammar, branches: Sequence[Branch], *, max_tokens: int
) -> list[Written]:
    """Each branch after its head, as if it were the first of its siblings."""
    machine, planner = machine_of(grammar), planner_of(control_for(grammar, model.vocabulary, "canonical"))
    rows = rows_for(model, len(branches), row_tokens=min(model.context_length, len(prompt_ids) + 3 * max_tokens))
    running: list[tuple[DraftRow, Branch]] = []
    for branch in branches:
        start = machine.run(machine.initial(), (branch.before + branch.head).encode())
        assert start is not None, "it was written under the grammar"
        running.append((_row(planner, start, None, prompt_ids, branch.before + branch.head, max_tokens), branch))
    passes = _run(rows, [row for row, _ in running], model, [branch.head for _, branch in running])
    found = []
    for (row, branch), count in zip(running, passes, strict=True):
        text = branch.head + row.draft.text.decode("utf-8", "replace")
        found.append(Written(_whole(text), len(row.draft.drawn), count))
    return found


def fields_apart(model: Model, prompt_ids: Sequence[int], grammar: Grammar, *, max_tokens: int) -> tuple[str, int]:
    """(the fields of an output, each written after its path alone, put together; passes of the longest)."""
    machine, planner = machine_of(grammar), planner_of(control_for(grammar, model.vocabulary, "canonical"))
    fields = fields_of(segments_of(machine).after(machine, machine.initial()), machine.initial())
    rows = rows_for(model, len(fields), row_tokens=min(model.context_length, len(prompt_ids) + 3 * max_tokens))
    running = [
        _row(planner, field.anchor, field.end, prompt_ids, field.path.decode(), max_tokens, lead=field.lead)
        for field in fields
    ]
    passes = _run(rows, running, model, None)
    return b"".join(row.draft.text for row in running).decode("utf-8", "replace"), max(passes)


def _row(
    planner: Planner,
    start: Configuration,
    end: Configuration | None,
    prompt_ids: Sequence[int],
    context: str,
    most: int,
    lead: bytes = b"",
) -> DraftRow:
    """A row that writes from `start` on, after the prompt and `context`, which ends with `lead`."""
    control, step, committed = new_control(planner, start, "canonical")
    held = len(lead) - len(committed)
    data = context.encode()
    read = data[: len(data) - held] if held > 0 else data + committed[len(lead) :]
    cursor = Cursor(planner.kernel.machine, start, end)
    cursor.read(committed)
    row = DraftRow(Draft(committed), cursor, control, step, most=most)
    row.pending = [*prompt_ids, *planner.vocabulary.encode_bytes(read)]
    return row


def _run(rows: BatchModel, running: Sequence[DraftRow], model: Model, heads: Sequence[str] | None) -> list[int]:
    """Write every row to its end; passes of each."""
    passes = [0] * len(running)
    for row in running:
        row.number = rows.join(rows.row_tokens)
    try:
        while left := [index for index, row in enumerate(running) if not row.is_over]:
            logits = rows.feed([Span(running[index].number, running[index].pending, True) for index in left])
            for entry, index in enumerate(left):
                row = running[index]
                row.pending = []
                passes[index] += 1
                try:
                    row.take(drawn(logits.row(entry), row.step, Sampling(), 0), model.vocabulary)
                except DecodingError:
                    row.is_over = True
                if heads is not None and _is_whole(heads[index] + row.draft.text.decode("utf-8", "replace")):
                    row.is_over = True
    finally:
        for row in running:
            rows.leave(row.number)
    return passes


def _is_whole(text: str) -> bool:
    """Whether `text` begins with an object that is closed."""
    try:
        json.JSONDecoder().raw_decode(text)
    except ValueError:
        return False
    return True


def _whole(text: str) -> str:
    """The object that `text` begins with; all of it if that was cut off."""
    try:
        return text[: json.JSONDecoder().raw_decode(text)[1]]
    except ValueError:
        return text
