"""Engines × {six extractions, a recursive task, a budget at three limits, a mixed batch}.

``make test-integrations`` runs it all; ``make test`` the cheap part: one extraction for each engine that is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration_matrix import ADAPTERS, Adapter, Asked, adapter_class, budgets, extractions, mixed, recursive_task

from stcon.bench.workloads import NAMES

pytestmark = pytest.mark.model

CHEAP = "tool_call"


# mlx's products on a CPU are slow; tests/models/test_mlx_model.py has the model's arithmetic in every run
ENGINES = [pytest.param(name, marks=pytest.mark.long) if name.startswith("mlx") else name for name in ADAPTERS]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    """An engine, open; skipped with its reason where it cannot run."""
    found = adapter_class(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    adapter = found()
    adapter.open()
    yield adapter
    adapter.close()


def check(engine: Adapter, request: Asked) -> None:
    """The answer to a single request is valid, within the limit, and our engine's where it must be."""
    (answer,) = engine.answer([request])
    assert request.is_valid(answer.text), answer.text
    if answer.num_tokens is not None:
        assert answer.num_tokens <= request.max_tokens
    if engine.same_arithmetic:
        assert answer.text == engine.reference(request)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == CHEAP else pytest.mark.long) for name in NAMES]
)
def test_extraction(engine: Adapter, name: str) -> None:
    """Each of the six extractions is valid, and our engine's text where the arithmetic is the same."""
    check(engine, extractions()[name])


@pytest.mark.long
def test_recursive_task(engine: Adapter) -> None:
    """A recursive answer is valid and complete within its limit."""
    check(engine, recursive_task())


@pytest.mark.long
@pytest.mark.parametrize("limit", ["least", "least+7", "4 least"])
def test_budget(engine: Adapter, limit: str) -> None:
    """A recursive answer is valid and complete under the least limit there is, and under two others."""
    check(engine, budgets()[limit])


@pytest.mark.long
def test_mixed_batch(engine: Adapter) -> None:
    """Requests of one batch under different constraints, one of them free, are each answered as asked."""
    requests = mixed()
    answers = engine.answer(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert request.is_valid(answer.text), (request.prompt, answer.text)
