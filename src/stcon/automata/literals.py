"""Finite sets of strings as minimal DFAs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from stcon.automata import charset
from stcon.automata.dfa import CharDfa
from stcon.automata.minimize import minimize


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
    return minimize(dfa) if len(characters) == 0 else dfa


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
