"""Properties of a fully built machine: is it trim and unambiguous, how large is it, what does it force.

`check` is the compile-time test of DESIGN §2; `sizes` feeds ``stcon explain``; `to_dot` draws. `forced_chains` (from
`structure`) lists forced texts, `shortest` (from `completion`) gives a shortest accepted one.

All of them build every row first, so they raise what building raises. Marks (history constraints) are not looked at.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.completion import Completions, label_of, returns_at_once, shortest
from stcon.grammar.dot import to_dot
from stcon.grammar.machine import DEAD, Machine
from stcon.grammar.structure import forced_bytes, forced_chains

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
        int((forced_bytes(machine) >= 0).sum()),
        machine.num_classes,
        machine.num_symbols,
        machine.num_actions,
        len(labels),
        machine.nbytes,
    )


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
