"""The lexer of a Lark grammar: for each set of terminals that may come next, one automaton that reads a lexeme.

A lexeme is as long as can be: while a byte goes on to a longer lexeme *of the terminals that may come here*, it does
(a contextual lexer). Where several terminals match the same lexeme, those of the highest priority are meant; several of
equal priority are all meant, and the grammar decides later.
"""

from __future__ import annotations

import numpy as np

from stcon.automata.budget import Budget
from stcon.automata.dfa import ByteDfa
from stcon.errors import TooLarge
from stcon.grammar.cfg.networks import class_masks, compile_node, targets_of
from stcon.grammar.cfg.syntax import Source, invalid

MAX_AUTOMATON_STATES = 20_000


class Lexer:
    """The terminals of a grammar.

    Attributes:
        terminals: their automata over bytes.
        first: terminal → bytes with which it can begin (a bit set).
        nullable: terminals that match the empty text.
        ignored: terminals that may stand between lexemes.
    """

    def __init__(self, source: Source) -> None:
        budget = Budget()
        self.terminals: list[ByteDfa] = []
        self.first: list[int] = []
        nullable = set()
        number = {name: index for index, name in enumerate(source.terminals)}
        self.priority = [terminal.priority for terminal in source.terminals.values()]
        for index, terminal in enumerate(source.terminals.values()):
            dfa = compile_node(terminal.node, terminal.place, budget)
            if dfa.num_states == 0:
                invalid(f"terminal {terminal.name} matches nothing", terminal.place)
            self.terminals.append(dfa)
            masks = class_masks(dfa)
            self.first.append(_union(targets_of(dfa, dfa.start, masks).values()))
            if dfa.labels[dfa.start] >= 0:
                nullable.add(index)
        self.nullable = frozenset(nullable)
        self.ignored = frozenset(number[name] for name in source.ignored)
        self._number: dict[frozenset[int], int] = {}
        self._automata: list[_Automaton] = []

    def automaton(self, terminals: frozenset[int]) -> int:
        """The number of the automaton of `terminals`."""
        found = self._number.get(terminals)
        if found is None:
            found = self._number[terminals] = len(self._automata)
            self._automata.append(_Automaton(self, sorted(terminals)))
        return found

    def terminals_of(self, automaton: int) -> list[int]:
        """The terminals that it reads."""
        return self._automata[automaton].terminals

    def start(self, automaton: int) -> int:
        """Its start state; always 0."""
        del automaton
        return 0

    def targets(self, automaton: int, state: int) -> dict[int, int]:
        """Target → bytes that lead there."""
        return self._automata[automaton].targets[state]

    def label(self, automaton: int, state: int) -> int:
        """The number of the set of terminals that match, or -1."""
        return self._automata[automaton].labels[state]

    def matched(self, automaton: int, label: int) -> frozenset[int]:
        """The terminals of a label."""
        return self._automata[automaton].sets[label]

    def num_labels(self, automaton: int) -> int:
        """How many labels there are."""
        return len(self._automata[automaton].sets)


class _Automaton:
    """The product of the automata of some terminals, minimal."""

    def __init__(self, lexer: Lexer, terminals: list[int]) -> None:
        self.lexer, self.terminals = lexer, terminals
        self.sets: list[frozenset[int]] = []
        dfas = [lexer.terminals[t] for t in terminals]
        classes = np.unique(np.stack([dfa.byte_class for dfa in dfas]), axis=1, return_inverse=True)
        representative, inverse = classes[0].T.tolist(), classes[1].reshape(-1).tolist()
        masks = [0] * len(representative)
        for byte, k in enumerate(inverse):
            masks[k] |= 1 << byte
        deltas = [dfa.delta.tolist() for dfa in dfas]
        # the start is a state of its own, even where it is come back to: a lexeme is not empty
        number: dict[tuple[int, ...], int] = {}
        todo = [tuple(dfa.start for dfa in dfas)]
        rows: list[list[int]] = []
        for place in todo:
            row = []
            for k in range(len(masks)):
                after = tuple(
                    -1 if s < 0 else delta[s][c] for s, delta, c in zip(place, deltas, representative[k], strict=True)
                )
                if all(s < 0 for s in after):
                    row.append(-1)
                    continue
                if after not in number:
                    if len(todo) >= MAX_AUTOMATON_STATES:
                        raise TooLarge("states of the lexer", given=len(todo) + 1, limit=MAX_AUTOMATON_STATES)
                    number[after] = len(todo)
                    todo.append(after)
                row.append(number[after])
            rows.append(row)
        labels = [self._label(place, is_start=index == 0) for index, place in enumerate(todo)]
        block = _minimal(rows, labels)
        self._set(rows, labels, block, masks)

    def _label(self, place: tuple[int, ...], *, is_start: bool) -> int:
        """The set of terminals that match here; a lexeme is not empty."""
        lexer = self.lexer
        found = [t for t, s in zip(self.terminals, place, strict=True) if s >= 0 and lexer.terminals[t].labels[s] >= 0]
        if not found or is_start:
            return -1
        highest = max(lexer.priority[t] for t in found)
        chosen = frozenset(t for t in found if lexer.priority[t] == highest)
        if chosen not in self.sets:
            self.sets.append(chosen)
        return self.sets.index(chosen)

    def _set(self, rows: list[list[int]], labels: list[int], block: list[int], masks: list[int]) -> None:
        count = max(block) + 1
        self.labels = [-1] * count
        self.targets: list[dict[int, int]] = [{} for _ in range(count)]
        filled = [False] * count
        for state, row in enumerate(rows):
            here = block[state]
            if filled[here]:
                continue
            filled[here] = True
            self.labels[here] = labels[state]
            for k, target in enumerate(row):
                if target >= 0:
                    to = block[target]
                    self.targets[here][to] = self.targets[here].get(to, 0) | masks[k]


def _minimal(rows: list[list[int]], labels: list[int]) -> list[int]:
    """State → block of equal states, the start's being 0 (Moore's rounds)."""
    block = [label + 1 for label in labels]
    count = 0
    while True:
        number: dict[tuple[int, ...], int] = {}
        keys = [(block[s], *(block[t] if t >= 0 else -1 for t in row)) for s, row in enumerate(rows)]
        block = [number.setdefault(key, len(number)) for key in keys]
        if len(number) == count:
            return block
        count = len(number)


def _union(masks: object) -> int:
    found = 0
    for mask in masks:  # type: ignore[attr-defined]
        found |= mask
    return found
