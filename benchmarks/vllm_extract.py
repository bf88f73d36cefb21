"""Six extractions in vLLM: its guidance and xgrammar back ends, and stcon without and with forced text drafted.

::

    STCON_VLLM_PYTHON=/path/to/vllm/bin/python nice -n -5 python benchmarks/vllm_extract.py MODEL_DIRECTORY \
        --out docs/measurements/vllm-2-cores.json

The engines are open side by side, each in a process of its own, and answer in turns, so that wall times can be compared
with each other; they mean nothing by themselves. Prompts, model and limits are the same for all. An answer is judged by
jsonschema before anything is printed.

Back ends of vLLM write no whitespace where they can be told (``disable_any_whitespace``), as ours do not.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from jsonschema import Draft202012Validator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integrations"))
from vllm_process import VllmProcess, request, why_no_vllm

import stcon
from stcon.bench.workloads import load_all

SIZE: dict[str, Any] = {"max_model_len": 1024, "max_num_seqs": 4}
TERSE = {"disable_any_whitespace": True}
ENGINES: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "guidance": (None, {"structured_outputs_config": {"backend": "guidance", **TERSE}}),
    "xgrammar": (None, {"structured_outputs_config": {"backend": "xgrammar", **TERSE}}),
    "stcon": ({}, {}),
    "stcon, forced text drafted": ({"forced": True}, {}),
}
BASE = "guidance"
MAX_TOKENS = 320


@dataclass
class Row:
    """One extraction by one engine.

    Attributes:
        task, engine: which.
        tokens: of the output, its end token included.
        steps: passes of the model, the prompt's included.
        drafted: tokens drafted; all of them are accepted, or the run fails.
        is_valid: by jsonschema.
        seconds: wall time of each round.
    """

    task: str
    engine: str
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    is_valid: bool = False
    seconds: list[float] = field(default_factory=list)


def main() -> None:
    """Measure, print the table, write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a directory with SmolLM2-135M-Instruct in float32")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if (problem := why_no_vllm()) is not None:
        parser.error(problem)
    rows = measure(arguments.model, arguments.rounds)
    print(table(rows))
    if arguments.out:
        arguments.out.write_text(json.dumps(report(rows, arguments.rounds), indent=1) + "\n")


def measure(model: Path, rounds: int) -> list[Row]:
    """Open all engines, warm each up with one task, then ask them in turns."""
    oracle = stcon.load_model("default", device="cpu", progress=False)
    tasks = [(work.name, oracle.prompt_ids(work.prompt), work.schema) for work in load_all()]
    rows = {(name, engine): Row(name, engine) for name, _, _ in tasks for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        engines: dict[str, VllmProcess] = {}
        try:
            for number, (name, (options, llm)) in enumerate(ENGINES.items()):
                engines[name] = VllmProcess(model, Path(folder) / f"{number}.log", options, **SIZE, **llm)
                engines[name].generate([request(tasks[0][1], MAX_TOKENS, {"json": tasks[0][2]})])
            for turn in range(rounds):
                for task, prompt, schema in tasks:
                    order = list(engines.items())
                    for name, engine in order[turn % len(order) :] + order[: turn % len(order)]:
                        _ask(engine, rows[task, name], prompt, schema)
        finally:
            for engine in engines.values():
                engine.close()
    return list(rows.values())


def _ask(engine: VllmProcess, row: Row, prompt: list[int], schema: Any) -> None:
    result = engine.generate([request(prompt, MAX_TOKENS, {"json": schema})])
    ((answer,),) = result["answers"]
    counts = result["counts"]
    if counts["accepted"] != counts["drafted"]:
        raise SystemExit(f"{row}: {counts['drafted'] - counts['accepted']} drafts were refused")
    row.tokens, row.steps, row.drafted = len(answer["tokens"]), counts["steps"], counts["drafted"]
    try:
        row.is_valid = Draft202012Validator(schema).is_valid(json.loads(answer["text"]))
    except ValueError:
        row.is_valid = False
    row.seconds.append(result["seconds"])


def table(rows: list[Row]) -> str:
    """Tokens and steps, and wall time as a share of `BASE`'s in the same round (the median of the rounds)."""
    lines = ["| task | engine | valid | tokens | steps | wall time |", "|---|---|---|---:|---:|---:|"]
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    total = {engine: Row("all six", engine, is_valid=True) for engine in ENGINES}
    for row in rows:
        one = total[row.engine]
        one.tokens, one.steps, one.is_valid = (
            one.tokens + row.tokens,
            one.steps + row.steps,
            one.is_valid and row.is_valid,
        )
        one.seconds = [a + b for a, b in zip(one.seconds or [0.0] * len(row.seconds), row.seconds, strict=True)]
    for group in [*by_task.values(), list(total.values())]:
        base = next(row for row in group if row.engine == BASE)
        for row in group:
            share = median(a / b for a, b in zip(row.seconds, base.seconds, strict=True))
            valid = "yes" if row.is_valid else "no"
            lines.append(f"| {row.task} | {row.engine} | {valid} | {row.tokens} | {row.steps} | {share:.2f} |")
    return "\n".join(lines)


def report(rows: list[Row], rounds: int) -> dict[str, Any]:
    """What is written."""
    return {
        "model": "SmolLM2-135M-Instruct, float32",
        "vllm": "0.32.0, CPU build, enforce_eager, one thread an engine",
        "machine": f"{platform.machine()}, two cores",
        "rounds": rounds,
        "base": BASE,
        "rows": [asdict(row) for row in rows],
    }


if __name__ == "__main__":
    main()
