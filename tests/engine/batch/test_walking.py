"""Draws on a device for the rows of a batch: the host's tokens, whatever is missing there."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

torch = pytest.importorskip("torch")

from batch_cases import alone, essence, fake, request  # noqa: E402
from device_stand_ins import HostGrammars, HostWalker  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from test_static_rows import CutStatic  # noqa: E402

from stcon.engine.batch import Batch  # noqa: E402
from stcon.engine.batch.static import StaticRows  # noqa: E402
from stcon.engine.batch.torch_logits import TorchLogits  # noqa: E402
from stcon.engine.batch.walking import DeviceDraws  # noqa: E402
from stcon.engine.sampling import Sampling  # noqa: E402
from stcon.errors import LimitTooSmall  # noqa: E402

SAMPLINGS = (Sampling(), Sampling(1.0, seed=3), Sampling(0.7, top_k=9, top_p=0.9, min_p=0.01, seed=2**64 - 5))


def rows_over(model, num_rows, is_lazy):
    """Static rows with draws by a walker on the CPU's kernel."""
    grammars = HostGrammars(is_lazy)
    walker = HostWalker(model.vocabulary, grammars, num_rows)
    size = model.vocabulary.size
    draws = DeviceDraws(grammars, walker, rows=num_rows, vocab_size=size, device="cpu")
    return StaticRows(model, CutStatic(model), num_rows, row_tokens=120, draws=draws), walker


@settings(max_examples=40, deadline=None)
@given(
    st.booleans(),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(SAMPLINGS)), min_size=1, max_size=8),
)
def test_device_draws_are_the_hosts(is_lazy, num_rows, wanted):
    """Every grammar and mode, greedy and sampled rows side by side, limits, rows of edges that are missing."""
    model = fake(5)
    rows, _ = rows_over(model, num_rows, is_lazy)
    engine, handles = Batch(rows, cache_bytes=0), []
    for number, sampling in wanted:
        asked = request(number, sampling=sampling)
        try:
            handles.append((asked, engine.submit(asked)))
        except LimitTooSmall:
            continue
    engine.run()
    for asked, handle in handles:
        assert essence(handle.result(0)[0]) == essence(alone(fake(5), asked))


def test_device_draws_leave_logits_where_they_are(monkeypatch):
    """Sampled and greedy rows without penalties or log-probabilities bring no logits to the host."""
    model = fake(5)
    rows, walker = rows_over(model, 3, True)
    brought = []
    monkeypatch.setattr(TorchLogits, "row", lambda self, index: brought.append(index) or np.zeros(1))
    engine = Batch(rows, cache_bytes=0)
    wanted = [request(number, budget=False, sampling=SAMPLINGS[number % 3]) for number in range(12)]
    outputs = engine.generate(wanted)
    assert len(outputs) == 12
    assert not brought
    assert walker.num_stalls > 0
