"""How far a type or a kernel is from float32: the numbers that stand beside a speed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def fidelity(rows: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Top-1 agreement, mean Kullback–Leibler divergence and the largest difference of logits, over all positions.

    Args:
        rows, reference: float32[positions, vocabulary] of the same tokens.
    """
    wide, exact = rows.astype(np.float64), reference.astype(np.float64)
    p, q = (row - np.logaddexp.reduce(row, axis=1, keepdims=True) for row in (exact, wide))
    return {
        "positions": len(rows),
        "top1": float((rows.argmax(1) == reference.argmax(1)).mean()),
        "kl": float((np.exp(p) * (p - q)).sum(1).mean()),
        "max_abs_logit": float(np.abs(wide - exact).max()),
    }


def table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """One line a contender."""
    lines = [f"{'against float32':34}  positions   top-1       KL  max |Δ logit|"]
    for name, close in found.items():
        lines.append(
            f"{name:34}  {close['positions']:9}  {close['top1']:6.1%}  {close['kl']:7.1e}"
            f"  {close['max_abs_logit']:13.3f}"
        )
    return lines
