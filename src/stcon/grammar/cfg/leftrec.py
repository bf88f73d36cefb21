"""Left recursion removed by the left-corner transform.

Let N be a rule that can begin with itself, and S the rules of its knot (the strongly connected part of "can begin with
a call of"). A text of N begins with a *left corner*: a text of some M in S that begins with no rule of S. What follows
brings it from M up to N, one rule at a time. State [N/M] stands for "an M is finished, an N is wanted":

* it accepts if M = N;
* for each P in S that can begin with M and then goes on in state t: it does what t does, and then is [N/P].

A new entry of N begins each M as M itself does where it does not call a rule of S, and then is [N/M]. So the
recursion has become a loop, ``E → E + T | T`` is T (+ T)*, and ambiguous ``E → E + E | n`` loses what is ambiguous
about it, as `Pushdown.joined` drops repeated [E/E].

Source: D. J. Rosenkrantz and P. M. Lewis, Deterministic left corner parsing (1970), on states instead of productions.
"""

from __future__ import annotations

from stcon.errors import TooLarge
from stcon.grammar.cfg.pushdown import Pushdown, Tail

MAX_PAIRS = 4_000

_CALL = 1


def remove_left_recursion(pushdown: Pushdown) -> None:
    """Transform `pushdown` so that no chain of calls from an entry comes back to it."""
    knots = _knots(pushdown)
    size = sum(len(knot) ** 2 for knot in knots)
    if size > MAX_PAIRS:
        raise TooLarge(
            "pairs of rules that begin with one another", given=size, limit=MAX_PAIRS, advice="make fewer of them so"
        )
    for knot in knots:
        _Transform(pushdown, knot).apply()


class _Transform:
    def __init__(self, pushdown: Pushdown, knot: list[int]) -> None:
        self.pushdown = pushdown
        self.knot = knot
        members = set(knot)
        # [M] → (P, t): P begins with a call of M and goes on with t
        self.above: dict[int, list[tuple[int, Tail]]] = {m: [] for m in knot}
        self.base: dict[int, list[tuple[int, int, Tail]]] = {m: [] for m in knot}
        for p in knot:
            for kind, letter, tail in pushdown.moves(p):
                if kind == _CALL and letter in members:
                    self.above[letter].append((p, tail))
                else:
                    self.base[p].append((kind, letter, tail))
        self.state: dict[tuple[int, int], int] = {}
        self.todo: list[tuple[int, int]] = []

    def apply(self) -> None:
        entries = {n: self._entry(n) for n in self.knot}
        while self.todo:
            self._between(*self.todo.pop())
        for calls in self.pushdown.calls:
            calls[:] = [(entries.get(entry, entry), tail) for entry, tail in calls]
        for n, entry in entries.items():
            self.pushdown.entries[entry] = self.pushdown.entries.pop(n)
        self.pushdown.start = entries.get(self.pushdown.start, self.pushdown.start)

    def _corner(self, n: int, m: int) -> int:
        """State [n/m]."""
        state = self.state.get((n, m))
        if state is None:
            state = self.state[n, m] = self.pushdown.new_state(self.pushdown.origins[n])
            self.pushdown.corners[state] = (n, m)
            self.todo.append((n, m))
        return state

    def _entry(self, n: int) -> int:
        entry = self.pushdown.new_state(self.pushdown.origins[n])
        for m in self._below(n):
            for kind, letter, tail in self.base[m]:
                self._add(entry, kind, letter, self.pushdown.joined(tail, (self._corner(n, m),)))
        return entry

    def _below(self, n: int) -> list[int]:
        """The rules of the knot that can be a left corner of `n`."""
        found, seen = [n], {n}
        for p in found:
            for m in self.knot:
                if m not in seen and any(q == p for q, _ in self.above[m]):
                    seen.add(m)
                    found.append(m)
        return found

    def _between(self, n: int, m: int) -> None:
        """Fill [n/m]; a P that is finished as soon as its M is, is passed through."""
        here = self.state[n, m]
        finished, seen = [m], {m}
        for member in finished:
            if member == n:
                self.pushdown.accepts[here] = True
            for p, tail in self.above[member]:
                if self._moves_of(here, tail, self._corner(n, p)) and p not in seen:
                    seen.add(p)
                    finished.append(p)

    def _moves_of(self, here: int, tail: Tail, below: int) -> bool:
        """Give `here` the moves of `tail` on top of `below`; whether `tail` may also accept at once."""
        pushdown = self.pushdown
        for index, top in enumerate(tail):
            rest = tail[index + 1 :]
            for kind, letter, more in list(pushdown.moves(top)):
                self._add(here, kind, letter, pushdown.joined(pushdown.joined(more, rest), (below,)))
            if not pushdown.accepts[top]:
                return False
        return True

    def _add(self, state: int, kind: int, letter: int, tail: Tail) -> None:
        moves = self.pushdown.tables()[kind][state]
        if (letter, tail) not in moves:
            moves.append((letter, tail))
            self.pushdown.count_edges(1)


def _knots(pushdown: Pushdown) -> list[list[int]]:
    """The strongly connected parts of "begins with a call of" that are recursive."""
    graph = {entry: [callee for callee, _ in pushdown.calls[entry]] for entry in pushdown.entries}
    return [part for part in strongly_connected(graph) if len(part) > 1 or part[0] in graph[part[0]]]


def strongly_connected(graph: dict[int, list[int]]) -> list[list[int]]:
    """The strongly connected parts, callees first. Source: R. Tarjan (1972), without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_path: set[int] = set()
    path: list[int] = []
    parts: list[list[int]] = []
    for root, called in graph.items():
        work = [(root, iter(called))] if root not in index else []
        while work:
            node, successors = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            pushed = False
            for successor in successors:
                if successor not in index:
                    work.append((successor, iter(graph.get(successor, ()))))
                    pushed = True
                    break
                if successor in on_path:
                    low[node] = min(low[node], index[successor])
            if pushed:
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                part: list[int] = []
                while not part or part[-1] != node:
                    part.append(path.pop())
                    on_path.discard(part[-1])
                parts.append(part)
    return parts
