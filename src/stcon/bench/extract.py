"""The six extractions under each decoding mode: passes, forced share, time, validity, facts, agreement.

Correctness comes first: the first round decides it, later rounds must repeat its tokens, and a red run reports no time.

Source: the paper's Tables 4–7 and Appendix H. We depart in the model (any), in the texts, and in measuring one request
at a time in one process; rounds are interleaved (every round runs every mode on every workload) and times are medians.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from stcon.bench.workloads import MISSING, Workload, leaves, load_all, same

if TYPE_CHECKING:
    from stcon.engine.control import Mode
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

Progress: TypeAlias = Callable[[str], None]

MODES: tuple[Mode, ...] = ("free", "mask", "any", "canonical")


@dataclass
class Run:
    """One workload in one mode.

    Attributes:
        answer: the parsed output, `MISSING` if it does not parse.
        valid: the whole output is JSON that satisfies the schema (free: the first object in it does).
        passes, sampled, forced: model runs after the prompt's, tokens chosen by the model, tokens written for it.
        decode_s: seconds after the prompt pass, one a round.
        tokens: token ids, the same in every round (else `stable` is false).
    """

    workload: str
    mode: str
    text: str
    answer: object
    valid: bool
    passes: int
    sampled: int
    forced: int
    finish_reason: str
    tokens: list[int]
    decode_s: list[float] = field(default_factory=list)
    stable: bool = True


@dataclass(frozen=True)
class Summary:
    """One mode over all workloads: a row of the table."""

    mode: str
    tokens: int
    passes_per_token: float
    forced_share: float
    decode_s: float
    valid: int
    facts: int
    agreeing: int
    compared: int


def measure(
    model: Model,
    *,
    modes: Sequence[Mode] = MODES,
    rounds: int = 3,
    max_tokens: int = 320,
    whitespace: str = "compact",
    workloads: Sequence[Workload] | None = None,
    progress: Progress = lambda _: None,
) -> list[Run]:
    """Run every workload in every mode, `rounds` times, interleaved.

    Args:
        modes: a selection of `MODES`.
        rounds: at least 1.
        max_tokens: limit of one output, in tokens.
        progress: called with a line before every generation.

    Cost: rounds · modes · workloads generations.
    """
    import stcon

    tasks = load_all() if workloads is None else workloads
    grammars = {task.name: stcon.compile(task.schema, whitespace=whitespace) for task in tasks}  # type: ignore[arg-type]
    runs: dict[tuple[str, str], Run] = {}
    for round_number in range(rounds):
        for mode in modes:
            for task in tasks:
                progress(f"round {round_number + 1} of {rounds}: {task.name}, {mode}")
                grammar = None if mode == "free" else grammars[task.name]
                generation = _generate(model, task, grammar, mode, max_tokens)
                tokens = [token.id for token in generation.tokens]
                run = runs.get((mode, task.name))
                if run is None:
                    run = runs[mode, task.name] = _judge(task, mode, grammar, generation, tokens)
                run.decode_s.append(generation.decode_s)
                run.stable &= tokens == run.tokens
    return list(runs.values())


def failures(runs: Sequence[Run]) -> list[str]:
    """What is red: constrained outputs that are not valid, and outputs that changed between rounds."""
    red = [
        f"{run.workload} in mode {run.mode}: not valid ({run.finish_reason}): {run.text[:60]!r}"
        for run in runs
        if run.mode != "free" and not run.valid
    ]
    return red + [f"{run.workload} in mode {run.mode}: tokens differ between rounds" for run in runs if not run.stable]


def summarize(runs: Sequence[Run], workloads: Sequence[Workload] | None = None) -> list[Summary]:
    """One row a mode, in the order of first appearance."""
    tasks = {task.name: task for task in (load_all() if workloads is None else workloads)}
    free = {run.workload: run.answer for run in runs if run.mode == "free"}
    rows = []
    for mode in dict.fromkeys(run.mode for run in runs):
        mine = [run for run in runs if run.mode == mode]
        tokens = sum(run.sampled + run.forced for run in mine)
        pairs = [agreement(free.get(run.workload, MISSING), run.answer) for run in mine]
        rows.append(
            Summary(
                mode=mode,
                tokens=tokens,
                passes_per_token=sum(run.passes for run in mine) / max(tokens, 1),
                forced_share=sum(run.forced for run in mine) / max(tokens, 1),
                decode_s=sum(median(run.decode_s) for run in mine),
                valid=sum(run.valid for run in mine),
                facts=sum(tasks[run.workload].correct(run.answer) for run in mine),
                agreeing=sum(agreeing for agreeing, _ in pairs),
                compared=sum(compared for _, compared in pairs),
            )
        )
    return rows


def agreement(free: object, answer: object) -> tuple[int, int]:
    """How many leaf values of the free answer `answer` reproduces, of how many (0 of 0 if it did not parse)."""
    if free is MISSING:
        return 0, 0
    wanted = leaves(free)
    found = {} if answer is MISSING else leaves(answer)
    return sum(same(found.get(pointer, MISSING), value) for pointer, value in wanted.items()), len(wanted)


def first_object(text: str) -> object:
    """The first JSON object anywhere in `text` (in prose, in a fenced block), or `MISSING`."""
    decoder = json.JSONDecoder()
    for start in _positions(text, "{"):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        return value
    return MISSING


def as_json(runs: Sequence[Run], summaries: Sequence[Summary], about: Mapping[str, Any]) -> dict[str, Any]:
    """The result as data: what ran, the table, every output."""
    return {
        **about,
        "modes": [vars(row) for row in summaries],
        "runs": [vars(run) | {"answer": None if run.answer is MISSING else run.answer} for run in runs],
    }


def _generate(model: Model, task: Workload, grammar: Grammar | None, mode: Mode, max_tokens: int) -> Any:
    """One greedy generation; the prompt is the same in every mode."""
    messages = [{"role": "user", "content": task.prompt}]
    return model.generate(messages, grammar, mode=mode, max_tokens=max_tokens, temperature=0.0, budget=False)


def _judge(task: Workload, mode: str, grammar: Grammar | None, generation: Any, tokens: list[int]) -> Run:
    text = generation.text
    answer = first_object(text) if grammar is None else _whole(text)
    valid = answer is not MISSING and _satisfies(task.schema, answer) and (grammar is None or grammar.accepts(text))
    return Run(
        workload=task.name,
        mode=mode,
        text=text,
        answer=answer,
        valid=valid,
        passes=generation.passes,
        sampled=generation.sampled,
        forced=generation.forced,
        finish_reason=generation.finish_reason,
        tokens=tokens,
    )


def _whole(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING


def _satisfies(schema: Mapping[str, Any], answer: object) -> bool:
    """Judged by the reference validator, not by our own machine."""
    from jsonschema import Draft202012Validator

    return bool(Draft202012Validator(schema).is_valid(answer))


def _positions(text: str, character: str) -> Iterator[int]:
    position = text.find(character)
    while position >= 0:
        yield position
        position = text.find(character, position + 1)
