"""The fields of a format: blocks of text that can be drafted apart, and what a draft is told of its surroundings.

A **field** is a lead, text that is forced, and a body, in which there is something to choose. Leads and bodies are
the segments between cut states (`stcon.grammar.cuts`), so they are found in the machine itself: nested objects come
out flat; an array, or an optional key with the one after it, is one body; after a discriminator the plan is made anew
from where the output stands. A forced text of fewer than `MIN_LEAD` bytes does not separate two fields (the hyphens
of a date): the bodies on both sides of it are one. Forced text at the end belongs to the last body.

What a draft reads before its body is the prompt and its **path**: the lead, inside the brackets and after the keys that
are open there, without the fields before it. That is the context which the paper settled on (its Section D.5 lists what
was worse: earlier values or placeholders in it are copied). Nothing depends on it but how good the drafts are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from json import JSONDecoder
from weakref import WeakKeyDictionary

from stcon.engine.parallel.closing import Closings
from stcon.errors import StconError
from stcon.grammar.completion import Completions
from stcon.grammar.cuts import Segment, cut_states
from stcon.grammar.machine import Configuration, Machine

MIN_LEAD = 3
MAX_VERTICES = 1 << 13  # a plan is made while someone waits
MAX_KEPT = 64

_KEY = re.compile(rb',?\s*"(?:[^"\\]|\\.)*"\s*:')


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        lead: the forced text before the body; b"" where the plan begins inside a field.
        anchor: where `lead` begins.
        start: where the body begins.
        end: the cut configuration after the body; None: it ends with the text.
        path: what a draft reads after the prompt; ends with `lead`.
        remembers: what the body may be depends on what was chosen before it, so that it is not drafted apart.
    """

    lead: bytes
    anchor: Configuration
    start: Configuration
    end: Configuration | None
    path: bytes
    remembers: bool


def fields_of(segments: Sequence[Segment], start: Configuration, written: bytes = b"") -> tuple[Field, ...]:
    """The fields that `segments` make, in order; each begins where the one before ends.

    Args:
        segments: from `start` to the end of the text (`stcon.grammar.cuts.cut_states`).
        start: where they begin.
        written: the text so far, for the paths.
    """
    path = Path(written)
    fields: list[Field] = []
    lead, anchor, body = b"", start, list[Segment]()
    for segment, following in zip_longest(segments, segments[1:]):
        is_lead = segment.is_forced and (not body or (len(segment.text) >= MIN_LEAD and following is not None))
        if not is_lead:
            body.append(segment)
            continue
        if body:
            fields.append(_field(lead, anchor, body, path))
            lead, anchor, body = b"", segment.start, []
        lead += segment.text
    if body:
        fields.append(_field(lead, anchor, body, path))
    return tuple(fields)


def _field(lead: bytes, anchor: Configuration, body: Sequence[Segment], path: Path) -> Field:
    remembers = any(segment.remembers for segment in body)
    return Field(lead, anchor, body[0].start, body[-1].end, path.after(lead), remembers)


class Segments:
    """The segments of one machine from configurations on; those asked for last are kept, `MAX_KEPT` of them."""

    def __init__(self) -> None:
        self._known: dict[Configuration, tuple[Segment, ...]] = {}
        self._completions: Completions | None = None
        self._closings: Closings | None = None

    def knows(self, start: Configuration) -> bool:
        """Whether `after` answers at once."""
        return start in self._known

    def after(self, machine: Machine, start: Configuration) -> tuple[Segment, ...]:
        """The segments from `start` on; none where the machine is too large for a plan made in passing.

        Cost: see `cut_states`; nothing the second time.
        """
        found = self._known.get(start)
        if found is None:
            try:
                self._completions = self._completions or Completions(machine)
                found = cut_states(machine, start, completions=self._completions, max_vertices=MAX_VERTICES).segments
            except StconError:  # a front end that builds rows on demand may refuse to build them all
                found = ()
            while len(self._known) >= MAX_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[start] = found
        return found

    @property
    def closings(self) -> Closings:
        """Shortest ends of fields; after `after`."""
        if self._closings is None:
            self._closings = Closings(self._completions)
        return self._closings


_kept: WeakKeyDictionary[Machine, Segments] = WeakKeyDictionary()


def segments_of(machine: Machine) -> Segments:
    """The `Segments` of `machine`, the same for everyone who asks."""
    return _kept.setdefault(machine, Segments())


class Path:
    """The brackets that are open and the keys before them, as text. A reading of JSON; elsewhere it is just text.

    Args:
        written: text that comes before the first field.
    """

    def __init__(self, written: bytes = b"") -> None:
        self._open: list[bytes] = []
        self._current = b""
        self._read(written, in_string=False)

    def after(self, lead: bytes) -> bytes:
        """The path of the field that begins with `lead`; the field before it, if any, is over."""
        if _KEY.match(lead):  # a key stands in an object: the arrays that were open have ended with the body before
            while self._open and self._open[-1].endswith(b"["):
                self._open.pop()
        outside = min((False, True), key=lambda in_string: _letters_outside(lead, in_string=in_string))
        self._read(lead, in_string=outside)
        path = b"".join(self._open) + self._current
        self._current = b""
        # a lead that is not read as JSON would be lost in part; every draft sees its own lead whole
        return path if path.endswith(lead[-MIN_LEAD:]) else lead

    def _read(self, text: bytes, *, in_string: bool) -> None:
        skipping = in_string  # the end of a string that belongs to the field before
        for char, is_outside in _scan(text, in_string=in_string):
            if is_outside and char in b"]}":
                if self._open:
                    self._open.pop()
                self._current = b""
            elif is_outside and char == ord(","):
                self._current = b""
            elif not skipping:
                self._current += bytes([char])
                if is_outside and char in b"[{":
                    self._open.append(self._current)
                    self._current = b""
            skipping = skipping and not is_outside


def value_in(lead: bytes, body: bytes) -> str:
    """The JSON value that a field's text spells, as text, without keys and what follows; all of it if there is none."""
    text = lead + body
    ends = [
        at for at, (char, is_outside) in enumerate(_scan(lead, in_string=False), 1) if is_outside and char in b":[{,"
    ]
    for start in (*reversed(ends), 0):
        value = text[start:].decode("utf-8", "replace")
        try:
            return value[: JSONDecoder().raw_decode(value)[1]]
        except ValueError:
            continue
    return text.decode("utf-8", "replace")


def _scan(text: bytes, *, in_string: bool) -> list[tuple[int, bool]]:
    """Each byte, and whether it stands outside strings (a closing quote does, an opening one does not)."""
    found, escaped = [], False
    for char in text:
        if in_string:
            ends = char == ord('"') and not escaped
            escaped = char == ord("\\") and not escaped
            in_string = not ends
            found.append((char, ends))
        else:
            in_string = char == ord('"')
            found.append((char, not in_string))
    return found


def _letters_outside(text: bytes, *, in_string: bool) -> int:
    """How badly `text` reads as JSON."""
    return sum(is_outside and bytes([char]).isalpha() for char, is_outside in _scan(text, in_string=in_string))
