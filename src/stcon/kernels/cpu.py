"""Masks and steps on the CPU: `CpuKernel`, equal to `reference` bit for bit.

**When to use.** Everywhere without a GPU, and on the host beside one (forced text, accepting tokens).

**Cost** of a mask: a copy of 4·W bytes where a row is kept for the configuration; else a walk over the live part of
the vocabulary's trie (a few nodes at punctuation), or over the few thousand tokens that are not plain text inside a
string (`plain`). Text that treats plain characters differently, under a pattern, walks only where a token may reach a
character that is refused (`mixed`), once for each row kept.

**Memory**: the row cache (`cache_bytes`), and a few hundred kilobytes of scratch.

**Threads.** The loops run without the GIL. All kernels of one machine take turns through one lock, because a row built
for one is written into the arrays that the others read.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.locks import lock_of
from stcon.grammar.machine import BEGIN, CONFIG_WORDS, SCARCE, SCOPE, Machine, Tables
from stcon.kernels import mixed, plain, safe, stepping, tracing, walk
from stcon.kernels.row_cache import RowCache
from stcon.kernels.stepping import CAP, FIRST_PUSH, SEEN_WORDS, Arrays

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]

DEFAULT_CACHE_BYTES = 64 << 20
_ADVANCE_NODES = FIRST_PUSH + 8 * CAP

_plain_tokens: weakref.WeakKeyDictionary[Vocabulary, plain.PlainTokens] = weakref.WeakKeyDictionary()


class CpuKernel:
    """The control machine over a vocabulary, compiled.

    A configuration is int32[CONFIG_WORDS] as `Configuration.pack` lays it out. It must be one of the machine's: states
    and symbols are not checked, as they come from `Machine.initial` and from `advance` alone.

    Args:
        machine: rows are built as walks meet them.
        vocabulary: token bytes and their tries.
        cache_bytes: limit of the row cache; 0 keeps no row.

    Raises (every method): whatever building a row raises (`GrammarError`); nothing is changed then.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        self.rows = RowCache(vocabulary.num_words, cache_bytes)
        self._lock = lock_of(machine)
        if vocabulary not in _plain_tokens:
            _plain_tokens[vocabulary] = plain.PlainTokens(vocabulary)
        self._plain = _plain_tokens[vocabulary]
        self._end_ids = np.array(vocabulary.end_ids, np.int32)
        self._frames = np.zeros((vocabulary.longest + 1, walk.FRAME_WORDS), np.int64)
        num_nodes = max(FIRST_PUSH + CAP * (vocabulary.longest + 1), _ADVANCE_NODES)
        self._nodes = np.zeros((num_nodes, 3), np.int32)
        self._seen = np.zeros(SEEN_WORDS, np.int64)
        self._work = np.zeros(CONFIG_WORDS, np.int32)
        self._tables: Tables | None = None
        self._arrays: Arrays = ()
        self._marks = np.zeros(0, np.uint8)
        self._num_marks = 0
        self._is_scarce = False
        self._events = np.zeros((4 * tracing.MAX_EVENTS_OF_A_BYTE, tracing.EVENT_WORDS), np.int32)
        self._memo = plain.new_memo(0)
        self._safe: mixed.Memos = (safe.new_memo(0), safe.new_memo(0), np.zeros(0, np.int64))
        self._classes: tuple[UInt8, Int32, UInt8] = (
            np.zeros(0, np.uint8),
            np.zeros(0, np.int32),
            np.zeros(0, np.uint8),
        )

    @property
    def lock(self) -> threading.RLock:
        """Held while rows are built or arrays read; take it to read the machine by other means meanwhile."""
        return self._lock

    def mask(self, config: Int32, out: Int32) -> None:
        """Write the mask of `config` to `out`: int32[W], bit ``t % 32`` of word ``t // 32`` for token t."""
        with self._lock:
            if not self.rows.find(config, out):
                self._walk(config, out)
                self.rows.keep(config, self._seen, out)

    def advance(self, config: Int32, data: bytes) -> bool:
        """Read `data`, moving `config`; False, and `config` unchanged, where a step is undefined."""
        with self._lock:
            begin = 0
            while True:
                status, missing = walk.advance(
                    self._refresh(), config, data, begin, self._work, self._nodes, self._seen
                )
                if status != stepping.NEEDS_ROW:
                    return bool(status == stepping.ALIVE)
                begin = int(self._seen[0])
                self.machine.build(missing)

    def trace(self, config: Int32, data: bytes) -> list[list[int]] | None:
        """`advance` with the events of reading `data` (`tracing`); None where that gives False."""
        with self._lock:
            self._work[:] = config
            text = np.frombuffer(data, np.uint8)
            begin = count = 0
            while True:
                arrays, marks = self._refresh(), self._marked()
                status, missing, begin, count = tracing.trace(
                    arrays, marks, self._work, text, begin, self._nodes, self._seen, self._events, count
                )
                if status == stepping.ALIVE:
                    config[:] = self._work
                    events: list[list[int]] = self._events[:count].tolist()
                    return events
                if status == stepping.DIED:
                    return None
                if status == tracing.NEEDS_ROOM:
                    self._events = np.concatenate([self._events, np.zeros_like(self._events)])
                else:
                    self.machine.build(missing)

    @property
    def is_scarce(self) -> bool:
        """Whether a state built so far begins elements that may run out: items, or names where they are scarce."""
        if len(self.machine.marks) > self._num_marks:
            with self._lock:
                self._marked()
        return self._is_scarce

    def classify(self, config: Int32, places: Int32, depth: int) -> tuple[UInt8, Int32, Int32, Int32]:
        """What reading each of `places` (indices into ``vocabulary.order``) does here at `depth` or less.

        Returns:
            kinds uint8[n], states and stack heights reached int32[n], and where elements end int32[n]
            (`tracing.classify`).
        """
        with self._lock:
            data, offsets, scratch = (
                self.vocabulary.data,
                self.vocabulary.offsets,
                (self._nodes, self._seen, self._events),
            )
            kinds = np.zeros(len(places), np.uint8)
            states, heights, ended = np.full((3, len(places)), -1, np.int32)
            done = 0
            while True:
                arrays, marks, place = self._refresh(), self._marked(), (config, data, offsets, places, done, depth)
                done, missing = tracing.classify(arrays, marks, *place, *scratch, kinds, states, heights, ended)
                if missing < 0:
                    return kinds, states, heights, ended
                self.machine.build(missing)

    def forced(self, config: Int32, limit: int) -> bytes:
        """At most `limit` bytes of the forced chain: the only live byte, while the configuration does not accept."""
        with self._lock:
            chain = np.empty(limit, np.uint8)
            length = 0
            self._work[:] = config
            while True:
                arrays = self._refresh()
                length, missing = walk.forced(
                    arrays, *self._class_members(), self._work, self._nodes, self._seen, chain, length
                )
                if missing < 0:
                    return chain[:length].tobytes()
                self.machine.build(missing)

    def live_bytes(self, config: Int32) -> UInt8:
        """uint8[256]: 1 for the bytes that may follow `config`."""
        with self._lock:
            live = np.zeros(256, np.uint8)
            while True:
                arrays = self._refresh()
                missing = walk.live_classes(arrays, self.machine.num_classes, config, self._nodes, self._seen, live)
                if missing < 0:
                    return live[self.machine.byte_class]
                self.machine.build(missing)

    def accepts(self, config: Int32) -> bool:
        """Whether the text read so far is complete."""
        with self._lock:
            return bool(walk.accepts(self._refresh(), config, self._nodes, self._seen))

    def _walk(self, config: Int32, out: Int32) -> None:
        """Compute the mask of `config`, recording in ``_seen`` what it depends on."""
        walk.open_walk(config, self._frames, self._nodes, self._seen)
        run = self._plain_run(config)
        if run == plain.MIXED:
            self._walk_plain(config, out)
        else:
            out[:] = self._plain.words[self._plain.row_of_run[run]]
        trie = self.vocabulary.rest
        node = 0
        while True:
            arrays = self._refresh()
            node, missing = walk.walk(arrays, tuple(trie), node, self._frames, self._nodes, self._seen, out)
            if missing < 0:
                break
            self.machine.build(missing)
        walk.set_end_tokens(arrays, self._end_ids, self._frames, self._nodes, self._seen, out)

    def _walk_plain(self, config: Int32, out: Int32) -> None:
        """The plain tokens of a walk that is open, where it depends on their characters."""
        trie = self._plain.trie
        place = (self._frames, self._nodes, self._seen)
        verdict = np.empty(len(trie.roots), np.uint8)
        root = 0
        while root < len(trie.roots):
            arrays, memos = self._refresh(), self._safety()
            parts = (trie.arrays, trie.phase, trie.height, trie.groups, trie.roots)
            root, missing = mixed.sort_roots(arrays, memos, *parts, root, *place, verdict)
            if missing >= 0:
                self.machine.build(missing)
        length = mixed.safe_length(self._refresh(), self._safety(), int(config[0]), int(config[2]), self._seen)
        length = min(length, self._plain.longest)
        mostly = 2 * int(trie.sizes[verdict >= mixed.MANY].sum()) > int(trie.sizes.sum())
        out[:] = trie.words if mostly else 0
        mixed.set_roots(trie.arrays, trie.roots, verdict, not mostly, out)
        if length:
            out |= self._plain.words[self._plain.row_of_run[length]]
        for root in np.flatnonzero((verdict == mixed.FEW) | (verdict == mixed.MANY)).tolist():
            inverted = bool(verdict[root] == mixed.MANY)
            node, end = int(trie.roots[root]), int(trie.arrays[2][trie.roots[root]])
            while node < end:
                arrays, memos = self._refresh(), self._safety()
                tree = (trie.arrays, trie.phase, trie.reach, trie.height, trie.groups)
                node, missing = mixed.walk_below(arrays, memos, *tree, length, inverted, node, end, *place, out)
                if missing >= 0:
                    self.machine.build(missing)

    def _safety(self) -> mixed.Memos:
        """What is known of the machine's states as they are now (`safe`)."""
        size = len(self._memo)
        if len(self._safe[2]) < size:
            plain_text, words, stays = self._safe
            grown = np.full(size, safe.UNKNOWN, np.int64)
            grown[: len(stays)] = stays
            self._safe = (safe.new_memo(size, plain_text), safe.new_memo(size, words), grown)
        return self._safe

    def _plain_run(self, config: Int32) -> int:
        while True:
            run, missing = plain.run(self._refresh(), self._memo, config, self._seen, self._plain.longest)
            if run != plain.NEEDS_ROW:
                return int(run)
            self.machine.build(missing)

    def _marked(self) -> UInt8:
        """uint8[Q or more]: the marks of the machine's states as they are now."""
        marks = self.machine.marks
        if len(self._marks) < self.machine.num_states:
            grown = np.zeros(len(self.machine.tables().label), np.uint8)
            grown[: len(self._marks)] = self._marks
            self._marks = grown
        if len(marks) > self._num_marks:
            for state, mark in itertools.islice(marks.items(), self._num_marks, None):
                self._marks[state] = mark
                self._is_scarce |= bool(mark & SCARCE or (mark & SCOPE and mark & BEGIN))
            self._num_marks = len(marks)
        return self._marks

    def _class_members(self) -> tuple[Int32, UInt8]:
        """How many bytes each class has, and one of them."""
        byte_class = self.machine.byte_class
        if self._classes[0] is not byte_class:  # the machine never changes the array, it makes another
            size = np.bincount(byte_class, minlength=self.machine.num_classes).astype(np.int32)
            member = np.zeros(len(size), np.uint8)
            member[byte_class] = np.arange(256, dtype=np.uint8)
            self._classes = (byte_class, size, member)
        return self._classes[1:]

    def _refresh(self) -> Arrays:
        """The machine's arrays as they are now, and what is derived from them."""
        tables = self.machine.tables()
        if tables is not self._tables:
            self._tables = tables
            self._arrays = tuple(tables)
            if len(tables.label) > len(self._memo):
                self._memo = plain.new_memo(len(tables.label), self._memo)
        return self._arrays
