"""Plots of results as vector graphics, in colours that read on light and dark pages alike.

Each function takes an entry's result and returns the SVG's text, or None where the result has nothing to draw.

Source: the paper's Figures 1, 7, 9, 10, 11 and 12.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

Result: TypeAlias = Mapping[str, Any]
Plot: TypeAlias = Callable[[Result], "str | None"]

# of equal lightness, told apart by people who do not tell red from green
BLUE, ORANGE, GREEN, PINK, GREY = "#3b82c4", "#d9822b", "#2f9e77", "#c2578f", "#8a8f98"
_BINS = 10


def plots_of(name: str, result: Result) -> list[tuple[str, str]]:
    """Caption and SVG of each plot of an entry's result."""
    drawn = ((caption, draw(result)) for caption, draw in _PLOTS.get(name, ()))
    return [(caption, svg) for caption, svg in drawn if svg is not None]


def passes_by_width(result: Result) -> str | None:
    """Figures 1 and 10."""
    rows = result["widths"]
    with _figure() as (axes, done):
        axes.plot(
            [row["tokens"] for row in rows], [row["relative"] for row in rows], "o-", color=BLUE, label="one pass"
        )
        axes.plot(
            [row["tokens"] for row in rows], [row["tokens"] for row in rows], "--", color=GREY, label="as many passes"
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        _ticks(axes, [row["tokens"] for row in rows])
        axes.set_xlabel("tokens in a pass")
        axes.set_ylabel("time, relative to one token")
        axes.legend(frameon=False)
    return done()


def passes_by_context(result: Result) -> str | None:
    """Figure 11, left."""
    rows = result["contexts"]
    if len(rows) < 2:
        return None
    with _figure() as (axes, done):
        axes.plot([row["context"] for row in rows], [1e3 / row["ms"] for row in rows], "o-", color=BLUE)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        _ticks(axes, [row["context"] for row in rows])
        axes.set_xlabel("tokens of context")
        axes.set_ylabel("tokens a second, one stream")
    return done()


def jobs(result: Result) -> str | None:
    """Figure 11, right."""
    runs = result["runs"]
    if result.get("failures") or not runs:
        return None
    with _figure(height=0.6 + 0.45 * len(runs)) as (axes, done):
        names = [f"{run['engine']}, {run['prompt']}" for run in runs]
        colours = [BLUE if run["engine"].startswith("stcon") else GREY for run in runs]
        axes.barh(names, [run["seconds"] for run in runs], color=colours)
        axes.invert_yaxis()
        axes.set_xlabel("seconds for eighteen answers")
    return done()


def memory_in_turn(result: Result) -> str | None:
    """Figure 7."""
    rows = result["grammars"]
    with _figure() as (axes, done):
        numbers = range(1, len(rows) + 1)
        axes.plot(numbers, [row["above_model_bytes"] / 1e6 for row in rows], "o-", color=BLUE)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("grammars served")
        axes.set_ylabel("MB above the model")
    return done()


def levels(result: Result) -> str | None:
    """Figure 9."""
    rows = result["levels"][:20]
    with _figure() as (axes, done):
        depth = [row["depth"] for row in rows]
        axes.bar(depth, [row["nodes"] for row in rows], color=GREY, width=0.8, label="trie nodes at this depth")
        axes.bar(depth, [row["alive"] for row in rows], color=BLUE, width=0.45, label="alive from some place")
        axes.plot(
            depth, [row["mean_alive"] for row in rows], "o-", color=ORANGE, markersize=3, label="from one, on average"
        )
        axes.set_xlabel("depth in bytes")
        axes.legend(frameon=False)
    return done()


def limits(result: Result) -> str | None:
    """Figure 12: the share of valid outputs against the limit as a share of the whole answer."""
    with _figure() as (axes, done):
        for recursive, name, colour in ((False, "regular", BLUE), (True, "recursive", GREEN)):
            tasks = [task for task in result["tasks"] if task["is_recursive"] == recursive]
            for key, suffix, style in (("valid", "with the rule", "o-"), ("cut_valid", "without", "x--")):
                points = [(x, y) for x, y in enumerate(_shares(tasks, key), 1) if y is not None]
                if points:
                    xs = [x / _BINS for x, _ in points]
                    axes.plot(xs, [y for _, y in points], style, color=colour, label=f"{name}, {suffix}")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("limit, as a share of the whole answer")
        axes.set_ylabel("share of valid outputs")
        axes.legend(frameon=False)
    return done()


def streams(result: Result) -> str | None:
    """Tokens a second by number of streams."""
    runs = result["runs"]
    if result.get("failures") or len({run["streams"] for run in runs}) < 2:
        return None
    series = (("free", None, GREY), ("constrained", "drip", ORANGE), ("constrained", "ragged", BLUE))
    with _figure() as (axes, done):
        for kind, feeding, colour in series:
            mine = [run for run in runs if run["kind"] == kind and feeding in (None, run["feeding"])]
            if mine:
                label = kind if feeding is None else f"{kind}, {feeding}"
                axes.plot(
                    [run["streams"] for run in mine], [run["rate"] for run in mine], "o-", color=colour, label=label
                )
        axes.set_xscale("log", base=2)
        _ticks(axes, sorted({run["streams"] for run in runs}))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("streams")
        axes.set_ylabel("tokens a second")
        axes.legend(frameon=False)
    return done()


def one_loop(result: Result) -> str | None:
    """Figure 8, left: decode time of the extractions by engine."""
    rows = [row for row in result["rows"] if row["kind"] == "regular" and row["engine"] != "free"]
    if result.get("failures") or not rows:
        return None
    with _figure(height=0.6 + 0.4 * len(rows)) as (axes, done):
        colours = [BLUE if row["engine"].startswith("stcon") else GREY for row in rows]
        axes.barh([row["engine"] for row in rows], [row["decode_s"] for row in rows], color=colours)
        axes.invert_yaxis()
        axes.set_xlabel("seconds of decoding, six answers")
    return done()


def _shares(tasks: Sequence[Mapping[str, Any]], key: str) -> list[float | None]:
    bins: list[list[bool]] = [[] for _ in range(_BINS)]
    for task in tasks:
        for attempt in task["attempts"]:
            if attempt["limit"] <= task["full"]:
                bins[min(_BINS - 1, (attempt["limit"] * _BINS - 1) // task["full"])].append(bool(attempt[key]))
    return [sum(values) / len(values) if values else None for values in bins]


@contextmanager
def _figure(height: float = 3.0) -> Iterator[tuple[Axes, Callable[[], str]]]:
    """Axes to draw on, and what gives the SVG's text afterwards. Lines and letters take the page's colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.StringIO()
    yield axes, buffer.getvalue
    from matplotlib import rc_context

    # fixed ids and no date: the same result gives the same text
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "stcon"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = _themed(buffer.getvalue())
    buffer.seek(0)
    buffer.truncate()
    buffer.write(text)


def _themed(svg: str) -> str:
    """Only the element itself, black as the page's own colour, as wide as its column."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r'<svg\b[^>]*?(viewBox="[^"]+")[^>]*>',
        r'<svg \1 role="img" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">',
        svg,
        count=1,
        flags=re.DOTALL,
    )
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("#000000", "currentColor").replace("stroke: #000", "stroke: currentColor")
    return svg.replace('<text style="', '<text fill="currentColor" style="')


def _ticks(axes: Axes, values: Sequence[int]) -> None:
    axes.set_xticks(list(values), [f"{value:,}" for value in values])
    axes.minorticks_off()


_PLOTS: Mapping[str, Sequence[tuple[str, Plot]]] = {
    "loop": (("Decode time by engine (the paper's Figure 8, left)", one_loop),),
    "passes": (
        ("What a wider pass costs (Figures 1 and 10)", passes_by_width),
        ("Speed against context (Figure 11, left)", passes_by_context),
    ),
    "jobs": (("Eighteen extractions (Figure 11, right)", jobs),),
    "turns": (("Memory, grammar by grammar (Figure 7)", memory_in_turn),),
    "levels": (("The vocabulary, level by level (Figure 9)", levels),),
    "budget": (("Valid outputs against the limit (Figure 12)", limits),),
    "throughput": (("Many streams", streams),),
}
