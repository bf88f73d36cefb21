"""History constraints: no two equal items in a ``uniqueItems`` array, no property name twice in one object.

Finite states cannot hold what was written before, so the control machine only *marks* where elements (items, names)
begin and end, and a `History` beside the configuration remembers them. Declared names and items from a short list
are counted by the machine's own states and need none of this.

**Meaning.** A text belongs to a grammar iff its machine accepts it and no collection in it has two equal elements
(`repeats_nothing`). While a text grows, `read` is defined iff every step of the machine is, no element ends equal to
an earlier one, and `is_alive` of what is reached.

**Liveness.** `is_alive` looks for a way to end the present element (or to begin and end another, or to close the
collection) that differs from all earlier elements. Strings, numbers and names: whenever what is written can still become
equal to an earlier one, and between elements. Containers: while their text is the beginning of an earlier one's. The
search is exact until `SEARCH_STEPS` are spent; then the answer is "alive". It looks one name, or `ITEMS_AHEAD` items past
the present one, ahead: an array whose ``minItems`` exceeds the number of values left may be noticed only that close to
its last value. Decoding stops then with `DecodingError`; it never ends in an invalid text.

**Sharing.** Histories are immutable; forks and ways back share them.

Source: JSON Schema 2020-12 validation, 6.4.3; RFC 8259 section 4 (names should be unique).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stcon.grammar.elements import NO_ELEMENTS, Elements, key_of, value_of
from stcon.grammar.machine import BEGIN, DEAD, END, SCOPE, Configuration, Entry, Machine

SEARCH_STEPS = 1_000
ITEMS_AHEAD = 2

_NAME = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTED = re.compile(rb'"|\\.?', re.DOTALL)

# bytes in the order in which a search tries them: what closes first, then what is short
_FIRST = b'"]},:0123456789.eabcdfghijklmnopqrstuvwxyz-'
_ORDER = np.array([*_FIRST, *sorted(set(range(256)) - set(_FIRST), key=lambda byte: (byte <= 32, byte))])


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
    """

    depth: int
    names: bool
    elements: Elements = NO_ELEMENTS
    text: bytes | None = None
    named: bool = False


class History(NamedTuple):
    """What the text so far holds of open collections.

    Attributes:
        scopes: outermost first.
        quoted: 0 outside JSON strings, 1 inside one, 2 after a backslash in one.
    """

    scopes: tuple[Scope, ...] = ()
    quoted: int = 0

    def after(self, data: bytes, events: Sequence[Event], depth: int) -> History | None:
        """The history after `data`, or None where an element ends that is equal to an earlier one.

        Args:
            data: a piece of text.
            events: of reading it, in order.
            depth: stack depth after it.

        Cost: O(len(data)) and a copy of the text of each open element; where one ends, O(its length) more.
        """
        quoted = _quoted(self.quoted, data)
        if not events and not self.scopes:
            return self if quoted == self.quoted else History((), quoted)
        scopes, done = list(self.scopes), 0
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
            elif mark == 0 and top is not None and top.named:  # the name's value is over
                scopes[-1] = top._replace(text=None, named=False)
            if mark & SCOPE:
                if top is not None:
                    scopes.pop()
                scopes.append(Scope(level, names=data[at - 1 : at] == b"{"))
            if mark & BEGIN and scopes and scopes[-1].depth == level:
                scopes[-1] = scopes[-1]._replace(text=b'"' if scopes[-1].names else b"", named=False)
        _extend(scopes, data[done:])
        return History(tuple(_settled(scopes, depth)), quoted)


EMPTY = History()


def _extend(scopes: list[Scope], data: bytes) -> None:
    """Append `data` to every open element. A name that is closed and does not reach `END` is declared: it is over."""
    if not data:
        return
    for index, scope in enumerate(scopes):
        if scope.text is None:
            continue
        text = scope.text + data
        if scope.names and (scope.named or b'"' in data and (name := _NAME.match(text, 1))):
            is_last = not scope.named and name.end() == len(text)
            scopes[index] = scope._replace(text=text if is_last else None, named=True)
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
    return Scope(scope.depth, scope.names, elements, None, named=scope.names)


def _settled(scopes: list[Scope], depth: int) -> Iterator[Scope]:
    for scope in scopes:
        if scope.depth > depth:
            break
        if scope.named:  # a value deeper than its name's scope has begun
            scope = scope._replace(text=None, named=scope.depth == depth)
        yield scope


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
        if entered or history.scopes:
            events = events_of(entered, len(config.stack), len(following.stack))
            after = history.after(bytes((byte,)), events, len(following.stack))
            if after is None:
                return None
            history = after
        else:
            history = history._replace(quoted=_quoted(history.quoted, bytes((byte,))))
        config = following
    return config, history


def events_of(entered: Sequence[Entry], depth: int, after: int) -> list[Event]:
    """The events of one byte, from the marked states entered and the stack depths before and after it."""
    events = [Event(0 if entry.before else 1, entry.mark, entry.depth) for entry in entered]
    if after < depth:
        events.insert(sum(entry.before for entry in entered), Event(0, 0, after))
    return events


def read(
    machine: Machine, config: Configuration, history: History, data: Iterable[int]
) -> tuple[Configuration, History] | None:
    """Read `data` and ask whether what is reached is alive: the definition of a step under history constraints."""
    reached = observe(machine, config, history, data)
    return reached if reached is not None and is_alive(machine, *reached) else None


def advance(
    machine: Machine, config: Configuration, history: History, byte: int
) -> tuple[Configuration, History] | None:
    """`read` of one byte."""
    return read(machine, config, history, (byte,))


def repeats_nothing(machine: Machine, data: bytes) -> bool:
    """Whether no collection in `data`, a text that `machine` reads, has two equal elements."""
    if not machine.marks:
        return True
    return observe(machine, machine.initial(), EMPTY, data) is not None


# ------------------------------------------------------------------------------------------------- liveness


def is_alive(machine: Machine, config: Configuration, history: History) -> bool:
    """False only if every way on ends the present element equal to an earlier one (see the module's docstring).

    Cost: nothing where nothing is at risk; else at most `SEARCH_STEPS` steps, mostly two or three.
    """
    index = at_risk(history, len(config.stack))
    return index is None or _Search(machine, index, history).finds_way(config, history)


def at_risk(history: History, depth: int) -> int | None:
    """The outermost scope whose present or next element might have to be equal to an earlier one; None: no scope."""
    for index, scope in enumerate(history.scopes):
        if not len(scope.elements):
            continue
        if scope.text and scope.text != b'"':
            if next(scope.elements.starting(key_of(scope.text)), None) is not None:
                return index
        elif scope.depth == depth and not scope.named or scope.text is not None:
            return index
    return None


class _Search:
    """A depth-first search for a way on for the scope `index` of `history`."""

    def __init__(self, machine: Machine, index: int, history: History) -> None:
        self.machine = machine
        self.index = index
        self.scope = history.scopes[index]
        self.steps = 0

    def finds_way(self, config: Configuration, history: History) -> bool:
        """Whether there is a way, or the steps are spent."""
        if self.machine.accepts(config):
            return True
        stack = [self._following(config, history)]
        while stack:
            reached = next(stack[-1], None)
            if reached is None:
                stack.pop()
            elif self.steps > SEARCH_STEPS or self._is_way(*reached):
                return True
            else:
                stack.append(self._following(*reached))
        return False

    def _following(self, config: Configuration, history: History) -> Iterator[tuple[Configuration, History]]:
        """What one more byte can reach, what closes first. Optional whitespace is left out: it decides nothing."""
        machine = self.machine
        in_gap = not history.quoted and machine.step(config, 0x0A) is not None
        for byte in _candidates(machine, config):
            if in_gap and byte in b" \n\r\t":
                continue
            self.steps += 1
            reached = observe(machine, config, history, (byte,))
            if reached is not None:
                yield reached

    def _is_way(self, config: Configuration, history: History) -> bool:
        if len(history.scopes) <= self.index or self.machine.accepts(config):
            return True
        scope = history.scopes[self.index]
        if scope.names:
            return scope.named and not self.scope.named
        return len(scope.elements) - len(self.scope.elements) > ITEMS_AHEAD


def _candidates(machine: Machine, config: Configuration) -> list[int]:
    """The bytes that some state among those that would read the next one has an edge for, in `_ORDER`."""
    live = np.zeros(256, np.bool_)
    state, stack = config.state, list(config.stack)
    while True:
        live |= machine.row(state)[machine.byte_class] != DEAD
        label = machine.label(state)
        if label < 0 or not stack:
            break
        state = machine.resume_targets(stack.pop())[label]
        if state == DEAD:
            break
    ordered: list[int] = _ORDER[live[_ORDER]].tolist()
    return ordered
