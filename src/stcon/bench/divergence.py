"""Where engines that compute the same model part, and how their arithmetic differs from float32's.

Two engines are two ways to the same tokens: another runner, another type of numbers, a batch instead of one stream,
fields in parallel. They round differently, so that greedy outputs part where two tokens are nearly as likely. Two
accounts are given of that:

* **outputs** (Table 24): every engine writes the same outputs; each is followed to its first difference from the first
  engine's, and there the prompt and the common beginning are run in float32 and the gap between the two tokens' logits
  is read. Nothing is compared past that point: the prefixes differ.
* **logits** (Table 25): every kind of numbers reads the same texts, those that the float32 model writes, and the
  distributions after each position are compared with float32's.

A large gap is no rounding but a defect: `NEAR_TIE`.

Source: the paper's Tables 24 and 25 (Appendices E.7, E.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import stcon
from stcon.bench.near_ties import Divergence, Ties, divergence, summarize
from stcon.bench.workloads import load_all
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.engine.batch import BatchModel
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Float32, Model

WAYS = ("stream", "batch", "parallel")
ROWS = 8
NEAR_TIE = 0.5  # the paper's largest gap of an engine in 16 bits is 0.52
Load = Callable[[str, str], "Model"]


class Task(NamedTuple):
    """One output to write.

    Attributes:
        name: of the extraction, and whether it is constrained.
        prompt_ids: the prompt.
        grammar: what it must be; None: free text.
    """

    name: str
    prompt_ids: Sequence[int]
    grammar: Grammar | None


@dataclass(frozen=True)
class Engine:
    """One way to the tokens, ``RUNNER:DTYPE[:WAY]``.

    Attributes:
        runner, dtype: as `stcon.load_model` takes them.
        way: ``"stream"``: one at a time; ``"batch"``: eight rows; ``"parallel"``: fields side by side, certified (free
            text one at a time).
    """

    runner: str
    dtype: str
    way: str = "stream"

    @classmethod
    def parse(cls, text: str) -> Engine:
        """From its name. Raises `InvalidOption`."""
        parts = text.split(":")
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in WAYS):
            raise InvalidOption(f"an engine is RUNNER:DTYPE[:{'|'.join(WAYS)}], got {text!r}")
        return cls(*parts)

    @property
    def name(self) -> str:
        """What it is parsed from; a stream is not named."""
        return ":".join((self.runner, self.dtype, *((self.way,) if self.way != "stream" else ())))


class Models:
    """The models of some engines, each loaded once.

    Args:
        load: (runner, dtype) → model.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._known: dict[tuple[str, str], Model] = {}

    def of(self, runner: str, dtype: str) -> Model:
        """The model."""
        if (runner, dtype) not in self._known:
            self._known[runner, dtype] = self._load(runner, dtype)
        return self._known[runner, dtype]

    @cached_property
    def exact(self) -> Model:
        """The judge: float32."""
        return self.of("auto", "float32")


@dataclass(frozen=True)
class Compared:
    """One engine's outputs beside the first engine's: a row of Table 24.

    Attributes:
        engine, reference: names.
        ties: the row.
        places: for each task, where it parts; None: nowhere.
    """

    engine: str
    reference: str
    ties: Ties
    places: dict[str, Divergence | None]

    @property
    def failures(self) -> list[str]:
        """Divergences that no rounding explains."""
        return [
            f"{self.engine}, {name}: parts from {self.reference} after {place.position} tokens, gap {place.gap:.3f}"
            for name, place in self.places.items()
            if place is not None and place.gap is not None and abs(place.gap) > NEAR_TIE
        ]


@dataclass(frozen=True)
class Fidelity:
    """Distributions beside float32's: a row of Table 25. Divergences in nats, of float32 from the other.

    Attributes:
        runner, dtype: of the numbers.
        positions: compared.
        top1: share of positions at which the most likely token is the same.
        mean_kl, p99_kl, max_kl: Kullback–Leibler divergences.
        max_difference: of two logits, whichever.
    """

    runner: str
    dtype: str
    positions: int
    top1: float
    mean_kl: float
    p99_kl: float
    max_kl: float
    max_difference: float


def tasks(model: Model, *, most: int | None = None) -> list[Task]:
    """The six extractions (or the first `most`), each free and constrained."""
    found = []
    for work in load_all()[:most]:
        prompt = model.prompt_ids(work.prompt)
        found += [Task(f"{work.name}, free", prompt, None), Task(work.name, prompt, stcon.compile(work.schema))]
    return found


def write(engine: Engine, model: Model, tasks: Sequence[Task], max_tokens: int) -> list[list[int]]:
    """The tokens of each task, greedily; cut at `max_tokens`."""
    if engine.way == "batch":
        return _by_batch(model, tasks, max_tokens)
    from stcon.engine.loop import generate as one_by_one
    from stcon.engine.parallel import generate as side_by_side

    found = []
    for task in tasks:
        decode = side_by_side if engine.way == "parallel" and task.grammar is not None else one_by_one
        output = decode(model, task.prompt_ids, task.grammar, max_tokens=max_tokens)  # type: ignore[arg-type]
        found.append([token.id for token in output.tokens])
    return found


def _by_batch(model: Model, tasks: Sequence[Task], max_tokens: int) -> list[list[int]]:
    from stcon.engine.batch import Batch, Request
    from stcon.engine.batch.choose import rows_for

    rows: BatchModel = rows_for(model, ROWS, row_tokens=min(model.context_length, 2048))
    requests = [Request(task.prompt_ids, task.grammar, max_tokens=max_tokens, budget=False) for task in tasks]
    return [[token.id for token in output.tokens] for (output,) in Batch(rows).generate(requests)]


def compare(
    engines: Sequence[Engine],
    models: Models,
    tasks: Sequence[Task],
    max_tokens: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Compared]:
    """Every engine but the first beside the first."""
    first, *others = engines
    progress(first.name)
    theirs = write(first, models.of(first.runner, first.dtype), tasks, max_tokens)
    for engine in others:
        progress(engine.name)
        ours = write(engine, models.of(engine.runner, engine.dtype), tasks, max_tokens)
        places = {
            task.name: divergence(models.exact, task.prompt_ids, one, other)
            for task, one, other in zip(tasks, theirs, ours, strict=True)
        }
        yield Compared(engine.name, first.name, summarize(places.values()), places)


def texts(model: Model, *, most: int | None, positions: int) -> list[list[int]]:
    """The prompts of the extractions, each with what `model` writes freely after it: `positions` tokens in all at most.

    Returns:
        For each the tokens to be read; the last `positions` of them are compared.
    """
    from stcon.engine.loop import generate

    found = []
    for work in load_all()[:most]:
        prompt = model.prompt_ids(work.prompt)
        written = generate(model, prompt, None, max_tokens=positions)
        found.append([*prompt, *(token.id for token in written.tokens)])
    return found


def fidelity(runner: str, dtype: str, models: Models, texts: Sequence[Sequence[int]], positions: int) -> Fidelity:
    """The distributions that one kind of numbers gives after the last `positions` tokens of each text."""
    model, kl, same, largest = models.of(runner, dtype), list[float](), 0, 0.0
    for tokens in texts:
        exact, other = (one.session().append(tokens, all_positions=True)[-positions:] for one in (models.exact, model))
        kl += _divergences(exact, other).tolist()
        same += int((exact.argmax(1) == other.argmax(1)).sum())
        largest = max(largest, float(np.abs(exact - other).max()))
    worst = np.asarray(kl)
    return Fidelity(
        runner,
        dtype,
        len(kl),
        same / max(1, len(kl)),
        float(worst.mean()),
        float(np.quantile(worst, 0.99)),
        float(worst.max()),
        largest,
    )


def _divergences(exact: Float32, other: Float32) -> np.ndarray[Any, np.dtype[np.float64]]:
    """float64[S]: the divergence of each position's distribution from the exact one, in nats."""
    p, q = _log_softmax(exact), _log_softmax(other)
    found: np.ndarray[Any, np.dtype[np.float64]] = (np.exp(p) * (p - q)).sum(1)
    return found.clip(min=0.0)


def _log_softmax(logits: Float32) -> np.ndarray[Any, np.dtype[np.float64]]:
    wide = logits.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    shifted: np.ndarray[Any, np.dtype[np.float64]] = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    return shifted


def as_json(compared: Sequence[Compared], fidelities: Sequence[Fidelity], about: dict[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    places = [
        {"engine": one.engine, "reference": one.reference, "output": name, **asdict(place)}
        for one in compared
        for name, place in one.places.items()
        if place is not None
    ]
    rows = [{"engine": one.engine, "reference": one.reference, **asdict(one.ties)} for one in compared]
    return {**about, "outputs": rows, "divergences": places, "logits": [asdict(one) for one in fidelities]}
