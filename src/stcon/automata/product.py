"""The product of DFAs: only the tuples of states that some text reaches, over the common refinement of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add

import numpy as np
from numpy.typing import NDArray

from stcon.automata.budget import DEFAULT_MAX_STATES
from stcon.automata.dfa import CharDfa
from stcon.automata.minimize import minimize
from stcon.errors import TooLarge

Combine = Callable[[tuple[int, ...]], int]

# Breadth-first levels of at least this many entries are worth numpy's overhead.
_VECTORISED_FROM = 2_000


def product(dfas: Sequence[CharDfa], combine: Combine, *, max_states: int = DEFAULT_MAX_STATES) -> CharDfa:
    """The minimal DFA that reads a text with every one of `dfas` and labels it with `combine` of their labels.

    Args:
        dfas: at least one.
        combine: maps the tuple of labels (-1: rejected) to a label or -1; called once for each distinct tuple.
        max_states: limit on the reachable tuples of states.

    Raises:
        TooLarge: more than `max_states` tuples of states are reachable.

    Cost: reachable tuples × refined classes.
    """
    starts, classes, columns = _refine_classes(dfas)
    exploration = _Exploration(dfas, columns, max_states)
    delta = exploration.run()
    names = [column.tolist() for column in exploration.labels()]
    known: dict[tuple[int, ...], int] = {}
    labels = []
    for key in zip(*names, strict=True):
        if key not in known:
            known[key] = combine(key)
        labels.append(known[key])
    return minimize(CharDfa(starts, classes, delta, np.array(labels, np.int32), 0))


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


class _Exploration:
    """Breadth-first search over tuples of states, each tuple coded as one number in mixed radix."""

    def __init__(self, dfas: Sequence[CharDfa], columns: Sequence[NDArray[np.int32]], max_states: int) -> None:
        self.dfas = dfas
        self.columns = columns
        self.max_states = max_states
        self.weights: list[int] = []
        size = 1
        for dfa in dfas:
            self.weights.append(size)
            size *= dfa.num_states
        self.fits = size < 1 << 62
        start = sum(dfa.start * weight for dfa, weight in zip(dfas, self.weights, strict=True))
        self.number = {start: 0}
        self.codes = [start]
        self.rows: list[dict[int, list[int]]] = [{} for _ in dfas]

    def run(self) -> NDArray[np.int32]:
        """The table of the product, int32[tuples, classes]."""
        num_classes = len(self.columns[0])
        parts: list[NDArray[np.int32]] = []
        done = 0
        while done < len(self.codes):
            level = self.codes[done:]
            done = len(self.codes)
            if self.fits and len(level) * num_classes >= _VECTORISED_FROM:
                parts.append(self._whole_level(level))
            else:
                parts.append(np.array([self._row(code) for code in level], np.int32))
            if len(self.codes) > self.max_states:
                raise TooLarge("states of a product of automata", given=len(self.codes), limit=self.max_states)
        return np.concatenate(parts)

    def labels(self) -> list[NDArray[np.int32]]:
        """For each DFA, its label in each tuple."""
        return [
            dfa.labels[[code // weight % dfa.num_states for code in self.codes]]
            for dfa, weight in zip(self.dfas, self.weights, strict=True)
        ]

    def _whole_level(self, level: list[int]) -> NDArray[np.int32]:
        codes = np.array(level, np.int64)
        targets = np.zeros((len(level), len(self.columns[0])), np.int64)
        for dfa, column, weight in zip(self.dfas, self.columns, self.weights, strict=True):
            targets += dfa.delta[codes // weight % dfa.num_states][:, column].astype(np.int64) * weight
        distinct, inverse = np.unique(targets, return_inverse=True)
        numbers = np.array([self._intern(code) for code in distinct.tolist()], np.int32)
        return numbers[inverse].reshape(targets.shape)

    def _row(self, code: int) -> list[int]:
        targets: list[int] = []
        for index, (dfa, weight) in enumerate(zip(self.dfas, self.weights, strict=True)):
            state = code // weight % dfa.num_states
            row = self.rows[index].get(state)
            if row is None:
                row = [target * weight for target in dfa.delta[state, self.columns[index]].tolist()]
                self.rows[index][state] = row
            targets = list(map(add, targets, row)) if targets else row
        return [self._intern(target) for target in targets]

    def _intern(self, code: int) -> int:
        number = self.number.setdefault(code, len(self.codes))
        if number == len(self.codes):
            self.codes.append(code)
        return number
