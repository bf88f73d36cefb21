"""What a certified decoding did, for people and measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """A pass that looked at a draft.

    Attributes:
        at: tokens of the output before it.
        drafted: drawn tokens of the draft.
        agreed: those of them before the first of their field that the model would not draw, given the draft before it.
        accepted: those of them before the first of all that it would not draw; they are emitted.
        fields: parts of fields that the draft held.
        failed: fields with a drawn token that the model would not draw, the first of them included.
        is_look: nothing was drafted of the field that the output was in; the drafts behind it were looked at, as if it
            ended there. Such a pass costs no round.
    """

    at: int
    drafted: int
    agreed: int
    accepted: int
    fields: int
    failed: tuple[int, ...]
    is_look: bool = False


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
    def num_rounds(self) -> int:
        """Certificates of drafts: rounds that are no looks."""
        return sum(not round.is_look for round in self.rounds)

    @property
    def fewer(self) -> float:
        """How many times fewer passes than the sequential decoder takes."""
        return self.sequential_passes / max(self.passes, 1)
