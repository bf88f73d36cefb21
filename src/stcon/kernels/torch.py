"""The walk on any device that torch knows (CPU, MPS, ROCm …): level by level, by gathers. Same answers as `reference`.

**When to use.** Where there is neither an NVIDIA GPU (`stcon.kernels.cuda`) nor a reason to keep masks on the host
(`stcon.kernels.cpu`, which is faster than this on a CPU).

**How.** The trie's nodes lie level by level, the children of a node side by side. A level of the walk is one step of
the machine for every child of a live node, in all rows at once: a dozen gathers. Stacks are linked lists in one arena,
so that a push copies nothing and a pop is a gather. Plain text inside strings is decided by its length
(`stcon.kernels.plain`), and only the other tokens are walked.

**Waits.** Which nodes live is known on the device only, so every level waits for it once; nothing here can be captured
in a graph. The interface is that of `stcon.kernels.cuda` (``docs/gpu.md``), less need tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stcon.errors import DecodingError, InvalidOption
from stcon.grammar.locks import lock_of
from stcon.grammar.machine import (
    ACTION,
    CONFIG_WORDS,
    COUNT,
    DEAD,
    FINAL,
    RESET,
    STACK_CAP,
    UNBOUNDED,
    UNBUILT,
    Configuration,
    Machine,
    Tables,
)
from stcon.kernels import plain
from stcon.kernels.levels import levels_of
from stcon.kernels.stepping import SEEN_WORDS

if TYPE_CHECKING:
    from stcon.kernels.cuda.sampling import DeviceSampling
    from stcon.vocab.trie import TokenTrie
    from stcon.vocab.vocabulary import Vocabulary

FINISHED = -1
FRAMES = STACK_CAP + 1  # arena entries of a row's own stack; the first is the empty stack


class MissingRows(Exception):
    """States whose rows of edges are not built and were met."""

    def __init__(self, states: list[int]) -> None:
        super().__init__(states)
        self.states = states


class LevelTrie(NamedTuple):
    """A trie's nodes by level, the children of a node side by side.

    Attributes:
        num_roots: nodes of the first level.
        byte: int64[M].
        child, num_children: int64[M], the first child of each node and how many there are.
        token, num_tokens: int64[M], the first of its tokens in `tokens` and how many there are.
        tokens: int64[N].
    """

    num_roots: int
    byte: Tensor
    child: Tensor
    num_children: Tensor
    token: Tensor
    num_tokens: Tensor
    tokens: Tensor


def level_trie(trie: TokenTrie, device: torch.device) -> LevelTrie:
    """`trie` by level. Cost: one sort of its nodes."""
    levels = levels_of(trie)
    return LevelTrie(levels.num_roots, *(torch.from_numpy(array).to(device) for array in levels[1:]))


class TorchTables:
    """A machine's tables as tensors, and the memo of where plain characters lead; refreshed when rows were built."""

    def __init__(self, machine: Machine, device: torch.device) -> None:
        self.machine = machine
        self.device = device
        self._memo = plain.new_memo(0)
        self.refresh()

    def refresh(self) -> None:
        """Upload the tables as they are now. Hold the machine's lock."""
        machine = self.machine
        tables = machine.tables()
        self.host: Tables = tables
        if len(tables.label) > len(self._memo):
            self._memo = plain.new_memo(len(tables.label), self._memo)
        n, k = machine.num_states, machine.num_classes
        self.num_classes = k
        self.byte_class = self._tensor(tables.byte_class)
        self.delta = self._tensor(tables.delta[:n, :k].reshape(-1))
        self.label, self.flags = self._tensor(tables.label[:n]), self._tensor(tables.flags[:n])
        self.lo, self.hi = self._tensor(tables.counter_lo[:n]), self._tensor(tables.counter_hi[:n])
        self.action_target, self.action_start = self._tensor(tables.action_target), self._tensor(tables.action_start)
        self.action_symbols = self._tensor(tables.action_symbols)
        self.resume_start, self.resume = self._tensor(tables.resume_start), self._tensor(tables.resume)

    def plain_run(self, config: NDArray[np.int32], longest: int) -> int:
        """`plain.run` from `config`, or `plain.MIXED`. Raises `MissingRows`."""
        seen = np.zeros(SEEN_WORDS, np.int64)
        run, missing = plain.run(tuple(self.host), self._memo, config, seen, longest)
        if run == plain.NEEDS_ROW:
            raise MissingRows([int(missing)])
        return int(run)

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array).astype(np.int64)).to(self.device)


@dataclass
class Readers:
    """Configurations that are read on side by side, one an element of each int64[n].

    Attributes:
        row: which row it belongs to.
        state, counter, height: its configuration; `height` symbols on its stack.
        top: the arena entry of the top symbol.
        symbol, below: the arena.
    """

    row: Tensor
    state: Tensor
    counter: Tensor
    height: Tensor
    top: Tensor
    symbol: Tensor
    below: Tensor

    @classmethod
    def at(cls, configs: Tensor) -> Readers:
        """One for each of `configs` (int64[n, CONFIG_WORDS])."""
        count, device = len(configs), configs.device
        row = torch.arange(count, device=device)
        symbol = torch.cat([torch.zeros((count, 1), dtype=torch.int64, device=device), configs[:, 3:]], dim=1)
        below = torch.arange(count * FRAMES, device=device) - 1
        top = row * FRAMES + configs[:, 1]
        return cls(row, configs[:, 0], configs[:, 2], configs[:, 1], top, symbol.reshape(-1), below)

    def select(self, index: Tensor) -> Readers:
        """Those at `index` (indices or a bool mask), on the same arena."""
        parts = (self.row[index], self.state[index], self.counter[index], self.height[index], self.top[index])
        return Readers(*parts, self.symbol, self.below)

    def read(self, tables: TorchTables, byte: Tensor) -> Tensor:
        """Read one byte each (int64[n]), in place; bool[n], where the step is defined. Raises `MissingRows`.

        Source: `Machine.step`, its three parts in order.
        """
        k = tables.byte_class[byte]
        edge = tables.delta[self.state * tables.num_classes + k]
        alive = torch.ones_like(edge, dtype=torch.bool)
        while bool((returning := alive & (edge == DEAD)).any()):
            alive &= ~returning | ((tables.label[self.state] >= 0) & (self.height > 0))
            returning &= alive
            alive &= self._return(tables, returning)
            edge = torch.where(returning & alive, tables.delta[self.state * tables.num_classes + k], edge)
        if bool((unbuilt := alive & (edge == UNBUILT)).any()):
            raise MissingRows(self.state[unbuilt].unique().tolist())
        alive &= self._push(tables, torch.where(alive, edge, 0))
        alive &= self._enter(tables, alive)
        while bool((ended := alive & (tables.flags[self.state] & FINAL != 0) & (self.height > 0)).any()):
            alive &= self._return(tables, ended)
        return alive

    def accepts(self, tables: TorchTables) -> Tensor:
        """bool[n]: `Machine.accepts`. Uses the stacks up."""
        done = torch.zeros_like(self.state, dtype=torch.bool)
        going = tables.label[self.state] >= 0
        while bool(going.any()):
            done |= going & (self.height == 0)
            going &= self.height > 0
            resumed = self._pop(tables, going)
            going &= resumed != DEAD
            self.state = torch.where(going, resumed, self.state)
            going &= tables.label[self.state] >= 0
        return done

    def pack(self) -> Tensor:
        """int64[n, CONFIG_WORDS], the inverse of `at`."""
        out = torch.zeros((len(self.state), CONFIG_WORDS), dtype=torch.int64, device=self.state.device)
        out[:, 0], out[:, 1], out[:, 2] = self.state, self.height, self.counter
        top, height = self.top.clone(), self.height.clone()
        while bool((left := (height > 0).nonzero()[:, 0]).numel()):
            out[left, 2 + height[left]] = self.symbol[top[left]]
            top[left] = self.below[top[left]]
            height[left] -= 1
        return out

    def _pop(self, tables: TorchTables, where: Tensor) -> Tensor:
        """Take the top symbol off `where`; where it continues."""
        place = torch.where(where, tables.resume_start[torch.where(where, self.symbol[self.top], 0)], 0)
        resumed = tables.resume[place + torch.where(where, tables.label[self.state], 0)]
        self.top = torch.where(where, self.below[self.top], self.top)
        self.height = self.height - where.long()
        return resumed

    def _return(self, tables: TorchTables, where: Tensor) -> Tensor:
        """Pop and enter; bool[n], False where that is not allowed."""
        if not tables.machine.num_symbols:
            return ~where
        resumed = self._pop(tables, where)
        self.state = torch.where(where & (resumed != DEAD), resumed, self.state)
        return ~where | ((resumed != DEAD) & self._enter(tables, where & (resumed != DEAD)))

    def _enter(self, tables: TorchTables, where: Tensor) -> Tensor:
        """Count on entering the present state, then test; bool[n], True outside `where`."""
        flags = tables.flags[self.state]
        counted = torch.where(flags & RESET != 0, 0, self.counter + (flags & COUNT != 0).long())
        self.counter = torch.where(where, counted, self.counter)
        return ~where | ((tables.lo[self.state] <= self.counter) & (self.counter <= tables.hi[self.state]))

    def _push(self, tables: TorchTables, edge: Tensor) -> Tensor:
        """Take `edge`: push its symbols and move to its target; False past the cap."""
        is_action = edge <= ACTION
        if not bool(is_action.any()):
            self.state = edge
            return torch.ones_like(is_action)
        action = torch.where(is_action, ACTION - edge, 0)
        begin = tables.action_start[action]
        count = torch.where(is_action, tables.action_start[action + 1] - begin, 0)
        fits = self.height + count <= STACK_CAP
        for i in range(int(count.max())):
            pushed = (fits & (i < count)).nonzero()[:, 0]
            entries = len(self.symbol) + torch.arange(len(pushed), device=edge.device)
            self.symbol = torch.cat([self.symbol, tables.action_symbols[begin[pushed] + i]])
            self.below = torch.cat([self.below, self.top[pushed]])
            self.top = self.top.index_copy(0, pushed, entries)
        self.height = self.height + torch.where(fits, count, 0)
        self.state = torch.where(is_action, tables.action_target[action], edge)
        return fits


class TorchGrammars:
    """Machines by number, as `stcon.kernels.cuda.CudaGrammars`."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.zeros(0, device=device).device
        self._tables: dict[int, TorchTables] = {}

    def add(self, machine: Machine, /) -> int:
        """Put `machine` on the device; returns its number."""
        index = next(i for i in range(len(self._tables) + 1) if i not in self._tables)
        with lock_of(machine):
            machine.build(machine.start)
            self._tables[index] = TorchTables(machine, self.device)
        return index

    def remove(self, index: int, /) -> None:
        """Forget grammar `index`."""
        self.tables(index)
        del self._tables[index]

    def build(self, index: int, states: list[int]) -> None:
        """Build the rows of `states` and upload the tables again."""
        tables = self.tables(index)
        with lock_of(tables.machine):
            for state in states:
                tables.machine.build(state)
            tables.refresh()

    def tables(self, index: int) -> TorchTables:
        """The tables of grammar `index`."""
        if index not in self._tables:
            raise InvalidOption(f"there is no grammar number {index} on the device")
        return self._tables[index]


class TorchWalker:
    """State of up to `max_rows` rows and what `stcon.kernels.cuda.CudaWalker` does with them, by torch alone.

    Rows of edges that are not built are built as they are met, so `missing` stays −1 and `build_missing` has nothing to
    do.
    """

    def __init__(self, vocabulary: Vocabulary, grammars: TorchGrammars, max_rows: int, *, max_banned: int = 64) -> None:
        self.vocabulary, self.grammars, self.max_rows = vocabulary, grammars, max_rows
        self.device = grammars.device

        def rows(value: int, *shape: int) -> Tensor:
            return torch.full((max_rows, *shape), value, dtype=torch.int32, device=self.device)

        self.config, self.grammar = rows(0, CONFIG_WORDS), rows(-1)
        self.min_bytes, self.remaining, self.refused, self.missing = rows(0), rows(UNBOUNDED), rows(-1), rows(-1)
        self.is_restricted, self.allowed = rows(0), rows(0, vocabulary.num_words)
        self.num_banned, self.banned = rows(0), rows(0, max_banned)
        self._plain = plain.PlainTokens(vocabulary)
        self._plain_words = torch.from_numpy(self._plain.words).to(self.device)
        self._tries: dict[bool, LevelTrie] = {}
        lengths = np.zeros(vocabulary.size, np.int64)
        lengths[vocabulary.order] = vocabulary.packed.lengths
        self._lengths = torch.from_numpy(lengths).to(self.device)
        self._ends = torch.tensor(vocabulary.end_ids, dtype=torch.int64, device=self.device)

    # ------------------------------------------------------------------------------------------------- rows

    def set_row(self, row: int, grammar: int, config: Configuration | None = None) -> None:
        """Let `row` follow grammar number `grammar` (−1: none) from `config` (None: its start), without limits."""
        if config is None:
            config = self.grammars.tables(grammar).machine.initial() if grammar >= 0 else Configuration(0)
        self.config[row].copy_(torch.from_numpy(config.pack()))
        self.grammar[row] = grammar
        self.remaining[row] = UNBOUNDED
        for tensor in (self.min_bytes, self.is_restricted, self.num_banned):
            tensor[row] = 0
        self.refused[row] = -1

    def configuration(self, row: int) -> Configuration | None:
        """Where `row` stands; None: finished."""
        words = self.config[row].cpu().numpy()
        return None if words[0] == FINISHED else Configuration.unpack(words)

    def build_missing(self) -> bool:
        """False: rows are built as they are met."""
        return False

    # ------------------------------------------------------------------------------------------------- kernels

    def bitmask(self, out: Tensor) -> None:
        """Write the masks of the first ``len(out)`` rows to int32[B, W]."""
        out.copy_(pack_bits(self._allowed(len(out))))

    def mask_logits(self, logits: Tensor) -> None:
        """Write −inf over the logits ([B, V or more]) of tokens that may not come next, in place."""
        logits[:, : self.vocabulary.size].masked_fill_(~self._allowed(len(logits)), -torch.inf)
        logits[:, self.vocabulary.size :] = -torch.inf

    def argmax(self, logits: Tensor, out: Tensor) -> None:
        """Write each row's best admissible token; the lowest id on a tie, −1 where no logit is finite."""
        masked = logits.float().clone()
        self.mask_logits(masked)
        best = masked.amax(dim=1, keepdim=True)  # NaN if there is one
        ids = torch.arange(masked.shape[1], device=self.device).expand_as(masked)
        first = torch.where(masked == best, ids, masked.shape[1]).amin(dim=1)
        out.copy_(torch.where(best[:, 0].isfinite(), first, -1).to(torch.int32))

    def sample(self, logits: Tensor, sampling: DeviceSampling, out: Tensor) -> None:
        """Draw each row's token by the host's sampler (`stcon.engine.sampling`), −1 where it finds none."""
        from stcon.engine.sampling import Sampling

        masked = logits.float().clone()
        self.mask_logits(masked)
        rows = masked.cpu().numpy()
        options = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.seeds)
        values = list(zip(*(tensor[: len(rows)].tolist() for tensor in options), strict=True))
        for row, (temperature, top_k, top_p, min_p, seed) in enumerate(values):
            draws = Sampling(temperature, top_k, top_p, min_p, seed % 2**64)
            try:
                out[row] = draws.draw(rows[row], int(sampling.positions[row]))
                sampling.positions[row] += 1
            except DecodingError:
                out[row] = -1

    def advance(self, tokens: Tensor) -> None:
        """Read int32[B] or [B, S] tokens, row by row; −1 is read as nothing. All of a row's are read, or none."""
        for row, given in enumerate(tokens.reshape(len(tokens), -1).tolist()):
            index = int(self.grammar[row])
            chosen = [token for token in given if token != -1]
            if index < 0 or not chosen:
                continue
            config = self.config[row].long()
            for token in chosen:
                after = self._after(index, config, token)
                if after is None:
                    self.refused[row] = token
                    break
                config = after
            else:
                self.config[row] = config.to(torch.int32)
                if self.remaining[row] != UNBOUNDED:
                    self.remaining[row] = max(0, int(self.remaining[row]) - len(chosen))

    # ------------------------------------------------------------------------------------------------- inside

    def _after(self, index: int, config: Tensor, token: int) -> Tensor | None:
        """The configuration after `token`, or None."""
        while True:
            try:
                return self._read_token(self.grammars.tables(index), config, token)
            except MissingRows as missing:
                self.grammars.build(index, missing.states)

    def _read_token(self, tables: TorchTables, config: Tensor, token: int) -> Tensor | None:
        is_finished = int(config[0]) == FINISHED
        if token in self.vocabulary.end_ids:
            if not is_finished and not bool(Readers.at(config[None]).accepts(tables)):
                return None
            ended = torch.zeros_like(config)
            ended[0] = FINISHED
            return ended
        data = self.vocabulary.token_bytes(token) if 0 <= token < self.vocabulary.size else None
        if is_finished or not data:
            return None
        reader = Readers.at(config[None])
        for byte in data:
            if not bool(reader.read(tables, torch.tensor([byte], device=self.device))):
                return None
        return reader.pack()[0]

    def _allowed(self, num_rows: int) -> Tensor:
        """bool[num_rows, V]."""
        allowed = torch.zeros((num_rows, self.vocabulary.size), dtype=torch.bool, device=self.device)
        grammar, state = self.grammar[:num_rows], self.config[:num_rows, 0]
        allowed[grammar < 0] = True
        accepting = (grammar < 0) | (state == FINISHED)
        for index in sorted(set(grammar.tolist()) - {-1}):
            rows = ((grammar == index) & (state != FINISHED)).nonzero()[:, 0]
            if len(rows):
                allowed[rows], accepting[rows] = self._walk(index, rows)
        return self._limited(allowed, accepting)

    def _limited(self, allowed: Tensor, accepting: Tensor) -> Tensor:
        """`allowed` with the end tokens, as the rows' own limits leave it."""
        num_rows = len(allowed)
        is_short = (self._lengths > 0) & (self._lengths < self.min_bytes[:num_rows, None])
        allowed &= ~is_short
        allowed[:, self._ends] = (accepting & (self.remaining[:num_rows] > 0))[:, None]
        restricted = self.is_restricted[:num_rows].nonzero()[:, 0]
        if len(restricted):
            allowed[restricted] &= unpack_bits(self.allowed[restricted], self.vocabulary.size)
        for row in self.num_banned[:num_rows].nonzero()[:, 0].tolist():
            allowed[row, self.banned[row, : int(self.num_banned[row])].long()] = False
        return allowed

    def _walk(self, index: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """bool[n, V] and bool[n]: the tokens of `rows` of one grammar, end tokens aside, and whether each accepts."""
        configs = self.config[rows].long()
        while True:
            try:
                tables = self.grammars.tables(index)
                return self._walk_built(tables, configs), Readers.at(configs).accepts(tables)
            except MissingRows as missing:
                self.grammars.build(index, missing.states)

    def _walk_built(self, tables: TorchTables, configs: Tensor) -> Tensor:
        host = configs.to(torch.int32).cpu().numpy()
        runs = np.array([tables.plain_run(config, self._plain.longest) for config in host])
        is_mixed = runs == plain.MIXED
        words = self._plain.row_of_run[np.where(is_mixed, 0, runs)]
        words[is_mixed] = 0
        allowed = unpack_bits(
            self._plain_words[torch.from_numpy(words.astype(np.int64)).to(self.device)], self.vocabulary.size
        )
        for whole in (False, True):
            chosen = torch.from_numpy(np.flatnonzero(is_mixed == whole)).to(self.device)
            if len(chosen):
                allowed[chosen] |= walk(tables, self._trie(whole), configs[chosen], self.vocabulary.size)
        return allowed

    def _trie(self, whole: bool) -> LevelTrie:
        """The trie of all tokens, or of those that are not plain."""
        if whole not in self._tries:
            self._tries[whole] = level_trie(self.vocabulary.trie if whole else self.vocabulary.rest, self.device)
        return self._tries[whole]


def walk(tables: TorchTables, trie: LevelTrie, configs: Tensor, size: int) -> Tensor:
    """bool[n, size]: the tokens of `trie` whose bytes can be read from each of `configs` (int64[n, CONFIG_WORDS]).

    Raises:
        MissingRows: rows of edges have to be built first.
    """
    allowed = torch.zeros((len(configs), size), dtype=torch.bool, device=configs.device)
    readers = Readers.at(configs)
    row = torch.arange(len(configs), device=configs.device).repeat_interleave(trie.num_roots)
    node = torch.arange(trie.num_roots, device=configs.device).repeat(len(configs))
    readers = readers.select(row)
    while len(node):
        alive = readers.read(tables, trie.byte[node])
        readers, node = readers.select(alive), node[alive]
        owner, token = spread(trie.token[node], trie.num_tokens[node])
        allowed[readers.row[owner], trie.tokens[token]] = True
        owner, node = spread(trie.child[node], trie.num_children[node])
        readers = readers.select(owner)
    return allowed


def spread(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """For ranges ``first[i] … first[i] + count[i] − 1``: the number i and the member, range after range."""
    owner = torch.arange(len(first), device=first.device).repeat_interleave(count)
    within = torch.arange(len(owner), device=first.device) - (count.cumsum(0) - count)[owner]
    return owner, first[owner] + within


def pack_bits(allowed: Tensor) -> Tensor:
    """int32[B, W] of bool[B, V]: bit ``t % 32`` of word ``t // 32`` for token t."""
    padded = torch.nn.functional.pad(allowed, (0, -allowed.shape[1] % 32)).reshape(len(allowed), -1, 32).long()
    words = (padded << torch.arange(32, device=allowed.device)).sum(dim=2)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpack_bits(words: Tensor, size: int) -> Tensor:
    """bool[B, size] of int32[B, W]."""
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device) & 1
    return bits.reshape(len(words), -1)[:, :size].bool()
