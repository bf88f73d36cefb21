"""Position automata to complete DFAs: the subset construction on bit sets, for patterns without lookaround.

The positions that can be reached by one character of class k from a set S are ``follow(S) & members[k]``: one union per
state and one intersection per class. Lookarounds need formulas in place of sets: `stcon.automata.lookaround`.

Source: M. O. Rabin and D. Scott, Finite automata and their decision problems (1959).
"""

from __future__ import annotations

import numpy as np

from stcon.automata import charset
from stcon.automata.budget import Budget
from stcon.automata.charset import CharSet
from stcon.automata.dfa import CharDfa
from stcon.automata.nfa import END_KIND, NO_LOOKS, START_KIND, Expansion, Positions, bits


class Alphabet:
    """The classes of code points that the positions of a pattern tell apart.

    Attributes:
        starts, classes: the intervals, as in `CharDfa`.
        members: class → bit set of the positions that read it.
    """

    def __init__(self, positions: Positions) -> None:
        budget = positions.budget
        number: dict[CharSet, int] = {}
        holders: list[int] = []
        for position, characters in enumerate(positions.charsets):
            index = number.setdefault(characters, len(number))
            if index == len(holders):
                holders.append(0)
            holders[index] |= 1 << position
        # signatures are as long as there are sets, one is made at each end of a range
        budget.spend(sum(map(len, number)) * (2 + len(number) // 32))
        self.starts, self.classes, sets = charset.partition(list(number))
        self.members = [0] * len(sets)
        for k, indices in enumerate(sets):
            budget.spend(indices.bit_count() * (2 + len(positions.follow) // 256))
            for index in bits(indices):
                self.members[k] |= holders[index]


def to_dfa(alphabet: Alphabet, delta: list[list[int]], labels: list[int], start: int = 0) -> CharDfa:
    """Rows of states by class, as a `CharDfa`."""
    return CharDfa(
        starts=np.array(alphabet.starts, np.int32),
        classes=np.array(alphabet.classes, np.int32),
        delta=np.array(delta, np.int32).reshape(len(delta), len(alphabet.members)),
        labels=np.array(labels, np.int32),
        start=start,
    )


def determinize(positions: Positions, budget: Budget) -> CharDfa:
    """The DFA of a pattern without lookarounds; not minimised.

    Raises:
        TooLarge: a budget is spent.

    Cost: for each state, one union for each of its positions and one intersection for each class.
    """
    assert not positions.looks, "lookarounds take formulas"
    alphabet = Alphabet(positions)
    follow, last = _plain_tables(positions)
    begin = positions.expand_root(0, START_KIND)
    number: dict[int, int] = {}
    sets: list[int] = []
    delta: list[list[int]] = []

    def row_of(targets: int) -> list[int]:
        row = []
        for members in alphabet.members:
            reached = targets & members
            # from a tail position on every text is accepted: what else is in the set does not matter
            reached = reached & positions.tail or reached
            state = number.get(reached)
            if state is None:
                # state 0 is the start, which no set of positions names
                state = number[reached] = len(sets) + 1
                sets.append(reached)
                budget.check_states(state + 1)
            row.append(state)
        return row

    delta.append(row_of(begin.edges.get(NO_LOOKS, 0)))
    labels = [0 if _ends_at_end(begin) else -1]
    words = 3 + len(follow) // 256
    done = 0
    while done < len(sets):
        positions_here = sets[done]
        targets = 0
        remaining = positions_here
        while remaining:
            low = remaining & -remaining
            targets |= follow[low.bit_length() - 1]
            remaining ^= low
        budget.spend(words * (positions_here.bit_count() + len(alphabet.members)))
        delta.append(row_of(targets))
        labels.append(0 if positions_here & last else -1)
        done += 1
    return to_dfa(alphabet, delta, labels)


def _plain_tables(positions: Positions) -> tuple[list[int], int]:
    """(follow, last) among character positions, with the assertions passed."""
    if not positions.assertions:
        return positions.follow, positions.last
    follow, last = list(positions.follow), positions.last
    for position, targets in enumerate(positions.follow):
        if targets & positions.assertion_mask:
            expansion = positions.expand_position(position)
            follow[position] = expansion.edges.get(NO_LOOKS, 0)
            last = last | 1 << position if _ends_at_end(expansion) else last & ~(1 << position)
    return follow, last


def _ends_at_end(expansion: Expansion) -> bool:
    return any(right >> END_KIND & 1 for right, _ in expansion.ends)
