"""A result file as tables of text: one function an entry, and one for results that have none of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Result: TypeAlias = Mapping[str, Any]

_MOST_ROWS = 80
_EVENT_LIMITS = 6  # outputs shown of one task under shrinking limits


@dataclass(frozen=True)
class Table:
    """What a table shows.

    Attributes:
        title: a short line.
        columns, rows: of text; every row has as many cells as there are columns.
        note: a line below it; may be empty.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables_of(name: str, result: Result) -> list[Table]:
    """The tables of an entry's result."""
    return _MAKERS.get(name, _any)(result)


def timed(result: Result, text: str) -> str:
    """A time, or a dash where a check of the run was red."""
    return "–" if result.get("failures") else text


def _loop(result: Result) -> list[Table]:
    found = []
    for kind, title in (("regular", "Six extractions"), ("recursive", "Recursive tasks")):
        rows = [row for row in result["rows"] if row["kind"] == kind]
        if not rows:
            continue
        columns = ("engine", "tok/s", "passes / tok", "forced", "tokens", "passes", "decode s", "ms / draw", "valid")
        facts = kind == "regular"
        cells = [
            (
                row["engine"],
                timed(result, f"{row['rate']:.1f}"),
                f"{row['passes_per_token']:.2f}",
                f"{row['forced_share']:.0%}",
                f"{row['tokens']:,}",
                f"{row['passes']:,}",
                timed(result, f"{row['decode_s']:.2f}"),
                timed(result, f"{row['ms_per_sampled']:.1f}"),
                f"{row['valid']}/{row['outputs']}",
                *((str(row["facts"]), f"{row['agreeing']}/{row['compared']}") if facts else ()),
            )
            for row in rows
        ]
        found.append(Table(title, columns + (("facts", "as free") if facts else ()), tuple(cells)))
    by_engine: dict[str, dict[str, str]] = defaultdict(dict)
    for key, value in result.get("facts", {}).items():
        engine, job = key.split(", ", 1)
        by_engine[engine][job] = str(value)
    jobs = list(dict.fromkeys(job for facts in by_engine.values() for job in facts))
    rows_33 = tuple((engine, *(facts.get(job, "–") for job in jobs)) for engine, facts in by_engine.items())
    return [*found, Table("Gold facts by schema", ("engine", *jobs), rows_33)] if jobs else found


def _memory(result: Result) -> list[Table]:
    ours = [
        (
            row["grammar"],
            f"{row['states']:,}",
            size(row["machine_bytes"]),
            size(row["token_table_bytes"]),
            f"{row['rows']} ({row['tokens']} tokens)",
            size(row["row_bytes"]),
        )
        for row in result["grammars"]
    ]
    engines = [
        (
            row["grammar"],
            row["engine"],
            *(
                (row["refused"][:60], "", "", "")
                if row["refused"]
                else (
                    f"{row['compile_ms']:.2f}",
                    f"{row['first_mask_ms']:.2f}",
                    f"{row['mask_us']:.1f}",
                    "–" if row["grown_bytes"] is None else size(row["grown_bytes"]),
                )
            ),
        )
        for row in result["engines"]
    ]
    shared = f"shared by all grammars: the packed vocabulary, {size(result['packed_vocabulary_bytes'])}"
    return [
        Table(
            f"Memory by grammar, {result['vocabulary_size']:,} tokens",
            ("grammar", "states", "machine", "token table (computed)", "mask rows of a document", "their memory"),
            tuple(ours),
            shared,
        ),
        Table(
            "Each engine in its own process",
            ("grammar", "engine", "compile ms", "first mask ms", "mask µs", "process grew"),
            tuple(engines),
        ),
    ]


def _budget(result: Result) -> list[Table]:
    rows, totals = [], [0, 0, 0]
    for task in result["tasks"]:
        feasible = [attempt for attempt in task["attempts"] if attempt["limit"] >= task["need"]]
        counts = (
            len(feasible),
            sum(attempt["valid"] for attempt in feasible),
            sum(attempt["cut_valid"] for attempt in feasible),
        )
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        first = next((str(attempt["limit"]) for attempt in task["attempts"] if attempt["valid"]), "–")
        whole = str(task["full"]) + ("" if task["ended"] else " (cut)")
        kind = "recursive" if task["is_recursive"] else "regular"
        rows.append((task["task"], kind, whole, str(task["need"]), first, *map(str, counts)))
    rows.append(("all", "", "", "", "", *map(str, totals)))
    columns = ("task", "path", "whole answer", "need", "first valid", "feasible", "valid, rule", "valid, no rule")
    return [Table("Every limit, with the rule and without", columns, tuple(rows)), *_shrinking(result)]


def _shrinking(result: Result) -> list[Table]:
    """One task's output under fewer and fewer tokens: Table 12, Figure 13."""
    task = next((task for task in result["tasks"] if task["task"] == "event"), None)
    if task is None:
        return []
    valid = [attempt for attempt in reversed(task["attempts"]) if attempt["valid"]]
    step = max(1, len(valid) // _EVENT_LIMITS)
    shown = [*valid[::step][:_EVENT_LIMITS], *valid[-1:]]
    rows = [(str(attempt["limit"]), shorten(attempt["text"])) for attempt in {a["limit"]: a for a in shown}.values()]
    return [Table("One output under shrinking limits (event)", ("limit", "output"), tuple(rows))]


def _certified(result: Result) -> list[Table]:
    runs = result.get("runs", [])
    rows = [
        (
            run["model"],
            run["job"],
            str(run["fields"]),
            str(run["tokens"]),
            str(run["sequential_passes"]),
            str(run["passes"]),
            f"{run['sequential_passes'] / max(run['passes'], 1):.2f}×",
            str(sum(not one.get("is_look") for one in run["rounds"])),
            "yes" if run["parted"] is None else f"parts at token {run['parted']['position']}",
        )
        for run in runs
    ]
    columns = ("model", "job", "fields", "tokens", "sequential", "certified", "fewer", "rounds", "identical")
    return [Table("Passes, one field after the other and certified", columns, tuple(rows))]


def _throughput(result: Result) -> list[Table]:
    rows = [
        (
            str(run["streams"]),
            run["kind"],
            run["feeding"] if run["kind"] == "constrained" else "–",
            timed(result, f"{run['rate']:.1f}"),
            str(run["steps"]),
            timed(result, f"{run['step_ms']:.1f}"),
            timed(result, f"{run['host_share']:.1%}"),
            f"{run['forced_share']:.0%}",
        )
        for run in result["runs"]
    ]
    columns = ("streams", "constraint", "feeding", "tok/s", "steps", "ms / step", "masks and draws", "forced")
    return [Table("Tokens a second by number of streams", columns, tuple(rows))]


def _jobs(result: Result) -> list[Table]:
    rows = [
        (
            run["engine"],
            run["prompt"],
            str(run["prompt_tokens"]),
            str(run["tokens"]),
            f"{run['forced'] / max(run['tokens'], 1):.0%}",
            timed(result, f"{run['seconds']:.2f}"),
            f"{run['valid']}/{run['jobs']}",
        )
        for run in result["runs"]
    ]
    columns = ("engine", "prompt", "prompt tokens", "tokens", "forced", "s", "valid")
    return [Table(f"Eighteen extractions, {result['slots']} slots", columns, tuple(rows))]


def _turns(result: Result) -> list[Table]:
    rows = [
        (
            one["name"],
            f"{one['states']:,}",
            f"{one['compile_s']:.2f}",
            f"{one['first_s']:.2f}",
            f"{one['longest_first_s']:.2f}",
            size(one["above_model_bytes"]),
            str(one["valid"]),
        )
        for one in result["grammars"]
    ]
    columns = ("grammar", "states", "compile s", "first s", "longest first s", "above the model", "valid")
    served = f"served: {len(result['grammars'])} of {len(result['grammars'])}"
    return [Table("Grammars in turn", columns, tuple(rows), served)]


def _passes(result: Result) -> list[Table]:
    costs = [
        (str(row["tokens"]), str(row["context"]), f"{row['ms']:.2f}", f"{row['relative']:.2f}")
        for row in (*result["widths"], *result["contexts"])
    ]
    peaks = [
        (
            peak["what"],
            str(peak["rows"]),
            str(peak["tokens"]),
            "–" if peak["chunk"] is None else str(peak["chunk"]),
            "–" if peak["above_bytes"] is None else size(peak["above_bytes"]),
            f"{peak['rate']:.0f}",
        )
        for peak in result["peaks"]
    ]
    return [
        Table("One pass", ("tokens in it", "context", "ms", "relative"), tuple(costs)),
        Table("Peak memory above the model", ("regime", "streams", "tokens", "chunk", "above", "tok/s"), tuple(peaks)),
    ]


def _levels(result: Result) -> list[Table]:
    rows = [
        (str(level["depth"]), f"{level['nodes']:,}", f"{level['alive']:,}", f"{level['mean_alive']:,.0f}")
        for level in result["levels"][:24]
    ]
    columns = ("depth", "trie nodes", "alive from some place", "from one, on average")
    return [Table(f"The vocabulary under the person schema, {result['places']} places", columns, tuple(rows))]


def _any(result: Result) -> list[Table]:
    """Every list of flat objects as a table."""
    found = []
    for key, value in result.items():
        rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
        if not rows:
            continue
        columns = [name for name in rows[0] if all(not isinstance(row.get(name), dict | list) for row in rows)]
        cells = tuple(tuple(_cell(row.get(name)) for name in columns) for row in rows[:_MOST_ROWS])
        note = "" if len(rows) <= _MOST_ROWS else f"and {len(rows) - _MOST_ROWS} more rows in the file"
        found.append(Table(key.replace("_", " "), tuple(name.replace("_", " ") for name in columns), cells, note))
    return found


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def shorten(text: str, most: int = 160) -> str:
    """A text's beginning and end."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return shorten(str(value), 120)


def markdown(table: Table) -> str:
    """As a Markdown table."""
    lines: Iterable[Sequence[str]] = (table.columns, ["---"] * len(table.columns), *table.rows)
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.title}**\n\n{body}\n" + (f"\n{table.note}\n" if table.note else "")


_MAKERS: Mapping[str, Callable[[Result], list[Table]]] = {
    "loop": _loop,
    "memory": _memory,
    "budget": _budget,
    "certified": _certified,
    "throughput": _throughput,
    "jobs": _jobs,
    "turns": _turns,
    "passes": _passes,
    "levels": _levels,
}
