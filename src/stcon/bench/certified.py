"""Passes of sequential decoding against certified decoding of the same outputs: how many fewer, and are they the same.

Eighteen outputs (the six extractions, three records each) and a form of 48 fields on a real model; the same form on two
models without weights, the extremes: one whose fields depend on nothing but themselves, so that drafts are right, and
one in which every token depends on all before it, so that they never are.

Identity is asked of the tokens. The fakes' logits are exact, so theirs must be the same; a real model's may part where
two tokens are nearly as likely, since logits are rounded otherwise in larger passes: each such place is listed with the
gap between the two tokens, and is a failure if it is more than `NEAR_TIE` (`NEAR_TIE_16_BITS`).

Source: the paper's Section E.4, Table 20.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import stcon
from stcon.bench.near_ties import Divergence, divergence
from stcon.bench.workloads import load_all
from stcon.engine.loop import generate as sequential
from stcon.engine.parallel import generate as certified
from stcon.engine.parallel.report import Round
from stcon.models.fake import FakeModel, hash_prefix

if TYPE_CHECKING:
    from stcon.models.base import Float32, Model
    from stcon.vocab.vocabulary import Vocabulary

RECORDS = 3
FORM_FIELDS = 48
NEAR_TIE = 0.1
NEAR_TIE_16_BITS = 0.6  # the paper's largest is 0.52, SmolLM2's in bfloat16 0.32

_KEY = re.compile(rb'"\w+":')
_KINDS: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...] = (
    ({"type": "integer", "minimum": 0, "maximum": 999}, (34, 7, 120, 58)),
    ({"type": "boolean"}, (True, False)),
    ({"enum": ["low", "medium", "high"]}, ("high", "low", "medium")),
    ({"type": "string", "pattern": "^[a-z]{3,10}$"}, ("amber", "granite", "violet", "maple", "harbour")),
)


@dataclass(frozen=True)
class Job:
    """One output: a schema and its prompt."""

    name: str
    schema: dict[str, Any]
    prompt: str


@dataclass(frozen=True)
class Run:
    """One output, decoded twice.

    Attributes:
        model: its name.
        job: the job's name.
        fields: that can be drafted apart.
        tokens: of the output.
        sequential_passes, passes: calls of the model, the prompt's included.
        row_passes, fed: rows and tokens of the certified decoding's passes.
        sequential_s, certified_s: wall time, the prompt included.
        rounds: the certificates.
        parted: where the two outputs part; None: nowhere.
        is_exact: whether the model's logits are, so that they must not part.
        near_tie: the largest gap that rounding explains.
    """

    model: str
    job: str
    fields: int
    tokens: int
    sequential_passes: int
    passes: int
    row_passes: int
    fed: int
    sequential_s: float
    certified_s: float
    rounds: tuple[Round, ...]
    parted: Divergence | None
    is_exact: bool
    near_tie: float = NEAR_TIE

    @property
    def first_round(self) -> tuple[int, int]:
        """(drawn tokens of the first round's draft, of them those that agreed); zeros without a round."""
        first = next((round for round in self.rounds if not round.is_look), None)
        return (first.drafted, first.agreed) if first is not None else (0, 0)

    @property
    def num_rounds(self) -> int:
        """Certificates; looks ahead are none."""
        return sum(not round.is_look for round in self.rounds)

    @property
    def is_red(self) -> bool:
        """Whether the outputs part where they must not."""
        if self.parted is None:
            return False
        return self.is_exact or self.parted.gap is None or abs(self.parted.gap) > self.near_tie


def extractions() -> list[Job]:
    """The eighteen."""
    return [
        Job(f"{work.name} {record}", work.schema, f"Record {record}. {work.prompt}")
        for record in range(1, RECORDS + 1)
        for work in load_all()
    ]


def form(num_fields: int = FORM_FIELDS) -> Job:
    """A form of numbers, switches, choices and words, and a text that answers it."""
    properties, answers = {}, []
    turns = [cycle(values) for _, values in _KINDS]
    for number, place in enumerate(islice(cycle(range(len(_KINDS))), num_fields), 1):
        properties[f"field_{number}"] = _KINDS[place][0]
        answers.append(f"field_{number} is {str(next(turns[place])).lower()}.")
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Job(f"form {num_fields}", schema, f"Copy the fields of this form as compact JSON. {' '.join(answers)}")


def fakes(vocabulary: Vocabulary) -> list[FakeModel]:
    """The two extremes; see the module."""
    own, whole = FakeModel(vocabulary, 1, bias=_own_field(vocabulary), spread=1e-6), FakeModel(vocabulary, 2)
    own.name, whole.name = "fake, fields by themselves", "fake, all on all before"
    own.context_length = whole.context_length = 1 << 16
    return [own, whole]


def _own_field(vocabulary: Vocabulary) -> Callable[[Sequence[int]], Float32]:
    """A bias by which a token depends on the text since the last key, and on nothing else."""
    numbers = np.arange(1, vocabulary.size + 1, dtype=np.uint64)

    def bias(tokens: Sequence[int]) -> Float32:
        text = vocabulary.decode(tokens[-32:])  # a field of the form is shorter
        start = max((match.start() for match in _KEY.finditer(text)), default=0)
        mixed = numbers * np.uint64(hash_prefix(7, text[start:]) | 1)
        return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24) * np.float32(50)

    return bias


def measure(
    model: Model,
    jobs: Sequence[Job],
    *,
    max_tokens: int,
    is_exact: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """Each job sequentially and certified, one after the other; what has to be compiled or planned is done before.

    Args:
        is_exact: the model's logits do not depend on how tokens are split into passes.
    """
    return [_run(model, job, max_tokens, is_exact, progress) for job in jobs]


def _run(model: Model, job: Job, max_tokens: int, is_exact: bool, progress: Callable[[str], None]) -> Run:
    progress(f"{model.name}: {job.name}")
    grammar, prompt = stcon.compile(job.schema), model.prompt_ids(job.prompt)
    certified(model, prompt, grammar, max_tokens=max_tokens, budget=True, stop=["{"])  # plans, rows and masks
    started = perf_counter()
    one = sequential(model, prompt, grammar, max_tokens=max_tokens, budget=True)
    between = perf_counter()
    two = certified(model, prompt, grammar, max_tokens=max_tokens, budget=True)
    ended = perf_counter()
    report = two.parallel
    assert report is not None, "it is what it returns"
    ours, theirs = ([token.id for token in output.tokens] for output in (two, one))
    return Run(
        model=model.name,
        job=job.name,
        fields=report.fields,
        tokens=len(theirs),
        sequential_passes=one.passes,
        passes=two.passes,
        row_passes=report.row_passes,
        fed=report.fed,
        sequential_s=between - started,
        certified_s=ended - between,
        rounds=report.rounds,
        parted=divergence(model, prompt, theirs, ours),
        is_exact=is_exact,
        near_tie=NEAR_TIE_16_BITS if "16" in str(getattr(getattr(model, "network", None), "dtype", "")) else NEAR_TIE,
    )


def failures(runs: Sequence[Run]) -> list[str]:
    """What makes the measurement red: outputs that part where they must not."""
    return [
        f"{run.model}, {run.job}: the outputs part after {run.parted.position} tokens (gap {run.parted.gap})"
        for run in runs
        if run.is_red and run.parted is not None
    ]


def fewer(runs: Sequence[Run]) -> float:
    """How many times fewer passes over all `runs`."""
    return sum(run.sequential_passes for run in runs) / max(1, sum(run.passes for run in runs))


def as_json(runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    return {**about, "runs": [asdict(run) for run in runs]}
