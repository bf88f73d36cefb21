"""Sixteen grammars in turn on one running batch: what they take above the model, and how long a first answer waits.

The grammars are the six extraction schemas, then objects of 8, 12, 16, 24, 32, 40, 48, 64, 80 and 96 fields; four
requests each, three at a time, compiled when first asked for. Memory is the process's resident set above what it was
with the model loaded and warm. Every answer is checked by jsonschema.

Source: the paper's Tables 10 and 29. We depart in the model and in measuring main memory, as the masks are made there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from stcon.bench.masks_memory import resident_bytes
from stcon.bench.throughput import Task
from stcon.bench.workloads import load_all
from stcon.engine.batch import Batch, Handle, Piece, Request
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.warm import warm_up

if TYPE_CHECKING:
    from stcon.models.base import Model

FIELDS = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96)
REQUESTS = 4
AT_A_TIME = 3
_KINDS: tuple[dict[str, Any], ...] = (
    {"type": "string", "maxLength": 10},
    {"type": "integer", "minimum": 0, "maximum": 999},
    {"type": "boolean"},
    {"enum": ["low", "medium", "high"]},
)


@dataclass(frozen=True)
class Served:
    """One grammar.

    Attributes:
        name: of the workload, or its number of fields.
        states: of the machine after its requests.
        compile_s: to a grammar.
        first_s: from the first request's arrival, compiling included, to its first drawn token.
        longest_first_s: the longest such wait of its requests.
        above_model_bytes: resident memory above the model, after its last request (0 where the
            system does not say).
        valid: answers that satisfy the schema, of `REQUESTS`.
    """

    name: str
    states: int
    compile_s: float
    first_s: float
    longest_first_s: float
    above_model_bytes: int
    valid: int


def fields_schema(count: int) -> dict[str, Any]:
    """An object of `count` required fields of four types in turn."""
    properties = {f"field_{i + 1:02}": _KINDS[i % len(_KINDS)] for i in range(count)}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def tasks(fields: Sequence[int] = FIELDS) -> list[tuple[str, Task]]:
    """The grammars' tasks, named."""
    found = [(work.name, Task(work.prompt, work.schema)) for work in load_all()]
    for count in fields:
        prompt = f"Fill a form of {count} fields (field_01 to field_{count:02}) with plausible values, as compact JSON."
        found.append((f"{count} fields", Task(prompt, fields_schema(count))))
    return found


def measure(
    model: Model,
    *,
    fields: Sequence[int] = FIELDS,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Served]:
    """All grammars, in turn."""
    engine = Batch(rows_for(model, AT_A_TIME), cache_bytes=50 << 20)
    warm_up(engine)
    before, served = resident_bytes() or 0, []
    with engine:
        for name, task in tasks(fields):
            progress(f"{name}, {((resident_bytes() or 0) - before) / 1e6:.0f} MB above the model")
            served.append(_serve(model, engine, name, task, before))
    return served


def failures(served: Sequence[Served]) -> list[str]:
    """What makes the measurement red: answers that are not valid."""
    return [f"{one.name}: {one.valid} of {REQUESTS} answers are valid" for one in served if one.valid < REQUESTS]


def as_json(served: Sequence[Served], about: dict[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    return {**about, "grammars": [asdict(one) for one in served]}


def _serve(model: Model, engine: Batch, name: str, task: Task, before: int) -> Served:
    import stcon
    from stcon.engine.output import Output

    arrived = perf_counter()
    grammar = stcon.compile(task.schema)
    compile_s = perf_counter() - arrived
    need = Output(model, [0], grammar, max_tokens=1 << 20, budget=True)
    need.begin()
    limit = 64 + 2 * (len(need.tokens) + (need.need() or 0))
    waits: list[float] = []
    texts: list[str] = []
    prompt = model.prompt_ids(task.prompt)
    for first in range(0, REQUESTS, AT_A_TIME):
        came = perf_counter() if first else arrived
        handles = [
            engine.submit(Request(prompt, grammar, max_tokens=limit)) for _ in range(min(AT_A_TIME, REQUESTS - first))
        ]
        firsts = [_first(handle) - came for handle in handles]
        waits += firsts
        texts += [handle.result()[0].text for handle in handles]
    return Served(
        name=name,
        states=grammar.num_states,
        compile_s=compile_s,
        first_s=waits[0],
        longest_first_s=max(waits),
        above_model_bytes=(resident_bytes() or 0) - before,
        valid=sum(task.is_valid(text) for text in texts),
    )


def _first(handle: Handle) -> float:
    """When the first token was drawn for a request; its other events are left unread."""
    for event in handle:
        if not isinstance(event, Piece) or event.tokens[-1].kind != "forced" or event.tokens[0].kind != "forced":
            break
    return perf_counter()
