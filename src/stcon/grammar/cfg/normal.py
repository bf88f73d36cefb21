"""Networks to the normal form (`Pushdown`): ε, idle states, useless states and left recursion are removed.

1. **ε.** Each rule is made twice in one: copies of its states from before and after the first byte. A rule's entry then
   never accepts, and a call of a rule that has the empty text gets a way around it.
2. **Useless states**: those from which no text can be finished.
3. **Equal states** (those with equal moves) become one, so that the sets of states made later are equal more often.
4. **Left recursion** (`stcon.grammar.cfg.leftrec`).

Source: J. E. Hopcroft and J. D. Ullman, Introduction to Automata Theory (1979), chapter 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from stcon.errors import Unsatisfiable
from stcon.grammar.cfg.leftrec import remove_left_recursion
from stcon.grammar.cfg.networks import CALL, Network, Networks
from stcon.grammar.cfg.pushdown import Pushdown, Tail

Move = tuple[int, int, Tail]


def normalize(networks: Networks, start: int, terminals_nullable: frozenset[int] = frozenset()) -> Pushdown:
    """The normal form of the rules, beginning with rule number `start`.

    Args:
        networks: the rules.
        start: number of the start rule.
        terminals_nullable: terminals that match the empty text; their lexemes may be left out.

    Raises:
        Unsatisfiable: the start rule has no text.
        TooLarge: too many states or moves.
    """
    result = _Builder(networks, terminals_nullable).build(start)
    _drop_useless(result)
    if not any(result.moves(result.start)) and not result.is_nullable:
        raise Unsatisfiable(f"no text can be finished from the start rule {networks.names[start]}")
    _drop_idle(result)
    _merge_equal(result)
    remove_left_recursion(result)
    _drop_idle(result)
    _merge_equal(result)
    return result


class _Builder:
    """Step 1."""

    def __init__(self, networks: Networks, terminals_nullable: frozenset[int]) -> None:
        self.networks = networks
        self.terminals_nullable = terminals_nullable
        self.nullable: set[int] = set()
        self._find_nullable()
        self.result = Pushdown()
        self.number: dict[tuple[int, int, bool], int] = {}
        self.todo: deque[tuple[int, int, bool]] = deque()

    def build(self, start: int) -> Pushdown:
        self.result.start = self._state(start, 0, False)
        self.result.is_nullable = start in self.nullable
        while self.todo:
            self._moves(*self.todo.popleft())
        return self.result

    def _state(self, rule: int, state: int, has_read: bool) -> int:
        key = (rule, state, has_read)
        found = self.number.get(key)
        if found is None:
            found = self.number[key] = self.result.new_state(self.networks.rules[rule].origins[state])
            self.todo.append(key)
            if state == 0 and not has_read:
                self.result.entries[found] = self.networks.names[rule]
        return found

    def _moves(self, rule: int, state: int, has_read: bool) -> None:
        """The moves of a state, those past ε included."""
        network, result = self.networks.rules[rule], self.result
        here = self.number[rule, state, has_read]
        tables = result.tables()
        seen: dict[Move, None] = {}
        for member in self._closure(network, state):
            if member == 1 and has_read:
                result.accepts[here] = True
            for kind, letter, target in network.edges[member]:
                tail: Tail = (self._state(rule, target, True),)
                seen[kind, self._state(letter, 0, False) if kind == CALL else letter, tail] = None
        for kind, letter, after in seen:
            tables[kind][here].append((letter, after))
        result.count_edges(len(seen))

    def _closure(self, network: Network, state: int) -> list[int]:
        members, seen = [state], {state}
        for member in members:
            for target in (*network.epsilons[member], *self._skips(network, member)):
                if target not in seen:
                    seen.add(target)
                    members.append(target)
        return members

    def _skips(self, network: Network, state: int) -> list[int]:
        return [target for kind, letter, target in network.edges[state] if self._can_skip(kind, letter)]

    def _can_skip(self, kind: int, letter: int) -> bool:
        return letter in self.nullable if kind == CALL else kind == 2 and letter in self.terminals_nullable

    def _find_nullable(self) -> None:
        """The rules that have the empty text: a fixpoint, each rule looked at again when one it calls is found."""
        callers: dict[int, set[int]] = {}
        for index, network in enumerate(self.networks.rules):
            for edges in network.edges:
                for kind, letter, _ in edges:
                    if kind == CALL:
                        callers.setdefault(letter, set()).add(index)
        todo = deque(range(len(self.networks.rules)))
        queued = set(todo)
        while todo:
            index = todo.popleft()
            queued.discard(index)
            if index not in self.nullable and 1 in self._closure(self.networks.rules[index], 0):
                self.nullable.add(index)
                for caller in callers.get(index, set()) - queued:
                    todo.append(caller)
                    queued.add(caller)


def _drop_useless(result: Pushdown) -> None:
    """Step 2: moves to states, or calls of entries, from which nothing can be finished."""
    waiting: dict[int, list[tuple[int, int]]] = {}
    needed: list[list[int]] = []
    productive = [False] * len(result.reads)
    todo: list[int] = []

    def found(state: int) -> None:
        if not productive[state]:
            productive[state] = True
            todo.append(state)

    for state in range(len(productive)):
        if result.accepts[state]:
            found(state)
        for kind, letter, tail in result.moves(state):
            parts = {*tail, *((letter,) if kind == CALL else ())}
            needed.append([len(parts), state])
            for part in parts:
                waiting.setdefault(part, []).append((len(needed) - 1, state))
            if not parts:
                found(state)
    while todo:
        for move, owner in waiting.get(todo.pop(), ()):
            needed[move][0] -= 1
            if needed[move][0] == 0:
                found(owner)
    for kind, table in enumerate(result.tables()):
        for moves in table:
            moves[:] = [
                (letter, tail)
                for letter, tail in moves
                if all(productive[part] for part in tail) and (kind != CALL or productive[letter])
            ]


def _drop_idle(result: Pushdown) -> None:
    """Leave states that only accept out of tails."""
    idle = {state for state in range(len(result.reads)) if result.is_idle(state)}
    for table in result.tables():
        for moves in table:
            moves[:] = dict.fromkeys((letter, tuple(s for s in tail if s not in idle)) for letter, tail in moves)


def open_calls(result: Pushdown) -> None:
    """In tails, put what a state calls in its place where it does nothing else: what is read leads to the entry."""
    opened: dict[int, Tail] = {}
    for state in range(len(result.reads)):
        others = result.accepts[state] or result.reads[state] or result.lexemes[state] or result.embeds[state]
        if not others and len(result.calls[state]) == 1 and state not in result.entries:
            entry, tail = result.calls[state][0]
            opened[state] = (entry, *tail)
    for table in result.tables():
        for moves in table:
            moves[:] = dict.fromkeys((letter, _opened(result, opened, tail)) for letter, tail in moves)


def _opened(result: Pushdown, opened: dict[int, Tail], tail: Tail) -> Tail:
    found: Tail = ()
    for state in reversed(tail):
        found = result.joined(opened.get(state, (state,)), found)
    return found


def _merge_equal(result: Pushdown) -> None:
    """Step 3: states with the same moves become the first of them; whoever named the others is looked at again."""
    users: dict[int, set[int]] = {}
    for state in range(len(result.reads)):
        for member in _named(result, state):
            users.setdefault(member, set()).add(state)
    keeper: dict[object, int] = {}
    key_of: dict[int, object] = {}
    todo = deque(range(len(result.reads)))
    queued = set(todo)
    while todo:
        state = todo.popleft()
        queued.discard(state)
        if keeper.get(key_of.get(state)) == state:
            del keeper[key_of[state]]
        key = key_of[state] = _key(result, state)
        kept = keeper.setdefault(key, state)
        if kept == state:
            continue
        for user in users.pop(state, set()) - {state}:
            _rename(result, user, state, kept)
            users.setdefault(kept, set()).add(user)
            if user not in queued:
                queued.add(user)
                todo.append(user)
        _clear(result, state, kept)


def _named(result: Pushdown, state: int) -> set[int]:
    """The states that the moves of `state` name."""
    return {
        member for kind, letter, tail in result.moves(state) for member in (*tail, *((letter,) if kind == CALL else ()))
    }


def _key(result: Pushdown, state: int) -> object:
    if result.accepts[state] is False and not any(table[state] for table in result.tables()):
        return state  # useless, or merged already
    return (
        result.accepts[state],
        state in result.entries,
        result.corners.get(state),
        *(frozenset(table[state]) for table in result.tables()),
    )


def _rename(result: Pushdown, user: int, old: int, new: int) -> None:
    for kind, table in enumerate(result.tables()):
        table[user] = list(
            dict.fromkeys(
                (new if kind == CALL and letter == old else letter, tuple(new if s == old else s for s in tail))
                for letter, tail in table[user]
            )
        )


def _clear(result: Pushdown, state: int, kept: int) -> None:
    for table in result.tables():
        table[state] = []
    result.accepts[state] = False
    result.entries.pop(state, None)
    result.corners.pop(state, None)
    if result.start == state:
        result.start = kept


def set_first(result: Pushdown, lexemes: Sequence[int] = (), embeds: Sequence[int] = ()) -> None:
    """Fill ``first``, given the first bytes of the terminals and of the embedded schemas."""
    first = result.first = [0] * len(result.reads)
    done: set[int] = set()
    for root in range(len(first)):
        stack = [root]
        while stack:
            state = stack[-1]
            missing = [entry for entry, _ in result.calls[state] if entry not in done]
            if missing and state not in done:
                stack.extend(missing)
                continue
            stack.pop()
            done.add(state)
            for mask, _ in result.reads[state]:
                first[state] |= mask
            for terminal, _ in result.lexemes[state]:
                first[state] |= lexemes[terminal]
            for index, _ in result.embeds[state]:
                first[state] |= embeds[index]
            for entry, _ in result.calls[state]:
                first[state] |= first[entry]
