"""History constraints: no two equal items in a ``uniqueItems`` array, no property name twice in one object.

Finite states cannot hold what was written before, so the control machine only *marks* where elements (items, names)
begin and end, and a `History` beside the configuration remembers them. Declared names and items from a short list
are counted by the machine's own states and need none of this.

**Meaning.** A text belongs to a grammar iff its machine accepts it and no collection in it has two equal elements
(`repeats_nothing`). While a text grows, what may follow is what `stcon.grammar.liveness.read` is defined on.

**Sharing.** Histories are immutable; forks and ways back share them.

Source: JSON Schema 2020-12 validation, 6.4.3; RFC 8259 section 4 (names should be unique).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stcon.grammar.elements import NO_ELEMENTS, Elements, key_of, value_of
from stcon.grammar.machine import BEGIN, END, SCARCE, SCOPE, Configuration, Entry, Machine

_NAME = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_COLON = b": \t\n\r"
_QUOTED = re.compile(rb'"|\\.?', re.DOTALL)


class Event(NamedTuple):
    """A marked state entered while a piece of text was read, or (mark 0) a fall of the stack.

    Attributes:
        at: bytes of the piece read before; a fall counts as before its byte, after the events of its lazy returns.
        mark: `SCOPE`, `BEGIN` and `END` of the state.
        depth: stack depth then; at a fall, after its byte.
    """

    at: int
    mark: int
    depth: int


class Scope(NamedTuple):
    """An open collection.

    Attributes:
        depth: stack depth of its states.
        names: whether its elements are property names, not items.
        elements: those that have ended.
        text: the present element's text so far, a name's with its opening quote; None between elements.
        named: a name has ended and its value has not begun.
        scarce: names may run out here (`SCARCE`), or so it is for items.
    """

    depth: int
    names: bool
    elements: Elements = NO_ELEMENTS
    text: bytes | None = None
    named: bool = False
    scarce: bool = False


class History(NamedTuple):
    """What the text so far holds of open collections.

    Attributes:
        scopes: outermost first.
        quoted: 0 outside JSON strings, 1 inside one, 2 after a backslash in one; kept up while a collection is open.
    """

    scopes: tuple[Scope, ...] = ()
    quoted: int = 0

    def after(self, data: bytes, events: Sequence[Sequence[int]], depth: int) -> History | None:
        """The history after `data`, or None where an element ends that is equal to an earlier one.

        Args:
            data: a piece of text.
            events: of reading it, in order (`Event`, or anything that unpacks so).
            depth: stack depth after it.

        Cost: O(len(data)) and a copy of the text of each open element; where one ends, O(its length) more.
        """
        if not events:
            if not self.scopes:
                return self
            if self.scopes[-1].depth <= depth and all(scope.text is None and not scope.named for scope in self.scopes):
                quoted = _quoted(self.quoted, data)
                return self if quoted == self.quoted else History(self.scopes, quoted)
        scopes, done = list(self.scopes), 0
        begin = 0 if scopes else next((at for at, mark, _ in events if mark & SCOPE), len(data))
        for at, mark, level in events:
            _extend(scopes, data[done:at])
            done = at
            while scopes and scopes[-1].depth > level:
                scopes.pop()
            top = scopes[-1] if scopes and scopes[-1].depth == level else None
            if mark & END and top is not None:
                ended = _ended(top)
                if ended is None:
                    return None
                top = scopes[-1] = ended
            if mark & SCOPE:
                if top is not None:
                    scopes.pop()
                is_object = data[at - 1 : at] == b"{"
                scopes.append(Scope(level, names=is_object, scarce=not is_object))
            if mark & (BEGIN | SCARCE) and scopes and scopes[-1].depth == level:
                scopes[-1] = _begun(scopes[-1], mark)
        _extend(scopes, data[done:])
        settled = tuple(_settled(scopes, depth))
        return History(settled, _quoted(self.quoted, data[begin:])) if settled else EMPTY


EMPTY = History()


def _begun(scope: Scope, mark: int) -> Scope:
    """`scope` at an element's `BEGIN`, or at a state before one that is `SCARCE`."""
    if not mark & BEGIN:
        return scope._replace(scarce=True)
    if not scope.names:
        return scope._replace(text=b"")
    return scope._replace(text=b'"', named=False, scarce=mark & SCARCE != 0)


def _extend(scopes: list[Scope], data: bytes) -> None:
    """Append `data` to every open element. A name that is closed and does not reach `END` is declared: it is over."""
    if not data:
        return
    for index, scope in enumerate(scopes):
        if scope.named:
            scopes[index] = scope._replace(text=None, named=not data.strip(_COLON))
            continue
        if scope.text is None:
            continue
        text = scope.text + data
        if scope.names and b'"' in data and (name := _NAME.match(text, 1)):
            is_last = name.end() == len(text)
            scopes[index] = scope._replace(text=text if is_last else None, named=not text[name.end() :].strip(_COLON))
        else:
            scopes[index] = scope._replace(text=text)


def _ended(scope: Scope) -> Scope | None:
    """`scope` with its present element among the earlier ones; None if it is equal to one of them."""
    if not scope.text:
        return scope
    value = value_of(scope.text)
    if value in scope.elements:
        return None
    elements = scope.elements.added(value, key_of(scope.text))
    return scope._replace(elements=elements, text=None, named=scope.names)


def _settled(scopes: list[Scope], depth: int) -> Iterator[Scope]:
    for scope in scopes:
        if scope.depth > depth:
            break
        yield scope._replace(text=None) if scope.named else scope


def _quoted(quoted: int, data: bytes) -> int:
    if quoted == 2:
        quoted, data = 1, data[1:]
    if b'"' in data or b"\\" in data:
        for found in _QUOTED.findall(data):
            if found == b'"':
                quoted = 1 - quoted
            elif found == b"\\":
                return 2
    return quoted


# ------------------------------------------------------------------------------------------------- reading


def observe(
    machine: Machine, config: Configuration, history: History, data: Iterable[int]
) -> tuple[Configuration, History] | None:
    """Read `data`; None where a step is undefined or an element is repeated. Liveness is not asked."""
    for byte in data:
        entered: list[Entry] = []
        following = machine.trace(config, byte, entered)
        if following is None:
            return None
        events = events_of(entered, len(config.stack), len(following.stack))
        after = history.after(bytes((byte,)), events, len(following.stack))
        if after is None:
            return None
        config, history = following, after
    return config, history


def events_of(entered: Sequence[Entry], depth: int, after: int) -> list[Event]:
    """The events of one byte, from the marked states entered and the stack depths before and after it."""
    events = [Event(0 if entry.before else 1, entry.mark, entry.depth) for entry in entered]
    if after < depth:
        events.insert(sum(entry.before for entry in entered), Event(0, 0, after))
    return events


def repeats_nothing(machine: Machine, data: bytes) -> bool:
    """Whether no collection in `data`, a text that `machine` reads, has two equal elements."""
    if not machine.marks:
        return True
    return observe(machine, machine.initial(), EMPTY, data) is not None
