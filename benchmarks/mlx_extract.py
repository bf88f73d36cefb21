"""Six extractions on mlx: our engine against stock mlx-lm with llguidance as its processor (the paper's baseline).

::

    python benchmarks/mlx_extract.py --json docs/measurements/mlx-2-cores.json
    python benchmarks/mlx_extract.py --quick   # two extractions, one round: passes are what they are, times are not

The default model, its GGUF file dequantised to float32, and the same quantised to four bits with scales in float32. All
ways share one network, prompts and limits, are greedy, and answer in turns. Answers are judged by jsonschema, and each
way must give the same text in all rounds; a red check prints no time. *Calls* are calls of the network: mlx-lm reads a
prompt in two and runs one step ahead of the last token it shows, so its calls are the tokens and two. Where the text is
forced, llguidance's mask is the one token that spells it best; ours under the processor are all that spell it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np
from jsonschema import Draft202012Validator
from mlx import nn

import stcon
from stcon.bench.llguidance_control import Llguidance
from stcon.bench.workloads import Workload, load_all
from stcon.constraint.budget import bits
from stcon.engine.sampling import unpack_bitmask
from stcon.integrations.mlx_lm import GrammarProcessor
from stcon.models.mlx import MlxModel
from stcon.models.mlx.load import load

MAX_TOKENS = 320
WEIGHTS = ("float32", "q4")
BASE = "mlx-lm, llguidance"
QUICK = ("tool_call", "person")


class Counted:
    """A network that counts its calls."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return self.network(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)


class LlguidanceProcessor:
    """llguidance as mlx-lm's processor: ``(tokens[T], logits[1, V]) → logits``."""

    def __init__(self, peer: Llguidance, schema: dict[str, Any], num_prompt: int) -> None:
        self.matcher = peer.matcher(schema)
        self.vocabulary = peer.vocabulary
        self._words = np.zeros(peer.vocabulary.num_words, np.int32)
        self._ends = bits(peer.vocabulary.num_words, peer.vocabulary.end_ids)
        self._num_read = num_prompt

    def __call__(self, tokens: Any, logits: Any) -> Any:
        new = tokens[self._num_read :].tolist()
        self._num_read += len(new)
        if new and not self.matcher.is_stopped():
            self.matcher.consume_tokens(new)
        if not self.matcher.is_stopped():
            self.matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        else:  # nothing can follow but the end; mlx-lm also runs one step past it
            self._words = self._ends
        allowed = mx.array(unpack_bitmask(self._words, logits.shape[-1]))
        return mx.where(allowed, logits, mx.array(-np.inf, logits.dtype))


@dataclass
class Row:
    """One extraction in one way.

    Attributes:
        weights, task, way: which.
        tokens: of the output, its end token included.
        forced: tokens among them that were written without asking the model.
        calls: of the network, the prompt's included.
        texts: the answer of each round.
        is_valid: all of them, by jsonschema.
        seconds: wall time of each round.
    """

    weights: str
    task: str
    way: str
    tokens: int = 0
    forced: int = 0
    calls: int = 0
    texts: list[str] = field(default_factory=list)
    is_valid: bool = True
    seconds: list[float] = field(default_factory=list)


Way = Callable[[Workload], tuple[str, int, int]]  # text, tokens, forced


def main() -> int:
    """Measure, check, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two extractions, one round, nothing warmed up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", choices=(*WEIGHTS, "both"), default="both")
    parser.add_argument("--json", type=Path, help="write everything measured here")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    tasks = [work for work in load_all() if not options.quick or work.name in QUICK]
    rows: list[Row] = []
    for weights in WEIGHTS if options.weights == "both" else (options.weights,):
        rows += measure(weights, tasks, rounds, warm=not options.quick)
    red = problems(rows)
    print("\n".join(red) if red else table(rows))
    if options.json:
        options.json.write_text(json.dumps(report(rows, rounds, red), indent=1) + "\n", "utf-8")
    return 1 if red else 0


def measure(weights: str, tasks: list[Workload], rounds: int, *, warm: bool) -> list[Row]:
    """Every task in every way, in turns; the order of the ways moves on with each round."""
    model = load("default", progress=False)
    if weights == "q4":
        nn.quantize(model.network, group_size=64, bits=4)
        mx.eval(model.network.parameters())
    model.network = network = Counted(model.network)
    ways = list(ways_of(model).items())
    rows = {(task.name, way): Row(weights, task.name, way) for task in tasks for way, _ in ways}
    for turn in range(-1 if warm else 0, rounds):
        for task in tasks if turn >= 0 else tasks[:1]:
            for name, way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                row = rows[task.name, name] if turn >= 0 else Row(weights, task.name, name)
                _run(row, way, task, network)
                print(f"{weights} {task.name}, {name}: {row.calls} calls, {row.seconds[-1]:.1f} s", flush=True)
    return list(rows.values())


def _run(row: Row, way: Way, task: Workload, network: Counted) -> None:
    network.calls = 0
    begun = time.perf_counter()
    text, row.tokens, row.forced = way(task)
    row.seconds.append(time.perf_counter() - begun)
    row.calls = network.calls
    mx.synchronize()  # the step that mlx-lm runs ahead
    row.texts.append(text)
    try:
        row.is_valid &= Draft202012Validator(task.schema).is_valid(json.loads(text))
    except ValueError:
        row.is_valid = False


def ways_of(model: MlxModel) -> dict[str, Way]:
    """How an extraction is answered."""
    peer = Llguidance(model.vocabulary)

    def stock(task: Workload) -> tuple[str, int, int]:
        prompt = model.prompt_ids(task.prompt)
        return mlx_lm_output(model, prompt, LlguidanceProcessor(peer, task.schema, len(prompt)))

    def processor(task: Workload) -> tuple[str, int, int]:
        prompt = model.prompt_ids(task.prompt)
        ours = GrammarProcessor(stcon.compile(task.schema), model.vocabulary, MAX_TOKENS, prompt_tokens=len(prompt))
        return mlx_lm_output(model, prompt, ours)

    def engine(task: Workload) -> tuple[str, int, int]:
        output = model.generate(task.prompt, stcon.compile(task.schema), MAX_TOKENS)
        return output.text, len(output.tokens), output.forced

    return {BASE: stock, "mlx-lm, stcon's processor": processor, "stcon": engine}


def mlx_lm_output(model: MlxModel, prompt: list[int], processor: Any) -> tuple[str, int, int]:
    """mlx-lm's own loop, to the first end token."""
    from mlx_lm.generate import generate_step

    tokens: list[int] = []
    steps = generate_step(mx.array(prompt), model.network, max_tokens=MAX_TOKENS, logits_processors=[processor])
    for token, _ in steps:
        tokens.append(int(token))
        if token in model.end_ids:
            break
    text = model.vocabulary.decode([token for token in tokens if token not in model.end_ids])
    return text.decode("utf-8", "replace"), len(tokens), 0


def problems(rows: list[Row]) -> list[str]:
    """What is red."""
    red = [f"RED {row.weights} {row.task}, {row.way}: not valid: {row.texts[-1]!r}" for row in rows if not row.is_valid]
    return red + [
        f"RED {row.weights} {row.task}, {row.way}: its text changed" for row in rows if len(set(row.texts)) > 1
    ]


def table(rows: list[Row]) -> str:
    """Counts, and wall time as a share of `BASE`'s in the same round (the median of the rounds)."""
    lines = ["| weights | task | way | tokens | forced | calls | wall time |", "|---|---|---|---:|---:|---:|---:|"]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.weights, row.task), []).append(row)
        groups.setdefault((row.weights, "sum"), [])
    for weights in dict.fromkeys(row.weights for row in rows):
        groups[weights, "sum"] = [
            _sum([row for row in rows if (row.weights, row.way) == (weights, way)])
            for way in dict.fromkeys(row.way for row in rows)
        ]
    for weights, task in sorted(groups, key=lambda key: (key[0], key[1] == "sum")):
        group = groups[weights, task]
        base = next(row for row in group if row.way == BASE)
        for row in group:
            share = median(a / b for a, b in zip(row.seconds, base.seconds, strict=True))
            forced = row.forced / row.tokens
            lines.append(
                f"| {weights} | {task} | {row.way} | {row.tokens} | {forced:.0%} | {row.calls} | {share:.2f} |"
            )
    return "\n".join(lines)


def _sum(rows: list[Row]) -> Row:
    """All tasks of one way."""
    total = Row(rows[0].weights, "sum", rows[0].way)
    total.tokens, total.forced = sum(row.tokens for row in rows), sum(row.forced for row in rows)
    total.calls = sum(row.calls for row in rows)
    total.seconds = [sum(times) for times in zip(*(row.seconds for row in rows), strict=True)]
    return total


def report(rows: list[Row], rounds: int, red: list[str]) -> dict[str, Any]:
    """What is written."""
    return {
        "model": "SmolLM2-135M-Instruct",
        "mlx": mx.__version__,
        "device": str(mx.default_device()),
        "machine": platform.machine(),
        "rounds": rounds,
        "base": BASE,
        "red": red,
        "rows": [asdict(row) | {"seconds": [] if red else row.seconds} for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
