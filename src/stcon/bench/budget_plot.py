"""The share of valid outputs against the limit, as an SVG: the paper's Figure 12 without a plotting library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from stcon.bench.budget import Series

BINS = 10
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 360, 56, 24, 24, 56
_COLOURS = ("#1f6fb4", "#2a9d5c", "#9bbfdd", "#a7d3b9")


class Curve(NamedTuple):
    """A name and, for each bin of limits, the share of valid outputs (None: no limit fell into it)."""

    name: str
    shares: list[float | None]


def curves(series: Sequence[Series]) -> list[Curve]:
    """With the rule and without, for tasks that are recursive and tasks that are not, over limit / full answer."""
    found = []
    for ruled in (True, False):
        for recursive in (False, True):
            rows = [row for row in series if row.is_recursive == recursive]
            kind = "recursive" if recursive else "extractions"
            name = f"{kind}, {'with' if ruled else 'without'} the rule"
            found.append(Curve(name, _shares(rows, ruled=ruled)))
    return found


def write_plot(series: Sequence[Series], file: str) -> None:
    """Write the plot of `series` to `file`."""
    Path(file).write_text(svg(curves(series)), "utf-8")


def svg(lines: Sequence[Curve]) -> str:
    """The picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_axes(),
    ]
    for number, (line, colour) in enumerate(zip(lines, _COLOURS, strict=True)):
        points = [(_x((i + 1) / BINS), _y(share)) for i, share in enumerate(line.shares) if share is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        top = _TOP + 70 + 18 * number
        parts.append(f'<rect x="{_LEFT + 14}" y="{top - 9}" width="16" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 38}" y="{top}">{line.name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _shares(rows: Iterable[Series], *, ruled: bool) -> list[float | None]:
    bins: list[list[bool]] = [[] for _ in range(BINS)]
    for row in rows:
        for attempt in row.attempts:
            place = min(BINS - 1, -(-attempt.limit * BINS // row.full) - 1)
            bins[place].append(attempt.valid if ruled else attempt.cut_valid)
    return [sum(bin) / len(bin) if bin else None for bin in bins]


def _axes() -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="black"/>']
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}%</text>')
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
    for tenth in (2, 4, 6, 8, 10):
        parts.append(f'<text x="{_x(tenth / 10):.1f}" y="{bottom + 18}" text-anchor="middle">{tenth / 10:g}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 14}" text-anchor="middle">limit, as a fraction of the full answer '
        "(below the shortest valid output a limit is refused)</text>"
    )
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}">share of valid outputs</text>')
    return parts


def _x(fraction: float) -> float:
    return _LEFT + fraction * (_WIDTH - _RIGHT - _LEFT)


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _BOTTOM - _TOP)
