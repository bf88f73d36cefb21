"""Draws on the device: one walk for all rows and grammars of a step, then each row's token, greedy or sampled.

A row whose mask is the machine's own (`stcon.engine.control.Place.is_exact`) is walked on the device from its
configuration; for any other the host sends the mask it has. Tokens are those that `Sampling.draw` gives on the host:
the kernels use the same counters (``docs/gpu.md``). Only what needs the logits themselves (penalties,
log-probabilities, a limit that forbids the token drawn) is left to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stcon.grammar.machine import CONFIG_WORDS, Machine

if TYPE_CHECKING:
    from stcon.engine.output import Output

Tensor = Any

MAX_GRAMMARS = 256
MAX_REPEATS = 10_000


class Grammars(Protocol):
    """Tables of machines on the device: `stcon.kernels.cuda.CudaGrammars`."""

    def add(self, machine: Machine, /) -> int:
        """Upload a machine; returns its number."""

    def remove(self, index: int, /) -> None:
        """Forget it."""


class DeviceDraws:
    """Draws for at most `rows` rows a step.

    Args:
        grammars: tables of machines.
        walker: of at least `rows` rows over them: `stcon.kernels.cuda.CudaWalker`.
        rows: most rows of a step.
        vocab_size: V.
        device: where the logits are.
    """

    def __init__(self, grammars: Grammars, walker: Any, *, rows: int, vocab_size: int, device: Any) -> None:
        import torch

        from stcon.kernels.cuda.sampling import DeviceSampling
        from stcon.models.graphs import Inbox

        self._grammars = grammars
        self._walker = walker
        self._size = vocab_size
        self._device = torch.device(device)
        self._sampling = DeviceSampling(rows, self._device)
        one = (rows,)
        self._inbox = Inbox(
            {
                "config": (np.int32, (rows, CONFIG_WORDS)),
                "grammar": (np.int32, one),
                "min_bytes": (np.int32, one),
                "is_restricted": (np.int32, one),
                "top_k": (np.int32, one),
                "seeds": (np.int64, one),
                "positions": (np.int64, one),
            },
            self._device,
        )
        self._shares = np.zeros((3, rows))
        self._shares[1] = 1.0  # a row that is passed over keeps options that are ones
        self._drawn = torch.zeros(rows, dtype=torch.int32, device=self._device)
        self._indices: dict[Machine, int] = {}

    def __call__(self, logits: Tensor, outputs: Sequence[Output], slots: Sequence[int] | None = None) -> list[int]:
        """A token for each output.

        Args:
            logits: float32[B, V or more].
            outputs: whose tokens are wanted.
            slots: the row of `logits` of each output; None: their order. Other rows are passed over.

        Returns:
            Token ids; -1 where the host must draw.

        Cost: one walk and one draw, and one more of each where a row of a machine was not built yet; waits for the
        device once.
        """
        slots = range(len(outputs)) if slots is None else slots
        count = max(slots) + 1
        greedy = all(output.sampling.greedy for output in outputs)
        self._place(outputs, slots, greedy=greedy)
        logits = self._fitted(logits[:count])
        drawn = self._drawn[:count]
        for _ in range(MAX_REPEATS):
            if greedy:
                self._walker.argmax(logits, drawn)
            else:
                self._sampling.positions.copy_(self._inbox.device["positions"])
                self._walker.sample(logits, self._sampling, drawn)
            every: list[int] = drawn.tolist()
            tokens = [every[slot] for slot in slots]
            if min(tokens) >= 0 or not self._walker.build_missing():
                return tokens
        return [-1] * len(outputs)

    def _fitted(self, logits: Tensor) -> Tensor:
        """float32[B, V or more]: padded with logits that are never drawn where some are missing."""
        import torch

        missing = self._size - logits.shape[1]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing > 0 else logits

    def _place(self, outputs: Sequence[Output], slots: Sequence[int], *, greedy: bool) -> None:
        """Tell the device where each row's walk begins, what the host adds to it, and how it is drawn."""
        import torch

        host, masks = self._inbox.host, {}
        host["grammar"][:] = -1
        host["is_restricted"][:] = 0
        host["min_bytes"][:] = 0
        for row, output in zip(slots, outputs, strict=True):
            step, sampling = output.step, output.sampling
            place = step.place
            if place is not None and place.is_exact and output.grammar is not None:
                index = self._index(output.grammar.machine)
                self._walker.include(index, place.config)
                host["grammar"][row] = index
                host["config"][row] = place.config
                host["min_bytes"][row] = place.min_bytes
            elif step.mask is not None:
                host["is_restricted"][row] = 1
                masks[row] = step.mask
            if greedy:
                continue
            host["positions"][row] = len(output.tokens)
            host["top_k"][row] = sampling.top_k
            seed = sampling.seed or 0
            host["seeds"][row] = seed - (1 << 64) if seed >= 1 << 63 else seed
            self._shares[:, row] = sampling.temperature, sampling.top_p, sampling.min_p
        self._inbox.send()
        sent = self._inbox.device
        names = ("config", "grammar", "min_bytes", "is_restricted")
        size = len(sent["grammar"])
        torch._foreach_copy_([getattr(self._walker, name)[:size] for name in names], [sent[name] for name in names])
        if not greedy:
            for name in ("top_k", "seeds"):
                getattr(self._sampling, name).copy_(sent[name])
            for name, values in zip(("temperature", "top_p", "min_p"), self._shares, strict=True):
                getattr(self._sampling, name).copy_(torch.from_numpy(values))
        if masks:
            rows = torch.tensor(list(masks), dtype=torch.long).to(self._device)
            words = torch.from_numpy(np.stack(list(masks.values()))).to(self._device)
            self._walker.allowed[rows] = words

    def _index(self, machine: Machine) -> int:
        """The number of a machine on the device; the one used longest ago makes room."""
        index = self._indices.pop(machine, None)
        if index is None:
            if len(self._indices) == MAX_GRAMMARS:
                self._grammars.remove(self._indices.pop(next(iter(self._indices))))
            index = self._grammars.add(machine)
        self._indices[machine] = index  # a dictionary keeps the order of insertion
        return index


def cuda_draws(vocabulary: Any, device: Any, rows: int) -> DeviceDraws:
    """`DeviceDraws` by the CUDA kernels."""
    from stcon.kernels.cuda import CudaGrammars, CudaWalker

    grammars = CudaGrammars(device)
    walker = CudaWalker(vocabulary, grammars, max_rows=rows)
    return DeviceDraws(grammars, walker, rows=rows, vocab_size=vocabulary.size, device=device)
