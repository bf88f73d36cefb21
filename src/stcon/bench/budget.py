"""Outputs under token limits, with the rule of ``docs/budgets.md`` and without, by a model and by adversaries.

For every task and limit: is the output valid (by jsonschema and by our own reader), is a limit that no output fits
refused, and is an output that had room the same, token for token? Without the rule, the output within a limit is the
beginning of the whole answer, so one run gives them all.

Source: the paper's Figure 12 and Table 32. We depart in the model (any), in counting recursive tasks like the others,
and in asking adversaries as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from stcon.bench.remembered import RememberedModel
from stcon.bench.workloads.recursive import Task, load_tasks
from stcon.engine.loop import Generation, generate
from stcon.engine.sampling import Sampling
from stcon.errors import LimitTooSmall
from stcon.models.fake import FakeModel, prefer, prefer_longest

if TYPE_CHECKING:
    from stcon.engine.control import Mode
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model
    from stcon.vocab.vocabulary import Vocabulary

Progress: TypeAlias = Callable[[str], None]

ADVERSARIES = ("longest", "whitespace", "digits", "opening", "uniform")
_EXTRA = 32  # limits above the least one at which adversaries are tried


@dataclass
class Attempt:
    """One limit.

    Attributes:
        limit: tokens allowed.
        refused: before the model was asked.
        valid: the output satisfies the schema and keeps the limit.
        cut_valid: the same of the beginning of the whole answer, without the rule.
        text: the output.
        finish_reason: of it; "" if refused.
        unchanged: whether its tokens are those of the whole answer; None where that does not fit.
    """

    limit: int
    refused: bool
    valid: bool
    cut_valid: bool
    text: str = ""
    finish_reason: str = ""
    unchanged: bool | None = None


@dataclass
class Series:
    """One task under every limit, by one model.

    Attributes:
        need: the fewest tokens of any valid output.
        full: tokens of the whole answer, or the most that were tried if it did not end by then.
        ended: whether it did.
        build_s, nbytes, points, exits: of the table of costs.
        rule_share: time of the rule as a share of decoding, at the full answer's own limit; None if not measured.
    """

    task: str
    is_recursive: bool
    model: str
    need: int
    full: int
    ended: bool
    build_s: float
    nbytes: int
    points: int
    exits: int
    rule_share: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def feasible(self) -> list[Attempt]:
        """Limits that some output fits."""
        return [attempt for attempt in self.attempts if attempt.limit >= self.need]

    @property
    def infeasible(self) -> list[Attempt]:
        """The others."""
        return [attempt for attempt in self.attempts if attempt.limit < self.need]


@dataclass
class Siege:
    """One adversary on one task: how many limits were kept of those that could be."""

    task: str
    adversary: str
    mode: str
    runs: int = 0
    valid: int = 0
    refusals: int = 0
    refused: int = 0
    broken: list[str] = field(default_factory=list)


class _Goal(NamedTuple):
    """A task as it is decoded."""

    task: Task
    grammar: Grammar
    mode: Mode
    prompt: Sequence[int]

    def decode(self, model: Model, limit: int, *, budget: bool) -> Generation:
        """The greedy output."""
        return generate(
            model, self.prompt, self.grammar, max_tokens=limit, mode=self.mode, sampling=Sampling(), budget=budget
        )

    def is_met(self, text: str, num_tokens: int, limit: int) -> bool:
        """Whether a text keeps the limit and is valid, to the reference validator and to our own reader."""
        from jsonschema import Draft202012Validator

        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return False
        valid = Draft202012Validator(self.task.schema).is_valid(value)
        return num_tokens <= limit and valid and self.grammar.accepts(text)


def measure(
    model: Model,
    *,
    mode: Mode = "canonical",
    longest: int = 160,
    step: int = 1,
    timed: bool = True,
    tasks: Sequence[Task] | None = None,
    progress: Progress = lambda _: None,
) -> list[Series]:
    """Every task under the limits 1, 1 + step, … up to the whole answer, greedily.

    Args:
        longest: limit of the whole answer.
        timed: also measure what the rule costs (two more runs of each task on the model itself).

    Cost: the prefixes of each task's outputs, each computed once.
    """
    import stcon

    remembered, series = RememberedModel(model), []
    for task in load_tasks() if tasks is None else tasks:
        progress(f"{task.name}: the whole answer")
        grammar = stcon.compile(task.schema)
        prompt = model.prompt_ids([{"role": "user", "content": task.prompt}])
        goal = _Goal(task, grammar, mode, prompt)
        whole = goal.decode(remembered, longest, budget=False)
        row = _series(goal, model, whole)
        for limit in range(1, row.full + 1, step):
            progress(f"{task.name}: limit {limit} of {row.full}")
            row.attempts.append(_attempt(remembered, goal, limit, whole))
        if timed:
            row.rule_share = _rule_share(model, goal, row.full)
        series.append(row)
    return series


def besiege(
    vocabulary: Vocabulary,
    *,
    seeds: int = 20,
    step: int = 4,
    modes: Sequence[Mode] = ("canonical", "mask"),
    tasks: Sequence[Task] | None = None,
    progress: Progress = lambda _: None,
) -> list[Siege]:
    """Every task against every adversary, with flexible whitespace.

    Args:
        seeds: of the uniform adversary, each at a limit of its own.
        step: between the limits at which the others are tried, from the least one up.
    """
    import stcon

    sieges = []
    for task in load_tasks() if tasks is None else tasks:
        grammar = stcon.compile(task.schema, whitespace="flexible")
        need = _need(grammar, vocabulary)
        for name in ADVERSARIES:
            for mode in modes:
                progress(f"{task.name}: {name}, {mode}")
                siege = Siege(task.name, name, mode)
                goal = _Goal(task, grammar, mode, [0])
                for model, limit in _opponents(vocabulary, name, need, seeds, step):
                    _try(siege, model, goal, limit, need)
                sieges.append(siege)
    return sieges


def failures(series: Sequence[Series], sieges: Sequence[Siege]) -> list[str]:
    """What is red."""
    red = []
    for row in series:
        place = f"{row.task} by {row.model}"
        red += [f"{place}: not valid within {a.limit}: {a.text[:60]!r}" for a in row.feasible if not a.valid]
        red += [
            f"{place}: {a.limit} is not refused where {row.need} are needed" for a in row.infeasible if not a.refused
        ]
        red += [
            f"{place}: the output within {a.limit} had room and changed" for a in row.attempts if a.unchanged is False
        ]
    for siege in sieges:
        red += [f"{siege.task} against {siege.adversary} ({siege.mode}): {line}" for line in siege.broken]
    return red


def as_json(series: Sequence[Series], sieges: Sequence[Siege], about: dict[str, Any]) -> dict[str, Any]:
    """The result as data."""
    return {
        **about,
        "tasks": [{**vars(row), "attempts": [vars(attempt) for attempt in row.attempts]} for row in series],
        "adversaries": [vars(siege) for siege in sieges],
    }


def adversary(vocabulary: Vocabulary, name: str, seed: int = 0) -> FakeModel:
    """A model that writes what it likes: one of `ADVERSARIES`."""
    if name == "longest":
        bias = prefer_longest(vocabulary)
    elif name == "whitespace":
        bias = prefer(vocabulary, bytes.isspace)
    elif name == "digits":
        bias = prefer(vocabulary, bytes.isdigit)
    elif name == "opening":
        bias = prefer(vocabulary, lambda data: data[-1:] in (b"{", b"[", b'"') or data[:1] in (b"{", b"["))
    else:
        bias = None
    return FakeModel(vocabulary, seed, bias=bias)


def _opponents(vocabulary: Vocabulary, name: str, need: int, seeds: int, step: int) -> Iterator[tuple[FakeModel, int]]:
    """Models with the limits at which each is tried."""
    if name == "uniform":
        for seed in range(seeds):
            yield adversary(vocabulary, name, seed), need + seed % (_EXTRA + 1)
        yield adversary(vocabulary, name), need - 1
        return
    model = adversary(vocabulary, name)
    for limit in (*range(max(1, need - 1), need + 3), *range(need + 3, need + _EXTRA + 1, step)):
        yield model, limit


def _try(siege: Siege, model: FakeModel, goal: _Goal, limit: int, need: int) -> None:
    if limit < 1:
        return
    try:
        output = goal.decode(model, limit, budget=True)
    except LimitTooSmall as error:
        siege.refusals += limit < need
        siege.refused += limit < need
        if limit >= need or error.needed != need:
            siege.broken.append(f"refused {limit} where {need} are needed")
        return
    siege.refusals += limit < need
    siege.runs += limit >= need
    if limit < need:
        siege.broken.append(f"did not refuse {limit} where {need} are needed")
    elif goal.is_met(output.text, len(output.tokens), limit):
        siege.valid += 1
    else:
        siege.broken.append(f"not valid within {limit}: {output.text[:60]!r}")


def _series(goal: _Goal, model: Model, whole: Generation) -> Series:
    from stcon.constraint.budget import budget_for
    from stcon.constraint.sharing import kernel_for

    table = budget_for(kernel_for(goal.grammar.machine, model.vocabulary)).table
    return Series(
        task=goal.task.name,
        is_recursive=goal.task.is_recursive,
        model=model.name,
        need=_need(goal.grammar, model.vocabulary),
        full=len(whole.tokens),
        ended=whole.finish_reason == "stop",
        build_s=table.build_s,
        nbytes=table.nbytes,
        points=table.num_points,
        exits=table.num_exits,
    )


def _need(grammar: Grammar, vocabulary: Vocabulary) -> int:
    from stcon.constraint.matcher import Matcher

    need = Matcher(grammar, vocabulary).need()
    assert need is not None, "the tokens of a tokenizer spell JSON"
    return need


def _attempt(model: Model, goal: _Goal, limit: int, whole: Generation) -> Attempt:
    start = b"".join(token.data for token in whole.tokens[:limit]).decode(errors="replace")
    cut_valid = goal.is_met(start, limit, limit)
    try:
        output = goal.decode(model, limit, budget=True)
    except LimitTooSmall:
        return Attempt(limit, refused=True, valid=False, cut_valid=cut_valid)
    fits = whole.finish_reason == "stop" and len(whole.tokens) <= limit
    return Attempt(
        limit,
        refused=False,
        valid=goal.is_met(output.text, len(output.tokens), limit),
        cut_valid=cut_valid,
        text=output.text,
        finish_reason=output.finish_reason,
        unchanged=[token.id for token in output.tokens] == [token.id for token in whole.tokens] if fits else None,
    )


def _rule_share(model: Model, goal: _Goal, limit: int) -> float:
    """Seconds that the rule adds to the constraint, as a share of decoding without it; the least of three runs."""
    plain, ruled = [], []
    for _ in range(3):
        plain.append(goal.decode(model, limit, budget=False))
        ruled.append(goal.decode(model, limit, budget=True))
    without = min(run.mask_s for run in plain)
    return float((min(run.mask_s for run in ruled) - without) / np.median([run.decode_s for run in plain]))
