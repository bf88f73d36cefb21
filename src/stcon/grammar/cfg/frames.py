"""The deterministic construction: states are sets of items, calls are made where only one is possible.

A *frame* reads a text of one of several rules at once (its slots). An *item* is a slot and a local stack of states of
the `Pushdown`, top first; an empty stack means that the slot's rule is finished. A state of the machine is the set of
all items that the frame's text so far allows: the subset construction, which keeps alternatives side by side until
bytes tell them apart. On a byte

* some items read it: the next state is the set of what they become;
* all that could read it are calls of rules in `called`: one frame is called for all of them, and each goes on where it
  stands when the frame returns the label that says which slots were finished. This is left factoring through calls;
* all that read it go on inside *brackets* (`brackets`): the rest of each one's rule is called as a frame of its own;
* calls and others: the calls are made part of the set (*inlined*), for this byte. If that recurs, the stacks of a set
  grow without end, and the construction is given up: `Refusal`.

What is left to choose is `called`, `brackets` and the call sites that are always inlined
(`stcon.grammar.cfg.determine`).

Lexemes are calls of a frame of their own: the automaton of all terminals that may come next, which returns the set of
those that match. A frame's own bytes go before returning, so lexemes are as long as can be.

Source: the subset construction of M. O. Rabin and D. Scott (1959) on the stacks of W. A. Woods' networks (1970); the
labels are those of DESIGN §2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stcon.grammar.cfg.lexer import Lexer
from stcon.grammar.cfg.pushdown import ALL_BYTES, Pushdown, Tail

MAX_SLOTS = 4
MAX_HEIGHT = 48
MAX_REPEATS = 3
MAX_CHAIN = 80
MAX_WORK = 2_000_000

Item = tuple[int, Tail]
Site = tuple[int, int, Tail]
Edge = tuple[int, tuple[int, ...]]


class Task(NamedTuple):
    """What is to be made deterministic.

    Attributes:
        pushdown: the normal form, with ``first`` filled.
        lexer: its terminals.
        embed_first: bytes with which a text of each embedded schema begins (bit sets).
        embed_more: bytes with which a finished text of each may go on.
    """

    pushdown: Pushdown
    lexer: Lexer
    embed_first: list[int]
    embed_more: list[int]


class Refusal(Exception):
    """The construction is given up.

    Attributes:
        why: "recursion" (two alternatives are never told apart) or "size".
        pair: the top states of two items that are not told apart.
    """

    def __init__(self, why: str, pair: tuple[int, int] | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.pair = pair


class Symbol(NamedTuple):
    """A return symbol: the frame called (by its first state), and what each slot (or terminal) goes on with."""

    frame: int
    after: tuple[tuple[int, frozenset[Item]], ...]


class _Expansion(NamedTuple):
    """What a stack can do: reads, calls kept as calls (with their sites), lexemes and schemas; may it finish."""

    reads: tuple[tuple[int, Tail], ...]
    calls: tuple[tuple[int, Tail, Site], ...]
    lexemes: tuple[tuple[int, Tail], ...]
    embeds: tuple[tuple[int, Tail], ...]
    finishes: bool


class _Moves(NamedTuple):
    """What the items of a state can do on some byte."""

    reads: list[tuple[int, Item]]
    calls: list[tuple[int, Item, Site]]
    lexemes: list[tuple[int, Item]]
    embeds: list[tuple[int, Item]]

    def on(self, block: int, frames: Frames) -> _Moves:
        """Those that can begin with a byte of `block`."""
        first, lexer = frames.pushdown.first, frames.lexer
        return _Moves(
            [move for move in self.reads if move[0] & block],
            [move for move in self.calls if first[move[0]] & block],
            [move for move in self.lexemes if lexer.first[move[0]] & block],
            [move for move in self.embeds if frames.embed_first[move[0]] & block],
        )

    def add(self, other: _Moves) -> None:
        self.reads.extend(other.reads)
        self.calls.extend(other.calls)
        self.lexemes.extend(other.lexemes)
        self.embeds.extend(other.embeds)


class Frames:
    """The states found so far, for one choice of calls.

    Args:
        task: the grammar.
        called: entries of the rules that are called.
        inlined: call sites that are inlined nevertheless.
        brackets: states whose rest of the rule is called once they are entered by reading.
        max_states: one more is a `Refusal`.
        entry: where to begin; None: the grammar's start.
        reasons: state left on a stack by an inlined call → the states (one with a move of its own, one with the call)
            because of which it was inlined. Added to.

    Attributes:
        work: items and moves looked at; more than `MAX_WORK` is a `Refusal`.
        items: state → its items; None for a state of a lexeme frame, or where a schema's text begins.
        reachable: the states that texts lead to, once explored; others were only asked about.
        labels: state → label with which it accepts, or -1. Label l means the slots whose bits are set in l + 1; that of
            a lexeme frame is a number of the lexer's.
    """

    def __init__(
        self,
        task: Task,
        called: frozenset[int],
        inlined: frozenset[Site],
        max_states: int,
        *,
        brackets: frozenset[int] = frozenset(),
        entry: int | None = None,
        reasons: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        pushdown = task.pushdown
        self.pushdown, self.lexer, self.embed_first = pushdown, task.lexer, task.embed_first
        self.called = called
        self.inlined = inlined
        self.brackets = brackets
        self.max_states = max_states
        self.reasons = {} if reasons is None else reasons
        self.reachable: list[int] = []
        self.items: list[frozenset[Item] | None] = []
        self.labels: list[int] = []
        self.lexemes: dict[int, tuple[int, int]] = {}
        self.embeds: dict[int, int] = {}
        self.symbols: list[Symbol] = []
        self.sites: list[set[Site]] = []
        self._rows: list[list[tuple[int, Edge]] | None] = []
        self._state: dict[object, int] = {}
        self._symbol: dict[Symbol, int] = {}
        self._expansions: dict[Tail, _Expansion] = {}
        initial = frozenset({(0, (pushdown.start if entry is None else entry,))})
        is_nullable = entry is None and pushdown.is_nullable
        self.work = 0
        self._chain = 0
        self.start = self._new_state(("start", initial), initial, 0 if is_nullable else -1)

    # ------------------------------------------------------------------------------------------------- states

    def _new_state(self, key: object, items: frozenset[Item] | None, label: int) -> int:
        state = self._state[key] = len(self.items)
        if state >= self.max_states:
            raise Refusal("size")
        self.items.append(items)
        self.labels.append(label)
        self._rows.append(None)
        return state

    def state(self, items: frozenset[Item]) -> int:
        """The state of a set of items."""
        found = self._state.get(items)
        if found is not None:
            return found
        bits = 0
        for slot, stack in items:
            self._check_height(stack)
            if self.expand(stack).finishes:
                bits |= 1 << slot
        return self._new_state(items, items, bits - 1)

    def _check_height(self, stack: Tail) -> None:
        repeated = [state for state in stack if stack.count(state) > MAX_REPEATS]
        if repeated or len(stack) > MAX_HEIGHT:
            known = [self.reasons[state] for state in (*repeated, *stack) if state in self.reasons]
            raise Refusal("recursion", known[0] if known else (stack[0], stack[-1]))

    def resume(self, symbol: int, label: int) -> int:
        """The state in which `symbol` goes on after a frame that ended with `label`."""
        callee, after = self.symbols[symbol]
        if callee in self.embeds:
            return self.state(after[0][1])
        chosen: set[Item] = set()
        if callee in self.lexemes:
            names = self.lexer.matched(self.lexemes[callee][0], label)
        else:
            names = frozenset(slot for slot in range(MAX_SLOTS) if label + 1 >> slot & 1)
        for name, items in after:
            if name in names:
                chosen |= items
        return self.state(frozenset(chosen))

    def _lexeme_state(self, automaton: int, state: int) -> int:
        """The state of a lexeme frame: where lexer automaton number `automaton` is in `state`."""
        key = ("lexeme", automaton, state)
        found = self._state.get(key)
        if found is None:
            found = self._new_state(key, None, self.lexer.label(automaton, state))
            self.lexemes[found] = (automaton, state)
        return found

    def _embed_state(self, index: int) -> int:
        found = self._state.get(("embed", index))
        if found is None:
            found = self._new_state(("embed", index), None, -1)
            self.embeds[found] = index
        return found

    # ------------------------------------------------------------------------------------------------- rows

    def row(self, state: int) -> list[tuple[int, Edge]]:
        """The edges of `state`: disjoint sets of bytes, the state each leads to and the symbols it pushes."""
        row = self._rows[state]
        if row is None:
            self._chain += 1  # a row with calls asks for the rows of what it calls
            if self._chain > MAX_CHAIN:
                raise Refusal("size")
            row = self._rows[state] = self._built(state)
            self._chain -= 1
        return row

    def _built(self, state: int) -> list[tuple[int, Edge]]:
        if state in self.embeds:
            return [(self.embed_first[self.embeds[state]], (state, ()))]
        if state in self.lexemes:
            automaton, position = self.lexemes[state]
            targets = self.lexer.targets(automaton, position)
            return [(mask, (self._lexeme_state(automaton, target), ())) for target, mask in targets.items()]
        items = self.items[state]
        assert items is not None, "a state is a set of items, or belongs to a lexeme or a schema"
        moves = self._moves(items)
        self.work += len(items) + sum(len(part) for part in moves)
        if self.work > MAX_WORK:
            raise Refusal("size")
        masks = {mask for mask, _ in moves.reads}
        masks |= {self.pushdown.first[entry] for entry, _, _ in moves.calls}
        masks |= {self.lexer.first[terminal] for terminal, _ in moves.lexemes}
        masks |= {self.embed_first[index] for index, _ in moves.embeds}
        if moves.lexemes or moves.calls or moves.embeds:
            masks |= {self.lexer.first[terminal] for terminal in self._ignored(state)}
        edges: dict[Edge, int] = {}
        for block in blocks(masks):
            for part, edge in self._edges(state, moves.on(block, self), block):
                edges[edge] = edges.get(edge, 0) | part
        return [(mask, edge) for edge, mask in edges.items()]

    def _ignored(self, state: int) -> frozenset[int]:
        return frozenset() if state == self.start else self.lexer.ignored

    def _edges(self, state: int, moves: _Moves, block: int) -> list[tuple[int, Edge]]:
        """The edges on the bytes of `block`, which may have to be told apart further once calls are inlined."""
        ignored = [t for t in self._ignored(state) if self.lexer.first[t] & block]
        if not self.lexer.terminals:
            ignored = []
        others = bool(moves.reads or moves.lexemes or moves.embeds or ignored)
        if moves.calls and (others or len({entry for entry, _, _ in moves.calls}) > MAX_SLOTS):
            for entry, (slot, stack), site in moves.calls:
                self._explain(state, site, block)
                moves.add(self._moves([(slot, self.pushdown.joined((entry,), stack))]))
            moves.calls.clear()
            return self._split(state, self._reexpanded(moves), block)
        if moves.calls:
            return self._call(moves, block)
        if moves.embeds:
            return [(block, self._embed(moves, ignored))]
        if moves.lexemes:
            return self._lexeme(state, moves, ignored, block)
        if ignored and not moves.reads:
            return self._lexeme(state, moves, ignored, block)
        return [(block, self._entered([item for _, item in moves.reads]))] if moves.reads else []

    def _entered(self, items: list[Item]) -> Edge:
        """Where reading leads: the set of `items`, or the frame of what is between brackets."""
        rests: dict[int, set[Item]] = {}
        for slot, stack in items:
            rests.setdefault(stack[0] if stack else -1, set()).add((slot, stack[1:]))
        after = tuple((slot, frozenset(rests[top])) for slot, top in enumerate(sorted(rests)))
        if not self._are_brackets(rests) or all(rest == {(slot, ())} for slot, rest in after):
            return self.state(frozenset(items)), ()
        frame = self.state(frozenset((slot, (top,)) for slot, top in enumerate(sorted(rests))))
        return frame, (self._new_symbol(Symbol(frame, after), {_entrance(rests)}),)

    def _are_brackets(self, tops: Iterable[int]) -> bool:
        distinct = set(tops)
        return len(distinct) <= MAX_SLOTS and distinct <= self.brackets and _entrance(distinct) not in self.inlined

    def _explain(self, state: int, site: Site, block: int) -> None:
        for member in site[2] or site[1:2]:
            if member not in self.reasons:
                tops = sorted({stack[0] for _, stack in self.items[state] or () if stack} - {site[0]})
                own = [top for top in tops if any(mask & block for mask, _ in self.expand((top,)).reads)]
                self.reasons[member] = ((own or [site[0]])[0], site[0])

    def _reexpanded(self, moves: _Moves) -> _Moves:
        """`moves` without repeats."""
        return _Moves(*(list(dict.fromkeys(part)) for part in moves))  # type: ignore[arg-type]

    def _split(self, state: int, moves: _Moves, block: int) -> list[tuple[int, Edge]]:
        masks = {mask & block for mask, _ in moves.reads}
        masks |= {self.pushdown.first[entry] & block for entry, _, _ in moves.calls}
        masks |= {self.lexer.first[terminal] & block for terminal, _ in moves.lexemes}
        masks |= {self.embed_first[index] & block for index, _ in moves.embeds}
        masks |= {self.lexer.first[terminal] & block for terminal in self._ignored(state)}
        found: list[tuple[int, Edge]] = []
        for part in blocks(masks):
            found.extend(self._edges(state, moves.on(part, self), part))
        return found

    def _call(self, moves: _Moves, block: int) -> list[tuple[int, Edge]]:
        """One frame for all the calls."""
        entries = sorted({entry for entry, _, _ in moves.calls})
        frame = self.state(frozenset((slot, (entry,)) for slot, entry in enumerate(entries)))
        after = tuple(
            (slot, frozenset(item for callee, item, _ in moves.calls if callee == entry))
            for slot, entry in enumerate(entries)
        )
        edges = [(mask & block, edge) for mask, edge in self.row(frame) if mask & block]
        if all(items == {(slot, ())} for slot, items in after):  # a call in last place
            return edges
        symbol = self._new_symbol(Symbol(frame, after), {site for _, _, site in moves.calls})
        return [(mask, (target, (symbol, *pushes))) for mask, (target, pushes) in edges]

    def _lexeme(self, state: int, moves: _Moves, ignored: list[int], block: int) -> list[tuple[int, Edge]]:
        """The frame of all terminals that may come."""
        items = self.items[state]
        assert items is not None, "lexemes are read between items"
        after: dict[int, set[Item]] = {}
        for terminal, item in moves.lexemes:
            after.setdefault(terminal, set()).add(item)
        for terminal in ignored:
            after.setdefault(terminal, set()).update(items)
        automaton = self.lexer.automaton(frozenset(after))
        frame = self._lexeme_state(automaton, self.lexer.start(automaton))
        pushes = self._between(frame, after)
        return [(mask & block, (target, pushes)) for mask, (target, _) in self.row(frame) if mask & block]

    def _between(self, frame: int, after: dict[int, set[Item]]) -> tuple[int, ...]:
        """The symbols to push below a lexeme: what each terminal goes on with, as a frame of its own if in brackets."""
        pushes: tuple[int, ...] = ()
        if self._are_brackets(stack[0] if stack else -1 for items in after.values() for _, stack in items):
            slots: dict[tuple[int, frozenset[Item]], int] = {}
            inside: dict[int, set[Item]] = {}
            for terminal, items in sorted(after.items()):
                rests: dict[int, set[Item]] = {}
                for slot, stack in items:
                    rests.setdefault(stack[0], set()).add((slot, stack[1:]))
                inside[terminal] = {
                    (slots.setdefault((top, frozenset(rest)), len(slots)), (top,))
                    for top, rest in sorted(rests.items())
                }
            below = tuple((slot, rest) for (_, rest), slot in slots.items())
            if len(slots) <= MAX_SLOTS and any(rest != {(slot, ())} for slot, rest in below):
                first = self.state(frozenset(item for items in inside.values() for item in items))
                tops = {stack[0] for items in inside.values() for _, stack in items}
                pushes = (self._new_symbol(Symbol(first, below), {_entrance(tops)}),)
                after = inside
        symbol = Symbol(frame, tuple((t, frozenset(after[t])) for t in sorted(after)))
        return (*pushes, self._new_symbol(symbol, set()))

    def _embed(self, moves: _Moves, ignored: list[int]) -> Edge:
        if moves.reads or moves.lexemes or ignored or len({index for index, _ in moves.embeds}) > 1:
            tops = [item[1] for part in (moves.reads, moves.lexemes, moves.embeds) for _, item in part]
            states = [stack[0] for stack in tops if stack]
            raise Refusal("embedded", (states[0], states[-1]) if states else None)
        frame = self._embed_state(moves.embeds[0][0])
        after = ((0, frozenset(item for _, item in moves.embeds)),)
        return frame, (self._new_symbol(Symbol(frame, after), set()),)

    def _new_symbol(self, symbol: Symbol, sites: set[Site]) -> int:
        index = self._symbol.get(symbol)
        if index is None:
            index = self._symbol[symbol] = len(self.symbols)
            self.symbols.append(symbol)
            self.sites.append(set())
        self.sites[index] |= sites
        return index

    # ------------------------------------------------------------------------------------------------- items

    def _moves(self, items: Iterable[Item]) -> _Moves:
        moves = _Moves([], [], [], [])
        for slot, stack in items:
            found = self.expand(stack)
            moves.reads.extend((mask, (slot, tail)) for mask, tail in found.reads)
            moves.calls.extend((entry, (slot, tail), site) for entry, tail, site in found.calls)
            moves.lexemes.extend((terminal, (slot, tail)) for terminal, tail in found.lexemes)
            moves.embeds.extend((index, (slot, tail)) for index, tail in found.embeds)
        return moves

    def expand(self, stack: Tail) -> _Expansion:
        """What `stack` can do, past states that accept and calls that are inlined."""
        found = self._expansions.get(stack)
        if found is None:
            found = self._expansions[stack] = self._expanded(stack)
        return found

    def _expanded(self, stack: Tail) -> _Expansion:
        pushdown = self.pushdown
        reads: dict[tuple[int, Tail], None] = {}
        calls: dict[tuple[int, Tail, Site], None] = {}
        lexemes: dict[tuple[int, Tail], None] = {}
        embeds: dict[tuple[int, Tail], None] = {}
        seen = {stack}
        todo = [stack]
        for here in todo:
            if not here:
                continue
            top, rest = here[0], here[1:]
            reads.update(((mask, pushdown.joined(tail, rest)), None) for mask, tail in pushdown.reads[top])
            lexemes.update(((t, pushdown.joined(tail, rest)), None) for t, tail in pushdown.lexemes[top])
            embeds.update(((i, pushdown.joined(tail, rest)), None) for i, tail in pushdown.embeds[top])
            following = [rest] if pushdown.accepts[top] else []
            for entry, tail in pushdown.calls[top]:
                site = (top, entry, tail)
                after = pushdown.joined(tail, rest)
                if entry in self.called and site not in self.inlined:
                    calls[entry, after, site] = None
                else:
                    following.append(pushdown.joined((entry,), after))
            for after in following:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return _Expansion(tuple(reads), tuple(calls), tuple(lexemes), tuple(embeds), () in seen)


def _entrance(tops: Iterable[int]) -> Site:
    """What stands for entering brackets whose first states are `tops`, among call sites."""
    return -1, -1, tuple(sorted(tops))


def blocks(masks: Iterable[int]) -> list[int]:
    """The coarsest disjoint non-empty sets of bytes that no set in `masks` splits, those in none of them left out."""
    parts: list[int] = []
    rest = ALL_BYTES
    for mask in masks:
        split: list[int] = []
        for part in parts:
            split.extend(piece for piece in (part & mask, part & ~mask) if piece)
        if mask & rest:
            split.append(mask & rest)
        rest &= ~mask
        parts = split
    return parts
