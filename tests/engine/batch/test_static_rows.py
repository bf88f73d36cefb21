"""Rows on a static cache: moves, padding, copies and parked rows against one stream, recurrent or not."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from batch_cases import alone, essence, fake  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tiny_llama import tokenizer  # noqa: E402

from stcon.engine.batch import Batch, Request, choose, plan_memory  # noqa: E402
from stcon.engine.batch.choose import rows_for  # noqa: E402
from stcon.engine.batch.model import Span  # noqa: E402
from stcon.engine.batch.static import StaticRows  # noqa: E402
from stcon.errors import NoRoom  # noqa: E402
from stcon.models.fake import hash_prefix  # noqa: E402
from stcon.models.static_transformers import StaticTransformers  # noqa: E402
from stcon.models.text import from_tokenizer  # noqa: E402
from stcon.models.transformers import TransformersModel  # noqa: E402
from stcon.vocab import Vocabulary  # noqa: E402


class HashCache:
    """A `StaticCache` whose tokens and states are plain lists; what no row owns is poisoned."""

    recurrent = True
    nbytes = 4096

    def __init__(self, rows, capacity, shared=None):
        self.rows, self.capacity = rows, capacity
        self.tokens = shared or [[-1] * capacity for _ in range(rows)]

    def slice(self, start, stop):
        return HashCache(stop - start, self.capacity, self.tokens[start:stop])

    def copy_rows(self, source, target, length):
        for a, b in zip(source, target, strict=True):
            self.tokens[b][:] = self.tokens[a][:length] + [-1] * (self.capacity - length)


class HashStatic:
    """A `StaticModel` that gives the fake model's logits, exactly, from padded calls."""

    device, dtype = "cpu", torch.float32

    def __init__(self, model):
        self.model, self.vocab_size, self.context_length = model, model.vocabulary.size, model.context_length

    def new_cache(self, rows, capacity):
        return HashCache(rows, capacity)

    def forward(self, tokens, lengths, cache, counts=None, all_positions=False, total=None):
        assert total is None or int(counts.sum()) <= total < tokens.numel()
        rows = []
        for b in range(tokens.shape[0]):
            length, count = int(lengths[b]), tokens.shape[1] if counts is None else int(counts[b])
            held = cache.tokens[b]
            held[length : length + count] = tokens[b, :count].tolist()
            prefix = held[: length + count]
            assert -1 not in prefix, "a row reads only what was fed to it"
            rows.append(self.model.logits(prefix, hash_prefix(self.model.seed, prefix)))
        return torch.from_numpy(np.stack(rows))


class Event:
    """Of a device that is never late."""

    def record(self):
        pass

    synchronize = record


class CutCache(HashCache):
    recurrent = False


class CutStatic(HashStatic):
    def new_cache(self, rows, capacity):
        return CutCache(rows, capacity)


class PackingStatic(HashStatic):
    packs = True


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([HashStatic, CutStatic, PackingStatic]),
    st.sampled_from([(1, 0), (2, 1), (5, 3), (8, 0)]),
    st.fixed_dictionaries(
        {"feeding": st.sampled_from(["drip", "ragged", "auto"]), "chunk": st.sampled_from([3, 17, 64])}
    ),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 2)), min_size=1, max_size=12),
)
def test_static_batch_is_one_stream_exactly(kind, sizes, options, ragged, is_async, wanted):
    """Bit for bit, through slots moved, copied, parked, padded and packed, reports late or not, of any lengths."""
    model = fake(5)
    num_rows, num_parked = sizes
    rows = StaticRows(model, kind(model), num_rows, row_tokens=120, num_parked=num_parked, ragged=ragged)
    rows.is_async, rows._sent = is_async, Event() if is_async else None
    engine = Batch(rows, cache_bytes=1 << 20, **options)
    requests = [
        Request(list(range(40 + kind, 40 + kind + size)), max_tokens=3 + size % 9, n=min(n, num_rows))
        for kind, size, n in wanted
    ]
    handles = []
    for request in requests:
        handles.append(engine.submit(request))
        engine.step()
    engine.run()
    for request, handle in zip(requests, handles, strict=True):
        for index, generation in enumerate(handle.result(0)):
            assert essence(generation) == essence(alone(fake(5), request, index))
    assert engine.cache.num_parked <= num_parked
    assert len(rows._slot) == engine.cache.num_parked


def test_rows_for_a_device_are_as_many_as_fit(monkeypatch):
    """Slots are set aside at once: too many are refused with the numbers; parked rows take what is left over."""
    model = fake()
    static = CutStatic(model)
    monkeypatch.setattr(type(model), "static", static, raising=False)
    free = 20 * CutCache.nbytes * 5 // 4
    monkeypatch.setattr(choose, "device_free_bytes", lambda device: free)
    monkeypatch.setattr(CutCache, "nbytes", property(lambda self: 4096 * self.rows))
    with pytest.raises(NoRoom, match=r"rows of 100 tokens: take fewer rows") as refused:
        rows_for(model, 20, row_tokens=100)
    assert (refused.value.needed, refused.value.limit) == (21 * 4096, 20 * 4096)
    rows = rows_for(model, 7, row_tokens=100)
    assert rows.most_parked_bytes == 3 * 4096  # a quarter of the 12 slots that are left
    assert plan_memory(rows, chunk=8, free_bytes=1 << 30).rows == 7 * 4096


@pytest.mark.parametrize("packs", [False, True])
def test_static_rows_pad_to_buckets(packs):
    """Calls are of few shapes: powers of two in rows and tokens, so that each can be a graph."""
    shapes = set()

    class Noted(CutStatic):
        def forward(self, tokens, lengths, cache, counts=None, all_positions=False, total=None):
            shapes.add((*tokens.shape, total, counts is None))
            return super().forward(tokens, lengths, cache, counts, all_positions, total)

    model = fake()
    Noted.packs = packs
    rows = StaticRows(model, Noted(model), 8, row_tokens=100)
    numbers = [rows.join(100) for _ in range(7)]
    rows.feed([Span(number, [40] * (i + 1), True) for i, number in enumerate(numbers)])
    rows.feed([Span(numbers[0], [41], True), Span(numbers[6], [41] * 3, False)])
    rows.feed([Span(numbers[2], [42] * 30, True), Span(numbers[1], [42], True)])
    if packs:
        assert shapes == {(8, 16, 32, False), (8, 16, 4, False), (1, 30, None, True), (2, 1, None, False)}
        assert rows.computed([1, 3, 30]) == 30 + 4
    else:
        assert shapes == {(8, 8, None, False), (8, 4, None, False), (1, 30, None, True), (2, 1, None, False)}
        assert rows.computed([1, 3, 30]) == 30 + 2 * 4


FAMILIES = {
    "llama": {"num_key_value_heads": 2},
    "qwen3_5_text": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
    },
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_static_transformers_batch_is_one_stream(family):
    """A real network on static caches, attention or recurrent: the tokens are the single stream's."""
    torch.set_num_threads(1)
    words = tokenizer()
    vocabulary, text = Vocabulary.from_tokenizer(words), from_tokenizer(words)
    try:
        config = transformers.AutoConfig.for_model(
            family,
            vocab_size=len(words),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            initializer_range=0.3,
            **FAMILIES[family],
        )
    except ValueError:
        pytest.skip(f"this version of the library has no {family}")
    torch.manual_seed(7)
    net = transformers.AutoModelForCausalLM.from_config(config).eval()
    model = TransformersModel(net, vocabulary, text, name=family)
    rows = StaticRows(model, StaticTransformers(net), 3, row_tokens=100, num_parked=2)
    assert rows.can_truncate == rows.ragged == (family == "llama")
    engine = Batch(rows, chunk=24)
    random = np.random.default_rng(0)
    requests = [
        Request([7, 8, 9, *random.integers(3, 300, 2 + 5 * i).tolist()], max_tokens=6 + i, n=1 + i % 2)
        for i in range(6)
    ]
    for request, generations in zip(requests, engine.generate(requests), strict=True):
        for index, generation in enumerate(generations):
            assert essence(generation) == essence(alone(model, request, index))
