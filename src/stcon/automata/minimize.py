"""The smallest complete DFA of a language: reachable states, partition refinement, merged classes.

Refinement in rounds, each looking only at states one of whose successors has moved to another block; of the pieces of a
block the largest keeps the block's number. A state therefore moves at most log2(Q) times, so chains, which take Moore's
rounds Q passes over all states, take Q short ones. Large automata first get a few of Moore's rounds on whole arrays.

Source: E. F. Moore, Gedanken-experiments on sequential machines (1956); the largest piece keeping its number is
J. Hopcroft, An n log n algorithm (1971), here without splitters by letter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stcon.automata.dfa import CharDfa

_VECTORISED_FROM = 300


def minimize(dfa: CharDfa) -> CharDfa:
    """The unique smallest complete DFA with the same labels; states in breadth-first order, the start being 0.

    Classes that no state tells apart are merged, and neighbouring intervals of one class too.

    Cost: O(E log Q) for E = Q·K entries of ``delta``, in the interpreter.
    """
    dfa = merge_classes(dfa)
    rows: list[list[int]] = dfa.delta.tolist()
    order = _reachable(rows, dfa.start)
    labels = dfa.labels[order]
    position = np.zeros(len(rows), np.int32)
    position[order] = np.arange(len(order))
    rows = position[dfa.delta[order]].tolist()
    blocks = refine(rows, labels.tolist())
    return _quotient(dfa, rows, labels, blocks)


def merge_classes(dfa: CharDfa) -> CharDfa:
    """`dfa` with classes that no state tells apart merged."""
    columns = np.ascontiguousarray(dfa.delta.T)
    number: dict[bytes, int] = {}
    new_class = [number.setdefault(column.tobytes(), len(number)) for column in columns]
    classes = np.array(new_class, np.int32)[dfa.classes]
    keep = np.ones(len(classes), np.bool_)
    keep[1:] = classes[1:] != classes[:-1]
    if len(number) == len(columns) and keep.all():
        return dfa
    representative = np.zeros(len(number), np.int64)
    representative[new_class[::-1]] = np.arange(len(columns))[::-1]
    return CharDfa(dfa.starts[keep], classes[keep], dfa.delta[:, representative], dfa.labels, dfa.start)


def _reachable(rows: list[list[int]], start: int) -> list[int]:
    """The states reachable from `start`, breadth first."""
    seen = {start}
    order = [start]
    for state in order:
        for target in rows[state]:
            if target not in seen:
                seen.add(target)
                order.append(target)
    return order


def refine(rows: Sequence[Sequence[int]], initial: Sequence[int]) -> list[int]:
    """The coarsest partition that refines `initial` and in which equivalent states have equivalent successors.

    Args:
        rows: rows[q][k] is the successor of state q on class k.
        initial: state → a number, equal where states may be equivalent.

    Returns:
        state → block number.
    """
    number: dict[int, int] = {}
    block = [number.setdefault(value, len(number)) for value in initial]
    if len(rows) >= _VECTORISED_FROM:
        block = _moore_rounds(np.array(rows, np.int64), np.array(block, np.int64))
    return _Refinement(rows, block).run()


class _Refinement:
    """Partition refinement. Invariant between rounds: members of a block that are not affected agree on the block's
    `signature`, the blocks of their successors.
    """

    def __init__(self, rows: Sequence[Sequence[int]], block: list[int]) -> None:
        self.rows = rows
        self.block = block
        self.members: list[set[int]] = [set() for _ in range(max(block, default=-1) + 1)]
        for state, b in enumerate(block):
            self.members[b].add(state)
        self.signature: list[tuple[int, ...]] = [()] * len(self.members)
        self.before: list[list[int]] = [[] for _ in rows]
        for state, row in enumerate(rows):
            for target in set(row):
                self.before[target].append(state)

    def run(self) -> list[int]:
        """Split until stable."""
        affected: set[int] = set(range(len(self.rows)))
        while affected:
            touched: dict[int, list[int]] = {}
            for state in affected:
                touched.setdefault(self.block[state], []).append(state)
            # every split of a round is made against the blocks before the round
            leaving = [(b, group) for b, states in touched.items() for group in self._split(b, states)]
            affected = set()
            for b, (signature, states) in leaving:
                self._move(b, signature, states)
                for state in states:
                    affected.update(self.before[state])
        return self.block

    def _split(self, b: int, states: list[int]) -> list[tuple[tuple[int, ...], list[int]]]:
        """The groups, with their signatures, that leave block `b`: all but the largest. Updates its signature."""
        everyone = self.members[b]
        if len(everyone) == 1:
            return []
        block, rows = self.block, self.rows
        groups: dict[tuple[int, ...], list[int]] = {}
        for state in states:
            groups.setdefault(tuple([block[target] for target in rows[state]]), []).append(state)
        sizes = {signature: len(group) for signature, group in groups.items()}
        unaffected = len(everyone) - len(states)
        if unaffected:
            kept = self.signature[b]
            sizes[kept] = sizes.get(kept, 0) + unaffected
        largest = max(sizes, key=sizes.__getitem__)
        if unaffected and largest != kept:
            groups[kept] = list(everyone.difference(*(g for signature, g in groups.items() if signature != kept)))
        self.signature[b] = largest
        groups.pop(largest, None)
        return list(groups.items())

    def _move(self, b: int, signature: tuple[int, ...], states: list[int]) -> None:
        """Give `states` of block `b` a block of their own."""
        new = len(self.members)
        self.members.append(set(states))
        self.members[b].difference_update(states)
        self.signature.append(signature)
        for state in states:
            self.block[state] = new


def _moore_rounds(delta: NDArray[np.int64], block: NDArray[np.int64]) -> list[int]:
    """Moore's rounds while each still adds a good many blocks. May be too coarse, never too fine.

    Successors are hashed to 64 bits; a collision leaves two states together, which the exact rounds then part.
    """
    generator = np.random.default_rng(0)
    multipliers = generator.integers(1, 1 << 62, delta.shape[1], np.int64) | 1
    count = int(block.max()) + 1
    salt = generator.integers(1, 1 << 62, len(block), np.int64)
    while True:
        hashed = salt[block]
        successors = np.zeros(len(block), np.int64)
        for k in range(delta.shape[1]):
            successors += hashed[delta[:, k]] * multipliers[k]
        _, inverse = np.unique(successors, return_inverse=True)
        block_and_successors = block * len(block) + inverse
        values, numbers = np.unique(block_and_successors, return_inverse=True)
        if len(values) <= count * 1.1:
            return [int(b) for b in block]
        block, count = numbers.astype(np.int64), len(values)


def _quotient(dfa: CharDfa, rows: list[list[int]], labels: NDArray[np.int32], blocks: list[int]) -> CharDfa:
    """One state a block, numbered by first member (so breadth first, since `rows` are)."""
    number: dict[int, int] = {}
    representatives: list[int] = []
    for state, b in enumerate(blocks):
        if b not in number:
            number[b] = len(number)
            representatives.append(state)
    renumber = np.array([number[b] for b in blocks], np.int32)
    delta = np.array([rows[state] for state in representatives], np.int32).reshape(len(representatives), -1)
    return merge_classes(CharDfa(dfa.starts, dfa.classes, renumber[delta], labels[representatives], 0))
