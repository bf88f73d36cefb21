"""Counts and times of a batch, for progress lines and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stcon.engine.batch.model import Span
    from stcon.engine.batch.rows import Writer


@dataclass
class Stats:
    """Totals since the batch was made. Written by the batch's thread (and `submitted` under its lock), read by anyone.

    Attributes:
        num_outputs, num_finished: outputs asked for, and over (cancelled and failed ones included).
        num_steps: calls of the model.
        num_fed: tokens fed to it.
        sampled, forced: tokens of the outputs that are over.
        prompt_tokens, cached_tokens: of the outputs that are over; those that the prompt cache had.
        model_s: seconds in the model.
        prompt_s: as part of `model_s`, in steps that read prompts too.
        host_s: seconds between its calls: draws, masks, plans, events.
        mask_s: as part of `host_s`, in the constraints, of the outputs that are over.
    """

    num_outputs: int = 0
    num_finished: int = 0
    num_steps: int = 0
    num_fed: int = 0
    sampled: int = 0
    forced: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    model_s: float = 0.0
    prompt_s: float = 0.0
    host_s: float = 0.0
    mask_s: float = 0.0

    def submitted(self, writers: Sequence[Writer]) -> None:
        """A request came."""
        self.num_outputs += len(writers)
        for writer in writers:
            if writer.is_over:  # all of it was forced
                self.finished(writer)

    def stepped(self, spans: Sequence[Span], model_s: float, host_s: float, *, has_prompt: bool) -> None:
        """A step was made; `has_prompt`: some span was of a prompt."""
        self.num_steps += 1
        self.num_fed += sum(len(span.tokens) for span in spans)
        self.model_s += model_s
        self.prompt_s += model_s if has_prompt else 0.0
        self.host_s += host_s

    def finished(self, writer: Writer) -> None:
        """An output is over."""
        output = writer.output
        self.num_finished += 1
        self.sampled += output.sampled
        self.forced += len(output.tokens) - output.sampled
        self.prompt_tokens += output.num_prompt
        self.cached_tokens += writer.cached_tokens
        self.mask_s += output.mask_s

    @property
    def forced_share(self) -> float:
        """Forced tokens among those written."""
        return self.forced / max(self.sampled + self.forced, 1)
