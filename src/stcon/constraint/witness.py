"""Completions found by trying, where what was written before forbids some (`stcon.grammar.history`).

`Budget` knows the machine, not the history: where items or names may not repeat, the cheapest completion may be one
that repeats. `Witnesses.find` then looks for a completion that does not, token by token along the budget mask. What it
finds is proof that a limit can be kept; where it finds nothing within `MAX_TRIED` places, that is no proof that there
is nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.budget import Budget
from stcon.constraint.history_masks import HistoryMasks
from stcon.grammar.history import History
from stcon.grammar.machine import END

Int32 = NDArray[np.int32]

MAX_TRIED = 300
MAX_BRANCHES = 4
MAX_SLACK = 6


class Witnesses:
    """Searches for completions under histories.

    Args:
        budget: of the machine and vocabulary.
        histories: masks and steps under a history.
    """

    def __init__(self, budget: Budget, histories: HistoryMasks) -> None:
        self.budget = budget
        self.histories = histories

    @property
    def are_needed(self) -> bool:
        """Whether the machine remembers elements at all; else the budget alone is exact."""
        return any(mark & END for mark in self.budget.machine.marks.values())

    def find(self, config: Int32, history: History, remaining: int) -> list[int] | None:
        """At most `remaining` tokens that complete the text, or None if none were found.

        Cost: a mask a token of the answer, where nothing is in the way; at most `MAX_TRIED` of them.
        """
        tried = [0]
        return self._find(config, history, remaining, tried)

    def follows(self, config: Int32, history: History, token: int, remaining: int) -> bool:
        """Whether a completion within `remaining` is found behind `token`."""
        return self._after(config, history, token, remaining, [0]) is not None

    def _find(self, config: Int32, history: History, remaining: int, tried: list[int]) -> list[int] | None:
        need = self.budget.need(config)
        if need is None or need > remaining:
            return None
        if need == 0:
            return []
        mask = np.empty(self.budget.vocabulary.num_words, np.int32)
        done: set[int] = set()
        for limit in range(need, min(remaining, need + MAX_SLACK) + 1):
            if tried[0] >= MAX_TRIED:
                return None
            tried[0] += 1
            self.histories.mask(config, history, mask)
            self.budget.restrict(config, limit, mask)
            for token in self._some(mask, done):
                done.add(token)
                rest = self._after(config, history, token, remaining - 1, tried)
                if rest is not None:
                    return [token, *rest]
        return None

    def _after(self, config: Int32, history: History, token: int, remaining: int, tried: list[int]) -> list[int] | None:
        data = self.budget.vocabulary.token_bytes(token)
        work = config.copy()
        after = self.histories.advance(work, history, data) if data else None
        return None if after is None else self._find(work, after, remaining, tried)

    def _some(self, mask: Int32, done: set[int]) -> list[int]:
        """A few tokens of a mask, spread over it, end tokens and those of `done` left out."""
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        bits[list(self.budget.vocabulary.end_ids)] = 0
        bits[list(done)] = 0
        tokens = np.flatnonzero(bits)
        if len(tokens) <= MAX_BRANCHES:
            return [int(token) for token in tokens]
        return [int(token) for token in tokens[np.linspace(0, len(tokens) - 1, MAX_BRANCHES).astype(int)]]
