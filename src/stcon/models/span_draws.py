"""Several draws from one pass: what guesses of the next tokens are checked with.

A pass over S tokens gives logits after each of them, at hardly more than the cost of the last one's. So a stream whose
next tokens can be guessed feeds the guesses too, and has a token drawn after each one: from the machine's own mask
there, with the random number of that place. A draw is the stream's own wherever every guess before it was drawn as
well (`stcon.engine.device_decoding`), so nothing changes but the number of passes.

Captured and replayed like every step of `stcon.models.graphs`, whose row and cache these are.
"""

from __future__ import annotations

import numpy as np
import torch

from stcon.grammar.machine import CONFIG_WORDS
from stcon.kernels.cuda.sampling import DeviceSampling
from stcon.models.graphs import MAX_SPAN, WALK_FIELDS, Inbox, Int32, Outbox, Replayed, StepGraphs, Walker

MAX_DRAWS = 8


class SpanDraws:
    """Draws at several places of one span, over the one row of `graphs`.

    Args:
        graphs: of one row.
        walker: its walker; of D rows or more.
        num_draws: D.

    Attributes:
        inbox: what the host writes: ``tokens`` int64[1, 16] and ``lengths`` int32[1], as for `StepGraphs.feed`; and for
            each draw ``places`` int64[D], the token of the span that it follows, ``config`` int32[D, 67], ``grammar``,
            ``min_bytes`` and ``is_restricted`` int32[D], ``positions`` int64[D]. Draws that are not wanted begin in the
            state −1.
        sampling: how they are drawn if not greedily, one entry a draw.
        logits: float32[D, V], what each was drawn from, before any mask.
    """

    def __init__(self, graphs: StepGraphs, walker: Walker, num_draws: int = MAX_DRAWS) -> None:
        assert graphs.rows == 1, "one stream"
        self.graphs = graphs
        self.walker = walker
        self.num_draws = num_draws
        device = graphs.device
        self.inbox = Inbox(
            {
                "tokens": (np.int64, (1, MAX_SPAN)),
                "places": (np.int64, (num_draws,)),
                "positions": (np.int64, (num_draws,)),
                "config": (np.int32, (num_draws, CONFIG_WORDS)),
                "lengths": (np.int32, (1,)),
                **dict.fromkeys(WALK_FIELDS[1:], (np.int32, (num_draws,))),
            },
            device,
        )
        self.sampling = DeviceSampling(num_draws, device)
        size = (num_draws, graphs.vocab_size)
        self.logits = torch.full(size, -torch.inf, dtype=torch.float32, device=device)
        self._drawn = torch.zeros(num_draws, dtype=torch.int32, device=device)
        self._outbox = Outbox(self._drawn)
        self._steps: dict[tuple[int, bool], Replayed] = {}

    def feed(self, span: int, *, greedy: bool = True) -> None:
        """Append ``tokens[:, :span]`` to the row and draw; recurrent states are saved before (`StaticCache.restore`).

        Args:
            span: S.
            greedy: the best admissible tokens; else they are drawn as `sampling` says.
        """

        def step() -> None:
            self._receive()
            self._append(self.inbox.device["tokens"][:, :span])
            if greedy:
                self.walker.argmax(self.logits, self._drawn)
            else:
                self.walker.sample(self.logits, self.sampling, self._drawn)

        replayed = self._steps.get((span, greedy))
        if replayed is None:
            replayed = self._steps[span, greedy] = Replayed(step, self.graphs.pool)
        self.graphs.launches += 1
        self.inbox.send()
        with torch.no_grad():
            replayed()
        self._outbox.send()

    def read(self) -> Int32:
        """Wait for the pass: int32[D], the tokens drawn, −1 as in `Walker.argmax`."""
        return self._outbox.read()

    def drain(self) -> None:
        """Wait for a pass that was not read, and forget it."""
        while self._outbox.num_unread:
            self._outbox.read()

    def _receive(self) -> None:
        """Take over where the walks begin. What a draw that was not looked at had missed is forgotten."""
        targets = [getattr(self.walker, name)[: self.num_draws] for name in WALK_FIELDS]
        torch._foreach_copy_(targets, [self.inbox.device[name] for name in WALK_FIELDS])
        self.sampling.positions.copy_(self.inbox.device["positions"])
        self.walker.missing.fill_(-1)

    def _append(self, tokens: torch.Tensor) -> None:
        """One forward pass over `tokens` (int64[1, S])."""
        graphs = self.graphs
        if graphs.cache.recurrent:
            graphs.cache.save()
        logits = graphs.model.forward(tokens, self.inbox.device["lengths"], graphs.cache, all_positions=True)[0]
        width = min(graphs.vocab_size, logits.shape[1])
        self.logits[:, :width].copy_(logits[:, :width].index_select(0, self.inbox.device["places"]))
