"""The smallest complete DFA of a language: reachable states, partition refinement, merged classes.

Refinement in rounds, each looking only at states one of whose successors has moved to another block; of the pieces of a
block the largest keeps the block's number. A state therefore moves at most log2(Q) times, so chains, which take Moore's
rounds Q passes over all states, take Q short ones. Large automata first get a few of Moore's rounds on whole arrays.

Source: E. F. Moore, Gedanken-experiments on sequential machines (1956); the largest piece keeping its number is
J. Hopcroft, An n log n algorithm (1971), here without splitters by letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as count_from

import numpy as np
from numpy.typing import NDArray

from stcon.automata.dfa import CharDfa

_VECTORISED_FROM = 300
# Shallow automata, such as tries, are done after as many of Moore's rounds as they are deep.
_MIN_ROUNDS = 24


def minimize(dfa: CharDfa) -> CharDfa:
    """The unique smallest complete DFA with the same labels; states in breadth-first order, the start being 0.

    Classes that no state tells apart are merged, and neighbouring intervals of one class too.

    Cost: O(E log Q) for E = Q·K entries of ``delta``, in the interpreter; of shallow automata mostly in numpy.
    """
    dfa = merge_classes(dfa)
    order = reachable_states(dfa)
    position = np.zeros(dfa.num_states, np.int32)
    position[order] = np.arange(len(order))
    delta = position[dfa.delta[order]]
    labels = dfa.labels[order]
    return _quotient(dfa, delta, labels)


def merge_classes(dfa: CharDfa) -> CharDfa:
    """`dfa` with classes that no state tells apart merged, and those that no code point has dropped."""
    used = np.unique(dfa.classes)
    number: dict[bytes, int] = {}
    new_class = np.zeros(dfa.num_classes, np.int32)
    for k in used.tolist():
        new_class[k] = number.setdefault(dfa.delta[:, k].tobytes(), len(number))
    classes = new_class[dfa.classes]
    keep = np.ones(len(classes), np.bool_)
    keep[1:] = classes[1:] != classes[:-1]
    if len(number) == dfa.num_classes and keep.all():
        return dfa
    representative = np.zeros(len(number), np.int64)
    representative[new_class[used]] = used
    return CharDfa(dfa.starts[keep], classes[keep], dfa.delta[:, representative], dfa.labels, dfa.start)


def reachable_states(dfa: CharDfa) -> list[int]:
    """The states that some text leads to, breadth first."""
    seen = {dfa.start}
    order = [dfa.start]
    rows = dfa.delta[:, np.unique(dfa.classes)].tolist()
    for state in order:
        # rows repeat few targets over many classes
        for target in dict.fromkeys(rows[state]):
            if target not in seen:
                seen.add(target)
                order.append(target)
    return order


def refine(delta: NDArray[np.int32], initial: NDArray[np.int32]) -> NDArray[np.int64]:
    """The coarsest partition that refines `initial` and in which equivalent states have equivalent successors.

    Args:
        delta: int32[Q, K], the successors.
        initial: int32[Q], equal numbers where states may be equivalent.

    Returns:
        int64[Q], block numbers from 0.
    """
    block = np.unique(initial, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if len(delta) >= _VECTORISED_FROM:
        block = _moore_rounds(delta, block)
        if _is_stable(delta, block):
            return block
    return np.array(_Refinement(delta.tolist(), block.tolist()).run(), np.int64)


def _is_stable(delta: NDArray[np.int32], block: NDArray[np.int64]) -> bool:
    """Whether all members of each block have their successors in the same blocks."""
    first_member = np.unique(block, return_index=True)[1]
    successors = block[delta]
    return bool((successors == successors[first_member[block]]).all())


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


def _moore_rounds(delta: NDArray[np.int32], block: NDArray[np.int64]) -> NDArray[np.int64]:
    """Moore's rounds while each still adds a good many blocks, and a few more. May be too coarse, never too fine.

    Successors are hashed to 64 bits; a collision leaves two states together, which the exact rounds then part.
    """
    generator = np.random.default_rng(0)
    multipliers = generator.integers(1, 1 << 62, size=(delta.shape[1],), dtype=np.int64) | 1
    salt = generator.integers(1, 1 << 62, size=(len(block),), dtype=np.int64)
    count = int(block.max()) + 1
    for done in count_from(1):
        hashed = salt[block]
        successors = np.zeros(len(block), np.int64)
        for k in range(delta.shape[1]):
            successors += hashed[delta[:, k]] * multipliers[k]
        _, inverse = np.unique(successors, return_inverse=True)
        values, numbers = np.unique(block * len(block) + inverse, return_inverse=True)
        gained = len(values) - count
        block, count = numbers.reshape(-1).astype(np.int64), len(values)
        if gained == 0 or count == len(block) or (done >= _MIN_ROUNDS and gained <= count // 20):
            break
    return block


def _quotient(dfa: CharDfa, delta: NDArray[np.int32], labels: NDArray[np.int32]) -> CharDfa:
    """One state a block, numbered by first member (so breadth first, since states are)."""
    _, first_member, inverse = np.unique(refine(delta, labels), return_index=True, return_inverse=True)
    rank = np.empty(len(first_member), np.int32)
    representatives = np.sort(first_member)
    rank[np.argsort(first_member)] = np.arange(len(first_member))
    renumber = rank[inverse.reshape(-1)]
    return merge_classes(CharDfa(dfa.starts, dfa.classes, renumber[delta[representatives]], labels[representatives], 0))
