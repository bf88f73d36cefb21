"""Eighteen JSON jobs on eight slots: the schema in the prompt against its keys alone, and against a stock engine.

The six extractions, three records each. The peer is transformers' own ``generate`` in static batches of as many rows as
there are slots (a batch ends with its longest row), its logits masked by llguidance, both as shipped. All on the same
weights, greedy, in one process, one after another. Every output is checked by jsonschema before a time is shown.

Source: the paper's Table 13 and Figure 11. We depart in the model and in the peer, which was mlx-lm there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from stcon.bench.jobs_peer import PEER, Job, Outcome, peer
from stcon.bench.workloads import load_all
from stcon.engine.batch import Batch, Request
from stcon.engine.batch.choose import rows_for

if TYPE_CHECKING:
    from stcon.models.base import Model

RECORDS = 3
WARM_UP = 16  # tokens


@dataclass(frozen=True)
class Run:
    """All jobs once.

    Attributes:
        engine: "stcon" or the peer's name.
        prompt: "schema" or "keys".
        seconds: wall time, without loading and compiling.
        cpu_s: the processors' time, which other work on the machine changes less.
        tokens: written.
        forced: of them, without the model.
        prompt_tokens: read.
        valid: outputs that satisfy their schema.
        jobs: outputs in all.
    """

    engine: str
    prompt: str
    seconds: float
    cpu_s: float
    tokens: int
    forced: int
    prompt_tokens: int
    valid: int
    jobs: int

    @property
    def is_red(self) -> bool:
        """Whether it is ours and an output is not valid."""
        return self.engine == "stcon" and self.valid < self.jobs


def jobs() -> list[Job]:
    """The eighteen."""
    found = []
    for record in range(RECORDS):
        for work in load_all():
            schema = json.dumps(work.schema, separators=(",", ":"))
            asked = f"Extract the facts of the text as compact JSON that follows this JSON Schema: {schema}"
            number = f"Record {record + 1}. "
            found.append(Job(work.schema, number + work.prompt, f"{number}{asked}\n\nText: {work.text}"))
    return found


def measure(
    model: Model,
    peer_model: Any,
    *,
    slots: int = 8,
    max_tokens: int = 200,
    count: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """Ours with both prompts, then the peer with both; a short warm-up of each first.

    Args:
        model: of ours.
        peer_model: the same weights as a network of transformers.
        count: only so many of the jobs.
    """
    work = jobs()[:count]
    runs = []
    for name, write, runner in (("stcon", ours, model), (PEER, peer, peer_model)):
        write(runner, work[:2], prompts(model, work[:2], "keys"), slots, WARM_UP)
        for prompt in ("schema", "keys"):
            progress(f"{name}, {prompt} in the prompt")
            ids = prompts(model, work, prompt)
            outcome = write(runner, work, ids, slots, max_tokens)
            runs.append(
                Run(
                    engine=name,
                    prompt=prompt,
                    seconds=outcome.seconds,
                    cpu_s=outcome.cpu_s,
                    tokens=outcome.tokens,
                    forced=outcome.forced,
                    prompt_tokens=sum(map(len, ids)),
                    valid=sum(is_valid(job, text) for job, text in zip(work, outcome.texts, strict=True)),
                    jobs=len(work),
                )
            )
    return runs


def failures(runs: Sequence[Run]) -> list[str]:
    """What makes the measurement red: an output of ours that is not valid."""
    return [f"{run.prompt} prompt: {run.valid} of {run.jobs} outputs are valid" for run in runs if run.is_red]


def as_json(runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    return {**about, "runs": [asdict(run) for run in runs]}


def prompts(model: Model, work: Sequence[Job], prompt: str) -> list[list[int]]:
    """The prompts of all jobs, with the "schema" or the "keys"."""
    return [model.prompt_ids(job.with_schema if prompt == "schema" else job.with_keys) for job in work]


def ours(model: Model, work: Sequence[Job], ids: Sequence[list[int]], slots: int, max_tokens: int) -> Outcome:
    """The jobs through a batch."""
    import stcon

    engine = Batch(rows_for(model, slots), cache_bytes=0)
    grammars = [stcon.compile(job.schema) for job in work]
    requests = [
        Request(prompt, grammar, max_tokens=max_tokens, budget=max_tokens > WARM_UP)
        for prompt, grammar in zip(ids, grammars, strict=True)
    ]
    started, worked = perf_counter(), process_time()
    outputs = [generations[0] for generations in engine.generate(requests)]
    seconds, cpu_s = perf_counter() - started, process_time() - worked
    tokens = sum(len(output.tokens) for output in outputs)
    return Outcome(
        seconds, cpu_s, [output.text for output in outputs], tokens, sum(output.forced for output in outputs)
    )


def is_valid(job: Job, text: str) -> bool:
    """Whether `text` satisfies the job's schema, by jsonschema."""
    from jsonschema import Draft202012Validator

    try:
        return bool(Draft202012Validator(job.schema).is_valid(json.loads(text)))
    except ValueError:
        return False
