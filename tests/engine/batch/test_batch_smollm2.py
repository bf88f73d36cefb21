"""The default model in a batch: the tokens of one stream, forced text and prompts shared by rows."""

import pytest
from batch_cases import alone, essence

import stcon
from stcon.bench.workloads import load_all
from stcon.engine.batch import Batch, Request
from stcon.engine.batch.choose import rows_for
from stcon.models.pull import is_cached

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not is_cached(), reason="the default model is not in the cache; run: stcon pull"),
]


def test_default_model_batch_is_one_stream():
    """Three extractions and a free answer at once, on packed rows, give what each gives alone."""
    model = stcon.load_model()
    rows = rows_for(model, 4)
    assert type(rows).__module__.startswith("stcon.engine.batch.packed")
    wanted = [
        Request(model.prompt_ids(work.prompt), stcon.compile(work.schema), max_tokens=80, budget=False)
        for work in load_all()[:3]
    ]
    wanted.append(Request(model.prompt_ids("Name three colours."), max_tokens=12))
    engine = Batch(rows, feeding="ragged", cache_bytes=1 << 28)
    for request, [generation] in zip(wanted, engine.generate(wanted), strict=True):
        assert essence(generation) == essence(alone(model, request))
    [[again]] = engine.generate(wanted[:1])
    assert again.complete
    assert engine.stats.cached_tokens >= len(wanted[0].prompt_ids) - 1
