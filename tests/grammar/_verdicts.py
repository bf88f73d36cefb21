"""The ratchet: what became of every case of every corpus, against what is recorded in tests/data/verdicts.json.

A verdict is ``pass``, ``refused: <reason>`` when compiling, ``valid refused``, or one of `FORBIDDEN`, which cannot be
recorded. `RANK` orders them: a case may not fall, and one that rises has to be recorded (``record_verdicts.py``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from _shared_data import ROOT, field_cases, lines, maskbench, official_suite, suite_options

from stcon.errors import GrammarError
from stcon.grammar import compile_json_schema

CHECKING = {"whitespace": "flexible", "key_order": "any", "closed": False}
ORDERED = {**CHECKING, "key_order": "schema"}

PASS, VALID_REFUSED = "pass", "valid refused"
FORBIDDEN = ("invalid accepted", "refused late", "crash")

RECORD = ROOT / "tests" / "data" / "verdicts.json"
OWN_CASES = ROOT / "tests" / "data" / "cases.jsonl"


class Case(NamedTuple):
    """A schema, how to compile it, and texts with whether each is to be accepted."""

    identifier: str
    schema: Any
    options: dict[str, Any]
    texts: list[tuple[str, bool]]


def judge(case: Case) -> str:
    """The verdict of one case."""
    try:
        grammar = compile_json_schema(case.schema, **case.options)
    except GrammarError as error:
        return f"refused: {error.reason}"
    except Exception as error:
        return f"crash: {type(error).__name__} when compiling"
    verdict = PASS
    for text, valid in case.texts:
        try:
            accepted = grammar.accepts(text)
        except GrammarError as error:
            return f"refused late: {error.reason}"
        except Exception as error:
            return f"crash: {type(error).__name__} when reading"
        if accepted and not valid:
            return f"invalid accepted: {text[:60]}"
        if valid and not accepted:
            verdict = VALID_REFUSED
    return verdict


def rank(verdict: str) -> int:
    """Higher is better."""
    if verdict == PASS:
        return 3
    return 1 if verdict == VALID_REFUSED else 2 if verdict.startswith("refused: ") else 0


def _from_instances(entry: Any, options: dict[str, Any]) -> Case:
    texts = [(json.dumps(test["data"], ensure_ascii=False), test["valid"]) for test in entry["tests"]]
    return Case(entry["id"], entry["schema"], options, texts)


def _from_texts(entry: Any) -> Case:
    texts = [(text, True) for text in entry["accept"]] + [(text, False) for text in entry["reject"]]
    return Case(entry["id"], entry["schema"], {**CHECKING, **entry.get("options", {})}, texts)


def own() -> Iterator[Case]:
    """The project's own cases."""
    return map(_from_texts, lines(OWN_CASES))


def field() -> Iterator[Case]:
    """Kernels of public bug reports; all their spellings of a string are read."""
    return (_from_texts({**entry, "options": {"escapes": "any"}}) for entry in field_cases())


def suite() -> Iterator[Case]:
    """The official suite."""
    return (_from_instances(entry, {**CHECKING, **suite_options(entry["id"])}) for entry in official_suite())


def real() -> Iterator[Case]:
    """Real schemas, keys in any order."""
    return (_from_instances(entry, CHECKING) for entry in maskbench())


def real_ordered() -> Iterator[Case]:
    """Real schemas, keys in the schema's order."""
    return (_from_instances(entry, ORDERED) for entry in maskbench())


CORPORA: dict[str, Callable[[], Iterator[Case]]] = {
    "cases": own,
    "field_cases": field,
    "official_suite": suite,
    "maskbench_dev": real,
    "maskbench_dev, schema order": real_ordered,
}


def summary(verdicts: dict[str, str]) -> dict[str, Any]:
    """What is recorded of a corpus: counts, and the verdict of every case that does not pass."""
    return {
        "counts": dict(sorted(Counter(verdicts.values()).items())),
        "others": {identifier: verdict for identifier, verdict in verdicts.items() if verdict != PASS},
    }


@cache
def recorded(corpus: str) -> dict[str, str]:
    """Identifier → verdict of the cases that did not pass when last recorded."""
    others: dict[str, str] = json.loads(RECORD.read_text())[corpus]["others"]
    return others


def compare(corpus: str, cases: Iterable[Case]) -> tuple[list[str], list[str], int]:
    """What fell, what rose, and how many cases were judged."""
    worse, better, count = [], [], 0
    for case in cases:
        count += 1
        now, before = judge(case), recorded(corpus).get(case.identifier, PASS)
        line = f"{case.identifier}: {before} → {now}"
        if rank(now) < rank(before) or rank(now) == 0:
            worse.append(line)
        elif rank(now) > rank(before):
            better.append(line)
    return worse, better, count
