"""Many streams on a GPU in Qwen3.5-2B's shape: free and constrained, dripped, ragged and auto; stock transformers.

    python benchmarks/gpu_batch.py --json docs/measurements/throughput-<card>.json

Checks first: in float32 the rows of a batch (all tasks, greedy and sampled, n > 1, prompts in chunks, joining at any
step) write what one stream alone writes; near-ties are listed. Then times: N streams at once out of a queue that keeps
them N (three requests for each), prompts in the cache, nine constraints in turn, every answer another; only the steps
while all N write are counted. Every constrained answer is checked by a reader that is not ours; a red check shows no
time. The weights are random, the answers scripted (`gpu_batch_models`). ``--tiny`` runs it all on the CPU, for tests.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import gpu_batch_stock as stock
import torch
from gpu_batch_answers import answer
from gpu_batch_check import check
from gpu_batch_models import Scripted, ScriptedBatch, ScriptedRows
from models_shapes import QWEN3_5_2B, random_network

from stcon.bench.throughput import mixed_tasks
from stcon.engine.batch import Request
from stcon.engine.batch.choose import _draws
from stcon.engine.batch.static import _Call
from stcon.models.lean.model import LeanModel
from stcon.models.text import PromptText

STREAMS = (16, 64, 1, 4, 8, 32, 128, 2)  # what matters most first: a lease may end
CASES = (("free", "ragged"), ("mixed", "drip"), ("mixed", "ragged"), ("mixed", "auto"))
ROW_TOKENS, LIMIT, PARKED = 480, 160, 64
ROUNDS = 3  # requests for each stream


@dataclass(frozen=True)
class Run:
    """One number of streams in one way, while all of them wrote.

    Attributes:
        tokens: written by then, forced ones and end tokens included.
        sampled: of them drawn.
        steps, seconds: of the window.
        model_s: of it, from a step's start until its tokens were there; the rest is the host's alone.
        total_rate: tokens a second over the whole run, its tail and prompts included.
        valid, answers: answers in all, and those that satisfy their constraint.
        captures: graphs captured in the run, which spoil its times.
    """

    streams: int
    kind: str
    feeding: str
    tokens: int
    sampled: int
    steps: int
    seconds: float
    model_s: float
    total_rate: float
    valid: int
    answers: int
    captures: int

    @property
    def rate(self) -> float:
        """Useful tokens a second."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def step_ms(self) -> float:
        """Milliseconds a step."""
        return 1e3 * self.seconds / max(self.steps, 1)

    @property
    def host_ms(self) -> float:
        """Of it, while the model waits for the host."""
        return 1e3 * (self.seconds - self.model_s) / max(self.steps, 1)


class Bench:
    """The model, its rows and their tasks.

    Args:
        device: where.
        most: most streams.
        tiny: a small network in place of the 2B shape.
    """

    def __init__(self, device: str, most: int, *, tiny: bool) -> None:
        from stcon.vocab.qwen import qwen35_vocabulary

        self.vocabulary = qwen35_vocabulary()
        self.network = tiny_network(device) if tiny else random_network("Qwen3.5-2B", device, torch.bfloat16)
        encode = self.vocabulary.encode
        self.model = LeanModel(self.network, self.vocabulary, PromptText(encode, encode), name="Qwen3.5-2B shape")
        scripts = max(ROUNDS * most, 18) + 9
        static = Scripted(self.network, slots=most + 1, scripts=scripts, length=ROW_TOKENS + 32)
        draws = _draws(self.model, self.network.device, most)
        self.rows = ScriptedRows(
            self.model, static, most, row_tokens=ROW_TOKENS, num_parked=PARKED, ragged=True, draws=draws
        )
        self.tasks = mixed_tasks()
        self.prompts = [self.model.encode_prompt(task.prompt) for task, _ in self.tasks]
        self.number = 0  # of the next answer: none is written twice

    def run(self, streams: int, kind: str, feeding: str) -> Run:
        """N streams; two warm-up requests of each task read the prompts into the cache."""
        self.rows.num_rows = streams
        batch = ScriptedBatch(self.rows, feeding=feeding, cache_bytes=PARKED * self.rows.row_bytes)
        self._submit(batch, range(9), kind, limit=2)
        batch.run()
        before = len(batch.scripts)
        total = max(ROUNDS * streams, 18)
        started, captures = perf_counter(), self._captures()
        handles = self._submit(batch, range(total), kind, limit=LIMIT, first=before)
        window = _Window(batch, streams)
        while batch.step():
            window.step()
        seconds = perf_counter() - started
        outputs = [handle.result(0)[0] for handle in handles]
        for number in list(batch.cache._parked):
            batch.cache.forget(number)
            self.rows.leave(number)
        tasks = [self.tasks[i % 9][0] for i in range(total)]
        good = [kind == "free" or task.is_valid(out.text) for task, out in zip(tasks, outputs, strict=True)]
        written = sum(len(out.tokens) for out in outputs)
        return Run(
            streams,
            kind,
            feeding,
            *window.counted,
            total_rate=written / seconds,
            valid=sum(good),
            answers=total,
            captures=self._captures() - captures,
        )

    def _captures(self) -> int:
        return sum(call._run._graph is not None for call in self.rows._steps.values())

    def _submit(self, batch: ScriptedBatch, which: range, kind: str, *, limit: int, first: int = 0) -> list[Any]:
        handles = []
        for place in which:
            task = place % 9
            grammar = None if kind == "free" else self.tasks[task][1]
            text = self.vocabulary.encode(answer(task, self.number))
            self.number += 1
            script, prompt = first + place, self.prompts[task]
            self.rows.static.write(script, len(prompt), [*text, self.vocabulary.end_ids[0]])
            request = Request(prompt, grammar, max_tokens=limit, budget=limit == LIMIT and grammar is not None)
            handles.append(batch.submit(request))
            batch.scripts[handles[-1].number] = script
        return handles

    def draw_ms(self, streams: int, *, sampled: bool, times: int = 50) -> float:
        """Milliseconds of the walk and the draw of so many rows, from where the last run left them."""
        draws = self.rows._draws
        assert draws is not None
        logits = torch.randn(streams, self.network.vocab_size, device=self.network.device)
        draws._sampling.temperature.fill_(0.8 if sampled else 0.0)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for number in range(times + 5):
            if number == 5:
                events[0].record()
            if sampled:
                draws._walker.sample(logits, draws._sampling, draws._drawn[:streams])
            else:
                draws._walker.argmax(logits, draws._drawn[:streams])
        events[1].record()
        events[1].synchronize()
        return float(events[0].elapsed_time(events[1])) / times

    def step_ms(self, streams: int, tokens: int, *, times: int = 20) -> float:
        """Milliseconds of a forward pass of `tokens` tokens for so many rows, in its graph; contexts of 200 tokens."""
        rows = self.rows
        shape = rows._shape(streams, [1] * (streams - 1) + [min(16, tokens - streams + 1)])
        shape = (shape[0], shape[1], tokens if shape[2] else 0)
        host = rows._inbox.host
        host["lengths"][:], host["counts"][:], host["tokens"][:] = 200, 0, 7
        host["counts"][:streams] = _spread(streams, tokens)
        rows._inbox.send()
        call = rows._steps.setdefault(shape, _Call(rows, *shape))
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for number in range(times + 5):
            if number == 5:
                events[0].record()
            call()
        events[1].record()
        events[1].synchronize()
        return float(events[0].elapsed_time(events[1])) / times

    def stock(self, network: Any, streams: int) -> stock.Stock:
        """The same tasks by transformers and llguidance, in one batch."""
        tasks = [self.tasks[i % 9][0] for i in range(streams)]
        texts = [answer(i % 9, self.number + i) for i in range(streams)]
        scripts = [[*self.vocabulary.encode(text), self.vocabulary.end_ids[0]] for text in texts]
        prompts = [self.prompts[i % 9] for i in range(streams)]
        return stock.generate(network, self.vocabulary, tasks, prompts, scripts)


def _spread(streams: int, tokens: int) -> list[int]:
    """So many tokens over the rows: one each, the rest in spans of up to five, as forced text comes."""
    counts, row = [1] * streams, 0
    left = tokens - streams
    while left > 0:
        more = min(4, left, 16 - counts[row % streams])
        counts[row % streams] += more
        left -= more
        row += 1
    return counts


class _Window:
    """What happened while all streams wrote and nobody read a long prompt."""

    def __init__(self, batch: ScriptedBatch, streams: int) -> None:
        self.batch, self.streams = batch, streams
        self.counted = (0, 0, 0, 0.0, 0.0)
        self._last = self._now()

    def step(self) -> None:
        """After a step: counted if the rows were full before it and after it."""
        now = self._now()
        if now[0] and self._last[0]:
            change = [b - a for a, b in zip(self._last[1:], now[1:], strict=True)]
            self.counted = tuple(a + b for a, b in zip(self.counted, change, strict=True))  # type: ignore[assignment]
        self._last = now

    def _now(self) -> tuple[Any, ...]:
        batch = self.batch
        is_full = batch.num_active == self.streams
        over = batch.stats
        tokens = over.sampled + over.forced + sum(len(row.writer.output.tokens) for row in batch._rows)
        sampled = over.sampled + sum(row.writer.output.sampled for row in batch._rows)
        return is_full, tokens, sampled, over.num_steps, perf_counter(), over.model_s


def tiny_network(device: str) -> Any:
    """Two layers of the 2B shape's kinds, with its vocabulary."""
    import models_shapes

    small = {
        **QWEN3_5_2B,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 1,
    }
    settings = models_shapes.from_config(small)
    assert settings is not None
    generator = torch.Generator(device).manual_seed(0)
    parameters = models_shapes._random_parameters(settings, device, torch.float32, generator)
    return models_shapes.Network(settings, parameters)


def stock_network(device: str, *, tiny: bool) -> Any:
    """transformers' network of the shape, random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    options = {key: value for key, value in QWEN3_5_2B.items() if key not in {"architectures", "model_type"}}
    if tiny:
        options |= {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "head_dim": 32}
    dtype = torch.float32 if tiny else torch.bfloat16
    with torch.device(device):
        config = AutoConfig.for_model("qwen3_5_text", **options)
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def describe(report: dict[str, Any], streams: int) -> str:
    """The runs of one number of streams, for the log."""
    mine = [run for run in report["runs"] if run["streams"] == streams]
    parts = (f"{r['kind']} {r['feeding']} {r['rate']:.0f}/s {r['step_ms']:.2f} ms, {r['captures']} new" for r in mine)
    return "; ".join(parts)


def machine() -> dict[str, str]:
    """The card and the versions."""
    names = ("torch", "transformers", "triton", "cuda-core", "llguidance", "numpy")
    found = {"python": platform.python_version()}
    if torch.cuda.is_available():
        found = {"card": torch.cuda.get_device_name(), **found, **{name: version(name) for name in names}}
    return found


def table(report: dict[str, Any]) -> list[str]:
    """One line a number of streams: tokens a second, by how it was run."""
    runs = {(run["streams"], run["kind"], run["feeding"]): run for run in report["runs"]}
    lines = [
        "tokens/s while N write          ms a step (of it the host alone)          tokens a draw",
        "   N     free     drip   ragged     auto    best/free   free        drip        ragged      auto",
    ]
    for streams in sorted({run["streams"] for run in report["runs"]}):
        mine = [runs[streams, kind, feeding] for kind, feeding in CASES if (streams, kind, feeding) in runs]
        rates = "".join(f"{run['rate']:>9,.0f}" for run in mine)
        best = max(run["rate"] for run in mine[1:]) / mine[0]["rate"] if len(mine) > 1 else 0.0
        steps = "  ".join(f"{run['step_ms']:.2f} ({run['host_ms']:.2f})" for run in mine)
        drawn = mine[-1]["tokens"] / max(mine[-1]["sampled"], 1)
        lines.append(f"{streams:>4}{rates}   {best:>6.2f}x   {steps}   {drawn:.2f}")
    for key, values in report["steps_ms"].items():
        times = ", ".join(f"{tokens} tokens {ms:.2f}" for tokens, ms in values.items())
        lines.append(f"forward pass alone, {key} rows, ms: {times}")
    for key, value in report["draws"].items():
        lines.append(f"walk and draw, {key} rows: {value}")
    for run in report["stock"]:
        ours = runs.get((run["rows"], "mixed", "auto"))
        rate = run["tokens"] / run["seconds"]
        ratio = "" if ours is None else f"; ours (auto) {ours['rate'] / rate:.1f} times"
        ms = 1e3 * run["seconds"] / run["steps"]
        lines.append(
            f"stock generate + llguidance, {run['rows']} rows: {rate:,.0f} tokens/s, {ms:.1f} ms a step{ratio}"
        )
    return lines


def main() -> int:
    """Check, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--streams", default=",".join(map(str, STREAMS)))
    parser.add_argument("--tiny", action="store_true", help="a small network, to try the script")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--stock", default="16", help="rows of transformers.generate, by commas; empty: none")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further number of streams after so many")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    began = perf_counter()
    numbers = [int(part) for part in options.streams.split(",")]
    report: dict[str, Any] = {"machine": machine(), "command": " ".join(sys.argv), "red": [], "draws": {}, "stock": []}
    report |= {"runs": [], "steps_ms": {}}
    bench = Bench(options.device, max(numbers), tiny=options.tiny)
    print(f"made {perf_counter() - began:.0f} s", flush=True)
    if not options.no_check:
        report["check"] = check(options.device, bench.vocabulary, bench.tasks, tiny=options.tiny)
        report["red"] += report["check"]["red"]
        print(f"checked {perf_counter() - began:.0f} s: {report['check']['summary']}", flush=True)
    for streams in numbers:
        if perf_counter() - began > options.seconds:
            report["red"] += [] if report["runs"] else ["no time"]
            break
        measure(bench, streams, report, is_cuda=options.device == "cuda")
        save(report, options.json)
        print(f"{streams} streams {perf_counter() - began:.0f} s: {describe(report, streams)}", flush=True)
    if options.stock and perf_counter() - began < 1.3 * options.seconds:
        network = stock_network(options.device, tiny=options.tiny)
        for part in options.stock.split(","):
            report["stock"].append(bench.stock(network, int(part))._asdict())
            print(f"stock {part} {perf_counter() - began:.0f} s", flush=True)
    print("\n".join(save(report, options.json)))
    return 1 if report["red"] else 0


def save(report: dict[str, Any], path: Path | None) -> list[str]:
    """Write what was measured so far; the table's lines."""
    lines = [f"RED {line}" for line in report["red"]] or table(report)
    if path:
        path.write_text(json.dumps({**report, "table": lines}, indent=1) + "\n", "utf-8")
    return lines


def measure(bench: Bench, streams: int, report: dict[str, Any], *, is_cuda: bool) -> None:
    """Every way of one number of streams; each twice, and again while graphs are captured."""
    for kind, feeding in CASES:
        for attempt in range(4):
            run = bench.run(streams, kind, feeding)
            if attempt and not run.captures:
                break
        derived = {name: getattr(run, name) for name in ("rate", "step_ms", "host_ms")}
        report["runs"].append(asdict(run) | derived)
        if run.valid < run.answers:
            report["red"].append(
                f"{streams} streams, {kind}, {feeding}: {run.valid} of {run.answers} answers are valid"
            )
    if is_cuda and streams in (16, 64, 128):
        greedy, sampled = bench.draw_ms(streams, sampled=False), bench.draw_ms(streams, sampled=True)
        step = next(r["step_ms"] for r in report["runs"] if r["streams"] == streams and r["feeding"] == "drip")
        text = f"greedy {greedy:.3f} ms ({greedy / step:.1%} of a dripped step), sampled {sampled:.3f} ms"
        report["draws"][str(streams)] = text
    if is_cuda:
        sizes = [streams] + [size for size in (32, 64, 128, 256) if streams < size <= 4 * streams]
        report["steps_ms"][str(streams)] = {str(size): bench.step_ms(streams, size) for size in sizes}


if __name__ == "__main__":
    sys.exit(main())
