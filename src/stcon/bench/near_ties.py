"""Where two runs of the same model part, and by how little: near-ties of floating point, counted and not hidden.

Two engines that compute the same model round differently, so greedy outputs part where two tokens are nearly as likely.
Each pair of outputs is followed to its first difference; there the prompt and the common beginning are run in float32,
and the gap between the two tokens' logits is read. Past that point the outputs are answers to different prefixes, and
nothing more is compared.

Source: the paper's Appendix E.7, Table 24.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stcon.models.base import Model


@dataclass(frozen=True)
class Divergence:
    """The first difference of two outputs.

    Attributes:
        position: tokens that are common before it.
        first, second: the two tokens; None where that output had ended.
        gap: logit of `first` less that of `second` in float32; None where an output had ended.
        logits: of the two; None where an output had ended.
    """

    position: int
    first: int | None
    second: int | None
    gap: float | None
    logits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Ties:
    """A row of Table 24.

    Attributes:
        compared, divergent: pairs of outputs, and those that differ.
        median_gap, max_gap: of the gaps' absolute values; None where there is none.
        prefers_first, prefers_second: divergences at which float32 prefers that token.
    """

    compared: int
    divergent: int
    median_gap: float | None
    max_gap: float | None
    prefers_first: int
    prefers_second: int


def divergence(
    model: Model, prompt_ids: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> Divergence | None:
    """The first difference of two outputs to the same prompt; None if they are the same.

    Args:
        model: the model in float32; one that is not gives its own gaps.
        prompt_ids: the prompt.
        first, second: every token emitted, sampled or forced.

    Cost: where they differ, one pass over the prompt and the common beginning.
    """
    pairs = zip(first, second, strict=False)
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    if position == len(first) == len(second):
        return None
    ended = position in {len(first), len(second)}
    one = first[position] if position < len(first) else None
    other = second[position] if position < len(second) else None
    if ended or one is None or other is None:
        return Divergence(position, one, other, None)
    logits = model.session().append([*prompt_ids, *first[:position]])
    both = float(logits[one]), float(logits[other])
    return Divergence(position, one, other, both[0] - both[1], both)


def summarize(found: Iterable[Divergence | None]) -> Ties:
    """Many pairs as one row."""
    pairs = list(found)
    parted = [pair for pair in pairs if pair is not None]
    gaps = [pair.gap for pair in parted if pair.gap is not None]
    sizes = [abs(gap) for gap in gaps]
    return Ties(
        compared=len(pairs),
        divergent=len(parted),
        median_gap=median(sizes) if sizes else None,
        max_gap=max(sizes, default=None),
        prefers_first=sum(gap > 0 for gap in gaps),
        prefers_second=sum(gap < 0 for gap in gaps),
    )
