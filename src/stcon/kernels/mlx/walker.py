"""`MlxGrammars` and `MlxWalker`: what `stcon.kernels.cuda` does with a batch's rows, on mlx.

Arrays of mlx are values, so that methods give their result where those of CUDA write it. With kernels, nothing waits
for the device where a machine is built whole: masks and steps are part of mlx's lazy graph, and a loop may run ahead.
Rows of edges that are not built are built as they are met. Budgets, banned tokens and other limits are the host's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption
from stcon.grammar.cfg.stacks import require_deterministic
from stcon.grammar.locks import lock_of
from stcon.grammar.machine import CONFIG_WORDS, Configuration, Machine
from stcon.kernels.cuda.tables import TableBuilder
from stcon.kernels.levels import Levels, levels_of
from stcon.kernels.mlx.kernels import ALIVE, Kernels
from stcon.kernels.mlx.portable import MissingRows, Readers, Tables, walk

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

Array = Any  # of mlx, which has no types
Int32 = NDArray[np.int32]

FINISHED, FREE = -1, -1
HEAD_WORDS = 20  # walk.h
END = -1  # walk.h
NOTHING = -1  # in place of a token
MIN_COLUMNS = 8  # Metal's kernels take arrays of fewer elements in another address space


class _Entry:
    """One machine, and its tables in both forms, made when they are asked for and again after rows were built."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._builder = TableBuilder(machine)
        self.outdate()

    def outdate(self) -> None:
        """The machine has grown."""
        self._tables: Tables | None = None
        self._packed: tuple[list[int], NDArray[np.uint8]] | None = None
        self.is_whole = self.machine.is_whole
        self._num_states, self._num_symbols = self.machine.num_states, self.machine.num_symbols

    def knows(self, config: Int32) -> bool:
        """Whether the tables are not older than any state or symbol of int32[CONFIG_WORDS]."""
        stack = config[3 : 3 + int(config[1])]
        return bool(config[0] < self._num_states and stack.max(initial=-1) < self._num_symbols)

    @property
    def tables(self) -> Tables:
        if self._tables is None:
            with lock_of(self.machine):
                self._tables = Tables(self.machine)
        return self._tables

    @property
    def packed(self) -> tuple[list[int], NDArray[np.uint8]]:
        """Where each array begins, and the machine's numbers; the arrays."""
        if self._packed is None:
            with lock_of(self.machine):
                made = self._builder.build()
            live_words = -(-made.num_classes // 64)
            numbers = [made.num_classes, live_words, int(made.is_wide), len(made.data)]
            self._packed = [max(0, offset) for offset in made.offsets] + numbers, made.data
        return self._packed


class MlxGrammars:
    """Machines by number, as `stcon.kernels.cuda.CudaGrammars`.

    Cost: adding one uploads all of them again, at the next mask by kernels.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._uploaded: tuple[Array, Array] | None = None

    def add(self, machine: Machine) -> int:
        """Put `machine` on the device, its first row built; returns its number.

        Raises:
            Unsupported: a grammar that is not deterministic; the conflict is named.
            GrammarError: whatever building a row raises.
        """
        require_deterministic(machine)
        index = next(i for i in range(len(self._entries) + 1) if i not in self._entries)
        with lock_of(machine):
            machine.build(machine.start)
        self._entries[index] = _Entry(machine)
        self._uploaded = None
        return index

    def remove(self, index: int) -> None:
        """Forget grammar `index`. No row may follow it any more."""
        self.entry(index)
        del self._entries[index]
        self._uploaded = None

    def build(self, index: int, states: list[int]) -> None:
        """Build the rows of `states`."""
        entry = self.entry(index)
        with lock_of(entry.machine):
            for state in states:
                entry.machine.build(state)
        entry.outdate()
        self._uploaded = None

    def entry(self, index: int) -> _Entry:
        """Grammar `index`."""
        if index not in self._entries:
            raise InvalidOption(f"there is no grammar number {index} on the device")
        return self._entries[index]

    @property
    def is_whole(self) -> bool:
        """Whether no kernel can meet a row that is not built."""
        return all(entry.is_whole for entry in self._entries.values())

    def arrays(self) -> tuple[Array, Array]:
        """``heads`` (int32[G, HEAD_WORDS]) and ``data`` (uint8[]) of ``source/walk.h``."""
        if self._uploaded is None:
            heads = np.zeros((max(self._entries, default=0) + 1, HEAD_WORDS), np.int32)
            parts, end = [np.zeros(16, np.uint8)], 16
            for index, entry in self._entries.items():
                head, data = entry.packed
                heads[index, : len(head)] = head
                heads[index, : len(head) - 4] += end
                parts.append(data)
                end += len(data)
            self._uploaded = mx.array(heads), mx.array(np.concatenate(parts))
        return self._uploaded


class MlxWalker:
    """State of up to `max_rows` rows; their masks and steps.

    Args:
        vocabulary: the model's.
        grammars: that rows may follow.
        max_rows: R.
        kernels: of the device (`kernels_for_device`); None: plain operations.

    Attributes:
        rows: int32[R, 1 + CONFIG_WORDS] of mlx: each row's grammar (−1: none) and configuration.
        refused: int32[R] of mlx: the token that the last `advance` did not read, −1 where it read all.
    """

    def __init__(
        self, vocabulary: Vocabulary, grammars: MlxGrammars, max_rows: int, *, kernels: Kernels | None = None
    ) -> None:
        self.vocabulary, self.grammars, self.max_rows = vocabulary, grammars, max_rows
        self._kernels = kernels
        self._width = 32 * vocabulary.num_words
        starts, lengths = np.zeros((2, self._width), np.int32)
        starts[vocabulary.order] = vocabulary.offsets[:-1]
        lengths[vocabulary.order] = vocabulary.packed.lengths
        lengths[list(vocabulary.end_ids)] = END
        data = np.concatenate([vocabulary.data, np.zeros(MIN_COLUMNS, np.uint8)])
        self._spelled = mx.array(data), mx.array(starts), mx.array(lengths)
        self._is_token = mx.arange(self._width) < vocabulary.size
        self._levels: Levels | None = None
        rows = np.zeros((max_rows, 1 + CONFIG_WORDS), np.int32)
        rows[:, 0] = FREE
        self.rows = mx.array(rows)
        self.refused = mx.full((max_rows,), NOTHING, mx.int32)

    def set_row(self, row: int, grammar: int, config: Configuration | None = None) -> None:
        """Let `row` follow grammar number `grammar` (−1: none) from `config` (None: its start)."""
        if config is None:
            config = self.grammars.entry(grammar).machine.initial() if grammar >= 0 else Configuration(0)
        self.place(row, grammar, config.pack())

    def place(self, row: int, grammar: int, config: Int32) -> None:
        """`set_row` with a packed configuration (int32[CONFIG_WORDS]) that the host computed on the same machine."""
        if grammar >= 0 and not self.grammars.entry(grammar).knows(config):
            self.grammars.build(grammar, [int(config[0])])
        self.rows[row] = mx.array(np.concatenate([np.array([grammar], np.int32), config]))
        self.refused[row] = NOTHING

    def configuration(self, row: int) -> Configuration | None:
        """Where `row` stands; None: finished. Waits for the device."""
        words = np.array(self.rows[row])[1:]
        return None if words[0] == FINISHED else Configuration.unpack(words)

    # ------------------------------------------------------------------------------------------------- masks

    def bitmask(self, num_rows: int) -> Array:
        """int32[B, W]: the masks of the first rows, bit ``t % 32`` of word ``t // 32`` for token t."""
        bits = self.allowed(num_rows).reshape(num_rows, -1, 32).astype(mx.uint32)
        return (bits << mx.arange(32, dtype=mx.uint32)).sum(axis=2).astype(mx.uint32).view(mx.int32)

    def mask_logits(self, logits: Array) -> Array:
        """`logits` ([B, V or more], any float type) with −inf where a token may not come next."""
        if logits.shape[1] < self.vocabulary.size:
            raise InvalidOption(f"logits: expected {self.vocabulary.size} columns or more, got {logits.shape[1]}")
        return masked(logits, self.allowed(len(logits)))

    def argmax(self, logits: Array) -> Array:
        """int32[B]: each row's best admissible token, the lowest on a tie; −1 where no logit is finite."""
        values = self.mask_logits(logits)
        best = values.max(axis=1, keepdims=True)
        ids = mx.where(values == best, mx.arange(values.shape[1]), values.shape[1]).min(axis=1)
        return mx.where(mx.isfinite(best[:, 0]), ids, NOTHING).astype(mx.int32)

    def allowed(self, num_rows: int) -> Array:
        """bool[B, 32·W]: the tokens that may come next."""
        if self._kernels is None:
            return mx.array(self._walked(np.array(self.rows[:num_rows]))) & self._is_token
        while True:
            status = self._kernels.mask(*self.grammars.arrays(), *self._spelled, self.rows[:num_rows])
            if self.grammars.is_whole or not self._build_missing(status):
                return (status == ALIVE) & self._is_token

    # ------------------------------------------------------------------------------------------------- steps

    def advance(self, tokens: Array) -> None:
        """Read int32[B] or [B, S] tokens, row by row; −1 is read as nothing. All of a row's are read, or none."""
        tokens = tokens.reshape(len(tokens), -1).astype(mx.int32)
        count, length = tokens.shape
        before = self.rows[:count]
        if self._kernels is None:
            moved, refused = self._read(np.array(before), np.array(tokens))
        else:
            padded = mx.pad(tokens, [(0, 0), (0, max(0, MIN_COLUMNS - length))], constant_values=NOTHING)
            while True:
                inputs = (*self.grammars.arrays(), *self._spelled, before, padded)
                moved, status, refused = self._kernels.advance(*inputs)
                if self.grammars.is_whole or not self._build_missing(status[:, None]):
                    break
        self.rows[:count] = moved
        self.refused[:count] = refused

    # ------------------------------------------------------------------------------------------------- inside

    def _build_missing(self, status: Array) -> bool:
        """Build the rows that statuses (int32[B, n]) name; whether there were any. Waits for the device."""
        found = np.array(status)
        stalled = np.flatnonzero((found > ALIVE).any(axis=1))
        grammar = np.array(self.rows[:, 0])
        states: dict[int, set[int]] = {}
        for row in stalled.tolist():
            named = states.setdefault(int(grammar[row]), set())
            named.update((np.unique(found[row][found[row] > ALIVE]) - 1).tolist())
        for index, wanted in states.items():
            self.grammars.build(index, sorted(wanted))
        return bool(states)

    def _walked(self, rows: Int32) -> NDArray[np.bool_]:
        """bool[B, 32·W] by plain operations."""
        allowed = np.zeros((len(rows), self._width), np.bool_)
        grammar, ends = rows[:, 0], np.array(self.vocabulary.end_ids)
        allowed[grammar == FREE] = True
        is_finished = (grammar != FREE) & (rows[:, 1] == FINISHED)
        allowed[np.ix_(np.flatnonzero(is_finished), ends)] = True
        for index in sorted(set(grammar.tolist()) - {FREE}):
            chosen = np.flatnonzero((grammar == index) & ~is_finished)
            if len(chosen):
                allowed[chosen], accepting = self._walk_grammar(index, rows[chosen, 1:])
                allowed[np.ix_(chosen, ends)] = accepting[:, None]
        return allowed

    def _walk_grammar(self, index: int, configs: Int32) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        if self._levels is None:
            self._levels = levels_of(self.vocabulary.trie)
        while True:
            tables = self.grammars.entry(index).tables
            try:
                allowed = walk(tables, self._levels, configs, self._width)
                return allowed, np.array(Readers.at(configs).accepts(tables))
            except MissingRows as missing:
                self.grammars.build(index, missing.states)

    def _read(self, rows: Int32, tokens: Int32) -> tuple[Array, Array]:
        """The rows after their tokens, and the token of each that was not read, by plain operations."""
        refused = np.full(len(rows), NOTHING, np.int32)
        for row, given in zip(range(len(rows)), tokens.tolist(), strict=True):
            if rows[row, 0] == FREE:
                continue
            config = rows[row, 1:].copy()
            for token in (token for token in given if token != NOTHING):
                after = self._after(int(rows[row, 0]), config, token)
                if after is None:
                    refused[row] = token
                    break
                config = after
            else:
                rows[row, 1:] = config
        return mx.array(rows), mx.array(refused)

    def _after(self, index: int, config: Int32, token: int) -> Int32 | None:
        """The configuration after `token`, or None."""
        while True:
            try:
                return self._read_token(self.grammars.entry(index).tables, config, token)
            except MissingRows as missing:
                self.grammars.build(index, missing.states)

    def _read_token(self, tables: Tables, config: Int32, token: int) -> Int32 | None:
        is_finished = config[0] == FINISHED
        if token in self.vocabulary.end_ids:
            if not is_finished and not bool(Readers.at(config[None]).accepts(tables).item()):
                return None
            ended = np.zeros_like(config)
            ended[0] = FINISHED
            return ended
        data = self.vocabulary.token_bytes(token) if 0 <= token < self.vocabulary.size else None
        if is_finished or not data:
            return None
        reader = Readers.at(config[None])
        for byte in data:
            if not bool(reader.read(tables, mx.array([byte])).item()):
                return None
        packed: Int32 = reader.pack()[0]
        return packed


def masked(logits: Array, allowed: Array) -> Array:
    """`logits` ([B, n]) with −inf where `allowed` (bool[B, m]) says so, and past its columns."""
    missing = logits.shape[1] - allowed.shape[1]
    allowed = mx.pad(allowed, [(0, 0), (0, missing)]) if missing > 0 else allowed[:, : logits.shape[1]]
    return mx.where(allowed, logits, mx.array(-np.inf, logits.dtype))
