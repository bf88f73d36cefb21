"""The default model on the CPU: lean in float32, bfloat16 and four bits, transformers, and llama.cpp on the same file.

Tokens are decoded in turns, one by each contender, so that what else the machine does falls on all of them. Start-up is
a fresh process from its first instruction to the first token printed, the best of three, contenders in turns. The types
differ in what they compute, so their fidelity stands beside their speed. llama.cpp runs where `llama_cpp` is installed
(pip install llama-cpp-python); it multiplies the file's own 4-bit numbers with activations rounded to 8 bits.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import models_compiled
import models_fidelity
import numpy as np
import torch

PROMPT = "Write a short story about a cat that lives in Porto and likes to watch the boats on the river."
LLAMA_CPP = "llama.cpp"
REFERENCE = "transformers float32"
CONTENDERS: Mapping[str, tuple[str, str, str]] = {  # runner, dtype, weights
    "lean float32": ("lean", "float32", "auto"),
    "lean bfloat16": ("lean", "bfloat16", "auto"),
    "lean int4": ("lean", "bfloat16", "int4"),
    "transformers bfloat16": ("transformers", "bfloat16", "auto"),
    REFERENCE: ("transformers", "float32", "auto"),
}
# not ru_maxrss, in which a process begins with what its parent had
_PEAK = 'print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))'
_FIRST_TOKEN = f"""
import sys, stcon
model = stcon.load_model(sys.argv[1], device="cpu", runner=sys.argv[2], dtype=sys.argv[3], weights=sys.argv[4])
session = model.session()
print(int(session.append(model.prompt_ids(sys.argv[5])).argmax()), flush=True)
{_PEAK}
"""
_FIRST_OF_LLAMA_CPP = f"""
import sys, numpy, llama_cpp
threads = int(sys.argv[2])
model = llama_cpp.Llama(sys.argv[1], n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
model.eval(model.tokenize(sys.argv[3].encode(), add_bos=False, special=True))
print(int(numpy.ctypeslib.as_array(model._ctx.get_logits(), shape=(model.n_vocab(),)).argmax()), flush=True)
{_PEAK}
"""


class LlamaCpp:
    """llama.cpp behind the little that is used here of a model and its session."""

    def __init__(self, path: Path) -> None:
        from llama_cpp import Llama

        threads = torch.get_num_threads()
        self.model = Llama(str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)

    def session(self) -> LlamaCpp:
        """Itself, emptied: there is one cache."""
        self.model.reset()
        self.model._ctx.kv_cache_clear()
        return self

    def append(self, tokens: Sequence[int]) -> np.ndarray:
        """float32[vocabulary] after the tokens."""
        self.model.eval(list(tokens))
        return np.array(np.ctypeslib.as_array(self.model._ctx.get_logits(), shape=(self.model.n_vocab(),)))


def prepare() -> Callable[[], None]:
    """Nothing to do while the checks run."""
    return lambda: None


def measure(quick: bool, only: str = "all") -> dict[str, Any]:
    """Everything, and the table."""
    if only == "compile":
        return compiled()
    from stcon.models.pull import default_model_path

    path = Path(os.environ.get("STCON_MODEL") or default_model_path(True))
    report: dict[str, Any] = {"machine": machine(), "threads": torch.get_num_threads(), "model": path.name}
    models = loaded(path)
    ids = next(iter(models.values())).prompt_ids(PROMPT)
    report["decode"], text = decode(models, ids, 12 if quick else 40 if only == "all" else 100)
    report["fidelity"] = against_reference(models, [*ids, *text])
    lines = models_fidelity.table(report["fidelity"])
    if only == "all":
        prompt = next(iter(models.values())).render_chat([{"role": "user", "content": PROMPT}])
        models.clear()
        report["start_up"] = start_up(path, prompt, 1 if quick else 3)
        lines = [*table(report), *lines]
    report["table"] = lines
    return report


def compiled() -> dict[str, Any]:
    """What torch.compile would gain."""
    found = {
        name: models_compiled.on_cpu(weights, dtype)
        for name, (runner, dtype, weights) in CONTENDERS.items()
        if runner == "lean"
    }
    return {"machine": machine(), "compiled": found, "table": [f"{name}: {taken}" for name, taken in found.items()]}


def machine() -> dict[str, Any]:
    """Where this runs, and what else does."""
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__, LLAMA_CPP: _llama_cpp_version()}
    processor = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")][:1]
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions,
    }


def loaded(path: Path) -> dict[str, Any]:
    """Every contender that is installed."""
    import stcon

    models: dict[str, Any] = {
        name: stcon.load_model(path, device="cpu", runner=runner, dtype=dtype, weights=weights)
        for name, (runner, dtype, weights) in CONTENDERS.items()
    }
    if _llama_cpp_version() != "not installed" and path.suffix == ".gguf":
        models[LLAMA_CPP] = LlamaCpp(path)
    return models


def decode(models: Mapping[str, Any], ids: list[int], tokens: int) -> tuple[dict[str, Any], list[int]]:
    """Milliseconds a token and of the prompt, by contender, in turns; and the text, which is the reference's."""
    sessions, found, first = {}, {}, {}
    times: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in models}
    for name, model in models.items():
        model.session().append(ids)
        sessions[name] = model.session()
        started = time.perf_counter()
        first[name] = sessions[name].append(ids)
        found[name] = {"prompt_ms": round((time.perf_counter() - started) * 1e3, 1)}
    text = [int(first[REFERENCE].argmax())]
    for _ in range(tokens):
        following = 0
        for name, session in sessions.items():
            wall, cpu = time.perf_counter(), time.process_time()
            logits = session.append(text[-1:])
            times[name]["wall"].append(time.perf_counter() - wall)
            times[name]["cpu"].append(time.process_time() - cpu)
            following = int(logits.argmax()) if name == REFERENCE else following
        text.append(following)
    for name, taken in times.items():
        found[name] |= {f"{kind}_ms": round(statistics.median(values) * 1e3, 1) for kind, values in taken.items()}
        found[name]["tokens_per_s"] = round(1e3 / found[name]["wall_ms"], 1)
    return found, text


def against_reference(models: Mapping[str, Any], tokens: list[int]) -> dict[str, Any]:
    """Fidelity by single steps, which is where types and kernels differ."""
    rows = {}
    for name, model in models.items():
        session = model.session()
        rows[name] = np.stack([session.append([token]) for token in tokens])
    return {name: models_fidelity.fidelity(row, rows[REFERENCE]) for name, row in rows.items()}


def start_up(path: Path, prompt: str, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds from starting a process to its first token, and its peak memory in MB, by contender."""
    commands = {name: [_FIRST_TOKEN, str(path), *how, PROMPT] for name, how in CONTENDERS.items()}
    if _llama_cpp_version() != "not installed" and path.suffix == ".gguf":
        commands[LLAMA_CPP] = [_FIRST_OF_LLAMA_CPP, str(path), str(torch.get_num_threads()), prompt]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            started = time.perf_counter()
            with subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                process.stdout.readline()
                seconds = time.perf_counter() - started
                found[name].append((seconds, int(process.stdout.readline()) / 1024))
    return {
        name: {"first_token_s": round(min(taken)[0], 2), "peak_mb": round(min(taken)[1])}
        for name, taken in found.items()
    }


def table(report: dict[str, Any]) -> list[str]:
    """Speed, start-up and memory, one line a contender."""
    lines = [
        f"{report['model']}, {report['threads']} threads, load {report['machine']['load']:.1f}",
        f"{'':22}  ms/token (of CPU)  tokens/s  prompt ms  first token s  peak MB",
    ]
    for name, taken in report["decode"].items():
        started = report["start_up"][name]
        lines.append(
            f"{name:22}  {taken['wall_ms']:8.1f} {taken['cpu_ms']:8.1f}  {taken['tokens_per_s']:8.1f}"
            f"  {taken['prompt_ms']:9.1f}  {started['first_token_s']:13.2f}  {started['peak_mb']:7.0f}"
        )
    if LLAMA_CPP not in report["decode"]:
        lines.append(f"{LLAMA_CPP:22}  {_llama_cpp_version()}")
    return lines


def _llama_cpp_version() -> str:
    if importlib.util.find_spec("llama_cpp") is None:
        return "not installed"
    import llama_cpp

    return str(llama_cpp.__version__)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8").splitlines()
    except OSError:
        return []
