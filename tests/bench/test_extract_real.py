"""The six extractions with the default model: the claims that the project makes, as tests."""

from __future__ import annotations

import pytest

import stcon
from stcon.bench.extract import MODES, failures, measure, summarize
from stcon.models.base import Model
from stcon.models.pull import default_model_file

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def model() -> Model:
    pytest.importorskip("torch", reason="running a model needs torch (pip install 'stcon[torch]')")
    pytest.importorskip("transformers", reason="running a model needs transformers (pip install 'stcon[torch]')")
    if not default_model_file().is_file():
        pytest.skip("the default model is not in the cache; run: stcon pull")
    return stcon.load_model(str(default_model_file()))


def test_canonical_is_valid_and_saves_passes(model: Model) -> None:
    """All six outputs are valid, with at most 0.75 passes a token and at least a quarter of the tokens forced."""
    runs = measure(model, modes=["canonical"], rounds=1)
    (row,) = summarize(runs)
    assert failures(runs) == []
    assert row.valid == 6
    assert row.passes_per_token <= 0.75
    assert row.forced_share >= 0.25


@pytest.mark.long
def test_every_constrained_mode_is_valid_and_no_worse_than_free(model: Model) -> None:
    """Every constrained mode gives six valid outputs, and not fewer facts than the free answer has."""
    runs = measure(model, modes=MODES, rounds=1)
    rows = {row.mode: row for row in summarize(runs)}
    assert failures(runs) == []
    for mode in ("mask", "any", "canonical"):
        assert rows[mode].valid == 6
        assert rows[mode].facts >= rows["free"].facts
