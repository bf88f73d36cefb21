"""What a certified decoding did, for people and measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """One certificate: a pass that looked at a draft.

    Attributes:
        at: tokens of the output before it.
        drafted: drawn tokens of the draft.
        agreed: those of them before the first of their field that the model would not draw, given the draft before it.
        accepted: those of them before the first of all that it would not draw; they are emitted.
        fields: parts of fields that the draft held; 0: it was found in the prompt.
        failed: fields with a drawn token that the model would not draw, the first of them included.
    """

    at: int
    drafted: int
    agreed: int
    accepted: int
    fields: int
    failed: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """How an output came about.

    Attributes:
        fields: of the first plan; 0: there was nothing to draft apart, and the output was decoded sequentially.
        plans: how often the fields were looked for.
        passes: calls of the model, in each of which many rows may take part; the prompt's included.
        sequential_passes: passes that the sequential decoder takes: one a drawn token.
        row_passes: rows of all passes together.
        fed: tokens of all passes together, the prompt's included.
        rounds: the certificates, in order.
    """

    fields: int
    plans: int
    passes: int
    sequential_passes: int
    row_passes: int
    fed: int
    rounds: tuple[Round, ...]

    @property
    def fewer(self) -> float:
        """How many times fewer passes than the sequential decoder takes."""
        return self.sequential_passes / max(self.passes, 1)
