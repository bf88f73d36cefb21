"""Boolean operations and questions on `CharDfa`s. Every result is complete and minimal."""

from __future__ import annotations

import numpy as np

from stcon.automata.budget import DEFAULT_MAX_STATES
from stcon.automata.dfa import NUM_CODE_POINTS, CharDfa
from stcon.automata.literals import literals
from stcon.automata.minimize import merge_classes, minimize, reachable_states
from stcon.automata.product import product

__all__ = [
    "accepts",
    "class_representatives",
    "complement",
    "count_words",
    "difference",
    "equivalent",
    "everything",
    "intersection",
    "intervals",
    "is_empty",
    "labels_reachable",
    "length_between",
    "literals",
    "live_states",
    "minimize",
    "nothing",
    "product",
    "shortest_word",
    "union",
]


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


# ----------------------------------------------------------------------------------------------------- operations


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
    points = np.fromiter(map(ord, text), np.int32, len(text))
    state = dfa.start
    for k in dfa.classes[np.searchsorted(dfa.starts, points, side="right") - 1].tolist():
        state = dfa.delta[state, k]
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
    dfa = merge_classes(dfa)
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
    """A code point of each class, the most readable one. Every class must have one."""
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
    dfa = merge_classes(dfa)
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
