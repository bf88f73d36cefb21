"""`stcon bench masks`: schemas and instances under several engines, what each gets right and how long its masks take.

Each engine has a process of its own (`masks_worker`), and they take turns: every case is given to one engine after the
other before the next case begins, never to two at once, and the first to go changes from case to case. So all of them
meet the machine in the same state, and the peak memory of each is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from stcon.bench.masks_engines import ENGINES, Settings, load_vocabulary
from stcon.bench.masks_measure import Record, Tokens
from stcon.bench.masks_worker import Build, Worker, build
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from stcon.bench.masks_corpus import Case, Instance
    from stcon.vocab.vocabulary import Vocabulary

Progress: TypeAlias = Callable[[str], None]

OURS = "stcon"
DEFAULT_LIMIT_S = 10.0
DEFAULT_MEMORY_LIMIT = 8 << 30


@dataclass(frozen=True)
class Measured:
    """One engine over the whole corpus.

    Attributes:
        records: one a case, in the corpus's order.
        setup_bytes, peak_over_bytes: resident memory after set-up, and the most it grew past that; None where the
            system does not say.
        num_restarts: how often its process was ended for a limit.
    """

    engine: str
    options: Mapping[str, Any]
    records: Sequence[Record]
    setup_bytes: int | None
    peak_over_bytes: int | None
    num_restarts: int


def run(
    cases: Sequence[Case],
    engines: Sequence[str],
    settings: Settings,
    *,
    limit_s: float = DEFAULT_LIMIT_S,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    progress: Progress = lambda _: None,
    build: Build = build,
) -> list[Measured]:
    """Give every case to every engine.

    Args:
        engines: names of `ENGINES`, each once.
        limit_s: for one engine on one case; past it the engine's process is ended and the case counts as refused.
        memory_limit: resident bytes of an engine's process, enforced likewise.
        progress: called with a line before every case.
        build: sets an engine up in its process; for tests.

    Raises:
        InvalidOption: an unknown engine or tokenizer.
        ModelUnavailable: a package or a tokenizer is not there.
    """
    if unknown := set(engines) - set(ENGINES):
        raise InvalidOption(f"engines are {', '.join(ENGINES)}; not {min(unknown)!r}")
    workers = [Worker(name, settings, limit_s=limit_s, memory_limit=memory_limit, build=build) for name in engines]
    records: dict[str, list[Record]] = {name: [] for name in engines}
    try:
        progress(f"setting up {', '.join(engines)}")
        for worker in workers:
            worker.start()
        vocabulary = load_vocabulary(settings.tokenizer)
        for worker in workers:
            worker.wait_until_ready()
        for number, case in enumerate(cases):
            spelled = [spell(vocabulary, instance) for instance in case.instances]
            first = number % len(workers)
            for worker in (*workers[first:], *workers[:first]):
                progress(f"{number + 1} of {len(cases)}: {case.id}, {worker.name}")
                records[worker.name].append(_record(worker, case, spelled))
    finally:
        for worker in workers:
            worker.close()
    return [
        Measured(w.name, w.options, records[w.name], w.setup_bytes, w.peak_over_bytes, w.num_kills) for w in workers
    ]


def spell(vocabulary: Vocabulary, instance: Instance) -> Tokens | None:
    """The tokenizer's own split; None where the text has none (a lone surrogate, a byte that is no token)."""
    try:
        tokens = vocabulary.encode(instance.text)
        return tokens if vocabulary.spells(tokens, instance.text.encode()) else None
    except (ValueError, InvalidOption):  # UnicodeEncodeError is a ValueError
        return None


def failures(measured: Iterable[Measured]) -> list[str]:
    """What is wrong with stcon itself: invalid instances accepted, and errors that are no refusals."""
    red = []
    for record in (record for one in measured if one.engine == OURS for record in one.records):
        red += [
            f"{record.case.id}: accepts an invalid instance: {record.case.instances[fed.index].description!r}"
            for fed in record.wrong
            if fed.accepted
        ]
        if record.refusal is not None and record.refusal.reason in ("internal error", "crash"):
            red.append(f"{record.case.id}: {record.refusal.reason}: {record.refusal.message}")
    return red


def _record(worker: Worker, case: Case, spelled: Sequence[Tokens | None]) -> Record:
    record = Record(case, worker.name)
    for event in worker.ask(case, spelled):
        record.add(event)
    return record
