"""The default model on the CPU: lean in float32, bfloat16 and four bits against transformers in float32.

Tokens are decoded in turns, one by each contender, so that what else the machine does falls on all of them. Start-up is
a fresh process from its first instruction to the first token printed. The types differ in what they compute, so their
fidelity stands beside their speed: how often the most likely token is the same, the divergence, the largest difference.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

PROMPT = "Write a short story about a cat that lives in Porto and likes to watch the boats on the river."
CONTENDERS: Mapping[str, tuple[str, str, str]] = {  # runner, dtype, weights
    "lean float32": ("lean", "float32", "auto"),
    "lean bfloat16": ("lean", "bfloat16", "auto"),
    "lean int4": ("lean", "bfloat16", "int4"),
    "transformers float32": ("transformers", "float32", "auto"),
}
_FIRST_TOKEN = """
import sys, stcon
model = stcon.load_model(device="cpu", runner=sys.argv[1], dtype=sys.argv[2], weights=sys.argv[3])
session = model.session()
print(int(session.append(model.prompt_ids(sys.argv[4])).argmax()), flush=True)
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def measure(quick: bool) -> dict[str, Any]:
    """Everything, and the table."""
    import torch

    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()},
        "versions": {"torch": torch.__version__},
        "threads": torch.get_num_threads(),
        "start_up": {name: start_up(*how) for name, how in CONTENDERS.items()},
    }
    report["decode"], report["fidelity"] = decode(12 if quick else 40)
    report["table"] = table(report)
    return report


def start_up(runner: str, dtype: str, weights: str, rounds: int = 3) -> dict[str, float]:
    """Seconds from starting a process to its first token, the best of `rounds`, and its peak memory in MB."""
    command = [sys.executable, "-c", _FIRST_TOKEN, runner, dtype, weights, PROMPT]
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            seconds = time.perf_counter() - started
            found.append((seconds, int(process.stdout.readline()) / 1024))
    return {"first_token_s": round(min(found)[0], 2), "peak_mb": round(min(found)[1])}


def decode(tokens: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Milliseconds a token and of the prompt, by contender; and how far each is from the last one."""
    import stcon

    models = {
        name: stcon.load_model(device="cpu", runner=runner, dtype=dtype, weights=weights)
        for name, (runner, dtype, weights) in CONTENDERS.items()
    }
    ids = next(iter(models.values())).prompt_ids(PROMPT)
    sessions, times = {}, {name: {"wall": [], "cpu": []} for name in models}
    found: dict[str, Any] = {}
    for name, model in models.items():
        model.session().append(ids)
        sessions[name] = model.session()
        started = time.perf_counter()
        logits = sessions[name].append(ids)
        found[name] = {"prompt_ms": round((time.perf_counter() - started) * 1e3, 1)}
    text = []
    for _ in range(tokens):  # all are fed what the last one, the reference, would say
        text.append(int(logits.argmax()))
        for name, session in sessions.items():
            wall, cpu = time.perf_counter(), time.process_time()
            logits = session.append(text[-1:])
            times[name]["wall"].append(time.perf_counter() - wall)
            times[name]["cpu"].append(time.process_time() - cpu)
    for name, taken in times.items():
        found[name] |= {f"{kind}_ms": round(statistics.median(values) * 1e3, 1) for kind, values in taken.items()}
        found[name]["tokens_per_s"] = round(1e3 / found[name]["wall_ms"], 1)
    rows = {name: _by_token(model, [*ids, *text]) for name, model in models.items()}
    reference = list(rows.values())[-1]
    return found, {name: fidelity(row, reference) for name, row in rows.items()}


def _by_token(model: Any, tokens: list[int]) -> np.ndarray:
    """Logits of all positions by single steps, which is where types and kernels differ."""
    session = model.session()
    return np.stack([session.append([token]) for token in tokens])


def fidelity(rows: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Top-1 agreement, mean Kullback–Leibler divergence and the largest difference of logits, over all positions."""
    p, q = (row - np.logaddexp.reduce(row, axis=1, keepdims=True) for row in (reference, rows))
    return {
        "top1": float((rows.argmax(1) == reference.argmax(1)).mean()),
        "kl": float((np.exp(p) * (p - q)).sum(1).mean()),
        "max_abs_logit": float(np.abs(rows - reference).max()),
    }


def table(report: dict[str, Any]) -> list[str]:
    """The summary, one line a contender."""
    lines = [
        f"SmolLM2-135M, {report['threads']} threads, load {report['machine']['load']:.1f}",
        f"{'':22}  ms/token (of CPU)  tokens/s  prompt ms  first token s  peak MB   top-1       KL  max |Δ|",
    ]
    for name, taken in report["decode"].items():
        started, close = report["start_up"][name], report["fidelity"][name]
        lines.append(
            f"{name:22}  {taken['wall_ms']:8.1f} {taken['cpu_ms']:8.1f}  {taken['tokens_per_s']:8.1f}"
            f"  {taken['prompt_ms']:9.1f}  {started['first_token_s']:13.2f}  {started['peak_mb']:7.0f}"
            f"  {close['top1']:6.1%}  {close['kl']:7.1e}  {close['max_abs_logit']:7.3f}"
        )
    return lines
