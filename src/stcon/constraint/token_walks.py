"""What tokens do from one place, over the whole vocabulary: `stcon.kernels.rules` with what it needs at hand."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.machine import CONFIG_WORDS, Machine
from stcon.kernels import plain, rules
from stcon.kernels.stepping import CAP, COUNTER_HIGH, COUNTER_LOW, FIRST_PUSH, SEEN_WORDS
from stcon.kernels.walk import Trie
from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]


class Found(NamedTuple):
    """What tokens do from a place.

    Attributes:
        ends: int32[n, rules.END_WORDS].
        exits: int32[m, rules.EXIT_WORDS].
        symbols: int32[:], what the ends have pushed.
    """

    ends: Int32 = np.zeros((0, rules.END_WORDS), np.int32)
    exits: Int32 = np.zeros((0, rules.EXIT_WORDS), np.int32)
    symbols: Int32 = np.zeros(0, np.int32)

    def moved(self, by: int) -> Found:
        """The same from a counter that is larger `by` so much."""
        ends, exits = self.ends.copy(), self.exits.copy()
        ends[:, rules.COUNTER] += by * ends[:, rules.RELATIVE]
        exits[:, rules.COUNT] += by * exits[:, rules.IS_RELATIVE]
        return Found(ends, exits, self.symbols)

    def with_ends(self, ends: Int32) -> Found:
        """With these as well."""
        return self._replace(ends=np.concatenate([self.ends, ends]))


NOTHING = Found()


class OfVocabulary(NamedTuple):
    """What is the same for every machine."""

    subtrees: rules.Subtrees
    plain: plain.PlainTokens


_known: weakref.WeakKeyDictionary[Vocabulary, OfVocabulary] = weakref.WeakKeyDictionary()


def of_vocabulary(vocabulary: Vocabulary) -> OfVocabulary:
    """Its subtrees and plain tokens, found once. Cost: 0.3 s for 248k tokens."""
    known = _known.get(vocabulary)
    if known is None:
        known = _known[vocabulary] = OfVocabulary(rules.Subtrees(vocabulary), plain.PlainTokens(vocabulary))
    return known


class Walker:
    """Walks the vocabulary's tries from places of one machine, all of whose rows are built.

    Attributes:
        tries: the full one and that of the tokens that are not plain, as plain tuples.
        plain: the plain tokens.
        leaf: the subtree of a node where a token ends and none goes on; -1 if there is none.
        arrays, frames, nodes, seen: of the kernels' loops.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary) -> None:
        self.subtrees, self.plain = of_vocabulary(vocabulary)
        self.tries: tuple[Trie, Trie] = (tuple(vocabulary.trie), tuple(vocabulary.rest))
        self._occurring = np.diff(self.plain.row_of_run, prepend=0) > 0
        self.arrays = tuple(machine.tables())
        self._memo = plain.new_memo(len(machine.tables().label))
        self.frames = np.zeros((vocabulary.longest + 2, rules.FRAME_WORDS), np.int64)
        self.nodes = np.zeros((FIRST_PUSH + CAP * (vocabulary.longest + 2), 3), np.int32)
        self.seen = np.zeros(SEEN_WORDS, np.int64)
        self._config = np.zeros(CONFIG_WORDS, np.int32)
        self._room = 1 << 12
        self._buffers = self._new_buffers()
        self._walked: dict[tuple[int, bool], tuple[int, int, int, Found]] = {}
        self._below: dict[int, tuple[bool, list[int]]] = {}
        skip = vocabulary.trie.skip
        leaves = np.flatnonzero(skip == np.arange(1, len(skip) + 1))
        self.leaf = int(self.subtrees.full[leaves[0]]) if len(leaves) else -1

    @property
    def following(self) -> Int32:
        """int32[Q]: where a plain character leads, for the states on every `run` so far."""
        return self._memo[:, plain.NEXT].copy()

    def run(self, config: Int32) -> int:
        """How many plain characters can be read in a row, or `plain.MIXED`. Cost: O(answer)."""
        length, _ = plain.run(self.arrays, self._memo, config, self.seen, self.plain.longest)
        return int(length)

    def from_state(self, state: int, counter: int) -> Found:
        """What all tokens do between two tokens. Cost: that of a mask."""
        self._config[0], self._config[2] = state, counter
        run = self.run(self._config)
        in_rest = run != plain.MIXED
        found = self._from_state(state, counter, in_rest)
        if in_rest and run:
            ends = np.zeros((self.plain.longest + 1, rules.END_WORDS), np.int32)
            count = rules.plain_ends(self.arrays, self.following, self._occurring, state, counter, run, ends)
            found = found.with_ends(ends[:count])
        return found

    def _from_state(self, state: int, counter: int, in_rest: bool) -> Found:
        """The walk from a state, or that from another counter if the same happens from there."""
        low, high, start, known = self._walked.get((state, in_rest), (1, 0, 0, NOTHING))
        if low <= counter <= high:
            return known.moved(counter - start)
        found = self._collect(in_rest, 0, len(self.tries[in_rest][0]), 0, -1)
        low, high = int(self.seen[COUNTER_LOW]), int(self.seen[COUNTER_HIGH])
        self._walked[state, in_rest] = low, high, counter, found
        return found

    def from_inside(self, state: int, counter: int, subtree: int, unread: int | None) -> Found:
        """What the rest of a token does, inside which a caller has entered `state`.

        Args:
            subtree: of the node where the token is.
            unread: the node's byte if it was not read yet, else None.
        """
        self._config[0], self._config[2] = state, counter
        in_rest, node = bool(self.subtrees.in_rest[subtree]), int(self.subtrees.node[subtree])
        _, depth, skip, first, _ = self.tries[in_rest]
        end = int(skip[node])
        if unread is not None:
            return self._collect(in_rest, node, end, int(depth[node]) - 1, unread)
        found = self._collect(in_rest, node + 1, end, int(depth[node]), -1)
        if first[node + 1] > first[node]:
            found = found.with_ends(np.array([(state, counter, 0, 0, 0, 0)], np.int32))
        return found

    def below(self, subtree: int) -> tuple[bool, list[int]]:
        """Whether a token ends at a node with this subtree, and the bytes of its children."""
        known = self._below.get(subtree)
        if known is None:
            byte, _, skip, first, _ = self.tries[bool(self.subtrees.in_rest[subtree])]
            node = int(self.subtrees.node[subtree])
            children, child = [], node + 1
            while child < skip[node]:
                children.append(int(byte[child]))
                child = int(skip[child])
            known = self._below[subtree] = bool(first[node + 1] > first[node]), children
        return known

    def _collect(self, in_rest: bool, begin: int, end: int, depth: int, first_byte: int) -> Found:
        if begin >= end:
            return NOTHING
        subtree = self.subtrees.rest if in_rest else self.subtrees.full
        while True:
            rules.open_place(self._config, depth, self.frames, self.nodes, self.seen)
            ends, exits, symbols = self._buffers
            num_ends, num_exits = rules.collect(
                self.arrays, self.tries[in_rest], subtree, begin, end, first_byte,
                self.frames, self.nodes, self.seen, ends, exits, symbols,
            )  # fmt: skip
            if num_ends >= 0:
                used = int((ends[:num_ends, rules.START] + ends[:num_ends, rules.PUSHED]).max(initial=0))
                return Found(ends[:num_ends].copy(), exits[:num_exits].copy(), symbols[:used].copy())
            self._room *= 2
            self._buffers = self._new_buffers()

    def _new_buffers(self) -> tuple[Int32, Int32, Int32]:
        room = self._room
        shapes = (room, rules.END_WORDS), (room, rules.EXIT_WORDS), (8 * room,)
        ends, exits, symbols = (np.zeros(shape, np.int32) for shape in shapes)
        return ends, exits, symbols
