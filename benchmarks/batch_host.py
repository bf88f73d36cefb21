"""What the host does in a step of many streams: a batch over a model that costs nothing and writes given answers.

    OMP_NUM_THREADS=1 python benchmarks/batch_host.py --streams 16,64,128 --json docs/measurements/batch-host.json

Nine constraints in turn on the 248,077-token vocabulary, every answer another (`gpu_batch_answers`), drawn elsewhere as
on a GPU (no logits come to the host). Times are this process's own processor time, so that other work on the machine
changes them less. A first pass, not shown, compiles kernels and builds the machines' rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

from gpu_batch_answers import answer

from stcon.bench.throughput import mixed_tasks
from stcon.engine.batch import Batch, Request
from stcon.engine.batch.memory import MemoryPlan
from stcon.engine.batch.model import BatchModel, Span, StepLogits
from stcon.engine.output import Output
from stcon.models.base import Model
from stcon.vocab.qwen import qwen35_vocabulary

ROUNDS = 3
LIMIT = 160


class Nothing(Model):
    """A vocabulary without a network."""

    name, context_length = "nothing", 4096

    def __init__(self) -> None:
        self.vocabulary = qwen35_vocabulary()

    def session(self) -> Any:
        """There is none."""
        raise NotImplementedError

    def encode_prompt(self, text: str) -> list[int]:
        """See `Model.encode_prompt`."""
        return self.vocabulary.encode(text)


class Given(StepLogits):
    """Draws each output's script, which its prompt names: the tokens after token 0."""

    def __init__(self, scripts: dict[int, list[int]], end: int) -> None:
        self.scripts, self.end = scripts, end

    def row(self, index: int) -> Any:
        """Never asked for."""
        raise NotImplementedError

    def draw(self, outputs: Sequence[Output]) -> Sequence[int]:
        """See `StepLogits.draw`."""
        found = []
        for output in outputs:
            script, place = self.scripts[id(output)], len(output.tokens)
            found.append(script[place] if place < len(script) else self.end)
        return found


class Rows(BatchModel):
    """Rows that hold nothing but their length."""

    can_truncate, weight_bytes, row_bytes, token_bytes, max_span = True, 0, 0, 1, 16
    is_async = True

    def __init__(self, model: Nothing, num_rows: int) -> None:
        self.model, self.num_rows, self.row_tokens = model, num_rows, model.context_length
        self.scripts: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}
        self._next = 0

    def join(self, num_tokens: int) -> int:
        """See `BatchModel.join`."""
        self._next += 1
        self._lengths[self._next] = 0
        return self._next

    def leave(self, row: int) -> None:
        """See `BatchModel.leave`."""
        del self._lengths[row]

    def copy(self, row: int, length: int, num_tokens: int) -> int:
        """See `BatchModel.copy`."""
        number = self.join(num_tokens)
        self._lengths[number] = length
        return number

    def length(self, row: int) -> int:
        """See `BatchModel.length`."""
        return self._lengths[row]

    def feed(self, spans: Sequence[Span]) -> StepLogits:
        """See `BatchModel.feed`."""
        for span in spans:
            self._lengths[span.row] += len(span.tokens)
        return Given(self.scripts, self.model.vocabulary.end_ids[0])


def run(model: Nothing, streams: int, *, is_free: bool, first: int) -> dict[str, Any]:
    """N streams out of a queue of three requests each, from answer `first` on."""
    rows = Rows(model, streams)
    plan = MemoryPlan(0, 0, 0, 1 << 40, 0, streams, 0, 1, rows.row_tokens)
    batch = Batch(rows, feeding="ragged", memory=plan, chunk=1 << 20)
    vocabulary, tasks, handles, keep = model.vocabulary, mixed_tasks(), [], []
    for number in range(ROUNDS * streams):
        grammar = None if is_free else tasks[number % 9][1]
        handles.append(batch.submit(Request([number % 9] * 20, grammar, max_tokens=LIMIT, cache_prompt=False)))
        output = batch._waiting._jobs[-1].writers[0].output
        keep.append(output)  # so that no other gets its id
        text = answer(number % 9, first + number)
        rows.scripts[id(output)] = [*vocabulary.encode(text), vocabulary.end_ids[0]]
    began = process_time()
    batch.run()
    seconds = process_time() - began
    outputs = [handle.result(0)[0] for handle in handles]
    if not is_free:
        wrong = [i for i, out in enumerate(outputs) if not tasks[i % 9][0].is_valid(out.text)]
        assert not wrong, f"not valid: {wrong}"
    sampled, steps = sum(out.sampled for out in outputs), batch.stats.num_steps
    return {
        "streams": streams,
        "kind": "free" if is_free else "mixed",
        "steps": steps,
        "draws": sampled,
        "tokens": sum(len(out.tokens) for out in outputs),
        "ms_a_step": 1e3 * seconds / steps,
        "us_a_draw": 1e6 * seconds / sampled,
        "masks_us_a_draw": 1e6 * batch.stats.mask_s / sampled,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="16,64,128")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model, runs, first = Nothing(), [], 0
    for number, streams in enumerate([16, *map(int, options.streams.split(","))]):
        for is_free in (True, False):
            found = run(model, streams, is_free=is_free, first=first)
            first += ROUNDS * streams
            runs += [found] if number else []
    lines = ["  N  kind   steps  draws  tokens  ms a step  µs a draw  of it masks and plans"]
    lines += [
        f"{r['streams']:>3}  {r['kind']:<6}{r['steps']:>6}{r['draws']:>7}{r['tokens']:>8}{r['ms_a_step']:>11.2f}"
        f"{r['us_a_draw']:>11.1f}{r['masks_us_a_draw']:>11.1f}"
        for r in runs
    ]
    if options.json:
        report = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        options.json.write_text(json.dumps({**report, "runs": runs, "table": lines}, indent=1) + "\n", "utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
