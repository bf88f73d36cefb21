"""The documentation's pictures, drawn from the code's own tables.

    python docs/pictures.py            # writes docs/pictures/*.svg
    python docs/pictures.py --check    # exit code 1 if one of them is not what the code gives

- ``machine.svg``: the machine of a small schema, chains of forced bytes drawn as one edge.
- ``step-graph.svg``: the machine of a quoted word, and its product with a small vocabulary (the paper's Figure 3).
- ``tokens.svg``: one answer token by token, sampled and forced (the paper's Figure 4); its tokens are a recorded run's.
- ``budget.svg``: fewest tokens to the end, token by token along an answer, and what that leaves under a limit.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "pictures"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["S", "M"]}},
    "required": ["ok", "size"],
}
WORD = '"(a|ab)c?"'
TOKENS = [b'"', b"a", b'a"', b"ab", b'abc"', b"ac", b"b", b'c"', b"x"]
LIMITED: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "tags"],
}
ANSWER = '{"name":"Ann","tags":["a","b"]}'

BLUE, ORANGE, GREY = "#3b82c4", "#d9822b", "#8a8f98"


@dataclass
class Graph:
    """States as numbers, edges as labels; what both pictures of machines draw."""

    start: int
    accepting: set[int] = field(default_factory=set)
    edges: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def levels(self) -> dict[int, int]:
        """Steps from the start, the longest way in acyclic parts: the column of each state."""
        level = {self.start: 0}
        for _ in range(len({node for edge in self.edges for node in edge})):
            for a, b in self.edges:
                if a in level and a != b and level.get(b, -1) < level[a] + 1 and not self._leads_back(b, a):
                    level[b] = level[a] + 1
        return level

    def _leads_back(self, a: int, b: int) -> bool:
        seen, todo = {a}, [a]
        while todo:
            node = todo.pop()
            if node == b:
                return True
            for source, target in self.edges:
                if source == node and target not in seen:
                    seen.add(target)
                    todo.append(target)
        return False


def machine_graph(grammar: Any, *, contract: bool) -> Graph:
    """The reachable configurations of a machine without counters; with `contract`, chains of one byte as one edge."""
    machine = grammar.machine
    start = machine.initial()
    number, todo = {start: 0}, [start]
    steps: dict[int, dict[int, bytes]] = defaultdict(lambda: defaultdict(bytes))
    accepting = set()
    while todo:
        here = todo.pop()
        if machine.accepts(here):
            accepting.add(number[here])
        for byte in range(256):
            after = machine.step(here, byte)
            if after is not None:
                if after not in number:
                    number[after] = len(number)
                    todo.append(after)
                steps[number[here]][number[after]] += bytes([byte])
    if contract:
        _contract(steps, accepting)
    edges = {(a, b): data.decode("latin-1") for a, row in steps.items() for b, data in row.items()}
    return Graph(0, accepting, edges)


def _contract(steps: dict[int, dict[int, bytes]], accepting: set[int]) -> None:
    """Join a state with one way in and one way out into its edge."""
    for node in list(steps):
        sources = [a for a, row in steps.items() if node in row]
        row = steps.get(node, {})
        if node and node not in accepting and len(sources) == 1 and len(row) == 1 and sources[0] != node:
            [(target, data)] = row.items()
            source = sources[0]
            if target not in steps[source] and target != node:
                steps[source][target] = steps[source].pop(node) + data
                del steps[node]


def draw(graph: Graph, axes: Any, *, width: float = 1.0) -> None:
    """States as circles, column by column."""
    columns: dict[int, list[int]] = defaultdict(list)
    for node, level in sorted(graph.levels.items()):
        columns[level].append(node)
    place = {
        node: (width * level, -(row - (len(nodes) - 1) / 2))
        for level, nodes in columns.items()
        for row, node in enumerate(nodes)
    }
    for (a, b), label in graph.edges.items():
        _arrow(axes, place[a], place[b], label, loop=a == b)
    for node, (x, y) in place.items():
        axes.plot([x], [y], "o", markersize=15, color="white", markeredgecolor=BLUE, markeredgewidth=1.6)
        if node in graph.accepting:
            axes.plot([x], [y], "o", markersize=10, color="white", markeredgecolor=BLUE, markeredgewidth=1.2)
        axes.text(x, y, str(node), ha="center", va="center", fontsize=7, color="black", gid="inside")


def _arrow(axes: Any, a: tuple[float, float], b: tuple[float, float], label: str, *, loop: bool) -> None:
    """An edge; one that passes over columns is bent upwards, so that it crosses no state."""
    style = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 9, "shrinkB": 9, "lw": 1.2}
    over = abs(b[0] - a[0]) > 1.5 and abs(b[1] - a[1]) < 0.5
    bend = -0.35 if over else 0.0
    shape = "arc3,rad=-2" if loop else f"arc3,rad={bend}"
    start, end = ((a[0] + 0.08, a[1]), (a[0] - 0.08, a[1])) if loop else (b, a)
    axes.annotate("", start, end, arrowprops={**style, "connectionstyle": shape})
    height = 0.55 if loop else 0.12 - 0.5 * bend * (b[0] - a[0])
    axes.text(
        (a[0] + b[0]) / 2, (a[1] + b[1]) / 2 + height, label, ha="center", va="bottom", fontsize=9, family="monospace"
    )


def machine_svg() -> str:
    """The machine of `SCHEMA`."""
    import stcon

    graph = machine_graph(stcon.compile(SCHEMA), contract=True)
    figure, axes = _axes(7.6, 1.7, x=(-0.6, 9.2), y=(-0.5, 1.5))
    draw(graph, axes, width=1.25)
    return _svg(figure)


def step_graph_svg() -> str:
    """The machine of `WORD`, and its product with `TOKENS` after the first quote."""
    import stcon

    grammar = stcon.compile_regex(WORD)
    graph = machine_graph(grammar, contract=False)
    figure, axes = _axes(7.6, 4.8, x=(-0.6, 7.4), y=(-5.4, 2.1))
    draw(graph, axes, width=1.4)
    axes.text(-0.4, 1.7, f"the machine of  {WORD}", fontsize=9)
    axes.text(-0.4, -1.2, "every token read from state 1, under each byte the state it leads to (× : dead)", fontsize=9)
    machine, names = grammar.machine, _state_names(grammar.machine)
    begin = machine.step(machine.initial(), ord('"'))
    for column, token in enumerate(sorted(TOKENS)):
        config, x, y = begin, 0.85 * column, -1.9
        for byte in token:
            config = None if config is None else machine.step(config, byte)
            colour = GREY if config is None else BLUE
            axes.text(x, y, chr(byte), ha="center", va="center", fontsize=11, color=colour, family="monospace")
            axes.text(x, y - 0.4, "×" if config is None else str(names[config]), ha="center", va="center", fontsize=7)
            y -= 0.95
    return _svg(figure)


def _state_names(machine: Any) -> dict[Any, int]:
    """Configurations numbered as in `machine_graph`."""
    start = machine.initial()
    number, todo = {start: 0}, [start]
    while todo:
        here = todo.pop()
        for byte in range(256):
            after = machine.step(here, byte)
            if after is not None and after not in number:
                number[after] = len(number)
                todo.append(after)
    return number


def needs() -> list[tuple[str, int]]:
    """The answer's tokens (of bytes and a few longer ones), with the fewest tokens that complete it after each."""
    import stcon
    from stcon.vocab.vocabulary import Vocabulary

    longer = [b'{"name":"', b'","tags":[', b'","', b'"]', b"Ann", b'["', b"}"]
    vocabulary = Vocabulary.from_bytes([*(bytes([v]) for v in range(256)), *longer[:-1], None], end_ids=(262,))
    matcher = stcon.Matcher(stcon.compile(LIMITED), vocabulary)
    found, rest = [("", matcher.need())], ANSWER.encode()
    while rest:
        size, token = max(
            (len(data), token)
            for token in range(vocabulary.size)
            if (data := vocabulary.token_bytes(token)) and rest.startswith(data)
        )
        assert matcher.accept(token)
        found.append((rest[:size].decode(), matcher.need()))
        rest = rest[size:]
    return [(text, 0 if need is None else need) for text, need in found]


def budget_svg() -> str:
    """Tokens written and tokens needed, along `ANSWER`."""
    rows = needs()
    figure, axes = _axes(7.6, 3.0)
    positions = list(range(len(rows)))
    axes.bar(positions, positions, color=GREY, width=0.7, label="written")
    axes.bar(positions, [need for _, need in rows], bottom=positions, color=BLUE, width=0.7, label="needed to end")
    axes.set_xticks(positions, [text or "start" for text, _ in rows], rotation=60, fontsize=7, family="monospace")
    axes.set_ylabel("tokens")
    limit = max(position + need for position, (_, need) in zip(positions, rows, strict=True))
    axes.axhline(limit, color=ORANGE, linestyle="--", label=f"the least limit with room for it: {limit}")
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def tokens_svg() -> str:
    """The answer in ``pictures/tokens.json``: forced tokens on blue, sampled ones plain, in lines of 72 characters."""
    run = json.loads((FOLDER / "tokens.json").read_text("utf-8"))
    width, line, cells, column, row = 8.4, 26, [], 0, 0
    for text, kind in run["pieces"]:
        if not text:
            continue
        shown = text.replace(" ", "\u00b7")
        if column + len(shown) > 72:
            column, row = 0, row + 1
        fill = "#cfe3f7" if kind == "forced" else "#ffffff"
        x, y = 12 + width * column, 12 + line * row
        cells.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width * len(shown):.1f}" height="20" rx="3" fill="{fill}" '
            'stroke="#b8c0ca"/>'
            f'<text x="{x + 1:.1f}" y="{y + 14.5}" textLength="{width * len(shown) - 2:.1f}">{escape(shown)}</text>'
        )
        column += len(shown)
    sampled = sum(kind != "forced" for text, kind in run["pieces"] if text)
    forced = sum(kind == "forced" for text, kind in run["pieces"] if text)
    below = 12 + line * (row + 1) + 16
    legend = (
        f"{run['passes']} runs of the model; white: {sampled} sampled, blue: {forced} forced, written without a run"
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 632 {below + 12}" '
        'font-family="monospace" font-size="13">',
        f'<rect width="632" height="{below + 12}" fill="#ffffff"/>',
        *cells,
        f'<text x="12" y="{below}" font-family="sans-serif" fill="#444">{escape(legend)}</text>',
        "</svg>",
        "",
    ])  # fmt: skip


def _axes(
    width: float, height: float, *, x: tuple[float, float] | None = None, y: tuple[float, float] = (0, 1)
) -> tuple[Any, Any]:
    """A figure in inches; with `x` and `y` a bare canvas of these coordinates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=None if x else "constrained")
    axes = figure.add_axes((0, 0, 1, 1)) if x else figure.subplots()
    if x:
        axes.set_axis_off()
        axes.set_xlim(*x)
        axes.set_ylim(*y)
    else:
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.25)
    return figure, axes


def _svg(figure: Any) -> str:
    """The SVG's text, letters as outlines; the same result gives the same text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "stcon"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"[ \t]+\n", "\n", buffer.getvalue())


PICTURES = {
    "tokens.svg": tokens_svg,
    "machine.svg": machine_svg,
    "step-graph.svg": step_graph_svg,
    "budget.svg": budget_svg,
}


def main() -> int:
    """Write them, or compare."""
    stale = []
    FOLDER.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        text, file = make(), FOLDER / name
        if "--check" in sys.argv:
            stale += [] if file.exists() and file.read_text("utf-8") == text else [name]
        else:
            file.write_text(text, "utf-8")
    for name in stale:
        print(f"docs/pictures/{name} is not what the code gives; run: python docs/pictures.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
