"""Which tokens repeat an element, or leave no other, where elements are scarce: arrays of distinct items, few names.

Source: the definition is `stcon.grammar.liveness.read`; what is here decides most tokens without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.element_tokens import ROOT, ElementTokens
from stcon.grammar.elements import Elements, is_cut, key_of, value_of
from stcon.grammar.history import History, Scope, observe
from stcon.grammar.liveness import at_risk, is_alive, is_endless, ways_of
from stcon.grammar.machine import STACK_CAP, Configuration, Machine

Int32 = NDArray[np.int32]

MAX_REMEMBERED = 4_096

# kinds of tokens, as `stcon.kernels.tracing` numbers them
QUIET, MARKED, ENDS, MIXED = range(4)

_BACKSLASH = 0x5C
_NUMBER_BYTES = frozenset(b"0123456789.eE+-")
_SPACES = frozenset(b" \t\n\r")
_ALL_BYTES = frozenset(range(256))


class ClassifyingKernel(Protocol):
    """What is needed of a kernel (`stcon.kernels.cpu.CpuKernel`)."""

    @property
    def machine(self) -> Machine: ...

    def classify(self, config: Int32, places: Int32, depth: int) -> tuple[NDArray[np.uint8], Int32, Int32, Int32]: ...


class _Candidate(NamedTuple):
    """A token (its place) and what reading it does.

    Attributes:
        kind: as above.
        state: reached.
        rise: the stack's height then, above the depth of the scope in question.
        head: of an `ENDS` token, what it adds to the element.
    """

    place: int
    kind: int
    state: int
    rise: int
    head: bytes


class ScarceElements:
    """Refused tokens where elements are scarce, for one kernel.

    Args:
        kernel: the machine and its events.
        tokens: of the kernel's vocabulary.
    """

    def __init__(self, kernel: ClassifyingKernel, tokens: ElementTokens) -> None:
        self.kernel = kernel
        self.tokens = tokens
        self._remembered: dict[bytes, list[_Candidate]] = {}

    def refused(self, config: Int32, history: History, mask: Int32, refuses: Callable[[bytes], bool]) -> Iterator[int]:
        """Places of refused tokens of `mask`, save those that only go on with an element's text.

        Args:
            refuses: whether reading a token here is not defined, asked where nothing shorter decides.
        """
        watched = next((scope for scope in reversed(history.scopes) if is_watched(scope)), None)
        ends = _Ends(watched, history)
        ways = ways_of(self.kernel.machine)
        for place, kind, state, rise, head in self._candidates(config, history, watched, mask):
            elements = None if watched is None else watched.elements
            if kind <= MARKED or (kind == ENDS and ends.is_known):
                is_safe = rise < 0 or (state in ways.between if rise == 0 else rise == 1 and state in ways.endless)
                if is_safe and (kind <= MARKED or ends.is_string):
                    continue  # `HistoryMasks` looks up the strings that repeat
                if kind == ENDS:
                    elements = ends.after(head)
                    if elements is None:
                        yield place
                        continue
                if is_safe or ways.is_safe(state, elements):
                    continue
            if refuses(self.tokens.spelling(place)):
                yield place

    def _candidates(self, config: Int32, history: History, watched: Scope | None, mask: Int32) -> list[_Candidate]:
        """The tokens that `mask` admits and that can matter to `watched`, the innermost scope that is watched."""
        doubles = self.tokens.among(self.tokens.quoted_doubles if history.quoted else self.tokens.doubles, mask)
        if watched is None and not len(doubles):
            return []
        depth, level = int(config[1]), -1 if watched is None else watched.depth
        is_between = watched is not None and watched.text is None and level == depth
        key = config[: 3 + depth].tobytes() + bytes((level + 1, history.quoted, is_between))
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[key] = self._classify(
                config, doubles, self._others(history, mask), level, is_between
            )
        return found

    def _others(self, history: History, mask: Int32) -> Int32:
        """The tokens of `mask` that can do anything to an element; inside a string they have a quote."""
        return self.tokens.among(self.tokens.quotes, mask) if history.quoted else self.tokens.admitted(mask)

    def _classify(self, config: Int32, doubles: Int32, others: Int32, level: int, is_between: bool) -> list[_Candidate]:
        found = {
            place: _Candidate(place, MIXED, state, 0, b"")
            for place, kind, state, _, _ in self._kinds(config, doubles, STACK_CAP)
            if kind >= ENDS
        }
        if level >= 0:
            for place, kind, state, height, ended in self._kinds(config, others, level):
                if (kind > QUIET or is_between) and place not in found:
                    head = self.tokens.spelling(place)[:ended] if kind == ENDS else b""
                    found[place] = _Candidate(place, kind, state, height - level, head)
        return list(found.values())

    def _kinds(self, config: Int32, places: Int32, depth: int) -> Iterator[tuple[int, int, int, int, int]]:
        kinds, states, heights, ended = self.kernel.classify(config, places, depth)
        return zip(places.tolist(), kinds.tolist(), states.tolist(), heights.tolist(), ended.tolist(), strict=True)

    # ------------------------------------------------------------------------------------------------- extensions

    def refused_extensions(self, config: Int32, history: History) -> list[int]:
        """Ids of tokens that go on with an element's text, agree with an earlier one so far, and cannot but become
        equal. Cost: a step and mostly a look-up for each node of the vocabulary's trie that agrees."""
        refused: list[int] = []
        if not any(scope.scarce and scope.elements and scope.text is not None for scope in history.scopes):
            return refused
        tokens, machine = self.tokens, self.kernel.machine
        start = Configuration.unpack(config)
        pending = [(ROOT, start, history, True, _next_bytes(machine, start, history))]
        while pending:
            parent, place, past, is_live, wanted = pending.pop()
            for node, byte in tokens.children(parent, wanted):
                if byte in _SPACES and not past.quoted and machine.edge(place.state, byte) == place.state:
                    following = (node, place, past, is_live, wanted)  # more whitespace changes nothing
                else:
                    reached = observe(machine, place, past, (byte,))
                    if reached is None or at_risk(reached[1], len(reached[0].stack)) is None:
                        continue
                    following = (node, *reached, is_alive(machine, *reached), _next_bytes(machine, *reached))
                if not following[3]:
                    refused += tokens.at_node(node)
                pending.append(following)
        return refused


class _Ends:
    """What the element that is open in `scope` becomes where a token ends it."""

    def __init__(self, scope: Scope | None, history: History) -> None:
        self._scope = scope
        self._after: dict[bytes, Elements | None] = {}
        self.is_known = scope is not None and scope.text is not None and not scope.names
        self.is_string = scope is not None and history.scopes[-1] is scope and _is_string(scope)

    def after(self, head: bytes) -> Elements | None:
        """The elements once `head` has ended the present one; None if it is equal to an earlier one."""
        if head not in self._after:
            assert self._scope is not None, "asked where `is_known`"
            text = (self._scope.text or b"") + head
            value, elements = value_of(text), self._scope.elements
            self._after[head] = None if value in elements else elements.added(value, key_of(text.strip()))
        return self._after[head]


def is_watched(scope: Scope) -> bool:
    """Whether the ends of a collection's elements, or a way on after them, are not looked up but tried."""
    if not scope.names:
        return True
    return len(scope.elements) > 0 and (scope.scarce or (scope.text is not None and is_cut(scope.text)))


def _is_string(scope: Scope) -> bool:
    """Whether the scope's present element is a string, and not inside an escape."""
    return scope.text is not None and scope.text[:1] == b'"' and not is_cut(scope.text)


def _next_bytes(machine: Machine, config: Configuration, history: History) -> frozenset[int]:
    """The bytes with which a text that agrees with an earlier element can go on agreeing, and may yet fail to end."""
    index = at_risk(history, len(config.stack))
    if index is None or is_endless(machine, config, history, index):
        return frozenset()
    found: set[int] = set()
    for scope in history.scopes:
        if scope.scarce and scope.elements and scope.text is not None:
            found |= _agreeing(scope, scope.text)
    return frozenset(found)


def _agreeing(scope: Scope, text: bytes) -> frozenset[int]:
    if not text:
        first = scope.elements.next_bytes(b"")
        return frozenset(first - {0x23}) | (_NUMBER_BYTES if 0x23 in first else frozenset())
    if text[:1].isdigit() or text[:1] == b"-":
        return _NUMBER_BYTES
    if text[:1] == b'"' and b"\\" in text:
        return _ALL_BYTES
    following = scope.elements.next_bytes(key_of(text))
    return frozenset(following | ({_BACKSLASH} if text[:1] == b'"' else _SPACES))
