"""A grammar is shared by threads: what each reads does not depend on the others, though rows are built on the way."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Iterator

import pytest

import stcon


@pytest.fixture
def _eager_switching() -> Iterator[None]:
    """Threads give way after every few instructions, so that a race is met within seconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _schema() -> dict[str, object]:
    kinds = [
        {"type": "string", "maxLength": 9},
        {"type": "integer", "minimum": 3, "maximum": 5000},
        {"type": "array", "items": {"enum": ["x", "q"]}},
        {"type": "object", "properties": {"z": {"enum": [1, 2]}}},
    ]
    properties = {name: {"anyOf": kinds} for name in ("a", "bb", "ccc", "d", "e")}
    return {"type": "object", "properties": properties, "required": ["a", "d"]}


def _documents(count: int) -> list[str]:
    found = []
    for seed in range(count):
        rng, document = random.Random(seed), {}
        for name in ("a", "bb", "ccc", "d", "e"):
            if name in "ad" or rng.random() < 0.6:
                document[name] = rng.choice(
                    ["x" * rng.randrange(10), rng.randrange(6000), ["q"], {"z": rng.choice([1, 3])}, {}]
                )
        found.append(json.dumps(document, separators=(",", ":")))
    return found


@pytest.mark.usefixtures("_eager_switching")
def test_threads_that_read_a_growing_machine_agree_with_one_that_reads_a_whole_one() -> None:
    """Verdicts of four threads on a machine none of whose rows are built, six times over."""
    documents = _documents(30)
    whole = stcon.compile(_schema()).build()
    expected = [whole.accepts(document) for document in documents]
    assert 0 < sum(expected) < len(expected)
    for trial in range(6):
        grammar, wrong = stcon.compile(_schema()), []

        def work(seed: int, grammar: stcon.Grammar = grammar, wrong: list[object] = wrong) -> None:
            order = list(range(len(documents)))
            random.Random(seed).shuffle(order)
            for index in order:
                try:
                    verdict: object = grammar.accepts(documents[index])
                except Exception as error:
                    verdict = error
                if verdict is not expected[index]:
                    wrong.append((documents[index], verdict))

        threads = [threading.Thread(target=work, args=(10 * trial + number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
