"""What a grammar costs: memory against a table of tokens and against llguidance, compile time, time of a mask.

Every grammar is driven through one valid document, with a mask at every token, by each engine in a process of its own.
Our bytes are counted (the machine's arrays, the packed vocabulary, the mask rows that the document made); a peer's are
the growth of its process's resident memory, which counts whole pages and what it keeps warm. The token table is
computed, not built: 3·|Q|·|V| bytes, as in the paper.

Source: the paper's Tables 9, 26, 27 and 28. We depart in the grammars, in masks made on the CPU, and in rows: ours are
bits (V/8 bytes a row), theirs are next states (3·V).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stcon.bench.masks_corpus import Case, Instance
from stcon.bench.masks_measure import Compiled, Fed, Refusal
from stcon.bench.workloads import load_all
from stcon.bench.workloads.large import form, typed_tools
from stcon.bench.workloads.recursive import load_recursive

if TYPE_CHECKING:
    from stcon.bench.masks_engines import Settings
    from stcon.vocab.vocabulary import Vocabulary

Engine: TypeAlias = Literal["stcon", "llguidance"]

SIZES = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96)
SERVED = "sixteen grammars"
_LIMIT_S = 120.0


@dataclass(frozen=True)
class Footprint:
    """Our own memory for one grammar.

    Attributes:
        states: of the machine, whole where its budget of states allows it.
        machine_bytes: of its arrays.
        token_table_bytes: 3·states·V, what a table of next states a token would take.
        rows, row_bytes: mask rows that one document made, and their memory.
    """

    grammar: str
    states: int
    machine_bytes: int
    token_table_bytes: int
    rows: int
    row_bytes: int
    tokens: int


@dataclass(frozen=True)
class Driven:
    """One engine on one grammar.

    Attributes:
        refused: why there is no measurement; None where there is.
        compile_ms: from the schema's text to a grammar; llguidance does most of that work at the first mask.
        first_mask_ms: to the first mask, compiling included.
        mask_us: median of taking a token and computing the mask behind it.
        grown_bytes: resident memory of its process above what it had set up; None where the system does not say.
    """

    grammar: str
    engine: Engine
    refused: str | None
    compile_ms: float = 0.0
    first_mask_ms: float = 0.0
    mask_us: float = 0.0
    grown_bytes: int | None = None


def grammars() -> dict[str, dict[str, Any]]:
    """Schemas by name: the six extractions, two forms, typed tools, a recursive one."""
    solar = next(task for task in load_recursive() if task.name == "solar")
    return {
        **{work.name: work.schema for work in load_all()},
        "48 fields": form(48),
        "typed tools": typed_tools(),
        "96 fields": form(96),
        "solar (recursive)": solar.schema,
    }


def sixteen() -> list[dict[str, Any]]:
    """The server's sixteen: the six extractions and forms of 8 to 96 fields."""
    return [work.schema for work in load_all()] + [form(count) for count in SIZES]


def document(schema: Mapping[str, Any]) -> str:
    """A valid JSON text of `schema` as a model without a mind writes it: short values, drawn by a fixed seed."""
    import stcon
    from stcon.engine.loop import generate
    from stcon.models.fake import FakeModel, prefer
    from stcon.vocab.vocabulary import Vocabulary

    bytes_only = Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), None], end_ids=(256,))
    model = FakeModel(bytes_only, 1, bias=prefer(bytes_only, lambda data: data in b'"]}aeiou'), context_length=1 << 16)
    answer = generate(model, [0], stcon.compile(dict(schema)), max_tokens=1 << 14, budget=True)
    if not answer.complete:
        raise AssertionError("an output under the budget rule is complete")
    return answer.text


def weigh(schemas: Mapping[str, dict[str, Any]], vocabulary: Vocabulary) -> list[Footprint]:
    """Our own memory, in this process."""
    import stcon
    from stcon.constraint.sharing import kernel_for
    from stcon.errors import TooLarge

    found = []
    for name, schema in schemas.items():
        grammar = stcon.compile(schema)
        matcher, tokens = stcon.Matcher(grammar, vocabulary), vocabulary.encode(document(schema))
        for token in tokens:
            matcher.bitmask()
            if not matcher.accept(token):
                raise AssertionError(f"{name}: a valid document is taken")
        rows = len(kernel_for(grammar.machine, vocabulary).rows)
        with suppress(TooLarge):  # it serves decoding, which builds what it meets
            grammar.machine.build_all()
        states = grammar.num_states
        table = 3 * states * vocabulary.size
        row_bytes = rows * 4 * vocabulary.num_words
        found.append(Footprint(name, states, grammar.nbytes, table, rows, row_bytes, len(tokens)))
    return found


def drive(
    schemas: Mapping[str, dict[str, Any]],
    settings: Settings,
    engines: Sequence[Engine] = ("stcon", "llguidance"),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Driven]:
    """Each engine through each grammar's document, a fresh process each.

    Cost: setting an engine up over 248,077 tokens takes seconds, once a pair.
    """
    from stcon.bench.masks_engines import load_vocabulary

    vocabulary = load_vocabulary(settings.tokenizer)
    found = []
    for name, schema in schemas.items():
        text = document(schema)
        case = Case(name, json.dumps(schema), (Instance("", True, text),))
        for engine in engines:
            progress(f"{name}, {engine}")
            found.append(_drive(engine, [case], [vocabulary.encode(text)], settings)[0])
    return found


def serve(
    settings: Settings, engines: Sequence[Engine] = ("stcon", "llguidance"), progress: Callable[[str], None] = print
) -> list[Driven]:
    """All sixteen grammars, one after the other in one process an engine; one row each, its memory the process's."""
    from stcon.bench.masks_engines import load_vocabulary

    vocabulary = load_vocabulary(settings.tokenizer)
    texts = [(schema, document(schema)) for schema in sixteen()]
    cases = [
        Case(f"{SERVED} {n}", json.dumps(schema), (Instance("", True, text),)) for n, (schema, text) in enumerate(texts)
    ]
    found = []
    for engine in engines:
        progress(f"{SERVED}, {engine}")
        rows = _drive(engine, cases, [vocabulary.encode(text) for _, text in texts], settings)
        refused = next((row.refused for row in rows if row.refused), None)
        found.append(
            Driven(
                SERVED,
                engine,
                refused,
                sum(row.compile_ms for row in rows),
                sum(row.first_mask_ms for row in rows),
                median(row.mask_us for row in rows),
                rows[-1].grown_bytes,
            )
        )
    return found


def failures(driven: Sequence[Driven]) -> list[str]:
    """What is red: our own engine refused or rejected a valid document."""
    return [f"{row.grammar}: {row.refused}" for row in driven if row.engine == "stcon" and row.refused]


def as_json(
    footprints: Sequence[Footprint], driven: Sequence[Driven], vocabulary: Vocabulary, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The measurement as data."""
    return {
        **about,
        "vocabulary_size": vocabulary.size,
        "packed_vocabulary_bytes": vocabulary.packed_nbytes,
        "grammars": [asdict(row) for row in footprints],
        "engines": [asdict(row) for row in driven],
    }


def _drive(engine: Engine, cases: Sequence[Case], spelled: Sequence[Sequence[int]], settings: Settings) -> list[Driven]:
    from stcon.bench.masks_worker import Worker

    worker = Worker(engine, settings, limit_s=_LIMIT_S, memory_limit=8 << 30)
    try:
        return [_ask(worker, engine, case, [list(tokens)]) for case, tokens in zip(cases, spelled, strict=True)]
    finally:
        worker.close()


def _ask(worker: Any, engine: Engine, case: Case, spelled: list[list[int]]) -> Driven:
    compiled, gaps, refused = None, [0], None
    for event in worker.ask(case, spelled):
        if isinstance(event, Compiled):
            compiled = event
        elif isinstance(event, Fed):
            gaps = list(event.gaps_ns) or [0]
            refused = None if event.accepted else f"rejected its document after {event.taken} tokens"
        elif isinstance(event, Refusal):
            refused = event.message
    if compiled is None or refused is not None:
        return Driven(case.id, engine, refused or "no mask")
    return Driven(
        case.id,
        engine,
        None,
        compiled.compile_ns / 1e6,
        compiled.first_mask_ns / 1e6,
        median(gaps) / 1e3,
        worker.peak_over_bytes,
    )
