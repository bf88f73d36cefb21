"""Rules without recursion become minimal automata over bytes, where these are small.

A rule whose calls lead to no recursion is determinised with every call inlined (`Frames` without calls) and minimised;
its states then read bytes alone. This is only for size and speed: what is too large stays as it is.
"""

from __future__ import annotations

import numpy as np

from stcon.automata import CharDfa, minimize
from stcon.automata.operations import live_states
from stcon.grammar.cfg.frames import Frames, Refusal, Task, blocks
from stcon.grammar.cfg.leftrec import strongly_connected
from stcon.grammar.cfg.lexer import Lexer
from stcon.grammar.cfg.pushdown import Pushdown

MAX_STATES = 1_500


def collapse(pushdown: Pushdown, lexer: Lexer) -> None:
    """Replace the moves of every entry that is not recursive by those of its minimal automaton."""
    graph = call_graph(pushdown)
    collapsed: set[int] = set()
    for part in strongly_connected({entry: sorted(graph[entry]) for entry in graph}):
        entry = part[0]
        is_simple = len(part) == 1 and entry not in graph[entry] and graph[entry] <= collapsed
        if is_simple and _collapse(pushdown, lexer, entry):
            collapsed.add(entry)


def call_graph(pushdown: Pushdown) -> dict[int, set[int]]:
    """Entry → the entries that are called in its body, for entries reachable from the start."""
    graph: dict[int, set[int]] = {}
    todo = [pushdown.start]
    while todo:
        entry = todo.pop()
        if entry not in graph:
            graph[entry] = call_graph_of(pushdown, entry)
            todo.extend(graph[entry])
    return graph


def call_graph_of(pushdown: Pushdown, entry: int) -> set[int]:
    """The entries that are called in the body of `entry`."""
    return {callee for state in body(pushdown, entry) for callee, _ in callees(pushdown, state)}


def callees(pushdown: Pushdown, state: int) -> list[tuple[int, bool]]:
    """The entries that the moves of `state` lead to, and whether something is left on the stack below them."""
    found = [(callee, bool(tail)) for callee, tail in pushdown.calls[state]]
    for _, _, tail in pushdown.moves(state):
        found.extend((s, index + 1 < len(tail)) for index, s in enumerate(tail) if s in pushdown.entries)
    return found


def body(pushdown: Pushdown, entry: int) -> list[int]:
    """The states of the rule of `entry`: those that its moves lead to, other entries left out."""
    found, seen = [entry], {entry}
    for state in found:
        for _, _, tail in pushdown.moves(state):
            for member in tail:
                if member not in seen and member not in pushdown.entries:
                    seen.add(member)
                    found.append(member)
    return found


def _collapse(pushdown: Pushdown, lexer: Lexer, entry: int) -> bool:
    """Whether `entry`, which calls only what was collapsed, reads bytes alone and is small; then it is replaced."""
    if any(pushdown.lexemes[state] or pushdown.embeds[state] for state in body(pushdown, entry)):
        return False
    try:
        dfa = _determinized(pushdown, lexer, entry)
    except Refusal:
        return False
    masks = [0] * dfa.num_classes
    bounds = [*dfa.starts.tolist(), 256]
    for k, low, high in zip(dfa.classes.tolist(), bounds, bounds[1:], strict=False):
        masks[k] |= (1 << min(high, 256)) - (1 << min(low, 256))
    rows, labels = dfa.delta.tolist(), dfa.labels.tolist()
    live = live_states(rows, labels)
    if dfa.start not in live:  # the start rule has at most the empty text
        return True
    origin = pushdown.origins[entry]
    # the start's moves are the entry's own; it gets a second state if it can be come back to
    number = {state: pushdown.new_state(origin) for state in sorted(live)}
    for state in sorted(live):
        moves: dict[int, int] = {}
        for k, target in enumerate(rows[state]):
            if target in live:
                moves[target] = moves.get(target, 0) | masks[k]
        here = number[state]
        pushdown.accepts[here] = labels[state] >= 0
        pushdown.reads[here] = [
            (mask, () if _is_idle(rows[target], live) else (number[target],)) for target, mask in moves.items() if mask
        ]
    pushdown.reads[entry] = list(pushdown.reads[number[dfa.start]])
    pushdown.calls[entry] = []
    return True


def _is_idle(row: list[int], live: set[int]) -> bool:
    """Whether nothing can follow (in a live state, which then accepts)."""
    return not any(target in live for target in row)


def _determinized(pushdown: Pushdown, lexer: Lexer, entry: int) -> CharDfa:
    """The minimal DFA of an entry, its bytes taken for code points. Raises `Refusal`."""
    frames = Frames(Task(pushdown, lexer, [], []), frozenset(), frozenset(), MAX_STATES, entry=entry)
    state = 0
    while state < len(frames.items):
        frames.row(state)
        state += 1
    count = len(frames.items)
    parts = blocks({mask for state in range(count) for mask, _ in frames.row(state)})
    class_of = {}
    for k, part in enumerate(parts):
        for byte in range(256):
            if part >> byte & 1:
                class_of[byte] = k
    dead_class = len(parts)
    delta = np.full((count + 1, dead_class + 1), count, np.int32)
    for state in range(count):
        for mask, (target, _) in frames.row(state):
            for k, part in enumerate(parts):
                if part & mask:
                    delta[state, k] = target
    classes = [class_of.get(byte, dead_class) for byte in range(256)] + [dead_class]
    labels = np.array([*frames.labels, -1], np.int32)
    return minimize(CharDfa(np.arange(257, dtype=np.int32), np.array(classes, np.int32), delta, labels, frames.start))
