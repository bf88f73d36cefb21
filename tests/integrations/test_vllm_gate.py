"""The gate: constraints that compile pass, others are refused, and one that takes too long ends with its process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stcon.integrations.vllm.compiling import CompilingTooLong
from stcon.integrations.vllm.gate import Gate, Refused
from stcon.integrations.vllm.requests import Constraint, Settings

ENOUGH = 60.0
# a minute of compiling and more
HOSTILE: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {f"k{i}": {"type": "integer"}, f"k{i * 7 % 200}": {"type": "string"}},
            "required": [f"k{i}"],
        }
        for i in range(200)
    ]
}


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    """A gate, closed in the end."""
    found = Gate(ENOUGH)
    yield found
    found.close()


def constraint(kind: str, text: str) -> Constraint:
    """A constraint under the default settings."""
    return Constraint(kind, text, Settings())  # type: ignore[arg-type]


def test_what_compiles_passes_and_the_rest_is_refused(gate: Gate) -> None:
    """A constraint passes exactly if it compiles; a refusal has the compiler's words. Settings reach the compiler."""
    assert not gate.knows(constraint("regex", "a{3}"))
    gate.check(constraint("regex", "a{3}"))
    assert gate.knows(constraint("regex", "a{3}"))
    gate.check(constraint("regex", "a{3}"))
    with pytest.raises(Refused, match="type must be a type name"):
        gate.check(constraint("json", '{"type": "objekt"}'))
    spaced = Constraint("json", '{"const": {"a": "\\udc00é"}}', Settings(whitespace="json"), None)
    with pytest.raises(Refused):
        gate.check(spaced)
    gate.check(Constraint("json", '{"const": {"a": "é"}}', Settings(whitespace="json"), None))


def test_hostile_constraints_take_their_time_and_no_more(gate: Gate) -> None:
    """What is not ready in time is refused then; meanwhile and afterwards others are served."""
    hostile = constraint("json", json.dumps(HOSTILE))
    gate.check(constraint("regex", "warm"))
    started = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        gate.seconds = 1.0
        waits = threads.submit(gate.check, hostile)
        time.sleep(0.1)
        gate.seconds = ENOUGH
        threads.submit(gate.check, constraint("regex", "meanwhile")).result()
        with pytest.raises(CompilingTooLong):
            waits.result()
    assert time.monotonic() - started < ENOUGH
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda text: gate.check(constraint("regex", text)), ("a", "b", "c", "d")))


def test_a_killed_process_is_a_refusal(gate: Gate) -> None:
    """Where processes end by themselves, what they were asked is refused, and what comes next gets others."""
    gate.check(constraint("regex", "x0"))
    processes = [gate._idle.get() for _ in range(2)]
    killed = 0
    for process in processes:
        if process._process is not None:
            process._process.kill()
            process._process.wait()
            killed += 1
        gate._idle.put(process)
    refused = 0
    for text in ("x1", "x2", "x3"):
        try:
            gate.check(constraint("regex", text))
        except Refused:
            refused += 1
    assert refused == killed > 0
