"""A machine as a Graphviz graph, for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from stcon.grammar.machine import COUNT, DEAD, RESET, UNBOUNDED, Machine

DEFAULT_MAX_STATES = 200


def to_dot(machine: Machine, *, max_states: int = DEFAULT_MAX_STATES) -> str:
    """`machine` in Graphviz' language.

    Bytes with the same edge share an arrow. A dashed arrow is a call: ``↓ r3`` says that it pushes return symbol 3; the
    box of r3 leads to where it continues, by label. A double circle accepts, with its label; ``n := 0`` and ``n + 1``
    are what entering does to the counter, and its interval follows.

    Args:
        machine: rows of the states drawn are built.
        max_states: only the first so many states, nearest the start, are drawn.
    """
    states = _nearest(machine, max_states)
    lines = [
        "digraph machine {",
        "  rankdir=LR; node [shape=circle];",
        f'  start [shape=point]; start -> "{machine.start}";',
    ]
    symbols: set[int] = set()
    for state in states:
        lines.append(f'  "{state}" [{_node(machine, state)}];')
        for (target, pushed), text in _arrows(machine, state).items():
            symbols.update(pushed)
            label = " ".join([text, *(f"↓ r{symbol}" for symbol in pushed)])
            style = ", style=dashed" if pushed else ""
            if target in states:
                lines.append(f'  "{state}" -> "{target}" [label="{label}"{style}];')
    for symbol in sorted(symbols):
        lines.append(f'  "r{symbol}" [shape=box];')
        for outcome, target in enumerate(machine.resume_targets(symbol)):
            if target in states:
                lines.append(f'  "r{symbol}" -> "{target}" [label="{outcome}", style=dotted];')
    if len(states) < machine.num_states:
        lines.append(f'  note [shape=note, label="{machine.num_states - len(states)} more states"];')
    return "\n".join([*lines, "}"]) + "\n"


def _nearest(machine: Machine, limit: int) -> dict[int, None]:
    """The first `limit` states by distance from the start, a return counting as one step; in that order."""
    found = {machine.start: None}
    queue = deque(found)
    while queue and len(found) < limit:
        state = queue.popleft()
        following: list[int] = []
        for edge in np.unique(machine.row(state)).tolist():
            if edge != DEAD:
                target, symbols = machine.decode(edge)
                following.append(target)
                following.extend(t for symbol in symbols for t in machine.resume_targets(symbol) if t != DEAD)
        for target in following:
            if target not in found and len(found) < limit:
                found[target] = None
                queue.append(target)
    return found


def _arrows(machine: Machine, state: int) -> dict[tuple[int, tuple[int, ...]], str]:
    """(target, symbols pushed) → its bytes as text."""
    row = machine.row(state)[machine.byte_class]
    return {
        machine.decode(edge): byte_ranges(np.flatnonzero(row == edge).tolist())
        for edge in np.unique(row).tolist()
        if edge != DEAD
    }


def _node(machine: Machine, state: int) -> str:
    effect, low, high = machine.bounds(state)
    parts = [str(state)]
    if (accepted := machine.label(state)) >= 0:
        parts.append(f"label {accepted}")
    if effect:
        parts.append({RESET: "n := 0", COUNT: "n + 1"}[effect])
    if (low, high) != (0, UNBOUNDED):
        parts.append(f"{low} ≤ n" + ("" if high == UNBOUNDED else f" ≤ {high}"))
    shape = ", shape=doublecircle" if accepted >= 0 else ""
    text = "\\n".join(parts)
    return f'label="{text}"{shape}'


def byte_ranges(values: Iterable[int]) -> str:
    """Ascending bytes as ranges, for a quoted Graphviz string: ``a–z 0x80–0xBF``."""
    ranges: list[tuple[int, int]] = []
    for value in values:
        if ranges and ranges[-1][1] == value - 1:
            ranges[-1] = (ranges[-1][0], value)
        else:
            ranges.append((value, value))
    return " ".join(_byte(a) if a == b else f"{_byte(a)}–{_byte(b)}" for a, b in ranges)


def _byte(value: int) -> str:
    if value in b'"\\':
        return "\\" + chr(value)
    return chr(value) if 0x20 < value < 0x7F else f"0x{value:02X}"
