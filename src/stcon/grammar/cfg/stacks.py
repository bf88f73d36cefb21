"""Grammars that are not deterministic: a machine whose states are sets of stacks, made as texts reach them.

All stacks that the text so far allows are kept in one trie from the top, with equal subtries shared: a graph-structured
stack in canonical form, so that equal sets are equal numbers. Such a set is one state of a `Machine` without calls,
whose row is built when first looked at. Masks, forced text and steps are then those of any machine.

**Bounds.** A stack has at most `MAX_HEIGHT` states, a set at most `MAX_NODES` nodes, and building one row takes at most
`MAX_WORK` steps: what would go past is not admitted, as at the stack cap of a deterministic machine. The machine has a
state budget like any other; states are those of all texts looked at, so a grammar's machine is replaced by a fresh one
between outputs (`stcon.grammar.cfg.grammar`).

Source: M. Tomita, Efficient Parsing for Natural Language (1986), for the shared stacks.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from stcon.errors import Unsupported
from stcon.grammar.cfg.frames import blocks
from stcon.grammar.cfg.lexer import Lexer
from stcon.grammar.cfg.pushdown import Pushdown, Tail
from stcon.grammar.machine import DEAD, DEFAULT_MAX_STATES, Machine

MAX_HEIGHT = 2_000
MAX_NODES = 20_000
MAX_WORK = 20_000

MAX_SEARCHED = 2_000

UNREACHABLE = 2**30
_READABLE = sorted(range(256), key=lambda byte: (not 32 <= byte < 127, byte))


class _Node(NamedTuple):
    """A set of stacks: whether the empty one is in it, and for each top state the set of what is below."""

    is_bottom: bool
    below: tuple[tuple[int, int], ...]


class _TooMuch(Exception):
    """A bound of this module is reached."""


class Stacks:
    """Sets of stacks of a `Pushdown`, by number. Number 0 is the set of the empty stack alone, 1 the empty set.

    Attributes:
        needs: set → fewest bytes that empty one of its stacks (with a lexer, a lower bound).
        most: set → bytes that are always enough, whichever of its stacks is chosen.
    """

    def __init__(self, pushdown: Pushdown, lexer: Lexer) -> None:
        self.pushdown = pushdown
        self.lexer = lexer
        self.work = 0
        self.needs: list[int] = []
        self.most: list[int] = []
        self._cost = _costs(pushdown, lexer)
        self._nodes: list[_Node] = []
        self._heights: list[int] = []
        self._sizes: list[int] = []
        self._number: dict[_Node, int] = {}
        self._unions: dict[tuple[int, int], int] = {}
        self._reads: dict[int, list[tuple[int, Tail]]] = {}
        self._lexemes: dict[int, list[tuple[int, Tail]]] = {}
        self._node(_Node(True, ()))
        self._node(_Node(False, ()))

    @property
    def growth(self) -> int:
        """By how much reading one byte can raise `most`."""
        pushdown, cost = self.pushdown, self._cost
        tails = [tail for table in (pushdown.reads, pushdown.calls) for moves in table for _, tail in moves]
        longest = max((sum(cost[state] for state in tail) for tail in tails), default=0)
        depth = max((cost[entry] for entry in pushdown.entries), default=0)
        return (longest + depth) * (1 + len(pushdown.entries))

    def _node(self, node: _Node) -> int:
        found = self._number.get(node)
        if found is not None:
            return found
        height = 1 + max((self._heights[child] for _, child in node.below), default=-1)
        size = 1 + sum(self._sizes[child] for child in {child for _, child in node.below})
        # shared nodes are counted more than once in `size`, so it is only a reason to count them
        if height > MAX_HEIGHT or (size > MAX_NODES and self._count(node) > MAX_NODES):
            raise _TooMuch
        found = self._number[node] = len(self._nodes)
        self._nodes.append(node)
        self._heights.append(height)
        self._sizes.append(min(size, MAX_NODES + 1))
        bottom = [0] if node.is_bottom else []
        costs = [self._cost[top] + self.needs[child] for top, child in node.below]
        self.needs.append(min(bottom + costs, default=UNREACHABLE))
        self.most.append(max((self._cost[top] + self.most[child] for top, child in node.below), default=0))
        return found

    def _count(self, node: _Node) -> int:
        seen = {child for _, child in node.below}
        todo = list(seen)
        while todo:
            for _, child in self._nodes[todo.pop()].below:
                if child not in seen:
                    seen.add(child)
                    todo.append(child)
        self._spend(len(seen))
        return len(seen) + 1

    def _spend(self, work: int) -> None:
        self.work += work
        if self.work > MAX_WORK:
            raise _TooMuch

    def union(self, a: int, b: int) -> int:
        """The stacks of both sets."""
        pending = [(a, b)]
        while pending:
            key = pending[-1]
            if self._known(*key) is not None:
                pending.pop()
                continue
            self._spend(1)
            left, right = self._nodes[key[0]], self._nodes[key[1]]
            below = dict(left.below)
            missing = [
                (below[top], child)
                for top, child in right.below
                if top in below and self._known(below[top], child) is None
            ]
            if missing:
                pending.extend(missing)
                continue
            for top, child in right.below:
                known = self._known(below[top], child) if top in below else child
                assert known is not None, "the unions below are made first"
                below[top] = known
            self._unions[key] = self._node(_Node(left.is_bottom or right.is_bottom, tuple(sorted(below.items()))))
            pending.pop()
        found = self._known(a, b)
        assert found is not None, "it was made above"
        return found

    def _known(self, a: int, b: int) -> int | None:
        if b in {a, 1}:
            return a
        return b if a == 1 else self._unions.get((a, b))

    def push(self, tail: Tail, below: int) -> int:
        """`tail` (top first) on each stack of `below`, without what is neutral there (`Pushdown.joined`)."""
        for state in reversed(tail):
            below = self._push(state, below)
        return below

    def _push(self, state: int, below: int) -> int:
        corners, node = self.pushdown.corners, self._nodes[below]
        upper = corners.get(state)
        kept: list[tuple[int, int]] = []
        result = 1
        self._spend(1)
        for top, child in node.below:
            lower = corners.get(top)
            if upper is None or lower is None or upper[0] != lower[1] or lower[0] != lower[1] != upper[1]:
                kept.append((top, child))
            elif lower[0] == lower[1]:
                result = self.union(result, self._push(state, child))
            else:
                result = self.union(result, self._node(_Node(False, ((top, child),))))
        if kept or node.is_bottom:
            rest = below if len(kept) == len(node.below) else self._node(_Node(node.is_bottom, tuple(kept)))
            result = self.union(result, self._node(_Node(False, ((state, rest),))))
        return result

    def exposed(self, stacks: int) -> tuple[list[tuple[int, int]], bool]:
        """The (top state, set below) that can move, past states that accept; whether a stack can be emptied."""
        found: list[tuple[int, int]] = []
        seen = {stacks}
        todo = [stacks]
        is_bottom = False
        for number in todo:
            node = self._nodes[number]
            is_bottom |= node.is_bottom
            self._spend(len(node.below) + 1)
            for top, child in node.below:
                found.append((top, child))
                if self.pushdown.accepts[top] and child not in seen:
                    seen.add(child)
                    todo.append(child)
        return found, is_bottom

    def reads(self, state: int) -> list[tuple[int, Tail]]:
        """What `state` reads, calls followed."""
        if state not in self._reads:
            self._follow(state)
        return self._reads[state]

    def lexemes(self, state: int) -> list[tuple[int, Tail]]:
        """The lexemes that `state` reads, calls followed."""
        if state not in self._lexemes:
            self._follow(state)
        return self._lexemes[state]

    def _follow(self, state: int) -> None:
        pushdown = self.pushdown
        reads: dict[tuple[int, Tail], None] = {}
        lexemes: dict[tuple[int, Tail], None] = {}
        todo: list[tuple[int, Tail]] = [(state, ())]
        seen = set(todo)
        for top, rest in todo:
            reads.update(((mask, pushdown.joined(tail, rest)), None) for mask, tail in pushdown.reads[top])
            lexemes.update(((t, pushdown.joined(tail, rest)), None) for t, tail in pushdown.lexemes[top])
            for entry, tail in pushdown.calls[top]:
                after = (entry, pushdown.joined(tail, rest))
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
                    self._spend(1)
        self._reads[state], self._lexemes[state] = list(reads), list(lexemes)


class StackSetMachine(Machine):
    """A machine without calls whose states are sets of stacks. Its states are endless: it is never built whole.

    Args:
        pushdown: the grammar; no embedded schemas.
        lexer: its terminals.
        max_states: state budget.

    Attributes:
        conflict: why the grammar has no deterministic machine, one line.
    """

    conflict = ""

    def __init__(self, pushdown: Pushdown, lexer: Lexer, *, max_states: int = DEFAULT_MAX_STATES) -> None:
        super().__init__(max_states=max_states, row_builder=self._build_row)
        self.pushdown = pushdown
        self.stacks = Stacks(pushdown, lexer)
        self.lexer = lexer
        self._places: list[_Place] = []
        self._numbers: dict[_Place, int] = {}
        self._following: dict[tuple[int, int], int] = {}
        self._needed: dict[int, int] = {}
        self._growth = self.stacks.growth
        initial = self.stacks.push((pushdown.start,), 0)
        self.start = self._state(_Place(initial, is_initial=True))

    def needed_bytes(self, state: int) -> int | None:
        """Fewest bytes from `state` to a complete text; None where a search for them was cut."""
        if self.label(state) >= 0:
            return 0
        if not self.lexer.terminals:
            return self.stacks.needs[self._places[state].stacks]
        if state not in self._needed:
            self.completion(state)
        return self._needed.get(state)

    def enough_bytes(self, state: int) -> int | None:
        """Bytes that are enough to read any one byte and complete the text; None where that is not known."""
        if self.lexer.terminals:
            return None
        return self.stacks.most[self._places[state].stacks] + self._growth

    def completion(self, state: int) -> bytes | None:
        """A shortest completion from `state`; None where the search was cut (A*, the deepest of equals first)."""
        heap = [(self._at_least(state), 0, state)]
        came: dict[int, tuple[int, int]] = {}
        length = {state: 0}
        done: set[int] = set()
        while heap and len(done) < MAX_SEARCHED:
            _, depth, here = heapq.heappop(heap)
            if here in done:
                continue
            done.add(here)
            if self.label(here) >= 0:
                return self._trace(came, state, here)
            row = self.row(here)[self.byte_class].tolist()
            for byte in _READABLE:
                target = row[byte]
                if target != DEAD and 1 - depth < length.get(target, UNREACHABLE):
                    length[target] = 1 - depth
                    came[target] = (here, byte)
                    heapq.heappush(heap, (1 - depth + self._at_least(target), depth - 1, target))
        return None

    def _trace(self, came: dict[int, tuple[int, int]], start: int, end: int) -> bytes:
        text = bytearray()
        while end != start:
            self._needed[end] = len(text)
            end, byte = came[end]
            text.append(byte)
        self._needed[start] = len(text)
        return bytes(reversed(text))

    def _at_least(self, state: int) -> int:
        """A lower bound of the bytes that complete a text."""
        place = self._places[state]
        if self.label(state) >= 0:
            return 0
        if place.automaton < 0:
            return self.stacks.needs[place.stacks]
        self.stacks.work = 0
        try:
            following = [self._after(place.stacks, t) for t in self.lexer.terminals_of(place.automaton)]
        except _TooMuch:
            return 0
        return min((self.stacks.needs[stacks] for stacks in following), default=0)

    def bytes_read(self) -> frozenset[int]:
        """Every byte that some text of the grammar may hold."""
        mask = 0
        for moves in self.pushdown.reads:
            for letter, _ in moves:
                mask |= letter
        read = set(bytes_of(mask))
        for dfa in self.lexer.terminals:
            read |= set(np.flatnonzero((dfa.delta[:, dfa.byte_class] >= 0).any(axis=0)).tolist())
        return frozenset(read)

    def tops(self, state: int) -> set[int]:
        """The states of the `Pushdown` that can move next."""
        self.stacks.work = 0
        return {top for top, _ in self.stacks.exposed(self._places[state].stacks)[0]}

    def _state(self, place: _Place) -> int:
        found = self._numbers.get(place)
        if found is None:
            found = self.new_state(label=0 if self._accepts(place) else -1)
            self._numbers[place] = found
            self._places.append(place)
        return found

    def _accepts(self, place: _Place) -> bool:
        if place.is_initial and self.pushdown.is_nullable:
            return True
        after = self._after_lexeme(place)
        return after is not None and self.stacks.exposed(after)[1]

    def _build_row(self, state: int) -> None:
        place = self._places[state]
        row = np.full(256, DEAD, np.int32)
        for mask, target in self._edges(place):
            row[bytes_of(mask)] = target
        self.set_row(state, row)

    def _edges(self, place: _Place) -> list[tuple[int, int]]:
        """Disjoint sets of bytes and the states that they lead to; what goes past a bound is left out."""
        if not self.lexer.terminals:
            return self._byte_edges(place.stacks)
        edges: list[tuple[int, int]] = []
        taken = 0
        if place.automaton >= 0:
            for target, mask in self.lexer.targets(place.automaton, place.position).items():
                taken |= mask
                self._try(edges, mask, place._replace(position=target))
        try:
            self.stacks.work = 0
            after = self._after_lexeme(place)
            if after is not None:
                edges.extend((mask & ~taken, to) for mask, to in self._lexeme_edges(after, place) if mask & ~taken)
        except _TooMuch:
            pass
        return edges

    def _try(self, edges: list[tuple[int, int]], mask: int, place: _Place) -> None:
        try:
            self.stacks.work = 0
            edges.append((mask, self._state(place)))
        except _TooMuch:
            return

    def _byte_edges(self, stacks: int) -> list[tuple[int, int]]:
        try:
            self.stacks.work = 0
            exposed, _ = self.stacks.exposed(stacks)
        except _TooMuch:
            return []
        moves = [(mask, tail, below) for top, below in exposed for mask, tail in self.stacks.reads(top)]
        found: dict[int, int] = {}
        for block in blocks({mask for mask, _, _ in moves}):
            try:
                self.stacks.work = 0
                target = 1
                for mask, tail, below in moves:
                    if mask & block:
                        target = self.stacks.union(target, self.stacks.push(tail, below))
                state = self._state(_Place(target))
            except _TooMuch:
                continue
            found[state] = found.get(state, 0) | block
        return [(mask, state) for state, mask in found.items()]

    # ------------------------------------------------------------------------------------------------- lexemes

    def _after_lexeme(self, place: _Place) -> int | None:
        """The stacks once the lexeme read so far is ended, None where it cannot be."""
        if place.automaton < 0:
            return place.stacks
        label = self.lexer.label(place.automaton, place.position)
        if label < 0:
            return None
        result = 1
        for terminal in sorted(self.lexer.matched(place.automaton, label)):
            result = self.stacks.union(result, self._after(place.stacks, terminal))
        return result

    def _after(self, stacks: int, terminal: int) -> int:
        """The stacks after a lexeme of `terminal`."""
        key = (stacks, terminal)
        if key not in self._following:
            result = stacks if terminal in self.lexer.ignored else 1
            for top, below in self.stacks.exposed(stacks)[0]:
                for found, tail in self.stacks.lexemes(top):
                    if found == terminal:
                        result = self.stacks.union(result, self.stacks.push(tail, below))
            self._following[key] = result
        return self._following[key]

    def _lexeme_edges(self, stacks: int, place: _Place) -> list[tuple[int, int]]:
        """Edges into the lexemes that may come next."""
        allowed = {t for top, _ in self.stacks.exposed(stacks)[0] for t, _ in self.stacks.lexemes(top)}
        if allowed and not place.is_initial:
            allowed |= self.lexer.ignored
        edges: list[tuple[int, int]] = []
        for block in blocks({self.lexer.first[t] for t in allowed}):
            automaton = self.lexer.automaton(frozenset(t for t in allowed if self.lexer.first[t] & block))
            for target, mask in self.lexer.targets(automaton, 0).items():
                if mask & block:
                    self._try(edges, mask & block, _Place(stacks, automaton, target))
        return edges


def require_deterministic(machine: Machine) -> None:
    """Raise `Unsupported` for a machine of sets of stacks, which no device can hold."""
    if isinstance(machine, StackSetMachine):
        raise Unsupported(
            f"a grammar that is not deterministic runs on the CPU only: {machine.conflict}",
            advice="make its alternatives differ earlier",
        )


class _Place(NamedTuple):
    """What a state stands for: a set of stacks, and where the lexer's automaton is (-1: between lexemes)."""

    stacks: int
    automaton: int = -1
    position: int = 0
    is_initial: bool = False


def bytes_of(mask: int) -> list[int]:
    """The bytes of a bit set."""
    bits = np.unpackbits(np.frombuffer(mask.to_bytes(32, "little"), np.uint8), bitorder="little")
    found: list[int] = np.flatnonzero(bits).tolist()
    return found


def _costs(pushdown: Pushdown, lexer: Lexer) -> list[int]:
    """State → fewest bytes until it accepts: rounds to the least fixpoint."""
    cost = [0 if accepts else UNREACHABLE for accepts in pushdown.accepts]
    shortest = [_shortest(lexer, terminal) for terminal in range(len(lexer.terminals))]
    changed = True
    while changed:
        changed = False
        for state in range(len(cost)):
            ways = [1 + sum(cost[s] for s in tail) for _, tail in pushdown.reads[state]]
            ways += [cost[entry] + sum(cost[s] for s in tail) for entry, tail in pushdown.calls[state]]
            ways += [shortest[t] + sum(cost[s] for s in tail) for t, tail in pushdown.lexemes[state]]
            best = min(ways, default=UNREACHABLE)
            if best < cost[state]:
                cost[state] = best
                changed = True
    return cost


def _shortest(lexer: Lexer, terminal: int) -> int:
    dfa = lexer.terminals[terminal]
    seen = {dfa.start}
    layer, length = [dfa.start], 0
    while layer:
        length += 1
        following = []
        for state in layer:
            for target in set(dfa.delta[state].tolist()) - {-1}:
                if dfa.labels[target] >= 0:
                    return length
                if target not in seen:
                    seen.add(target)
                    following.append(target)
        layer = following
    return UNREACHABLE
