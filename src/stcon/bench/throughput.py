"""Many streams at once: useful tokens a second, free and constrained, forced text dripped or ragged.

Constrained streams take nine constraints in turn: the six extraction schemas, a recursive schema, a pattern, and none.
Every constrained output is checked (jsonschema, `re`) before a time is shown; ragged and dripped outputs are compared
token for token, and those that differ are counted (rounding of matrix products can turn a near-tie).

Source: the paper's Table 21. We depart in the model (any), in constraints beside free text, and in ragged feeding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from stcon.bench.workloads import load_all
from stcon.bench.workloads.recursive import load_recursive
from stcon.engine.batch import Batch, Request
from stcon.engine.batch.choose import rows_for
from stcon.errors import LimitTooSmall

if TYPE_CHECKING:
    from stcon.engine.batch.feeding import Feeding
    from stcon.engine.output import Generation
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

Kind: TypeAlias = Literal["free", "constrained"]

PATTERN = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] (January|February|March|April|May|June) 20[0-9]{2}, [0-2][0-9]:00"
STREAMS = (1, 2, 4, 8, 16, 32, 64, 128)
QUICK_STREAMS = (1, 4, 8)


class Task(NamedTuple):
    """One stream's work; `schema` or `pattern` if it is constrained."""

    prompt: str
    schema: Any = None
    pattern: str | None = None

    def grammar(self) -> Grammar | None:
        """Compiled."""
        import stcon

        if self.schema is not None:
            return stcon.compile(self.schema)
        return None if self.pattern is None else stcon.compile_regex(self.pattern)

    def is_valid(self, text: str) -> bool:
        """Whether `text` satisfies the constraint, by readers that are not ours."""
        from jsonschema import Draft202012Validator

        if self.schema is not None:
            try:
                return bool(Draft202012Validator(self.schema).is_valid(json.loads(text)))
            except ValueError:
                return False
        return self.pattern is None or re.fullmatch(self.pattern, text) is not None


@dataclass(frozen=True)
class Run:
    """One measurement.

    Attributes:
        streams, kind, feeding: what was run.
        tokens: written, sampled and forced.
        forced_share: forced among them.
        steps: calls of the model.
        total_s: from the first step to the last.
        model_s, host_s: of it, in the model and between its calls.
        writing_s: without the model's time in steps that read prompts.
        valid: whether all constrained outputs are.
        same: of all outputs, those equal to the first feeding mode's.
    """

    streams: int
    kind: Kind
    feeding: Feeding
    tokens: int
    forced_share: float
    steps: int
    total_s: float
    model_s: float
    host_s: float
    writing_s: float
    valid: bool
    same: int

    @property
    def rate(self) -> float:
        """Useful tokens a second, prompts included."""
        return self.tokens / max(self.total_s, 1e-9)

    @property
    def writing_rate(self) -> float:
        """Useful tokens a second, without steps that read prompts."""
        return self.tokens / max(self.writing_s, 1e-9)

    @property
    def step_ms(self) -> float:
        """Milliseconds a step."""
        return 1e3 * (self.model_s + self.host_s) / max(self.steps, 1)

    @property
    def host_share(self) -> float:
        """Masks, draws, plans and events as part of all steps."""
        return self.host_s / max(self.model_s + self.host_s, 1e-9)


@cache
def mixed_tasks() -> tuple[tuple[Task, Grammar | None], ...]:
    """The nine, compiled."""
    recursive = load_recursive()[0]
    tasks = [Task(work.prompt, work.schema) for work in load_all()]
    tasks.append(Task(recursive.prompt, recursive.schema))
    tasks.append(Task("When is the next meeting? Answer like: Mon, 05 May 2025, 14:00", pattern=PATTERN))
    tasks.append(Task("Say in a few sentences what a compiler does."))
    return tuple((task, task.grammar()) for task in tasks)


def measure(
    model: Model,
    *,
    streams: Sequence[int] = STREAMS,
    max_tokens: int = 96,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """Every number of streams: free, then constrained dripped and ragged. One warm-up run first, not shown.

    Args:
        max_tokens: of a stream; a constraint that needs more gets what it needs.
    """
    runs: list[Run] = []
    _run(model, 2, "constrained", "ragged", max_tokens=16)
    cases: list[tuple[Kind, Feeding]] = [("free", "ragged"), ("constrained", "drip"), ("constrained", "ragged")]
    for number in streams:
        dripped: list[Generation] = []
        for kind, feeding in cases:
            progress(f"{number} streams, {kind}, {feeding}")
            run, outputs = _run(model, number, kind, feeding, max_tokens=max_tokens, like=dripped)
            dripped = outputs if feeding == "drip" else []
            runs.append(run)
    return runs


def failures(runs: Sequence[Run]) -> list[str]:
    """What makes the measurement red: outputs that are not valid."""
    return [f"{run.streams} streams, {run.feeding}: an output is not valid" for run in runs if not run.valid]


def as_json(runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    derived = ("rate", "writing_rate", "step_ms", "host_share")
    return {**about, "runs": [asdict(run) | {name: getattr(run, name) for name in derived} for run in runs]}


def _run(
    model: Model,
    streams: int,
    kind: Kind,
    feeding: Feeding,
    *,
    max_tokens: int,
    like: Sequence[Generation] = (),
) -> tuple[Run, list[Generation]]:
    engine = Batch(rows_for(model, streams), feeding=feeding, cache_bytes=0)
    tasks = mixed_tasks()
    chosen = [tasks[number % len(tasks)] for number in range(streams)]
    handles = [engine.submit(_request(model, task, grammar, kind, max_tokens)) for task, grammar in chosen]
    started = perf_counter()
    engine.run()
    total_s = perf_counter() - started
    outputs = [handle.result(0)[0] for handle in handles]
    stats = engine.stats
    run = Run(
        streams=streams,
        kind=kind,
        feeding=feeding,
        tokens=sum(len(output.tokens) for output in outputs),
        forced_share=stats.forced_share,
        steps=stats.num_steps,
        total_s=total_s,
        model_s=stats.model_s,
        host_s=stats.host_s,
        writing_s=total_s - stats.prompt_s,
        valid=kind == "free" or all(task.is_valid(out.text) for (task, _), out in zip(chosen, outputs, strict=True)),
        same=sum(a.tokens == b.tokens for a, b in zip(outputs, like or outputs, strict=True)),
    )
    return run, outputs


def _request(model: Model, task: Task, grammar: Grammar | None, kind: Kind, max_tokens: int) -> Request:
    prompt = model.prompt_ids(task.prompt)
    if kind == "free" or grammar is None:
        return Request(prompt, max_tokens=max_tokens)
    return Request(prompt, grammar, max_tokens=max(max_tokens, _needed(model, grammar)))


def _needed(model: Model, grammar: Grammar) -> int:
    """The least limit that the grammar can be written in."""
    from stcon.engine.output import Output

    try:
        Output(model, [0], grammar, max_tokens=1, budget=True).begin()
    except LimitTooSmall as error:
        return error.needed or 1
    return 1
