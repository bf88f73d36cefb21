"""What may follow under history constraints: a step is refused where every way on repeats an element.

`read` is the definition: it is defined iff the machine's steps are, no element ends equal to an earlier one
(`stcon.grammar.history`), and `is_alive` of what is reached.

**What `is_alive` looks for** is a way to end the present element, or to begin and end another, or to close the
collection, that differs from all earlier elements. It is asked between elements, and while the text of one can still
become equal to an earlier one (`at_risk`); in containers, as long as their text is the beginning of an earlier one's.
Of names it is asked only where they are scarce (`SCARCE`): elsewhere there are always more.

**What is guaranteed.** Text that breaks a history constraint is never admitted. The answer "dead" is exact. "Alive" is
too where at most `SEARCH_STEPS` bytes have to be tried, looking one name, or `ITEMS_AHEAD` items past the present one,
ahead. Otherwise decoding may come to a place where nothing may follow, and stops there with `DecodingError`: where
``minItems`` exceeds the number of values left by more than that, where containers have run out that are spelled
otherwise than earlier ones (``[1.0]`` after ``[1]``), or where the search was cut.

**Cost.** In strings that can always go on and where the collection may close: a look-up. Else a search
of two or three steps as a rule, each some 10 µs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.elements import Elements, key_of
from stcon.grammar.history import History, observe
from stcon.grammar.machine import DEAD, UNBOUNDED, Configuration, Machine

SEARCH_STEPS = 1_000
ITEMS_AHEAD = 2
MAX_STRING_STATES = 400
MAX_REMEMBERED = 1_024
MANY = 1_000_000
MANY_BYTES = 12

_QUOTE, _BACKSLASH = b'"\\'

_SPACES = b" \t\n\r"
_SPACE_BYTES = list(_SPACES)

# bytes in the order in which a search tries them: what closes first, then what is short; zeros late, as after a point
# they may go on for ever without making a new number
_FIRST = b'"]},:123456789.eabcdfghijklmnopqrstuvwxyz0-'
_ORDER = np.array([*_FIRST, *sorted(set(range(256)) - set(_FIRST), key=lambda byte: (byte <= 32, byte))])


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


def is_alive(machine: Machine, config: Configuration, history: History) -> bool:
    """False only if every way on ends the present element equal to an earlier one."""
    index = at_risk(history, len(config.stack))
    if index is None:
        return True
    known = ways_of(machine)
    if known.has_way(machine, config, history, index):
        return True
    search = _Search(machine, index, history, known)
    found = search.way(config, history)
    if found is not _Way.NONE and not search.is_spaced:
        known.learn(config, history, index, found)
    return found is not _Way.NONE


def is_endless(machine: Machine, config: Configuration, history: History, index: int) -> bool:
    """Whether the present element of the innermost scope `index` is a string with infinitely many ends, and stays so
    however it goes on: then no text of it is ever dead."""
    return ways_of(machine).in_string(machine, config, history, index) is _Ends.ENDLESS


def at_risk(history: History, depth: int) -> int | None:
    """The outermost scope whose present or next element might have to be equal to an earlier one; None: no scope."""
    for index, scope in enumerate(history.scopes):
        if not scope.elements or not scope.scarce:
            continue
        if scope.text:
            if next(scope.elements.starting(key_of(scope.text)), None) is not None:
                return index
        elif scope.depth == depth and not scope.named:
            return index
    return None


class _Way(Enum):
    """What a search found: no way on, one that suits this history, or one that suits any."""

    NONE = 0
    SUITS = 1
    SUITS_ALL = 2


class _Ends(Enum):
    """How many texts end a string from here: perhaps few, at least `MANY`, or infinitely many from wherever it gets."""

    FEW = 0
    MANY = 1
    ENDLESS = 2


class _Place(NamedTuple):
    """A state inside a string, with what is on the stack above the scope's depth; `escaped`: after a backslash."""

    state: int
    symbols: tuple[int, ...]
    escaped: bool


class Ways:
    """What is known of one machine, whatever the history.

    Attributes:
        between: states between elements from where the collection can close, or a string with many ends can begin.
        after: (state between elements, earlier elements) from where there is a way on; the newest.
        endless: states inside strings (not after a backslash) that have infinitely many ends, now and after any more.
        inside: the like of `after` inside a container that is an element, with what has been written of it.
    """

    def __init__(self) -> None:
        self.between: set[int] = set()
        self.after: dict[tuple[int, Elements], None] = {}
        self.inside: dict[Hashable, None] = {}
        self.endless: set[int] = set()
        self._numbers: dict[int, bool] = {}
        self._strings: dict[_Place, _Strings] = {}

    def is_safe(self, state: int, elements: Elements | None) -> bool:
        """Whether `state`, between elements, is known to have a way on, whatever elements there are or with these."""
        return state in self.between or (elements is not None and (state, elements) in self.after)

    def has_way(self, machine: Machine, config: Configuration, history: History, index: int) -> bool:
        """Whether it is known without a search that the scope `index` has a way on."""
        scope = history.scopes[index]
        if not scope.text:
            return config.state in self.between or (config.state, scope.elements) in self.after
        if scope.text[:1] in b"{[":
            return _outline(config, history, index) in self.inside
        if scope.text[:1] == b'"':
            return self.in_string(machine, config, history, index) is not _Ends.FEW
        return self._in_number(machine, config.state)

    def learn(self, config: Configuration, history: History, index: int, found: _Way) -> None:
        """Remember a way; not one that begins with whitespace, whose length may be bounded."""
        scope = history.scopes[index]
        if scope.text:
            if scope.text[:1] in b"{[" and not history.quoted:
                _remember(self.inside, _outline(config, history, index))
        elif found is _Way.SUITS_ALL:
            self.between.add(config.state)
        else:
            _remember(self.after, (config.state, scope.elements))

    def _in_number(self, machine: Machine, state: int) -> bool:
        """Whether infinitely many numbers go on from `state`."""
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = _goes_round(machine, state)
        return known

    def in_string(self, machine: Machine, config: Configuration, history: History, index: int) -> _Ends:
        """How the string ends that is the present element of the scope `index`; `FEW` if it is no string."""
        scope = history.scopes[index]
        if not history.quoted or index + 1 < len(history.scopes) or not scope.text or scope.text[:1] != b'"':
            return _Ends.FEW
        place = _Place(config.state, config.stack[scope.depth :], history.quoted == 2)
        found = self._strings.get(place)
        if found is None:
            found = self._strings[place] = _strings_from(machine, place)
            self.endless |= found.endless
        if found.ends is not _Ends.MANY:
            return found.ends
        _, _, high = machine.bounds(config.state)
        has_room = found.least <= config.counter <= high - MANY_BYTES
        return _Ends.MANY if has_room else _Ends.FEW


_ways: WeakKeyDictionary[Machine, Ways] = WeakKeyDictionary()


def ways_of(machine: Machine) -> Ways:
    known = _ways.get(machine)
    if known is None:
        known = _ways[machine] = Ways()
    return known


def _remember(among: dict[Any, None], key: Hashable) -> None:
    if len(among) >= MAX_REMEMBERED:
        among.clear()
    among[key] = None


def _outline(config: Configuration, history: History, index: int) -> Hashable:
    """All that a way on depends on outside strings, if it does not begin with whitespace."""
    scopes = history.scopes[index:]
    inner = tuple((scope.elements, scope.named, key_of(scope.text) if scope.text else scope.text) for scope in scopes)
    return (config.state, config.stack[scopes[0].depth :], history.quoted, inner)


def _goes_round(machine: Machine, start: int) -> bool:
    """Whether the automaton of a number can reach a cycle from `start`; literals have none."""
    following: dict[int, set[int]] = {}
    pending = [start]
    while pending:
        state = pending.pop()
        if state not in following:
            edges = np.unique(machine.row(state)).tolist()
            following[state] = {edge for edge in edges if edge >= 0}
            pending.extend(following[state])
            if len(following) > MAX_STRING_STATES or len(following[state]) < len(edges) - (DEAD in edges):
                return False
    left = set(following)
    while stuck := {state for state in left if not following[state] & left}:
        left -= stuck
    return start in left


class _Strings(NamedTuple):
    """The strings that go on from a place.

    Attributes:
        ends: how many they are.
        least: the most characters that one of their ends demands.
        endless: the states inside them, not after a backslash, if they are `ENDLESS`.
    """

    ends: _Ends
    least: int = 0
    endless: frozenset[int] = frozenset()


def _strings_from(machine: Machine, start: _Place) -> _Strings:
    """What is known of the strings that go on from `start` and from everything they reach.

    Cost: about 20 µs a place; past `MAX_STRING_STATES` places nothing is known.
    """
    following: dict[_Place, dict[_Place, int]] = {}
    ends: set[_Place] = set()
    least, is_bounded = 0, False
    pending = [start]
    while pending:
        place = pending.pop()
        if place in following:
            continue
        _, low, high = machine.bounds(place.state)
        if low > 0 or machine.label(place.state) >= 0 or len(following) >= MAX_STRING_STATES:
            return _Strings(_Ends.FEW)
        is_bounded |= high < UNBOUNDED
        edges = machine.row(place.state)[machine.byte_class]
        quote = int(edges[_QUOTE])
        if not place.escaped and quote != DEAD:
            ends.add(place)
            least = max(least, machine.bounds(machine.decode(quote)[0])[1])
        following[place] = _next_places(machine, place, edges)
        pending.extend(following[place])
    if not _all_go_on(following, ends):
        return _Strings(_Ends.FEW)
    if not is_bounded:
        return _Strings(_Ends.ENDLESS, endless=frozenset(place.state for place in following if not place.escaped))
    return _Strings(_Ends.MANY if _fewest_texts(following, ends) >= MANY else _Ends.FEW, least)


def _next_places(machine: Machine, place: _Place, edges: NDArray[np.int32]) -> dict[_Place, int]:
    """Where one more byte of the string leads, and how many bytes lead there."""
    found: dict[_Place, int] = {}
    inside = edges if place.escaped else np.delete(edges, (_QUOTE, _BACKSLASH))
    targets, counts = np.unique(inside, return_counts=True)
    ways = [(edge, False, count) for edge, count in zip(targets.tolist(), counts.tolist(), strict=True)]
    if not place.escaped:
        ways.append((int(edges[_BACKSLASH]), True, 1))
    for edge, escaped, count in ways:
        if edge != DEAD:
            target, symbols = machine.decode(edge)
            following = _Place(target, place.symbols + symbols, escaped)
            found[following] = found.get(following, 0) + count
    return found


def _all_go_on(following: dict[_Place, dict[_Place, int]], ends: set[_Place]) -> bool:
    """Whether from every place an end can be reached, and a longer string too, however long."""
    before: dict[_Place, list[_Place]] = {place: [] for place in following}
    for place, targets in following.items():
        for target in targets:
            before[target].append(place)
    ending, pending = set(ends), list(ends)
    while pending:
        for place in before[pending.pop()]:
            if place not in ending:
                ending.add(place)
                pending.append(place)
    return len(ending) == len(following) and all(following.values())


def _fewest_texts(following: dict[_Place, dict[_Place, int]], ends: set[_Place]) -> int:
    """Texts of at most `MANY_BYTES` bytes that end a string, from the place where they are fewest."""
    texts = {place: int(place in ends) for place in following}
    for _ in range(MANY_BYTES):
        texts = {
            place: int(place in ends) + sum(min(MANY, texts[target]) * count for target, count in targets.items())
            for place, targets in following.items()
        }
    return min(texts.values())


class _Search:
    """A depth-first search for a way on for the scope `index` of `history`."""

    def __init__(self, machine: Machine, index: int, history: History, known: Ways) -> None:
        self.machine = machine
        self.index = index
        self.scope = history.scopes[index]
        self.known = known
        self.steps = 0
        self.is_spaced = False  # whether the byte tried first on the present way is whitespace

    def way(self, config: Configuration, history: History) -> _Way:
        """The first way found; `SUITS` too where the steps are spent."""
        if self.machine.accepts(config):
            return self._quality(history, at_once=True)
        stack = [self._following(config, history, first=True)]
        while stack:
            reached = next(stack[-1], None)
            if reached is None:
                stack.pop()
            elif self.steps > SEARCH_STEPS:
                return _Way.SUITS
            elif self._is_way(*reached):
                return self._quality(reached[1], at_once=len(stack) == 1)
            else:
                stack.append(self._following(*reached))
        return _Way.NONE

    def _following(
        self, config: Configuration, history: History, *, first: bool = False
    ) -> Iterator[tuple[Configuration, History]]:
        """What one more byte can reach, what closes first."""
        for byte in candidates(self.machine, config):
            self.steps += 1
            self.is_spaced = byte in _SPACES if first else self.is_spaced
            reached = observe(self.machine, config, history, (byte,))
            idle = byte in _SPACES and not history.quoted and reached and _is_idle(self.machine, config, reached[0])
            if reached is not None and not idle:
                yield reached

    def _is_way(self, config: Configuration, history: History) -> bool:
        if len(history.scopes) <= self.index or self.machine.accepts(config):
            return True
        if self.known.in_string(self.machine, config, history, self.index) is not _Ends.FEW:
            return True
        scope = history.scopes[self.index]
        if scope.names:
            return scope.named and not self.scope.named
        return len(scope.elements) - len(self.scope.elements) > ITEMS_AHEAD

    def _quality(self, history: History, *, at_once: bool) -> _Way:
        """A way from between elements suits any history if no element ends on it."""
        if self.scope.text:
            return _Way.SUITS
        if len(history.scopes) <= self.index:
            return _Way.SUITS_ALL if at_once else _Way.SUITS
        scope = history.scopes[self.index]
        return _Way.SUITS_ALL if scope.elements is self.scope.elements else _Way.SUITS


def _is_idle(machine: Machine, config: Configuration, after: Configuration) -> bool:
    """Whether whitespace between `config` and `after` can be left out: more of it changes nothing, and whatever may
    follow it could have come before it."""
    if after.stack != config.stack:
        return False
    row, following = machine.row(config.state)[machine.byte_class], machine.row(after.state)[machine.byte_class]
    others = np.delete(row == following, _SPACE_BYTES)
    spaces = following[_SPACE_BYTES]
    return bool(others.all() and ((spaces == after.state) | (spaces == DEAD)).all())


def candidates(machine: Machine, config: Configuration) -> list[int]:
    """The bytes for which some state that would read the next one has an edge, in `_ORDER`."""
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
