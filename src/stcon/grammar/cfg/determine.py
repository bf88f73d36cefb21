"""Choosing calls so that returns are deterministic, and proving that those which are not lose no text.

A frame that may end in a state with bytes of its own returns only on other bytes. Where the caller could go on with
such a byte, texts might be lost. So all states are explored with all their callers, and for every such byte either

* what the caller could read then, the frame can read as well (`Inclusion`): an ambiguity like that of the dangling
  else, or of spaces that either of two rules may take. Nothing is lost;
* or the calls in question are inlined, and everything is explored again.

`determine` tries small sets of called rules first (a rule that is not called costs no stack), then larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stcon.grammar.cfg.frames import Frames, Refusal, Site, Task, blocks
from stcon.grammar.cfg.leftrec import strongly_connected
from stcon.grammar.cfg.pushdown import Pushdown
from stcon.grammar.cfg.regular import body, callees

MAX_ROUNDS = 40
MAX_PAIRS = 400
MAX_DEPTH = 60
MAX_PLACES = 400_000
MAX_CANDIDATES = 12
SIZES = (3_000, 6_000, 20_000)
MAX_CHECKS = 300_000

_ROOT = -1

Config = tuple[int, tuple[int, ...]]


class Undecided(NamedTuple):
    """Why no choice was deterministic.

    Attributes:
        why: as in `Refusal`.
        pair: states of the `Pushdown` (the tops of two items) that are not told apart; None where the size decided.
    """

    why: str
    pair: tuple[int, int] | None


def determine(plain: Task, bracketed: Task) -> Frames | Undecided:
    """The states of a deterministic machine, all explored; or why there are none.

    Args:
        plain: the grammar.
        bracketed: the same with its brackets as rules (`stcon.grammar.cfg.brackets`), or the same task.
    """
    undecided = Undecided("size", None)
    for task, called, brackets, max_states in _attempts(plain, bracketed):
        try:
            return _attempt(task, called, brackets, max_states)
        except Refusal as refusal:
            if task is plain and (undecided.pair is None or refusal.why == "recursion"):
                undecided = Undecided(refusal.why, refusal.pair)
    return undecided


def _attempts(plain: Task, bracketed: Task) -> Iterator[tuple[Task, frozenset[int], frozenset[int], int]]:
    """What to try: brackets alone first, which cost least on the stack; what is large last."""
    none: frozenset[int] = frozenset()
    tied = tied_entries(bracketed.pushdown)
    brackets = brackets_of(bracketed.pushdown, tied)
    if tied:
        yield bracketed, none, brackets, SIZES[1]
    for called in candidates(plain.pushdown):
        yield plain, called, none, SIZES[0]
    if tied:
        yield bracketed, none, brackets, SIZES[2]
        yield plain, tied_entries(plain.pushdown), none, SIZES[2]
    yield plain, frozenset(called_entries(plain.pushdown)[0]), none, SIZES[2]


def _attempt(task: Task, called: frozenset[int], brackets: frozenset[int], max_states: int) -> Frames:
    """Explore with more and more sites inlined. Raises `Refusal`."""
    inlined: frozenset[Site] = frozenset()
    reasons: dict[int, tuple[int, int]] = {}
    for _ in range(MAX_ROUNDS):
        frames = Frames(task, called, inlined, max_states, brackets=brackets, reasons=reasons)
        exploration = Exploration(frames, task.embed_more)
        exploration.run()
        sites = exploration.lossy_sites()
        if not sites:
            frames.reachable = sorted({state for state, _ in exploration.places})
            return frames
        inlined |= sites
    raise Refusal("size")


def candidates(pushdown: Pushdown) -> Iterator[frozenset[int]]:
    """Sets of rules to call: one rule in each knot, where that cuts it; all rules in knots; all rules."""
    graph, deep = called_entries(pushdown)
    knots = _knots(graph, deep, set(graph))
    if not knots:
        yield frozenset()
    else:
        cuts = [[e for e in sorted(knot) if not _knots(graph, deep, set(knot) - {e})] for knot in knots]
        if all(cuts):
            for index in range(min(MAX_CANDIDATES, max(map(len, cuts)))):
                yield frozenset(cut[min(index, len(cut) - 1)] for cut in cuts)
        yield frozenset(entry for knot in knots for entry in knot)
    yield frozenset(graph)


def tied_entries(pushdown: Pushdown) -> frozenset[int]:
    """The entries of rules in knots: those that can be inside themselves with something left on the stack."""
    graph, deep = called_entries(pushdown)
    return frozenset(entry for knot in _knots(graph, deep, set(graph)) for entry in knot)


def called_entries(pushdown: Pushdown) -> tuple[dict[int, set[int]], set[tuple[int, int]]]:
    """Entry → the entries that its rule calls, from the start on; and the calls that leave something on the stack."""
    graph: dict[int, set[int]] = {}
    deep: set[tuple[int, int]] = set()
    todo = [pushdown.start]
    while todo:
        entry = todo.pop()
        if entry in graph:
            continue
        graph[entry] = set()
        for state in body(pushdown, entry):
            for callee, is_deep in callees(pushdown, state):
                graph[entry].add(callee)
                if is_deep:
                    deep.add((entry, callee))
                todo.append(callee)
    return graph, deep


def brackets_of(pushdown: Pushdown, tied: frozenset[int]) -> frozenset[int]:
    """The states entered by reading whose rest of the rule calls a rule of `tied` and ends with a byte of its own.

    They are called without risk: a frame that has ended cannot go on.
    """
    closed = _closed(pushdown)
    entered = {tail[0] for table in (pushdown.reads, pushdown.lexemes) for moves in table for _, tail in moves if tail}
    return frozenset(
        state
        for state in entered & closed
        if state in tied or any(c in tied for member in body(pushdown, state) for c, _ in callees(pushdown, member))
    )


def _closed(pushdown: Pushdown) -> set[int]:
    """The states that end only with a byte after which they cannot go on: what is left of all, round by round."""
    closed = {state for state in range(len(pushdown.reads)) if not pushdown.accepts[state]}
    while True:
        open_states = {
            state
            for state in closed
            if any(tail and tail[-1] not in closed for _, _, tail in pushdown.moves(state))
            or any(not tail and entry not in closed for entry, tail in pushdown.calls[state])
        }
        if not open_states:
            return closed
        closed -= open_states


def _knots(graph: dict[int, set[int]], deep: set[tuple[int, int]], within: set[int]) -> list[list[int]]:
    """Strongly connected parts in which some call leaves something on the stack."""
    parts = strongly_connected({entry: sorted(graph[entry] & within) for entry in sorted(within)})
    return [part for part in parts if any((a, b) in deep for a in part for b in graph[a] if b in set(part))]


class Exploration:
    """Every state with every frame that it can be in, and every frame with all its callers.

    Args:
        frames: explored whole.
        embed_more: as in `Task`.
    """

    def __init__(self, frames: Frames, embed_more: list[int]) -> None:
        self.frames = frames
        self.embed_more = embed_more
        self.places: dict[tuple[int, int], None] = {}
        self.callers: dict[int, dict[tuple[int, int], None]] = {}
        self.ended: dict[int, dict[int, None]] = {}
        self._todo: list[tuple[int, int]] = []
        self.checks = 0
        self._reads: dict[int, int] = {}
        self._inclusion = Inclusion(self)
        self._is_lossless: dict[tuple[Config, Config], bool] = {}

    def run(self) -> None:
        """Explore. Raises `Refusal`."""
        self._place(self.frames.start, _ROOT)
        while self._todo:
            state, frame = self._todo.pop()
            if state in self.frames.embeds:
                self._end(frame, 0)
                continue
            for _, (target, pushes) in self.frames.row(state):
                inner = frame
                for symbol in pushes:
                    callee = self.frames.symbols[symbol].frame
                    self._link(callee, symbol, inner)
                    inner = callee
                self._place(target, inner)
            if self.frames.labels[state] >= 0:
                self._end(frame, self.frames.labels[state])

    def _place(self, state: int, frame: int) -> None:
        if (state, frame) not in self.places:
            if len(self.places) >= MAX_PLACES:
                raise Refusal("size")
            self.places[state, frame] = None
            self._todo.append((state, frame))

    def _link(self, callee: int, symbol: int, frame: int) -> None:
        callers = self.callers.setdefault(callee, {})
        if (symbol, frame) not in callers:
            callers[symbol, frame] = None
            for label in list(self.ended.get(callee, ())):
                self._place(self.frames.resume(symbol, label), frame)

    def _end(self, frame: int, label: int) -> None:
        labels = self.ended.setdefault(frame, {})
        if label not in labels:
            labels[label] = None
            for symbol, outer in list(self.callers.get(frame, ())):
                self._place(self.frames.resume(symbol, label), outer)

    # ------------------------------------------------------------------------------------------------- returns

    def lossy_sites(self) -> frozenset[Site]:
        """The call sites to inline because a return might lose texts. Raises `Refusal` where there are none."""
        sites: set[Site] = set()
        for state, frame in self.places:
            label = 0 if state in self.frames.embeds else self.frames.labels[state]
            if label < 0 or frame == _ROOT or state in self.frames.lexemes:
                continue
            own = self._own(state)
            if own:
                bytes_read = sum(mask for mask, _ in own)  # they are disjoint
                for after, chain in self._follow(frame, label):
                    self.checks += 1
                    if self.checks > MAX_CHECKS:
                        raise Refusal("size")
                    if not bytes_read & self._bytes(after) or self._is_settled(chain, sites):
                        continue
                    if not self._loses_nothing(state, own, after, chain):
                        sites |= self._sites(state, after, chain)
        return frozenset(sites)

    def _bytes(self, state: int) -> int:
        """The bytes that `state` reads."""
        if state not in self._reads:
            self._reads[state] = sum(mask for mask, _ in self.frames.row(state))
        return self._reads[state]

    def _is_settled(self, chain: tuple[int, ...], sites: set[Site]) -> bool:
        """Whether the calls of `chain` will be inlined anyway."""
        found = [self.frames.sites[symbol] for symbol in chain]
        return any(found) and all(each <= sites for each in found)

    def _own(self, state: int) -> list[tuple[int, tuple[int, tuple[int, ...]]]]:
        if state in self.frames.embeds:
            more = self.embed_more[self.frames.embeds[state]]
            return [(more, (state, ()))] if more else []
        return self.frames.row(state)

    def _follow(self, frame: int, label: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The states reached by returning from `frame` with `label`, once or more often, and the symbols popped."""
        todo: list[tuple[int, int, tuple[int, ...]]] = [(frame, label, ())]
        seen = {(frame, label)}
        for here, ending, chain in todo:
            for symbol, outer in self.callers.get(here, ()):
                after = self.frames.resume(symbol, ending)
                yield after, (*chain, symbol)
                onward = self.frames.labels[after]
                if onward >= 0 and outer != _ROOT and (outer, onward) not in seen:
                    seen.add((outer, onward))
                    todo.append((outer, onward, (*chain, symbol)))

    def _loses_nothing(
        self, state: int, own: list[tuple[int, tuple[int, tuple[int, ...]]]], after: int, chain: tuple[int, ...]
    ) -> bool:
        if after in self.frames.embeds:
            return True
        for mask, (target, pushes) in own:
            for other, (reached, more) in self.frames.row(after):
                if mask & other:
                    if state in self.frames.embeds:
                        return False
                    mine, theirs = (target, (*reversed(chain), *pushes)), (reached, more)
                    if (mine, theirs) not in self._is_lossless:
                        self._is_lossless[mine, theirs] = self._inclusion.holds(mine, theirs)
                    if not self._is_lossless[mine, theirs]:
                        return False
        return True

    def _sites(self, state: int, after: int, chain: tuple[int, ...]) -> set[Site]:
        sites = {site for symbol in chain for site in self.frames.sites[symbol]}
        pair = self._pair(state, after)
        if not sites or state in self.frames.embeds:
            raise Refusal("embedded", pair)
        for site in sites if pair else ():
            for member in site[2] or site[1:2]:
                self.frames.reasons.setdefault(member, pair)  # type: ignore[arg-type]
        return sites

    def _pair(self, state: int, after: int) -> tuple[int, int] | None:
        tops = [stack[0] for each in (state, after) for _, stack in sorted(self.frames.items[each] or ()) if stack]
        return (tops[0], tops[-1]) if tops else None


class Inclusion:
    """Whether every completion of one configuration is one of another: a simulation, searched for with a limit.

    A configuration is a state and the symbols above some common rest of the stack, top last. A simulates B if A can
    return to B; or differs from it only by symbols below that return as if they were not there; or every step of B is
    matched by one of A's (returning early included) that leads to a simulation, and A ends where B ends.

    Source: R. Milner, Communication and Concurrency (1989), chapter 4, for simulation and its coinductive proof.
    """

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        self.frames = exploration.frames
        self._assumed: dict[tuple[Config, Config], None] = {}
        self._shown: set[tuple[Config, Config]] = set()
        self._refuted: set[tuple[Config, Config]] = set()
        self._left = 0
        self._depth = 0

    def holds(self, a: Config, b: Config) -> bool:
        """Whether `a` has every completion of `b`, shown within `MAX_PAIRS` pairs."""
        self._assumed.clear()
        self._left = MAX_PAIRS
        holds = self._includes(a, b)
        if holds:  # then so do all pairs that were assumed on the way: together they are a simulation
            self._shown.update(self._assumed)
        return holds

    def _includes(self, a: Config, b: Config) -> bool:
        if (a, b) in self._assumed or (a, b) in self._shown:
            return True
        if (a, b) in self._refuted:
            return False
        returned = list(self._returns(a))
        if b in returned or any(self._differs_harmlessly(config, b) for config in returned):
            return True
        if a[0] in self.frames.embeds or b[0] in self.frames.embeds:
            return False
        if (b[0] in self.frames.lexemes and a[0] != b[0]) or self._left <= 0 or self._depth >= MAX_DEPTH:
            self._left = 0  # given up; what is not shown now is not refuted either
            return False
        self._left -= 1
        self._assumed[a, b] = None
        self._depth += 1
        holds = self._ends(b) <= self._ends(a) and self._matches(a, b)
        self._depth -= 1
        if holds:
            return True
        while (a, b) in self._assumed:
            self._assumed.popitem()
        if self._left > 0:
            self._refuted.add((a, b))
        return False

    def _matches(self, a: Config, b: Config) -> bool:
        mine, theirs = list(self._steps(a)), list(self._steps(b))
        for mask, target in theirs:
            for block in blocks([mask & other for other, _ in mine] + [mask]):
                if block & mask and not any(other & block and self._includes(config, target) for other, config in mine):
                    return False
        return True

    def _returns(self, config: Config) -> Iterator[Config]:
        """`config`, and what it becomes by returning without reading."""
        yield config
        state, stack = config
        while stack and self.frames.labels[state] >= 0:
            state, stack = self.frames.resume(stack[-1], self.frames.labels[state]), stack[:-1]
            yield state, stack

    def _steps(self, config: Config) -> Iterator[tuple[int, Config]]:
        """What can be reached with each byte, early returns included; a lexeme does not return early."""
        taken = 0
        for state, stack in self._returns(config):
            if state in self.frames.embeds:
                return
            for mask, (target, pushes) in self.frames.row(state):
                if mask & ~taken:
                    yield mask & ~taken, (target, stack + pushes)
                if state in self.frames.lexemes:
                    taken |= mask

    def _ends(self, config: Config) -> set[int]:
        """Labels with which the common rest of the stack is reached."""
        return {
            self.frames.labels[state]
            for state, stack in self._returns(config)
            if not stack and self.frames.labels[state] >= 0
        }

    def _differs_harmlessly(self, a: Config, b: Config) -> bool:
        extra = len(a[1]) - len(b[1])
        return a[0] == b[0] and extra > 0 and a[1][extra:] == b[1] and all(map(self._is_transparent, a[1][:extra]))

    def _is_transparent(self, symbol: int) -> bool:
        """Whether returning to `symbol` may be the same as returning to whoever comes below it."""
        labels = self.exploration.ended.get(self.frames.symbols[symbol].frame, {})
        return all(self.frames.labels[self.frames.resume(symbol, label)] == label for label in labels)
