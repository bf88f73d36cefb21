"""stcon and llguidance in one loop: the same model, the same sampler, only the constraint differs.

Two sets of tasks: the six extractions, and five recursive ones in three phrasings. Engines: free text, llguidance by
mask alone, llguidance with the tokens that it forces (fast-forward), and our three policies for forced text. The first
round decides what is correct; later rounds must repeat its tokens; a red run reports no time. Rounds are interleaved
and times are medians.

Source: the paper's Tables 4 to 8, 17 to 19 and 33, Appendix H. We depart in the model (any), in texts and schemas, and
in taking whole answers only: an answer cut by the limit counts as not valid and is not red.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stcon.bench.extract import agreement, first_object
from stcon.bench.workloads import MISSING, Workload, load_all
from stcon.bench.workloads.recursive import load_recursive
from stcon.engine.output import Generation, Output

if TYPE_CHECKING:
    from stcon.bench.llguidance_control import Llguidance
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

Set: TypeAlias = Literal["regular", "recursive"]

ENGINES = ("free", "llguidance", "llguidance forward", "stcon mask", "stcon any", "stcon canonical")
RECURSIVE = ("solar", "expression", "thread", "fs", "cats")
PHRASINGS = ("{}", "{} Answer with the JSON alone.", "You write JSON that programs read. {}")
QUICK = ("person", "tool_call", "solar 1")
LIMITS: Mapping[Set, int] = {"regular": 256, "recursive": 400}


@dataclass(frozen=True)
class Job:
    """One prompt and the format of its answer.

    Attributes:
        name: of the task, with the number of its phrasing if there are several.
        kind: which set it belongs to.
        work: the extraction, for its facts; None for recursive tasks.
    """

    name: str
    kind: Set
    prompt: str
    schema: dict[str, Any]
    work: Workload | None = None


@dataclass
class Run:
    """One job by one engine.

    Attributes:
        valid: the output ended and satisfies the schema, by jsonschema (free: its first object does).
        facts: gold facts that it gives; None for recursive tasks.
        pieces: each token's text and kind (`stcon.engine.stream.Kind`).
        decode_s: seconds after the prompt's pass, one a round.
        stable: every round gave the same tokens.
    """

    engine: str
    job: str
    kind: Set
    text: str
    valid: bool
    facts: int | None
    passes: int
    sampled: int
    forced: int
    finish_reason: str
    tokens: list[int]
    pieces: list[tuple[str, str]] = field(default_factory=list)
    answer: object = MISSING
    decode_s: list[float] = field(default_factory=list)
    stable: bool = True


@dataclass(frozen=True)
class Row:
    """One engine on one set: a row of Table 18.

    Attributes:
        tokens, passes, forced: over all outputs.
        decode_s: the sum of the outputs' medians.
        valid, outputs: how many are.
        facts: gold facts given (regular).
        agreeing, compared: leaf values equal to the free answer's, of those that one has.
    """

    kind: Set
    engine: str
    tokens: int
    passes: int
    forced: int
    decode_s: float
    valid: int
    outputs: int
    facts: int
    agreeing: int
    compared: int

    @property
    def rate(self) -> float:
        """Tokens a second, forced ones counted."""
        return self.tokens / self.decode_s if self.decode_s else 0.0

    @property
    def passes_per_token(self) -> float:
        """Passes an output token."""
        return self.passes / max(self.tokens, 1)

    @property
    def forced_share(self) -> float:
        """Tokens written without a pass."""
        return self.forced / max(self.tokens, 1)

    @property
    def ms_per_sampled(self) -> float:
        """Milliseconds a drawn token."""
        return 1e3 * self.decode_s / max(self.tokens - self.forced, 1)


def jobs(kinds: Sequence[Set] = ("regular", "recursive")) -> list[Job]:
    """The sets' jobs: six, and five in three phrasings."""
    found = [Job(work.name, "regular", work.prompt, work.schema, work) for work in load_all()]
    by_name = {task.name: task for task in load_recursive()}
    for number, phrasing in enumerate(PHRASINGS, 1):
        for name in RECURSIVE:
            task = by_name[name]
            found.append(Job(f"{name} {number}", "recursive", phrasing.format(task.prompt), task.schema))
    return [job for job in found if job.kind in kinds]


def measure(
    model: Model,
    tasks: Sequence[Job],
    *,
    engines: Sequence[str] = ENGINES,
    rounds: int = 3,
    limits: Mapping[Set, int] = LIMITS,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """Every job by every engine, `rounds` times, interleaved.

    Args:
        engines: of `ENGINES`; those of llguidance need it installed.
        rounds: at least 1.
        limits: most tokens of one output, by set.

    Raises:
        DecodingError: llguidance refuses a schema.

    Cost: rounds · engines · jobs generations.
    """
    import stcon

    grammars = {job.name: stcon.compile(job.schema) for job in tasks}
    peer = _peer(model, engines)
    runs: dict[tuple[str, str], Run] = {}
    for number in range(rounds):
        for engine in engines:
            for job in tasks:
                progress(f"round {number + 1} of {rounds}: {job.name}, {engine}")
                result = _decode(model, job, engine, grammars[job.name], peer, limits[job.kind])
                tokens = [token.id for token in result.tokens]
                run = runs.get((engine, job.name))
                if run is None:
                    run = runs[engine, job.name] = _judge(engine, job, result, tokens)
                run.decode_s.append(result.decode_s)
                run.stable &= tokens == run.tokens
    return list(runs.values())


def failures(runs: Sequence[Run]) -> list[str]:
    """What is red: ended answers that do not satisfy their schema, and outputs that changed between rounds."""
    red = [
        f"{run.engine}, {run.job}: not valid: {run.text[:60]!r}"
        for run in runs
        if run.engine != "free" and run.finish_reason == "stop" and not run.valid
    ]
    return red + [f"{run.engine}, {run.job}: tokens differ between rounds" for run in runs if not run.stable]


def summarize(runs: Sequence[Run]) -> list[Row]:
    """One row an engine and set, in the order of first appearance."""
    free = {run.job: run.answer for run in runs if run.engine == "free"}
    rows = []
    for kind, engine in dict.fromkeys((run.kind, run.engine) for run in runs):
        mine = [run for run in runs if (run.kind, run.engine) == (kind, engine)]
        pairs = [agreement(free.get(run.job, MISSING), run.answer) for run in mine]
        rows.append(
            Row(
                kind=kind,
                engine=engine,
                tokens=sum(run.sampled + run.forced for run in mine),
                passes=sum(run.passes for run in mine),
                forced=sum(run.forced for run in mine),
                decode_s=sum(median(run.decode_s) for run in mine),
                valid=sum(run.valid for run in mine),
                outputs=len(mine),
                facts=sum(run.facts or 0 for run in mine),
                agreeing=sum(agreeing for agreeing, _ in pairs),
                compared=sum(compared for _, compared in pairs),
            )
        )
    return sorted(rows, key=lambda row: row.kind, reverse=True)


def as_json(runs: Sequence[Run], rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """The result as data: what ran, the table, the facts of each schema (Table 33), every output."""
    derived = ("rate", "passes_per_token", "forced_share", "ms_per_sampled")
    return {
        **about,
        "rows": [vars(row) | {name: getattr(row, name) for name in derived} for row in rows],
        "facts": {f"{run.engine}, {run.job}": run.facts for run in runs if run.facts is not None},
        "runs": [vars(run) | {"answer": None if run.answer is MISSING else run.answer} for run in runs],
    }


def _peer(model: Model, engines: Sequence[str]) -> Llguidance | None:
    if not any(engine.startswith("llguidance") for engine in engines):
        return None
    from stcon.bench.llguidance_control import Llguidance

    return Llguidance(model.vocabulary)


def _decode(model: Model, job: Job, engine: str, grammar: Grammar, peer: Llguidance | None, limit: int) -> Generation:
    """One greedy answer, whole or cut by the limit; the prompt is the same for every engine."""
    from stcon.engine.loop import decode

    prompt = model.prompt_ids([{"role": "user", "content": job.prompt}])
    if engine == "free":
        output = Output(model, prompt, max_tokens=limit)
    elif peer is not None and engine.startswith("llguidance"):
        from stcon.bench.llguidance_control import LlguidanceControl

        control = LlguidanceControl(peer, job.schema, forward=engine.endswith("forward"))
        output = Output(model, prompt, max_tokens=limit, control=control)
    else:
        output = Output(model, prompt, grammar, max_tokens=limit, mode=engine.removeprefix("stcon "))  # type: ignore[arg-type]
    return decode(output, model.session())


def _judge(engine: str, job: Job, result: Generation, tokens: list[int]) -> Run:
    from jsonschema import Draft202012Validator

    answer = first_object(result.text) if engine == "free" else _whole(result.text)
    ended = engine == "free" or result.finish_reason == "stop"
    return Run(
        engine=engine,
        job=job.name,
        kind=job.kind,
        text=result.text,
        valid=ended and answer is not MISSING and bool(Draft202012Validator(job.schema).is_valid(answer)),
        facts=job.work.correct(answer) if job.work else None,
        passes=result.passes,
        sampled=result.sampled,
        forced=result.forced,
        finish_reason=result.finish_reason,
        tokens=tokens,
        pieces=[(token.text, token.kind) for token in result.tokens],
        answer=answer,
    )


def _whole(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING
