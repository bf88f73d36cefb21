r"""From code points to bytes: UTF-8, and the inside of a JSON string.

How one character is spelled is a small directed graph over bytes whose leaves are classes of code points; it depends on
the DFA's classes only, so it is made once. Each state of the `CharDfa` then instantiates the graph with its own row of
targets; equal instances are one state, whichever state of the DFA or node of the graph they come from.

Source: RFC 3629, section 4 (UTF-8); RFC 8259, section 7 (strings).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stcon.automata.dfa import NUM_CODE_POINTS, ByteDfa, CharDfa
from stcon.automata.minimize import minimize
from stcon.automata.operations import intervals

Escapes = Literal["minimal", "any"]
# A node of the spelling graph: (byte, child) pairs, ascending. A child ≥ 0 is a node, a child ~k is class k.
Node = tuple[tuple[int, int], ...]
# (byte class, state) pairs, ascending.
Edges = tuple[tuple[int, int], ...]
# Numbers [low, high) and the child that they lead to, ascending.
Pieces = list[tuple[int, int, int]]
# Digit → the bytes that spell it.
Digits = tuple[tuple[int, ...], ...]

_begin, _end = itemgetter(0), itemgetter(1)
_QUOTE, _BACKSLASH = 0x22, 0x5C
_SHORT_ESCAPES = {ord("b"): 0x08, ord("t"): 0x09, ord("n"): 0x0A, ord("f"): 0x0C, ord("r"): 0x0D}
_NOWHERE = np.iinfo(np.int32).min
_CONTINUATION: Digits = tuple((0x80 + digit,) for digit in range(64))
_HEXADECIMAL: Digits = tuple(tuple(sorted({*b"%x" % digit, *b"%X" % digit})) for digit in range(16))


def encode_utf8(dfa: CharDfa) -> ByteDfa:
    """The UTF-8 encodings of the texts of `dfa`; texts with a surrogate have none.

    Cost: a few microseconds for each state and each edge that its encoding adds.
    """
    dfa = _without_surrogates(dfa)
    spelling = _Spelling(dfa)
    root = spelling.utf8()
    return _Instances(dfa, spelling, root, quote=False).build()


def encode_json_string(dfa: CharDfa, *, escapes: Escapes = "minimal") -> ByteDfa:
    r"""What may follow the opening quote of a JSON string whose value is a text of `dfa`, closing quote included.

    Args:
        dfa: the values.
        escapes: "minimal": only ``"``, ``\`` and U+0000–001F are escaped, in the short form where there is one;
            "any": also ``\/`` and ``\uXXXX`` for any character, surrogate pairs included.

    Returns:
        A DFA whose states after the closing quote accept with the label that `dfa` gives the value.

    Cost: as `encode_utf8`.
    """
    dfa = _without_surrogates(dfa)
    spelling = _Spelling(dfa)
    root = spelling.json(escapes)
    return _Instances(dfa, spelling, root, quote=True).build()


def byte_accepts(dfa: ByteDfa, data: bytes) -> int:
    """The label of `data`, or -1."""
    state = byte_run(dfa, data)
    return -1 if state is None else int(dfa.labels[state])


def byte_run(dfa: ByteDfa, data: bytes) -> int | None:
    """The state after `data`; None if it has no path."""
    state = dfa.start
    for byte in data:
        state = int(dfa.delta[state, dfa.byte_class[byte]])
        if state < 0:
            return None
    return state


def _without_surrogates(dfa: CharDfa) -> CharDfa:
    """A minimal DFA that agrees with `dfa` on every text without surrogates.

    Surrogates take a class that other code points have, so they tell no states apart.
    """
    pieces: list[tuple[int, int, int]] = []
    for low, high, k in intervals(dfa):
        pieces.extend(p for p in ((low, min(high, 0xD800), k), (max(low, 0xE000), high, k)) if p[0] < p[1])
    inside = next(k for low, high, k in pieces if low <= 0xD7FF < high)
    pieces = sorted([*pieces, (0xD800, 0xE000, inside)])
    used = sorted({k for _, _, k in pieces})
    renumber = {k: i for i, k in enumerate(used)}
    return minimize(
        CharDfa(
            np.array([low for low, _, _ in pieces], np.int32),
            np.array([renumber[k] for _, _, k in pieces], np.int32),
            dfa.delta[:, used],
            dfa.labels,
            dfa.start,
        )
    )


class _Spelling:
    """The spelling graph of a DFA's classes, nodes hash-consed; children are made before their parents.

    Attributes:
        nodes: the graph.
        under: node → the classes of its leaves, ascending.
    """

    def __init__(self, dfa: CharDfa) -> None:
        self.nodes: list[Node] = []
        self.under: list[tuple[int, ...]] = []
        self._number: dict[Node, int] = {}
        self._uniform: dict[tuple[int, int, int], int] = {}
        scalars = [(low, high, ~k) for low, high, k in intervals(dfa)]
        self.pieces = [*_clip(scalars, 0, 0xD800), *_clip(scalars, 0xE000, NUM_CODE_POINTS)]

    def node(self, edges: dict[int, int]) -> int:
        """The node with these edges (byte → child)."""
        key = tuple(sorted(edges.items()))
        found = self._number.setdefault(key, len(self.nodes))
        if found == len(self.nodes):
            self.nodes.append(key)
            classes: set[int] = set()
            for child in set(edges.values()):
                classes.update([~child] if child < 0 else self.under[child])
            self.under.append(tuple(sorted(classes)))
        return found

    def utf8(self) -> int:
        """The node that reads the UTF-8 encoding of one code point."""
        return self.node(self._utf8_edges(0))

    def json(self, escapes: Escapes) -> int:
        """The node that reads one character inside a JSON string."""
        edges = self._utf8_edges(0x20)
        del edges[_QUOTE]
        edges[_BACKSLASH] = self.node(self._after_backslash(escapes))
        return self.node(edges)

    def _utf8_edges(self, first: int) -> dict[int, int]:
        edges = {c: child for low, high, child in _clip(self.pieces, first, 0x80) for c in range(low, high)}
        for lead, rest, low, high in _leads():
            size = 64**rest
            base = (lead & (0x3F >> rest)) * size
            inside = _clip(self.pieces, max(base, low), min(base + size, high))
            edges[lead] = self._number_node(inside, base, rest, _CONTINUATION)
        return edges

    def _after_backslash(self, escapes: Escapes) -> dict[int, int]:
        spelled = {_QUOTE: _QUOTE, _BACKSLASH: _BACKSLASH} | _SHORT_ESCAPES
        if escapes == "any":
            spelled[ord("/")] = ord("/")
            units = _merged(sorted([*_clip(self.pieces, 0, 0x10000), *self._high_surrogates()]))
        else:
            controls = _clip(self.pieces, 0, 0x20)
            units = [(c, c + 1, child) for low, high, child in controls for c in range(low, high)]
            units = [unit for unit in units if unit[0] not in _SHORT_ESCAPES.values()]
        edges = {byte: _clip(self.pieces, c, c + 1)[0][2] for byte, c in spelled.items()}
        edges[ord("u")] = self._number_node(units, 0, 4, _HEXADECIMAL)
        return edges

    def _high_surrogates(self) -> Pieces:
        """Each high surrogate with the node that reads the low surrogate after it."""
        result = []
        known: dict[tuple[tuple[int, int, int], ...], int] = {}
        astral = _clip(self.pieces, 0x10000, NUM_CODE_POINTS)
        for index, inside in _cut(astral, 0x10000, 0x400, 0x400):
            base = 0x10000 + 0x400 * index
            low_units = tuple([(0xDC00 + low - base, 0xDC00 + high - base, child) for low, high, child in inside])
            if low_units not in known:
                digits = self._number_node(list(low_units), 0, 4, _HEXADECIMAL)
                known[low_units] = self.node({_BACKSLASH: self.node({ord("u"): digits})})
            result.append((0xD800 + index, 0xD801 + index, known[low_units]))
        return result

    def _number_node(self, pieces: Pieces, base: int, rest: int, digits: Digits) -> int:
        """The node that reads a number's last `rest` digits.

        Args:
            pieces: the numbers that exist, ascending, and the child that each leads to; at least one.
            base: the value of the digits read so far.
            digits: digit → its bytes.
        """
        if rest == 0:
            return pieces[0][2]
        step = len(digits) ** (rest - 1)
        low, high, child = pieces[0]
        if (low, high) == (base, base + step * len(digits)):
            return self._uniform_node(child, rest, digits)
        edges: dict[int, int] = {}
        cut: dict[int, Pieces] = {}  # blocks that more than one piece, or none, reaches into
        for low, high, child in pieces:
            begin, end = -((base - low) // step), (high - base) // step  # the blocks that are the piece's alone
            if begin < end:
                whole = self._uniform_node(child, rest - 1, digits)
                for index in range(begin, end):
                    edges.update(dict.fromkeys(digits[index], whole))
            first, last = (low - base) // step, (high - 1 - base) // step
            if first < begin:
                cut.setdefault(first, []).append((low, min(high, base + (first + 1) * step), child))
            if last >= end and (last != first or first >= begin):
                cut.setdefault(last, []).append((max(low, base + last * step), high, child))
        for index, inside in cut.items():
            edges.update(dict.fromkeys(digits[index], self._number_node(inside, base + index * step, rest - 1, digits)))
        return self.node(edges)

    def _uniform_node(self, child: int, rest: int, digits: Digits) -> int:
        """The node that reads `rest` digits, whichever they are, and leads to `child`."""
        if rest == 0:
            return child
        key = (child, rest, len(digits))
        found = self._uniform.get(key)
        if found is None:
            below = self._uniform_node(child, rest - 1, digits)
            found = self._uniform[key] = self.node({byte: below for spelled in digits for byte in spelled})
        return found


def _leads() -> Iterator[tuple[int, int, int, int]]:
    """(lead byte, continuation bytes, least and past-the-greatest code point of that length)."""
    for lead in range(0xC2, 0xE0):
        yield lead, 1, 0x80, 0x800
    for lead in range(0xE0, 0xF0):
        yield lead, 2, 0x800, 0x10000
    for lead in range(0xF0, 0xF5):
        yield lead, 3, 0x10000, NUM_CODE_POINTS


def _clip(pieces: Pieces, low: int, high: int) -> Pieces:
    """The parts of `pieces` inside [low, high). Cost: logarithmic in the pieces, and linear in the answer."""
    first = bisect_right(pieces, low, key=_end)
    last = bisect_left(pieces, high, lo=first, key=_begin)
    return [(max(a, low), min(b, high), child) for a, b, child in pieces[first:last]]


def _merged(pieces: Pieces) -> Pieces:
    """`pieces` with neighbours of one child joined."""
    result: Pieces = []
    for low, high, child in pieces:
        if result and result[-1][1:] == (low, child):
            result[-1] = (result[-1][0], high, child)
        else:
            result.append((low, high, child))
    return result


def _cut(pieces: Pieces, base: int, step: int, count: int) -> Iterator[tuple[int, Pieces]]:
    """The non-empty ones of `count` blocks of `step` numbers from `base` on. Cost: linear in blocks and pieces."""
    at = 0
    for index in range(count):
        low = base + index * step
        high = low + step
        while at < len(pieces) and pieces[at][1] <= low:
            at += 1
        inside = []
        look = at
        while look < len(pieces) and pieces[look][0] < high:
            a, b, child = pieces[look]
            inside.append((max(a, low), min(b, high), child))
            look += 1
        if inside:
            yield index, inside


def _table(nodes: list[Node]) -> NDArray[np.int32]:
    """int32[nodes, 256]: the child on each byte, `_NOWHERE` where there is none."""
    table = np.full((len(nodes), 256), _NOWHERE, np.int32)
    for row, edges in zip(table, nodes, strict=True):
        byte, child = zip(*edges, strict=True)
        row[list(byte)] = child
    return table


def _byte_classes(table: NDArray[np.int32]) -> list[int]:
    """Byte → class: bytes that every node treats alike; the quote is always alone."""
    number: dict[bytes, int] = {}
    columns = [column.tobytes() for column in np.ascontiguousarray(table.T)]
    columns[_QUOTE] = b""
    return [number.setdefault(column, len(number)) for column in columns]


class _Instances:
    """The byte states: first one for each live state of the DFA, then final states, then instances of spelling nodes.

    Instances are hash-consed by their edges, so no two are equivalent as no two states of the DFA are.
    """

    def __init__(self, dfa: CharDfa, spelling: _Spelling, root: int, *, quote: bool) -> None:
        self.dfa = dfa
        self.root = root
        self.quote = quote
        self.under = spelling.under
        table = _table(spelling.nodes)
        self.byte_class = _byte_classes(table)
        representative = [self.byte_class.index(k) for k in range(self.num_classes)]
        # node → (byte class, child) pairs
        self.nodes = [
            [(k, child) for k, child in enumerate(row) if child != _NOWHERE]
            for row in table[:, representative].tolist()
        ]
        # node → (byte class, child, the child's classes as places among the node's own)
        self.links = [self._links(node) for node in range(len(self.nodes))]
        self.rows: list[Edges] = []
        self.number: dict[Edges, int] = {}
        self.known: dict[tuple[int, tuple[int, ...]], int] = {}

    def _links(self, node: int) -> list[tuple[int, int, tuple[int, ...]]]:
        place = {k: index for index, k in enumerate(self.under[node])}
        return [
            (byte_class, child, (place[~child],) if child < 0 else tuple([place[k] for k in self.under[child]]))
            for byte_class, child in self.nodes[node]
        ]

    def build(self) -> ByteDfa:
        """The byte DFA; one state without edges if nothing is accepted."""
        live = _live_in_minimal(self.dfa)
        num_live = int(live.sum())
        if not live[self.dfa.start]:
            return self._to_dfa(np.full((1, self.num_classes), -1, np.int32), [-1], 1, 0)
        number = np.where(live, np.cumsum(live) - 1, -1).astype(np.int32)
        targets = number[self.dfa.delta[live]]
        char_labels = self.dfa.labels[live]
        ends = np.unique(char_labels[char_labels >= 0]) if self.quote else np.zeros(0, np.int32)
        self.first = num_live + len(ends)
        top = np.full((self.first, self.num_classes), -1, np.int32)
        for byte_class, child in self.nodes[self.root]:
            top[:num_live, byte_class] = targets[:, ~child] if child < 0 else self._column(child, targets)
        labels = char_labels.tolist()
        if self.quote:
            accepting = np.flatnonzero(char_labels >= 0)
            top[accepting, self.byte_class[_QUOTE]] = num_live + np.searchsorted(ends, char_labels[accepting])
            labels = [-1] * num_live + ends.tolist()
        delta = np.concatenate([top, self._instance_rows()])
        return self._to_dfa(delta, labels + [-1] * len(self.rows), self.first, int(number[self.dfa.start]))

    @property
    def num_classes(self) -> int:
        """Byte classes."""
        return max(self.byte_class) + 1

    def _column(self, node: int, targets: NDArray[np.int32]) -> NDArray[np.int32]:
        """For each live state, the instance of `node`."""
        column = np.full(len(targets), -1, np.int32)
        inside = targets[:, self.under[node]]
        states = np.flatnonzero((inside >= 0).any(axis=1))
        column[states] = [self._instance(node, tuple(row)) for row in inside[states].tolist()]
        return column

    def _instance(self, node: int, targets: tuple[int, ...]) -> int:
        """The state of `node`, given the state or -1 for each of its classes; -1 if it is dead."""
        found = self.known.get((node, targets))
        if found is None:
            edges = []
            for byte_class, child, places in self.links[node]:
                if child < 0:
                    state = targets[places[0]]
                else:
                    state = self._instance(child, tuple([targets[place] for place in places]))
                if state >= 0:
                    edges.append((byte_class, state))
            found = self.known[node, targets] = self._intern(tuple(edges)) if edges else -1
        return found

    def _intern(self, edges: Edges) -> int:
        state = self.number.get(edges)
        if state is None:
            state = self.number[edges] = self.first + len(self.rows)
            self.rows.append(edges)
        return state

    def _instance_rows(self) -> NDArray[np.int32]:
        delta = np.full((len(self.rows), self.num_classes), -1, np.int32)
        sources = np.repeat(np.arange(len(self.rows)), [len(row) for row in self.rows])
        edges = np.array([edge for row in self.rows for edge in row], np.int32).reshape(-1, 2)
        delta[sources, edges[:, 0]] = edges[:, 1]
        return delta

    def _to_dfa(self, delta: NDArray[np.int32], labels: list[int], at_boundary: int, start: int) -> ByteDfa:
        """With byte classes of equal columns merged."""
        number: dict[bytes, int] = {}
        merged = [number.setdefault(column.tobytes(), len(number)) for column in np.ascontiguousarray(delta.T)]
        first_of = [merged.index(k) for k in range(len(number))]
        return ByteDfa(
            byte_class=np.array(merged, np.uint8)[self.byte_class],
            delta=np.ascontiguousarray(delta[:, first_of]),
            labels=np.array(labels, np.int32),
            start=start,
            boundary=np.arange(len(delta)) < at_boundary,
        )


def _live_in_minimal(dfa: CharDfa) -> NDArray[np.bool_]:
    """bool[Q]: from which states of a minimal DFA some text is accepted: all but the one sink, if it has one."""
    itself = np.arange(dfa.num_states)[:, None]
    return np.asarray((dfa.labels >= 0) | (dfa.delta != itself).any(axis=1), np.bool_)
