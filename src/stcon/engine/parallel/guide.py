"""Guesses at what the output goes on with: drafts of fields, and what was written before; the front looks at them.

What comes next is put together field by field, from the one that the output is in:

1. the draft of the field, or one that it had before and that begins with what is written of it;
2. where that ends early, what followed the last bytes when they were written before: in the output, in any draft, or,
   if asked for, in the prompt (`recalled`);
3. where that does not finish the field either, its shortest end (`stcon.engine.parallel.closing`), and the next field.

The third is no guess at the field but a way to **look ahead** across it: while the output is in the middle of a field,
the drafts of those behind it are read after ``{"name":"Jean`` and a closing quote rather than after their bare keys,
and repaired there. So drafts come to see the fields before them, unfinished ones in part, without waiting for them.
Nothing of it can be wrong in a way that matters, as all of it is certified token by token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from stcon.engine.parallel.drafts import Cursor, Draft

if TYPE_CHECKING:
    from stcon.engine.parallel.fields import Field, Segments
    from stcon.engine.parallel.front import Front

LOOK_BACK = 24  # bytes that are compared with what was written before
MAX_RECALLED = 96  # bytes of a field that are taken from what was written before
LOOK_FROM = 2  # tokens drawn in a field before drafts read it

_APART = b"\xff"  # between texts; in none, since they are UTF-8


class Part(NamedTuple):
    """A guess at one field.

    Attributes:
        field: its index.
        start: offset in the guide's text.
        skipped: bytes of the field, from its anchor on, that are written already.
        text: what comes then.
        num_drafted: bytes of `text` from a draft of the field.
        num_known: bytes of `text` but for the closing.
    """

    field: int
    start: int
    skipped: int
    text: bytes
    num_drafted: int
    num_known: int


@dataclass(frozen=True)
class Guide:
    """Guesses from where the output stands on, as one text.

    Attributes:
        text: what comes next, if they are right.
        drawn: offset in `text` → the token drawn there by a draft.
        parts: in order; all but the last are whole.
    """

    text: bytes
    drawn: dict[int, int] = field(default_factory=dict)
    parts: Sequence[Part] = ()

    @property
    def is_look(self) -> bool:
        """Whether there is no guess at the field that the output is in, only at those behind it."""
        return bool(self.parts) and not self.parts[0].num_known

    def part(self, offset: int) -> Part:
        """The part in which `offset` is."""
        return self.parts[bisect_right(self.parts, offset, key=lambda part: part.start) - 1]

    def is_closing(self, offset: int) -> bool:
        """Whether nobody guessed what is at `offset`."""
        part = self.part(offset)
        return offset >= part.start + part.num_known

    def draft(self, part: Part, end: int, *, is_complete: bool = False) -> Draft:
        """A part up to offset `end` of the guide's text, as the draft of its field; nothing of it is written yet."""
        drawn = {at - part.start: token for at, token in self.drawn.items() if part.start <= at < end}
        return Draft(self.text[part.start : end], drawn, is_complete=is_complete)


class Guesses:
    """The drafts of one output, and the guides made of them.

    Args:
        segments: of the output's machine.
        recall: bytes at least that must agree for what followed them to be recalled; 0: nothing is.
        prompt: text in which is looked too.
        lookup: bytes at least that must agree there; 0: the prompt is left out.

    Attributes:
        drafts: by the index of their field.
    """

    def __init__(self, segments: Segments, recall: int = 0, prompt: bytes = b"", lookup: int = 0) -> None:
        self.drafts: dict[int, Draft] = {}
        self._segments = segments
        self._recall = recall
        self._prompt = prompt
        self._lookup = lookup
        self._old: dict[int, list[Draft]] = {}
        self._texts = b""
        self._seen: tuple[tuple[int, bytes], ...] = ()

    def put(self, index: int, draft: Draft) -> None:
        """Take `draft` for the field; the one it had may still be of use."""
        self.drop(index)
        self.drafts[index] = draft

    def drop(self, index: int) -> None:
        """The draft of the field says something else than the output does, or than the model would."""
        draft = self.drafts.pop(index, None)
        if draft is not None and draft.text:
            self._old.setdefault(index, []).append(draft)
            self._texts += _APART + draft.text

    def move(self, moved: dict[int, int]) -> None:
        """The fields have new indices: old → new."""
        for index in [index for index in self.drafts if index not in moved]:
            self.drop(index)
        self.drafts = {moved[index]: draft for index, draft in self.drafts.items()}
        self._old = {moved[index]: drafts for index, drafts in self._old.items() if index in moved}

    def clear(self) -> None:
        """There will be no more guides."""
        self.drafts.clear()
        self._old.clear()
        self._texts = b""

    def is_ahead(self, front: Front) -> bool:
        """Whether the draft of the front's field says what comes next."""
        draft, written = self.drafts[front.index], front.written
        if len(written) <= len(front.fields[front.index].lead):
            return True
        return draft.text.startswith(written) and (draft.is_complete or len(draft.text) > len(written))

    def guide(self, front: Front) -> Guide | None:
        """What comes next from `front` on; None if there is nothing to say.

        Cost: a step of the machine a byte.
        """
        text, drawn, parts = bytearray(), dict[int, int](), list[Part]()
        for part, draft in self._parts(front):
            if draft is not None:
                shift = len(text) - part.skipped
                drawn |= {at + shift: token for at, token in draft.drawn.items() if at >= part.skipped}
            parts.append(part)
            text += part.text
        return Guide(bytes(text), drawn, parts) if text else None

    def _parts(self, front: Front) -> Iterator[tuple[Part, Draft | None]]:
        config, written, start, before = front.config, front.written, 0, front.text
        may_look = self._may_look(front)
        for index, here in enumerate(front.fields[front.index :], front.index):
            if config is None or (here.remembers and index > front.index):
                return
            cursor = Cursor(front.machine, config, here.end)
            draft = self._draft(index, written)
            text, num_drafted = self._known(index, written, before, draft, cursor)
            num_known = len(text)
            is_begun = len(text) + len(written) > len(here.lead) if index > front.index else bool(text) or may_look
            if not cursor.is_over and is_begun:
                text += self._closing(here, cursor)
            yield Part(index, start, len(written), text, num_drafted, num_known), draft
            if not cursor.is_over:
                return
            config, written, start, before = cursor.config, b"", start + len(text), before + text

    def _draft(self, index: int, written: bytes) -> Draft | None:
        """The draft of a field that begins with `written`, the newest of them."""
        for draft in (self.drafts.get(index), *reversed(self._old.get(index, ()))):
            if draft is not None and draft.text.startswith(written) and len(draft.text) > len(written):
                return draft
        return None

    def _known(
        self, index: int, written: bytes, before: bytes, draft: Draft | None, cursor: Cursor
    ) -> tuple[bytes, int]:
        """(text that comes after `written`, how much of it is a draft's), as far as there is a guess."""
        text = b""
        if draft is not None:
            rest = draft.text[len(written) :]
            text = rest[: cursor.read(rest)]
            cursor.is_over |= draft.is_complete and text == rest
        num_drafted = len(text)
        while not cursor.is_over and len(text) < MAX_RECALLED:
            more = self._recalled(index, written + text, before + text)
            size = cursor.read(more)
            text += more[:size]
            if not more or size < len(more):
                break
        return text, num_drafted

    def _recalled(self, index: int, written: bytes, before: bytes) -> bytes:
        """What other drafts of the field have after `written`, else what followed the last bytes of `before`."""
        if (draft := self._draft(index, written)) is not None:
            return draft.text[len(written) :]
        sources = []
        if self._recall:
            now = _APART.join(draft.text for draft in self.drafts.values())
            sources += [(before, self._recall), (self._texts + _APART + now, self._recall)]
        if self._lookup:
            sources.append((self._prompt, self._lookup))
        return recalled(before, sources)

    def _closing(self, here: Field, cursor: Cursor) -> bytes:
        """The field's shortest end, over which `cursor` goes; b"" where there is none, or nothing behind it."""
        if here.end is None:
            return b""
        text = self._segments.closings.after(cursor.config, here.end)
        return text[: cursor.read(text)]

    def _may_look(self, front: Front) -> bool:
        """Whether to look ahead across the output's field: drafts have changed, or it is twice as long as before."""
        if front.drawn < LOOK_FROM:
            return False
        seen = tuple((index, draft.text) for index, draft in self.drafts.items() if index > front.index)
        is_new = bool(seen) and (seen != self._seen or front.drawn & (front.drawn - 1) == 0)
        self._seen = seen
        return is_new


def recalled(tail: bytes, sources: Sequence[tuple[bytes, int]]) -> bytes:
    """What follows the longest end of `tail` in a text that has it, up to `MAX_RECALLED` bytes; b"" if none has.

    Args:
        sources: texts, each with the length of what must agree at least; of equally long ends the first text's counts,
            of several places the last. The end of a text is not found in itself.

    Source: prompt lookup, the paper's Appendix I, here with other texts than the prompt.
    """
    best, longest = b"", 0
    for text, least in sources:
        size = max(least, longest + 1)
        while size <= min(len(tail), LOOK_BACK) and (at := text.rfind(tail[-size:], 0, len(text) - 1)) >= 0:
            best, longest = text[at + size : at + size + MAX_RECALLED], size
            size += 1
    return best.split(_APART)[0]
