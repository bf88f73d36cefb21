"""The forms in which a builder describes the row of a state before the machine has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Edges = dict[int, int]
Entries = tuple[tuple[bytes, int], ...]


class CallRow(NamedTuple):
    """The row of the state `callee`, called with a return to `symbol`, but for the bytes in `edges`.

    Without a symbol it is not called: the row is the same.
    """

    callee: int
    symbol: int | None
    edges: Edges


Row = Edges | CallRow


def branches(entries: Entries, depth: int) -> Mapping[int, Entries]:
    """(text, target) entries that agree on their first `depth` bytes, grouped by the next one."""
    groups: dict[int, list[tuple[bytes, int]]] = {}
    for entry in entries:
        groups.setdefault(entry[0][depth], []).append(entry)
    return {byte: tuple(group) for byte, group in groups.items()}
