"""Decode steps as CUDA graphs: forward pass, mask, draw and advance in one launch, the host told one number a row.

A step of S tokens (1 … `MAX_SPAN`) for B rows is captured once and replayed::

    write into `inbox`     # tokens, lengths, positions, and where each row's walk begins
    graphs.feed(S)         # H2D copy, one launch, D2H copy; nothing waits
    graphs.read()          # waits: the tokens drawn

``chain()`` is the step that needs no word from the host: it feeds each row the token it drew last, from the state it
advanced to. ``draw()`` draws again from the logits at hand, after a new mask or a machine's missing rows.

**Capture.** A step runs as it is the first time it is asked for, which also compiles and tunes what needs that; it is
captured the second time. On any other device than CUDA it always runs as it is: the same code, for tests.

**Memory.** One pool for all graphs of a `StepGraphs`: they never run at once, and what must outlive a replay (logits,
tokens drawn, the rows' states) is copied out of it within the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from stcon.grammar.machine import CONFIG_WORDS
from stcon.kernels.cuda.sampling import DeviceSampling
from stcon.models.static import StaticCache, StaticModel, Tensor

Int32: TypeAlias = NDArray[np.int32]

MAX_SPAN = 16
PREFILL_CHUNK = 2048

WALK_FIELDS = ("config", "grammar", "min_bytes", "is_restricted")


class Walker(Protocol):
    """The constraint of R rows on the device (``docs/gpu.md``): `stcon.kernels.cuda.CudaWalker`, or a portable one."""

    config: Tensor
    grammar: Tensor
    min_bytes: Tensor
    is_restricted: Tensor
    allowed: Tensor
    missing: Tensor

    def argmax(self, logits: Tensor, out: Tensor, /) -> None:
        """Write each row's best admissible token (int32[B]); −1 where there is none or a row of edges is missing."""

    def sample(self, logits: Tensor, sampling: Any, out: Tensor, /) -> None:
        """Draw each row's token (int32[B]) as `stcon.engine.sampling.Sampling.draw` does; −1 as in `argmax`."""

    def advance(self, tokens: Tensor, /) -> None:
        """Read a token a row; −1 is read as nothing."""

    def build_missing(self) -> bool:
        """Build the rows of edges that were missing; False if none was."""

    def include(self, grammar: int, config: Int32, /) -> None:
        """Make sure that the device knows the states and symbols of a configuration that the host computed."""


class StepGraphs:
    """The steps of B rows over one cache. One thread at a time.

    Args:
        model: on its device.
        walker: of B rows on the same device; None: no row has a constraint, and all are greedy.
        vocab_size: V; the model may give more logits (padding) or fewer.
        rows: B.
        capacity: most tokens of a row.

    Attributes:
        cache: the rows' keys, values and states.
        inbox: what the host writes for `feed` and `draw`: ``tokens`` int64[B, 16]; ``lengths``, ``counts``,
            ``grammar``, ``min_bytes``, ``is_restricted`` int32[B]; ``config`` int32[B, 67]; ``positions`` int64[B].
        sampling: how rows are drawn where they are not greedy.
        logits: float32[B, V], those that the last token was drawn from, before any mask.
        launches: forward passes so far, those of prompts not counted.
        pool: the memory of all its graphs.
    """

    def __init__(
        self, model: StaticModel, walker: Walker | None, *, vocab_size: int, rows: int = 1, capacity: int = 1024
    ) -> None:
        self.model = model
        self.walker = walker
        self.rows = rows
        self.vocab_size = vocab_size
        self.device = torch.device(model.device)
        self.cache: StaticCache = model.new_cache(rows, capacity)
        if self.cache.recurrent:
            self.cache.save()  # makes its buffer before anything is captured
        self.sampling = DeviceSampling(rows, self.device)
        fields: Fields = {
            "tokens": (np.int64, (rows, MAX_SPAN)),
            "positions": (np.int64, (rows,)),
            "config": (np.int32, (rows, CONFIG_WORDS)),
            **dict.fromkeys(("lengths", "counts", *WALK_FIELDS[1:]), (np.int32, (rows,))),
        }
        self.inbox = Inbox(fields, self.device)
        self.logits = torch.full((rows, vocab_size), -torch.inf, dtype=torch.float32, device=self.device)
        self.launches = 0
        self._drawn = torch.zeros(rows, dtype=torch.int32, device=self.device)
        self._outbox = Outbox(self._drawn)
        self._lengths = torch.zeros(rows, dtype=torch.int32, device=self.device)
        self._words = _pinned((rows, -(-vocab_size // 32)), self.device)
        self._steps: dict[Hashable, Replayed] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    @property
    def capacity(self) -> int:
        """Most tokens of a row."""
        return self.cache.capacity

    # ------------------------------------------------------------------------------------------------- launches

    def prefill(self, row: int, tokens: Sequence[int], start: int = 0) -> None:
        """Feed a prompt, from a row's position `start` on, outside any graph; its last logits are then at hand.

        What the row's walk was left with (a row of edges that was missing) is forgotten.

        Cost: one pass for each `PREFILL_CHUNK` tokens.
        """
        alone = self.cache if self.rows == 1 else self.cache.slice(row, row + 1)
        with torch.no_grad():
            ids = torch.tensor([list(tokens)], dtype=torch.int64).to(self.device, non_blocking=True)
            for begin in range(0, ids.shape[1], PREFILL_CHUNK):
                part = ids[:, begin : begin + PREFILL_CHUNK]
                lengths = torch.full((1,), start + begin, dtype=torch.int32, device=self.device)
                logits = self.model.forward(part, lengths, alone)
            width = min(self.vocab_size, logits.shape[1])
            self.logits[row, :width].copy_(logits[0, :width])
            self._lengths[row].fill_(start + ids.shape[1])
            if self.walker is not None:
                self.walker.missing[row].fill_(-1)

    def feed(self, span: int, *, greedy: bool = True, ragged: bool = False) -> None:
        """Append ``tokens[:, :span]`` to the rows, then draw.

        Args:
            span: S.
            greedy: all rows are; else they are drawn as `sampling` says.
            ragged: rows have ``counts`` tokens of the S.
        """

        def step() -> None:
            self._receive()
            self._lengths.copy_(self.inbox.device["lengths"])
            self._append(self.inbox.device["tokens"][:, :span], ragged)
            self._draw(greedy)

        self.launches += 1
        self.inbox.send()
        self._run(("feed", span, greedy, ragged), step)

    def push(self, span: int) -> None:
        """Append ``tokens[:, :span]`` to the rows and draw nothing; what is reported means nothing."""

        def step() -> None:
            self._lengths.copy_(self.inbox.device["lengths"])
            self._append(self.inbox.device["tokens"][:, :span], False)

        self.launches += 1
        self.inbox.send()
        self._run(("push", span), step)

    def chain(self, *, greedy: bool = True, careful: bool = False) -> None:
        """Append to each row the token it drew last, from where its walk stands, then draw.

        Args:
            greedy: as in `feed`.
            careful: so that it can be undone: recurrent states are saved before it (`StaticCache.restore`), and a row
                that drew −1 keeps its logits and length.
        """

        def step() -> None:
            if careful:
                self.cache.save()
                self._append_drawn()
            else:
                self._append(self._drawn.long().clamp(min=0)[:, None], False)
            self._draw(greedy)

        self.launches += 1
        self._run(("chain", greedy, careful), step)

    def draw(self, *, greedy: bool = True) -> None:
        """Draw from the logits at hand, the rows' walks beginning where the inbox says."""

        def step() -> None:
            self._receive()
            self._draw(greedy)

        self.inbox.send()
        self._run(("draw", greedy), step)

    def restrict(self, row: int, mask: Int32) -> None:
        """Have a row's mask and-ed with `mask` (int32[W]) where ``is_restricted`` says so; one in flight a row."""
        assert self.walker is not None, "a mask needs a walker"
        self._words[row].numpy()[:] = mask
        self.walker.allowed[row].copy_(self._words[row], non_blocking=True)

    # ------------------------------------------------------------------------------------------------- reports

    def wait(self) -> None:
        """Wait for the oldest launch that was not read yet."""
        self._outbox.wait()

    def read(self) -> Int32:
        """Wait for the oldest launch that was not read yet: int32[B], the tokens drawn, −1 as in `Walker.argmax`."""
        return self._outbox.read()

    def drain(self) -> None:
        """Wait for every launch under way and forget what it drew."""
        while self._outbox.num_unread:
            self._outbox.read()

    def warm_up(self, spans: Sequence[int], *, greedy: bool = True) -> None:
        """Capture steps now, with the rows empty. Overwrites what the rows hold."""
        for array in self.inbox.host.values():
            array[...] = 0
        self.inbox.host["grammar"][...] = -1
        for _ in range(2):
            for span in spans:
                self.feed(span, greedy=greedy)
                self.drain()
            self.chain(greedy=greedy, careful=self.cache.recurrent)
            self.drain()
            self.draw(greedy=greedy)
            self.drain()

    # ------------------------------------------------------------------------------------------------- inside

    def _run(self, key: Hashable, step: Callable[[], None]) -> None:
        replayed = self._steps.get(key)
        if replayed is None:
            replayed = self._steps[key] = Replayed(step, self.pool)
        with torch.no_grad():
            replayed()
        self._outbox.send()

    def _receive(self) -> None:
        """Take over where the rows' walks begin."""
        if self.walker is not None:
            targets = [getattr(self.walker, name)[: self.rows] for name in WALK_FIELDS]
            torch._foreach_copy_(targets, [self.inbox.device[name] for name in WALK_FIELDS])
            self.sampling.positions.copy_(self.inbox.device["positions"])

    def _append(self, tokens: Tensor, ragged: bool) -> None:
        """One forward pass over `tokens` (int64[B, S])."""
        counts = self.inbox.device["counts"] if ragged else None
        logits = self.model.forward(tokens, self._lengths, self.cache, counts)
        self._lengths += tokens.shape[1] if counts is None else counts
        width = min(self.vocab_size, logits.shape[1])
        self.logits[:, :width].copy_(logits[:, :width])

    def _append_drawn(self) -> None:
        """One forward pass over the tokens drawn, of which −1 changes neither logits nor length."""
        logits = self.model.forward(self._drawn.long().clamp(min=0)[:, None], self._lengths, self.cache)
        is_token = self._drawn >= 0
        self._lengths += is_token
        width = min(self.vocab_size, logits.shape[1])
        kept = self.logits[:, :width]
        kept.copy_(torch.where(is_token[:, None], logits[:, :width], kept))

    def _draw(self, greedy: bool) -> None:
        """Mask, draw, advance."""
        if self.walker is None:
            self._drawn.copy_(torch.argmax(self.logits, dim=1))  # the lowest id on a tie, as documented
        elif greedy:
            self.walker.argmax(self.logits, self._drawn)
        else:
            self.walker.sample(self.logits, self.sampling, self._drawn)
        if self.walker is not None:
            self.walker.advance(self._drawn)


class Replayed:
    """A function of no arguments as a CUDA graph, from its second call on; elsewhere the function itself."""

    def __init__(self, function: Callable[[], None], pool: Any) -> None:
        self._function = function
        self._pool = pool
        self._graph: Any = None
        self._calls = 0

    def __call__(self) -> None:
        """Run it, or capture and replay it."""
        self._calls += 1
        if self._pool is None or self._calls == 1:
            self._function()
            return
        if self._graph is None:
            torch.cuda.current_stream().synchronize()
            self._graph = torch.cuda.CUDAGraph()
            # what other threads do meanwhile (another model's session, say) is theirs
            with torch.cuda.graph(self._graph, pool=self._pool, capture_error_mode="thread_local"):
                self._function()
        self._graph.replay()


Fields: TypeAlias = Mapping[str, tuple[Any, tuple[int, ...]]]
"""Name → (numpy dtype, shape)."""

_TORCH = {"int32": torch.int32, "int64": torch.int64}


class Inbox:
    """Arrays that the host writes and a device reads, sent in one copy.

    Attributes:
        host: name → numpy array; `device`: name → tensor, the same bytes once sent.
    """

    def __init__(self, fields: Fields, device: torch.device) -> None:
        places, size = {}, 0
        for name, (dtype, shape) in fields.items():
            places[name] = (size, size + int(np.prod(shape)) * np.dtype(dtype).itemsize)
            size += -(-(places[name][1] - size) // 16) * 16
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)

        def view(buffer: Tensor, name: str) -> Tensor:
            (dtype, shape), (begin, end) = fields[name], places[name]
            return buffer[begin:end].view(_TORCH[np.dtype(dtype).name]).view(shape)

        self.host = {name: view(self._host, name).numpy() for name in fields}
        self.device = {name: view(self._device, name) for name in fields}

    def send(self) -> None:
        """Host to device, in stream order. The host may write again once a report of a later launch was read."""
        self._device.copy_(self._host, non_blocking=True)


class Outbox:
    """A device's tensor as the host reads it, one copy a launch; two reports may be under way."""

    def __init__(self, source: Tensor) -> None:
        self._source = source
        self._hosts = [_pinned(source.shape, source.device) for _ in range(2)]
        self._events = [torch.cuda.Event() if source.device.type == "cuda" else None for _ in range(2)]
        self._sent = self._read = 0

    @property
    def num_unread(self) -> int:
        """Reports under way."""
        return self._sent - self._read

    def send(self) -> None:
        """Device to host, in stream order."""
        assert self.num_unread < 2, "read a report before asking for a third"
        self._hosts[self._sent % 2].copy_(self._source, non_blocking=True)
        event = self._events[self._sent % 2]
        if event is not None:
            event.record()
        self._sent += 1

    def wait(self) -> None:
        """Wait for the oldest report; it stays unread."""
        assert self.num_unread, "nothing was launched"
        event = self._events[self._read % 2]
        if event is not None:
            event.synchronize()

    def read(self) -> Int32:
        """The oldest report, once it is there: a copy."""
        self.wait()
        self._read += 1
        return np.array(self._hosts[(self._read - 1) % 2].numpy())


def _pinned(shape: Sequence[int], device: torch.device) -> Tensor:
    """int32 zeros on the host, page-locked where the device is a GPU."""
    return torch.zeros(tuple(shape), dtype=torch.int32, pin_memory=device.type == "cuda")
