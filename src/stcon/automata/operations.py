"""Boolean operations and questions on `CharDfa`s. Every result is complete and minimal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stcon.automata import charset
from stcon.automata.budget import DEFAULT_MAX_STATES
from stcon.automata.dfa import NUM_CODE_POINTS, CharDfa
from stcon.automata.minimize import minimize, reachable_states
from stcon.errors import TooLarge

Combine = Callable[[tuple[int, ...]], int]


# ----------------------------------------------------------------------------------------------------- construction


def everything() -> CharDfa:
    """Every text."""
    return _uniform(0)


def nothing() -> CharDfa:
    """No text."""
    return _uniform(-1)


def _uniform(label: int) -> CharDfa:
    zero = np.zeros(1, np.int32)
    return CharDfa(zero, zero, np.zeros((1, 1), np.int32), np.full(1, label, np.int32), 0)


def length_between(low: int, high: int | None) -> CharDfa:
    """The texts of `low` to `high` code points (None: or more). Cost: one state for each length up to a bound."""
    top = max(low, 0) if high is None else high + 1
    if high is not None and high < max(low, 0):
        return nothing()
    delta = np.minimum(np.arange(1, top + 2), top).astype(np.int32).reshape(-1, 1)
    labels = np.full(top + 1, -1, np.int32)
    labels[max(low, 0) : None if high is None else high + 1] = 0
    zero = np.zeros(1, np.int32)
    return CharDfa(zero, zero, delta, labels, 0)


def literals(strings: Iterable[str] | Mapping[str, int]) -> CharDfa:
    """Exactly these strings, each with its label (0 where none is given).

    Built minimal at once, from the sorted strings, so a trie never exists as a whole.

    Cost: O(characters) interpreter steps, then states × distinct characters × 4 bytes for the table.
    Source: J. Daciuk et al., Incremental construction of minimal acyclic finite-state automata (2000), algorithm 1.
    """
    label_of = strings if isinstance(strings, Mapping) else dict.fromkeys(strings, 0)
    builder = _LiteralBuilder()
    for text in sorted(label_of):
        builder.add(text, label_of[text])
    rows, labels, root = builder.finish()
    characters = sorted({c for row in rows for c, _ in row})
    starts, classes, sets = charset.partition([charset.single(ord(c)) for c in characters])
    class_of = {characters[s.bit_length() - 1]: k for k, s in enumerate(sets) if s}
    sink = len(rows)
    delta = np.full((sink + 1, len(sets)), sink, np.int32)
    sources = [q for q, row in enumerate(rows) for _ in row]
    columns = [class_of[c] for row in rows for c, _ in row]
    delta[sources, columns] = [target for row in rows for _, target in row]
    dfa = CharDfa(
        np.array(starts, np.int32), np.array(classes, np.int32), delta, np.array([*labels, -1], np.int32), root
    )
    return dfa if characters else minimize(dfa)


class _LiteralBuilder:
    """Sorted strings to a minimal acyclic automaton: the path of the last string is open, all else is hash-consed."""

    def __init__(self) -> None:
        self.register: dict[tuple[object, ...], int] = {}
        self.rows: list[tuple[tuple[str, int], ...]] = []
        self.labels: list[int] = []
        self.previous = ""
        # open states, root first: finished edges and label; the edge to the next open state is in `previous`
        self.open_edges: list[list[tuple[str, int]]] = [[]]
        self.open_labels: list[int] = [-1]

    def add(self, text: str, label: int) -> None:
        common = 0
        limit = min(len(text), len(self.previous))
        while common < limit and text[common] == self.previous[common]:
            common += 1
        self._close_to(common)
        for _ in text[common:]:
            self.open_edges.append([])
            self.open_labels.append(-1)
        self.open_labels[-1] = label
        self.previous = text

    def finish(self) -> tuple[list[tuple[tuple[str, int], ...]], list[int], int]:
        """(rows of edges, labels, root)."""
        self._close_to(0)
        return self.rows, self.labels, self._intern()

    def _close_to(self, depth: int) -> None:
        while len(self.open_edges) > depth + 1:
            state = self._intern()
            self.open_edges[-1].append((self.previous[len(self.open_edges) - 1], state))

    def _intern(self) -> int:
        """The number of the deepest open state, which is closed."""
        row, label = tuple(self.open_edges.pop()), self.open_labels.pop()
        state = self.register.setdefault((label, row), len(self.rows))
        if state == len(self.rows):
            self.rows.append(row)
            self.labels.append(label)
        return state


# ----------------------------------------------------------------------------------------------------- operations


def product(dfas: Sequence[CharDfa], combine: Combine, *, max_states: int = DEFAULT_MAX_STATES) -> CharDfa:
    """The DFA that reads a text with every one of `dfas` and labels it with `combine` of their labels.

    Args:
        dfas: at least one.
        combine: maps the tuple of labels (-1: rejected) to a label or -1; called once for each distinct tuple.
        max_states: limit on the reachable tuples of states.

    Raises:
        TooLarge: more than `max_states` tuples of states are reachable.

    Cost: reachable tuples × refined classes.
    """
    starts, classes, columns = _refine_classes(dfas)
    tables = [dfa.delta[:, column].tolist() for dfa, column in zip(dfas, columns, strict=True)]
    first = tuple(dfa.start for dfa in dfas)
    number = {first: 0}
    order = [first]
    delta: list[list[int]] = []
    for states in order:
        row = []
        for target in zip(*[table[q] for table, q in zip(tables, states, strict=True)], strict=True):
            state = number.get(target)
            if state is None:
                state = number[target] = len(order)
                order.append(target)
            row.append(state)
        delta.append(row)
        if len(order) > max_states:
            raise TooLarge("states of a product of automata", given=len(order), limit=max_states)
    label_lists = [dfa.labels.tolist() for dfa in dfas]
    known: dict[tuple[int, ...], int] = {}
    labels = []
    for states in order:
        key = tuple([column[q] for column, q in zip(label_lists, states, strict=True)])
        if key not in known:
            known[key] = combine(key)
        labels.append(known[key])
    return minimize(CharDfa(starts, classes, np.array(delta, np.int32), np.array(labels, np.int32), 0))


def _refine_classes(
    dfas: Sequence[CharDfa],
) -> tuple[NDArray[np.int32], NDArray[np.int32], list[NDArray[np.int32]]]:
    """(starts, classes, columns): the common refinement; its class k is class ``columns[i][k]`` of DFA i."""
    starts = np.unique(np.concatenate([dfa.starts for dfa in dfas]))
    own = [dfa.classes[np.searchsorted(dfa.starts, starts, side="right") - 1] for dfa in dfas]
    number: dict[tuple[int, ...], int] = {}
    classes = [number.setdefault(key, len(number)) for key in zip(*[c.tolist() for c in own], strict=True)]
    columns = [np.array(column, np.int32) for column in zip(*number, strict=True)]
    return starts.astype(np.int32), np.array(classes, np.int32), columns


def complement(dfa: CharDfa) -> CharDfa:
    """The texts that `dfa` rejects, with label 0."""
    return minimize(
        CharDfa(dfa.starts, dfa.classes, dfa.delta, np.where(dfa.labels < 0, 0, -1).astype(np.int32), dfa.start)
    )


def union(*dfas: CharDfa, max_states: int = DEFAULT_MAX_STATES) -> CharDfa:
    """The texts that any of `dfas` accepts, with label 0."""
    return product(dfas, lambda labels: 0 if max(labels) >= 0 else -1, max_states=max_states) if dfas else nothing()


def intersection(*dfas: CharDfa, max_states: int = DEFAULT_MAX_STATES) -> CharDfa:
    """The texts that all of `dfas` accept, with label 0."""
    return product(dfas, lambda labels: 0 if min(labels) >= 0 else -1, max_states=max_states) if dfas else everything()


def difference(a: CharDfa, b: CharDfa, *, max_states: int = DEFAULT_MAX_STATES) -> CharDfa:
    """The texts that `a` accepts and `b` rejects, with label 0."""
    return product([a, b], lambda labels: 0 if labels[0] >= 0 > labels[1] else -1, max_states=max_states)


# ----------------------------------------------------------------------------------------------------- questions


def accepts(dfa: CharDfa, text: str) -> int:
    """The label of `text`, or -1."""
    state = dfa.start
    for character in text:
        interval = int(np.searchsorted(dfa.starts, ord(character), side="right")) - 1
        state = int(dfa.delta[state, dfa.classes[interval]])
    return int(dfa.labels[state])


def equivalent(a: CharDfa, b: CharDfa) -> bool:
    """Whether both give every text the same label."""
    return is_empty(product([a, b], lambda labels: -1 if labels[0] == labels[1] else 0, max_states=1 << 30))


def is_empty(dfa: CharDfa) -> bool:
    """Whether no text is accepted."""
    return not labels_reachable(dfa)


def labels_reachable(dfa: CharDfa) -> set[int]:
    """The labels that some text gets, -1 left out."""
    labels = dfa.labels[reachable_states(dfa)]
    return {int(label) for label in np.unique(labels[labels >= 0])}


def shortest_word(dfa: CharDfa, label: int | None = None) -> str | None:
    """A shortest accepted text (with that label, if one is given), readable where it can be; None if there is none.

    Cost: O(Q·K).
    """
    rows = dfa.delta.tolist()
    labels = dfa.labels.tolist()

    def wanted(state: int) -> bool:
        return bool(labels[state] >= 0 and label in (None, labels[state]))

    came: dict[int, tuple[int, int]] = {}
    order = [dfa.start]
    seen = {dfa.start}
    representatives = class_representatives(dfa)
    ranked = sorted(range(len(representatives)), key=lambda k: _readability(representatives[k]))
    for state in order:
        if wanted(state):
            return _trace(came, state, representatives)
        for k in ranked:
            target = rows[state][k]
            if target not in seen:
                seen.add(target)
                came[target] = (state, k)
                order.append(target)
    return None


def _trace(came: dict[int, tuple[int, int]], state: int, representatives: list[int]) -> str:
    """The text that leads to `state`; `came` maps a state to the one before it and the class between them."""
    text = []
    while state in came:
        state, k = came[state]
        text.append(chr(representatives[k]))
    return "".join(reversed(text))


def class_representatives(dfa: CharDfa) -> list[int]:
    """A code point of each class, the most readable one."""
    best: dict[int, int] = {}
    for low, high, k in intervals(dfa):
        for favourite in (ord("a"), ord("A"), ord("0"), ord("!"), 0xE000, low):
            if low <= favourite < high and (k not in best or _readability(favourite) < _readability(best[k])):
                best[k] = favourite
    return [best[k] for k in range(dfa.num_classes)]


def _readability(code_point: int) -> tuple[bool, bool, int]:
    """Sorts letters and digits first, then printable ASCII, then scalar values, then lone surrogates."""
    character = chr(code_point)
    is_surrogate = 0xD800 <= code_point < 0xE000
    order = 0 if character.islower() else 1 if character.isalnum() else 2
    return is_surrogate, not (character.isascii() and character.isprintable()), order << 21 | code_point


def intervals(dfa: CharDfa) -> list[tuple[int, int, int]]:
    """(low, high, class) of every interval, half-open."""
    starts = dfa.starts.tolist()
    return list(zip(starts, [*starts[1:], NUM_CODE_POINTS], dfa.classes.tolist(), strict=True))


def count_words(dfa: CharDfa, cap: int) -> int:
    """How many texts are accepted, `cap` if that many or more.

    Cost: O(Q·K) big-integer steps.
    """
    sizes = [0] * dfa.num_classes
    for low, high, k in intervals(dfa):
        sizes[k] += high - low
    rows = dfa.delta.tolist()
    live = live_states(rows, dfa.labels.tolist())
    if dfa.start not in live:
        return 0
    edges = {q: [(target, sizes[k]) for k, target in enumerate(rows[q]) if target in live] for q in live}
    order = _topological(edges, dfa.start)
    if order is None:
        return cap
    count: dict[int, int] = {}
    for state in reversed(order):
        total = sum(size * count[target] for target, size in edges[state])
        count[state] = min(cap, total + int(dfa.labels[state] >= 0))
    return count[dfa.start]


def live_states(rows: list[list[int]], labels: list[int]) -> set[int]:
    """The states from which some text is accepted."""
    before: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row):
            before[target].append(state)
    order = [state for state, label in enumerate(labels) if label >= 0]
    live = set(order)
    for state in order:
        for source in before[state]:
            if source not in live:
                live.add(source)
                order.append(source)
    return live


def _topological(edges: dict[int, list[tuple[int, int]]], start: int) -> list[int] | None:
    """The states reachable from `start`, each before its successors; None if there is a cycle."""
    order: list[int] = []
    entered: set[int] = set()
    done: set[int] = set()
    stack = [start]
    while stack:
        state = stack[-1]
        if state not in entered:
            entered.add(state)
            for target, _ in edges[state]:
                if target not in entered:
                    stack.append(target)
                elif target not in done:
                    return None
        else:
            stack.pop()
            if state not in done:
                done.add(state)
                order.append(state)
    order.reverse()
    return order
