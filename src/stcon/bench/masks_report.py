"""The results of `stcon bench masks` as numbers, as tables of 80 columns, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stcon.bench.masks import OURS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from stcon.bench.masks import Measured
    from stcon.bench.masks_measure import Record

Float64 = NDArray[np.float64]

QUANTILES = (50, 75, 90, 95, 99)


@dataclass(frozen=True)
class Spread:
    """A distribution of times, in one unit; all zero if there are none."""

    count: int
    avg: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    max: float

    @staticmethod
    def of(values: Float64) -> Spread:
        """The spread of `values`."""
        if not len(values):
            return Spread(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        p50, p75, p90, p95, p99 = np.percentile(values, QUANTILES).tolist()
        return Spread(len(values), float(values.mean()), p50, p75, p90, p95, p99, float(values.max()))


@dataclass(frozen=True)
class Verdicts:
    """How one engine's cases ended. The five outcomes add up to `cases`.

    Attributes:
        refused: by reason, late ones among them; without `unsatisfiable`.
        late: refusals while decoding.
        unsatisfiable: refused as such; `rightly` where the corpus has no valid instance.
        valid_rejected, invalid_accepted: cases; `instances_…`: instances in all cases.
        unfed: instances that the vocabulary cannot spell.
    """

    cases: int
    passing: int
    refused: Mapping[str, int]
    late: int
    unsatisfiable: int
    rightly: int
    valid_rejected: int
    invalid_accepted: int
    instances: int
    instances_valid_rejected: int
    instances_invalid_accepted: int
    unfed: int

    @property
    def exact(self) -> int:
        """Cases with nothing to wish for: passing, or rightly unsatisfiable."""
        return self.passing + self.rightly


@dataclass(frozen=True)
class Ratio:
    """stcon's times over a peer's, on the `cases` that both pass (so that both read the same tokens, or nearly)."""

    peer: str
    cases: int
    first_p50: float
    first_p99: float
    between_avg: float
    between_p50: float
    between_p99: float


def verdicts(records: Sequence[Record]) -> Verdicts:
    """Count the outcomes."""
    status = Counter(record.status for record in records)
    refusals = [record.refusal for record in records if record.status == "refused" and record.refusal]
    wrong = Counter(fed.accepted for record in records for fed in record.wrong)
    finished = [record for record in records if record.refusal is None]
    return Verdicts(
        cases=len(records),
        passing=status["passing"],
        refused=dict(Counter(refusal.reason for refusal in refusals).most_common()),
        late=sum(refusal.late for refusal in refusals),
        unsatisfiable=status["unsatisfiable"],
        rightly=sum(record.rightly_unsatisfiable for record in records),
        valid_rejected=status["valid rejected"],
        invalid_accepted=status["invalid accepted"],
        instances=sum(len(record.fed) for record in records),
        instances_valid_rejected=wrong[False],
        instances_invalid_accepted=wrong[True],
        unfed=sum(len(record.case.instances) - len(record.fed) for record in finished),
    )


def first_masks_ms(records: Sequence[Record]) -> Float64:
    """Schema to first mask, of every case that had one."""
    return np.array([record.compiled.first_mask_ns for record in records if record.compiled], np.float64) / 1e6


def between_masks_us(records: Sequence[Record]) -> Float64:
    """Token to next mask, of every token read."""
    gaps = [np.frombuffer(fed.gaps_ns, np.int64) for record in records for fed in record.fed if fed.gaps_ns]
    return np.concatenate(gaps) / 1e3 if gaps else np.zeros(0)


def ratios(measured: Sequence[Measured]) -> list[Ratio]:
    """stcon against every other engine of the run."""
    ours = next((one for one in measured if one.engine == OURS), None)
    if ours is None:
        return []
    return [_ratio(ours.records, peer) for peer in measured if peer is not ours]


def _ratio(ours: Sequence[Record], peer: Measured) -> Ratio:
    both = [pair for pair in zip(ours, peer.records, strict=True) if all(record.status == "passing" for record in pair)]
    first = [Spread.of(first_masks_ms(side)) for side in _sides(both)]
    between = [Spread.of(between_masks_us(side)) for side in _sides(both)]

    def over(spreads: Sequence[Spread], name: str) -> float:
        mine, theirs = (getattr(spread, name) for spread in spreads)
        return mine / theirs if theirs else float("nan")

    return Ratio(
        peer.engine,
        len(both),
        first_p50=over(first, "p50"),
        first_p99=over(first, "p99"),
        between_avg=over(between, "avg"),
        between_p50=over(between, "p50"),
        between_p99=over(between, "p99"),
    )


def _sides(pairs: Sequence[tuple[Record, Record]]) -> tuple[list[Record], list[Record]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


# --------------------------------------------------------------------------------------------------- tables


def print_tables(console: Console, measured: Sequence[Measured], *, timed: bool) -> None:
    """Verdicts and memory; with `timed`, the times and the ratios."""
    console.print(_verdict_table(measured))
    if not timed:
        console.print("\nno times: stcon's answers are wrong (see below)")
        return
    between = {one.engine: Spread.of(between_masks_us(one.records)) for one in measured}
    first = {one.engine: Spread.of(first_masks_ms(one.records)) for one in measured}
    console.print()
    console.print(_spread_table("first mask, ms", first, 2))
    console.print()
    console.print(_spread_table("between masks, µs", between, 1))
    if rows := ratios(measured):
        console.print()
        console.print(_ratio_table(rows))


def _verdict_table(measured: Sequence[Measured]) -> Table:
    counts = [verdicts(one.records) for one in measured]
    table = _table("schemas", [one.engine for one in measured])

    def row(title: str, numbers: Sequence[int], details: Sequence[str] | None = None) -> None:
        shares = [f"{n:,} {n / max(c.cases, 1):6.1%}" for n, c in zip(numbers, counts, strict=True)]
        table.add_row(title, *(details or shares))

    row("all", [c.cases for c in counts], [f"{c.cases:,}       " for c in counts])
    row("exact", [c.exact for c in counts])
    row("passing", [c.passing for c in counts])
    row("refused", [sum(c.refused.values()) for c in counts])
    for reason in dict.fromkeys(reason for c in counts for reason in c.refused):
        row(f"  {reason}", [c.refused.get(reason, 0) for c in counts])
    row("  (while decoding)", [c.late for c in counts])
    row("unsatisfiable, rightly", [c.rightly for c in counts])
    row("unsatisfiable, wrongly", [c.unsatisfiable - c.rightly for c in counts])
    row("valid rejected", [c.valid_rejected for c in counts])
    row("invalid accepted", [c.invalid_accepted for c in counts])
    table.add_section()
    table.add_row("instances read", *(f"{c.instances:,}" for c in counts))
    table.add_row("  valid, rejected", *(f"{c.instances_valid_rejected:,}" for c in counts))
    table.add_row("  invalid, accepted", *(f"{c.instances_invalid_accepted:,}" for c in counts))
    table.add_row("peak memory, MB", *(_megabytes(one.peak_over_bytes) for one in measured))
    table.add_row("  set-up before it, MB", *(_megabytes(one.setup_bytes) for one in measured))
    return table


def _spread_table(title: str, spreads: Mapping[str, Spread], digits: int) -> Table:
    table = _table(title, ["n", "avg", *(f"p{q}" for q in QUANTILES), "max"])
    for engine, spread in spreads.items():
        times = list(asdict(spread).values())[1:]
        table.add_row(engine, f"{spread.count:,}", *(_short(time, digits) for time in times))
    return table


def _ratio_table(rows: Sequence[Ratio]) -> Table:
    titles = ["schemas", "first\np50", "first\np99", "between\navg", "between\np50", "between\np99"]
    table = _table("stcon / peer,\nwhere both pass", titles)
    for row in rows:
        numbers = (row.first_p50, row.first_p99, row.between_avg, row.between_p50, row.between_p99)
        table.add_row(row.peer, f"{row.cases:,}", *(f"{number:.2f}" for number in numbers))
    return table


def _table(first: str, others: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right")
    return table


def _short(number: float, digits: int) -> str:
    """With `digits` after the point, fewer where the number is large."""
    return f"{number:,.{digits if number < 1000 else 0}f}"


def _megabytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:,.0f}"


# --------------------------------------------------------------------------------------------------- data


def as_json(measured: Sequence[Measured], about: Mapping[str, Any], *, timed: bool) -> dict[str, Any]:
    """Everything: what ran, the tables' numbers, and a record of every case under every engine."""
    result: dict[str, Any] = {
        **about,
        "engines": {one.engine: _engine_json(one, timed) for one in measured},
        "ratios": [asdict(row) for row in ratios(measured)] if timed else None,
    }
    cases = zip(*(one.records for one in measured), strict=True)
    result["cases"] = [
        {"id": row[0].case.id, **{record.engine: _record_json(record) for record in row}} for row in cases
    ]
    return result


def _engine_json(one: Measured, timed: bool) -> dict[str, Any]:
    return {
        "options": dict(one.options),
        "verdicts": asdict(verdicts(one.records)),
        "first_mask_ms": asdict(Spread.of(first_masks_ms(one.records))) if timed else None,
        "between_masks_us": asdict(Spread.of(between_masks_us(one.records))) if timed else None,
        "setup_bytes": one.setup_bytes,
        "peak_over_setup_bytes": one.peak_over_bytes,
        "restarts": one.num_restarts,
    }


def _record_json(record: Record) -> dict[str, Any]:
    return dict(_record_items(record))


def _record_items(record: Record) -> Iterator[tuple[str, Any]]:
    yield "status", record.status
    if record.compiled is not None:
        yield "compile_ms", record.compiled.compile_ns / 1e6
        yield "first_mask_ms", record.compiled.first_mask_ns / 1e6
    if len(gaps := between_masks_us([record])):
        yield "between_masks_us", asdict(Spread.of(gaps))
    if record.refusal is not None:
        yield "refusal", {key: value for key, value in asdict(record.refusal).items() if value}
    if record.wrong:
        yield (
            "wrong",
            [
                {
                    "instance": fed.index,
                    "description": record.case.instances[fed.index].description,
                    "valid": record.case.instances[fed.index].valid,
                    "tokens_accepted": fed.taken,
                }
                for fed in record.wrong
            ],
        )
