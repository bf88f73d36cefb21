"""Six extractions on the GPU: free, llguidance, ours, in one loop over the same kernels; and transformers.generate.

    python benchmarks/gpu_extract.py --model smollm2 --gguf MODEL.gguf --json docs/measurements/gpu-extract-smollm2.json
    python benchmarks/gpu_extract.py --model qwen --json docs/measurements/gpu-extract-qwen.json

Checks first (every constrained answer is valid, every round repeats the first; SmolLM2 in float32 writes what the plain
loop writes on the CPU, but for near-ties, which are listed), then times, then the tables. A red check reports no time.
Rounds are interleaved: each runs every engine on every extraction; times are medians. Needs the extras ``cuda`` and
``bench``, a torch with CUDA, and for the default model's file ``stcon pull``.

Source: the paper's Tables 4, 5, 18 and 24.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import gpu_extract_steps as steps
import torch
from gpu_extract_models import Subject, qwen_shape, smollm2, smollm2_shape
from gpu_extract_peers import stock_generate

import stcon
from stcon.bench.llguidance_control import Llguidance, LlguidanceControl
from stcon.bench.near_ties import divergence, summarize
from stcon.bench.workloads import Workload, load_all
from stcon.constraint import quiet
from stcon.engine.device_loop import Ahead, DeviceEngine, warm_up
from stcon.engine.loop import generate
from stcon.engine.output import Output
from stcon.models.span_draws import MAX_DRAWS

LIMIT = 256
LARGEST_TIE = 0.01
MODES = ("free", "mask", "canonical")
OURS = "ours, canonical"

Make = Callable[[Workload, list[int]], Output]


class Engine(NamedTuple):
    """What is compared.

    Attributes:
        make: the output that is decoded.
        ahead, guess: see `DeviceEngine`.
        forgets: plans made before are forgotten before each answer.
    """

    make: Make
    ahead: Ahead = "quiet"
    guess: bool = False
    forgets: bool = False


def main() -> int:
    """Check, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("smollm2", "smollm2-shape", "qwen"), required=True)
    parser.add_argument("--gguf", type=Path, help="SmolLM2's file; for its shape the vocabulary in it is enough")
    parser.add_argument("--runner", choices=("lean", "transformers"), default="lean")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-stock", action="store_true", help="leave out transformers.generate")
    parser.add_argument("--json", type=Path, help="write everything measured here")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "command": " ".join(sys.argv), "runner": options.runner}
    is_real = options.model == "smollm2"
    if is_real:
        report["near_ties"] = near_ties(options.gguf, options.runner)
        print(json.dumps(report["near_ties"]), flush=True)
    if is_real:
        subject = smollm2(options.gguf, options.runner, torch.bfloat16)
    elif options.model == "qwen":
        subject = qwen_shape(options.runner)
    else:
        subject = smollm2_shape(options.gguf, options.runner)
    report |= measure(subject, options.rounds, with_stock=not options.no_stock)
    red = report["failures"] + report.get("near_ties", {}).get("failures", [])
    lines = [f"RED {line}" for line in red] or [*table(report), *steps.table(report["steps"])]
    if options.json:
        options.json.write_text(json.dumps({**report, "table": lines}, indent=1) + "\n", "utf-8")
    print("\n".join(lines))
    return 1 if red else 0


def machine() -> dict[str, str]:
    """The card and the versions."""
    found = {name: version(name) for name in ("torch", "transformers", "triton", "cuda-core", "llguidance", "numpy")}
    return {"card": torch.cuda.get_device_name(), "python": platform.python_version(), **found}


# ------------------------------------------------------------------------------------------------- measuring


def engine_of(subject: Subject) -> DeviceEngine:
    """The device engine of a subject."""
    from stcon.kernels.cuda import CudaGrammars, CudaWalker

    def kernels() -> Any:
        grammars = CudaGrammars(subject.static.device)
        return grammars, CudaWalker(subject.model.vocabulary, grammars, max_rows=MAX_DRAWS)

    return DeviceEngine(subject.static, kernels, vocab_size=subject.model.vocabulary.size)


def engines(subject: Subject) -> dict[str, Engine]:
    """By name."""
    peer = Llguidance(subject.model.vocabulary)
    grammars = {task.name: stcon.compile(task.schema) for task in load_all()}

    def ours(mode: Any) -> Make:
        return lambda task, prompt: Output(subject.model, prompt, grammars[task.name], max_tokens=LIMIT, mode=mode)

    def theirs(forward: bool) -> Make:
        return lambda task, prompt: Output(
            subject.model, prompt, max_tokens=LIMIT, control=LlguidanceControl(peer, task.schema, forward=forward)
        )

    def free(task: Workload, prompt: list[int]) -> Output:
        return Output(subject.model, prompt, max_tokens=LIMIT)

    return {
        "free": Engine(free),
        "llguidance, mask only": Engine(theirs(False), "never"),
        "llguidance, fast-forward": Engine(theirs(True), "never"),
        "ours, mask only": Engine(ours("mask")),
        OURS: Engine(ours("canonical"), guess=True),
        f"{OURS}, plans forgotten": Engine(ours("canonical"), guess=True, forgets=True),
        f"{OURS}, no guesses": Engine(ours("canonical")),
        "  the same, never ahead": Engine(ours("canonical"), "never"),
        "  the same, always ahead": Engine(ours("canonical"), "always"),
    }


def measure(subject: Subject, rounds: int, *, with_stock: bool) -> dict[str, Any]:
    """Every engine on every extraction: two rounds to capture graphs and check, then `rounds` that are timed."""
    engine, made = engine_of(subject), engines(subject)
    tasks = load_all()
    prompts = {task.name: prompt_of(subject, task) for task in tasks}
    longest = max(map(len, prompts.values())) + LIMIT + 16
    started = perf_counter()
    warm_up(engine, longest, spans=(1,))
    report: dict[str, Any] = {"model": subject.name, "warm_up_s": perf_counter() - started, "failures": []}
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    turns = [(number, name) for number in range(rounds + 2) for name, each in made.items() if not each.forgets]
    turns += [(number, name) for number in range(rounds + 2) for name, each in made.items() if each.forgets]  # apart
    for number, name in turns:
        make, engine.ahead, engine.guess, forgets = made[name]
        for task in tasks:
            subject.prepare(task, prompts[task.name])
            if forgets:
                quiet._shared.clear()
            torch.cuda.synchronize()
            result = engine.decode(make(task, prompts[task.name]))
            tokens = [token.id for token in result.tokens]
            run = runs.setdefault((name, task.name), run_of(result, tokens))
            if tokens != run["tokens"]:
                report["failures"].append(f"{name}, {task.name}: tokens differ between rounds")
            if number >= 2:
                run["decode_s"].append(result.decode_s)
                run["prefill_s"].append(result.prefill_s)
    report["failures"] += invalid(runs, tasks)
    report["runs"] = [{"engine": name, "task": task, **run} for (name, task), run in runs.items()]
    report["steps"] = steps.measure(subject, engine)
    if with_stock and subject.stock is not None and not report["failures"]:
        report["runs"] += stock(subject, prompts)
    return report


def prompt_of(subject: Subject, task: Workload) -> list[int]:
    """The same prompt in every mode."""
    return list(subject.model.prompt_ids(task.prompt))


def run_of(result: Any, tokens: list[int]) -> dict[str, Any]:
    """What is kept of an answer; times are added round by round."""
    return {
        "tokens": tokens,
        "text": result.text,
        "passes": result.passes,
        "sampled": result.sampled,
        "forced": result.forced,
        "finish": result.finish_reason,
        "decode_s": [],
        "prefill_s": [],
    }


def invalid(runs: dict[tuple[str, str], dict[str, Any]], tasks: tuple[Workload, ...]) -> list[str]:
    """Constrained answers that do not satisfy their schema."""
    from jsonschema import Draft202012Validator

    schemas = {task.name: Draft202012Validator(task.schema) for task in tasks}
    red = []
    for (name, task), run in runs.items():
        if name == "free":
            continue
        try:
            fits = schemas[task].is_valid(json.loads(run["text"]))
        except ValueError:
            fits = False
        run["valid"] = fits
        if not fits and run["finish"] == "stop":
            red.append(f"{name}, {task}: not valid: {run['text'][:80]!r}")
    return red


def stock(subject: Subject, prompts: dict[str, list[int]]) -> list[dict[str, Any]]:
    """``transformers.generate`` with llguidance: one round, after a few tokens to warm up."""
    assert subject.stock is not None
    network, peer, vocabulary = subject.stock(), Llguidance(subject.model.vocabulary), subject.model.vocabulary
    found = []
    for task in load_all():
        prompt = prompts[task.name]
        subject.prepare(task, prompt)
        times = []
        for limit in (3, 1, LIMIT):  # warm; the prompt's pass and one token, to be taken off; the answer
            matcher = peer.matcher(task.schema)
            torch.cuda.synchronize()
            started = perf_counter()
            tokens = stock_generate(network, matcher, prompt, vocabulary, limit, subject.script)
            times.append(perf_counter() - started)
        text = vocabulary.decode([t for t in tokens if t not in vocabulary.end_ids]).decode("utf-8", "replace")
        times_s = {"decode_s": [times[2] - times[1]], "prefill_s": [times[1]]}
        counts = {"passes": len(tokens), "sampled": len(tokens), "forced": 0}
        found.append({"engine": "stock generate + llguidance", "task": task.name, "text": text, **counts, **times_s})
        found[-1]["tokens"] = tokens
    return found


# ------------------------------------------------------------------------------------------------- near-ties


def near_ties(path: Path, runner: str) -> dict[str, Any]:
    """Greedy answers on the device against the plain loop's on the CPU in float32 (Table 24)."""
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = smollm2(path, runner, torch.float32, "cpu").model
    grammars = {task.name: stcon.compile(task.schema) for task in load_all()}
    rows, failures, judge = {}, [], None
    expected: dict[tuple[str, str], list[int]] = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        subject = smollm2(path, runner, dtype)
        judge = judge or subject.model
        engine, found = engine_of(subject), []
        for mode in MODES:
            for task in load_all():
                prompt = prompt_of(subject, task)
                options: dict[str, Any] = {"max_tokens": 64 if mode == "free" else LIMIT, "mode": mode}
                grammar = None if mode == "free" else grammars[task.name]
                key = (mode, task.name)
                if key not in expected:
                    expected[key] = [t.id for t in generate(reference, prompt, grammar, **options).tokens]
                tokens = [t.id for t in engine.decode(Output(subject.model, prompt, grammar, **options)).tokens]
                parted = divergence(judge, prompt, tokens, expected[key])
                found.append(parted)
                if name == "float32" and parted and (parted.gap is None or abs(parted.gap) > LARGEST_TIE):
                    failures.append(f"float32, {mode}, {task.name}: parts from the CPU with a gap of {parted.gap}")
        rows[name] = {**vars(summarize(found)), "divergences": [vars(d) for d in found if d is not None]}
    return {"against": "plain loop, CPU, float32", "rows": rows, "failures": failures}


# ------------------------------------------------------------------------------------------------- the table


def table(report: dict[str, Any]) -> list[str]:
    """Tables 4, 5 and 18 in one, and Table 24's rows."""
    rows = []
    for name in dict.fromkeys(run["engine"] for run in report["runs"]):
        mine = [run for run in report["runs"] if run["engine"] == name]
        seconds = sum(median(run["decode_s"]) for run in mine)
        passes, tokens = sum(run["passes"] for run in mine), sum(len(run["tokens"]) for run in mine)
        rows.append((name, tokens, passes, sum(run["forced"] for run in mine) / tokens, seconds))
    ours = next(row[-1] for row in rows if row[0] == OURS)
    lines = [
        f"{report['model']} on {report['machine']['card']}, bf16, runner {report['runner']}, six extractions, greedy",
        f"{'engine':<34}{'tokens':>8}{'passes':>8}{'/token':>8}{'forced':>8}"
        f"{'decode s':>10}{'ms/pass':>9}{'ours is':>9}",
    ]
    for name, tokens, passes, forced, seconds in rows:
        lines.append(
            f"{name:<34}{tokens:>8}{passes:>8}{passes / tokens:>8.2f}{forced:>8.0%}{seconds:>10.3f}"
            f"{seconds / passes * 1e3:>9.2f}{seconds / ours:>8.2f}x"
        )
    for name, row in report.get("near_ties", {}).get("rows", {}).items():
        lines.append(
            f"{name} on the GPU against float32 on the CPU: {row['divergent']} of {row['compared']} outputs part, "
            f"median gap {row['median_gap']}, max {row['max_gap']}; float32 prefers the GPU's token in "
            f"{row['prefers_first']}, the CPU's in {row['prefers_second']}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
