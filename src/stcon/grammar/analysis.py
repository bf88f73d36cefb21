"""Properties of a fully built machine: is it trim and unambiguous, how large is it, what does it force.

`check` is the compile-time test of DESIGN §2; `sizes` and `forced_chains` feed ``stcon explain``; `to_dot` draws.
`shortest` (from `completion`) gives a shortest accepted text.

All of them build every row first, so they raise what building raises. Marks (history constraints) are not looked at.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.completion import MAX_TEXT_BYTES, Completions, label_of, returns_at_once, shortest
from stcon.grammar.dot import to_dot
from stcon.grammar.machine import DEAD, STACK_CAP, Machine

__all__ = ["Sizes", "Violation", "check", "forced_chains", "shortest", "sizes", "to_dot"]


class Sizes(NamedTuple):
    """How large a machine is; ``forced`` counts the states that do not accept and have one live byte."""

    states: int
    forced: int
    classes: int
    symbols: int
    actions: int
    labels: int
    nbytes: int

    def token_table_nbytes(self, vocabulary_size: int) -> int:
        """Bytes of the token table that a machine without a stack would need: 3·Q·V (the paper's Section C.2)."""
        return 3 * self.states * vocabulary_size


def sizes(machine: Machine) -> Sizes:
    """Counts and bytes of `machine`, built whole."""
    machine.build_all()
    labels = {machine.label(state) for state in range(machine.num_states)} - {-1}
    return Sizes(
        machine.num_states,
        int((_only_byte(machine) >= 0).sum()),
        machine.num_classes,
        machine.num_symbols,
        machine.num_actions,
        len(labels),
        machine.nbytes,
    )


# ------------------------------------------------------------------------------------------------- forced text


def forced_chains(machine: Machine) -> list[bytes]:
    """The texts that `machine` forces: where a state does not accept and has one live byte, and so on from there.

    A chain that is the rest of a longer one is left out. A chain goes through the calls that it makes itself; where it
    returns to whoever called it, it is cut, as that differs from caller to caller. Bounds are ignored.

    Returns:
        distinct texts, longest first.

    Cost: O(states · classes), plus the length of all chains.

    Source: the paper's Definition 7.
    """
    machine.build_all()
    only = _only_byte(machine)
    length: dict[int, int] = {}
    continued: set[int] = set()
    for state in range(machine.num_states):
        _measure(machine, only, state, length, continued)
    chains = {_chain(machine, only, state, n) for state, n in length.items() if n and state not in continued}
    return sorted(chains, key=lambda chain: (-len(chain), chain))


def _only_byte(machine: Machine) -> NDArray[np.int64]:
    """int64[Q]: the only live byte of each state that does not accept, or -1."""
    byte_class = machine.byte_class
    size = np.bincount(byte_class, minlength=machine.num_classes)
    member = np.zeros(machine.num_classes, np.int64)
    member[byte_class] = np.arange(256)
    only = np.full(machine.num_states, -1, np.int64)
    for state in range(machine.num_states):
        live = np.flatnonzero(machine.row(state) != DEAD)
        if machine.label(state) < 0 and len(live) == 1 and size[live[0]] == 1:
            only[state] = member[live[0]]
    return only


def _follow(machine: Machine, only: NDArray[np.int64], state: int, stack: list[int]) -> int:
    """The state after the only byte of `state`, `stack` moved along; its top is popped where the callee ends."""
    state, symbols = machine.decode(machine.edge(state, int(only[state])))
    stack.extend(symbols)
    while stack and machine.is_final(state):
        targets = machine.resume_targets(stack.pop())
        state = targets[machine.label(state)]
        if state == DEAD:
            break
    return state


def _measure(
    machine: Machine, only: NDArray[np.int64], state: int, length: dict[int, int], continued: set[int]
) -> None:
    """Fill ``length`` for `state` and the states on its chain at which the stack is as it was; note all that follow."""
    passed: list[tuple[int, int]] = []
    on_path: set[int] = set()
    stack: list[int] = []
    steps = 0
    while state != DEAD:
        if steps:
            continued.add(state)
        if not stack:
            if state in length or state in on_path:
                break
            passed.append((state, steps))
            on_path.add(state)
        if only[state] < 0 or len(stack) > STACK_CAP or steps >= MAX_TEXT_BYTES:
            break
        state = _follow(machine, only, state, stack)
        steps += 1
    total = steps + (length.get(state, 0) if not stack else 0)
    for member, position in passed:
        length[member] = total - position


def _chain(machine: Machine, only: NDArray[np.int64], state: int, length: int) -> bytes:
    text = bytearray()
    stack: list[int] = []
    for _ in range(length):
        text.append(int(only[state]))
        state = _follow(machine, only, state, stack)
    return bytes(text)


# ------------------------------------------------------------------------------------------------- trim, unambiguous


Kind = Literal["unproductive", "ambiguous", "label"]


class Violation(NamedTuple):
    """A state where a machine is not as it must be.

    Attributes:
        kind: ``unproductive``: no accepting configuration can be reached; ``ambiguous``: a byte is both the state's
            own and the caller's (the state's own wins, so texts are lost); ``label``: a callee ends with a label for
            which its caller has no target.
        state, symbol: where, and the return symbol on top of the stack (-1: the stack is empty).
        witness: a text that leads there.
        byte: the byte in question, for ``ambiguous``; else -1.
    """

    kind: Kind
    state: int
    symbol: int
    witness: bytes
    byte: int = -1


class _Frame(NamedTuple):
    """What a state can know of its caller: the symbol to return to, and the labels with which it may end."""

    symbol: int
    allowed: frozenset[int]


class _Place(NamedTuple):
    state: int
    frame: _Frame


# completed callees, in order: the state where each was entered and its ending
_Passed = tuple[tuple[int, int], ...]

# how a place was reached: from where, by which byte, and past which callees
_Step = tuple[_Place, int, _Passed]


class _Entry(NamedTuple):
    """How a state was entered after a byte: past which callees, and whether a reading can rest there.

    A state entered by a lazy return is passed through on the way to an edge of its own, or not entered at all.
    """

    passed: _Passed
    rests: bool


def check(machine: Machine) -> list[Violation]:
    """Every place where `machine` is not trim or not unambiguous; empty if it is both.

    The counter and the stack cap are ignored: a machine that only they make dead passes, and a place that only they
    make unreachable is reported.

    Cost: states × frames × distinct edges; frames are few (a symbol and a set of labels each).

    Source: the paper's Definition 5 (trim) and the two conditions of Section C.12. Calls are resolved into edges here,
    so the first condition (a call and an own byte) cannot fail; the second is ``ambiguous``.
    """
    return _Checker(machine).run()


class _Checker:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.completions = Completions(machine)
        every = {machine.label(state) for state in range(machine.num_states)} - {-1}
        self.bottom = _Frame(-1, frozenset(every))
        self.came: dict[_Place, _Step | None] = {}
        self.rested: dict[_Place, _Step | None] = {}
        self.below: dict[_Frame, set[_Frame]] = {self.bottom: set()}
        self.queue: deque[_Place] = deque()
        self.violations: dict[Violation, None] = {}

    def run(self) -> list[Violation]:
        """Visit every reachable place, then judge each: a return needs all its callers known."""
        self._reach(_Place(self.machine.start, self.bottom), None, rests=True)
        while self.queue:
            self._expand(self.queue.popleft())
        for place, step in self.rested.items():
            if not self._labels(place.state) & place.frame.allowed:
                self._report("unproductive", place, self._witness(step))
        for place in self.came:
            self._check_return(place)
        return list(self.violations)

    def _labels(self, state: int) -> frozenset[int]:
        """The labels with which a callee in `state` can end."""
        return frozenset(map(label_of, self.completions.endings(state)))

    def _report(self, kind: Kind, place: _Place, witness: bytes, byte: int = -1) -> None:
        self.violations.setdefault(Violation(kind, place.state, place.frame.symbol, witness, byte))

    def _reach(self, place: _Place, step: _Step | None, *, rests: bool) -> None:
        if place not in self.came:
            self.came[place] = step
            self.queue.append(place)
        if rests:
            self.rested.setdefault(place, step)

    def _expand(self, place: _Place) -> None:
        """Reach every place after one edge of `place`, and after the callees that it enters."""
        for move in self.completions.moves(place.state):
            frames = [place.frame]
            for symbol in move.symbols:
                frames.append(self._call(symbol, frames[-1]))
            entered = {move.target: _Entry((), rests=True)}
            self._enter(place, move.byte, entered, frames[-1])
            for frame, below in zip(frames[:0:-1], frames[-2::-1], strict=True):
                entered = self._returns(place, move.byte, entered, frame)
                self._enter(place, move.byte, entered, below)

    def _enter(self, place: _Place, byte: int, entered: dict[int, _Entry], frame: _Frame) -> None:
        for state, entry in entered.items():
            if frame == self.bottom or not self.machine.is_final(state):
                self._reach(_Place(state, frame), (place, byte, entry.passed), rests=entry.rests)

    def _returns(self, place: _Place, byte: int, entered: dict[int, _Entry], frame: _Frame) -> dict[int, _Entry]:
        """Where `frame` continues after callees that began at `entered`."""
        targets = self.machine.resume_targets(frame.symbol)
        after: dict[int, _Entry] = {}
        for state, entry in entered.items():
            for ending, length in self.completions.endings(state).items():
                passed = (*entry.passed, (state, ending))
                rests = returns_at_once(ending) and (length > 0 or entry.rests)
                if label_of(ending) >= len(targets):
                    self._report("label", _Place(state, frame), self._witness((place, byte, passed)))
                elif (target := targets[label_of(ending)]) != DEAD and (target not in after or rests):
                    after[target] = _Entry(passed, rests)
        return after

    def _call(self, symbol: int, below: _Frame) -> _Frame:
        targets = self.machine.resume_targets(symbol)
        allowed = frozenset(
            label for label, state in enumerate(targets) if state != DEAD and self._labels(state) & below.allowed
        )
        frame = _Frame(symbol, allowed)
        self.below.setdefault(frame, set()).add(below)
        return frame

    def _check_return(self, place: _Place) -> None:
        """A lazy return must not compete with the state's own bytes."""
        label = self.machine.label(place.state)
        if label < 0 or place.frame == self.bottom:
            return
        own = self.machine.row(place.state) != DEAD
        both = own & self._follow(place.frame, label, set())
        if both.any():
            byte = int(np.flatnonzero(both[self.machine.byte_class])[0])
            self._report("ambiguous", place, self._witness(self.came[place]), byte)

    def _follow(self, frame: _Frame, label: int, visited: set[tuple[_Frame, int]]) -> NDArray[np.bool_]:
        """bool[K]: the classes that can come after a callee in `frame` has ended with `label`."""
        live = np.zeros(self.machine.num_classes, np.bool_)
        targets = self.machine.resume_targets(frame.symbol)
        if (frame, label) in visited or label >= len(targets) or targets[label] == DEAD:
            return live
        visited.add((frame, label))
        live |= self.machine.row(targets[label]) != DEAD
        after = self.machine.label(targets[label])
        for below in self.below[frame] if after >= 0 else ():
            if below != self.bottom:
                live |= self._follow(below, after, visited)
        return live

    def _witness(self, step: _Step | None) -> bytes:
        """A text that takes `step`."""
        pieces: list[bytes] = []
        while step is not None:
            place, byte, passed = step
            pieces.append(bytes([byte]) + b"".join(self.completions.text(state, ending) for state, ending in passed))
            step = self.came[place]
        return b"".join(reversed(pieces))
