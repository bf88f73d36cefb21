"""Packed steps of a transformers network: logits, rows, outputs; which networks are taken."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from batch_cases import alone, essence  # noqa: E402
from tiny_llama import network, tokenizer  # noqa: E402

import stcon  # noqa: E402
from stcon.engine.batch import Batch, Request, SessionRows  # noqa: E402
from stcon.engine.batch.model import Span  # noqa: E402
from stcon.engine.batch.packed_lean import packed_lean  # noqa: E402
from stcon.engine.batch.packed_transformers import packed_transformers as packed_rows  # noqa: E402
from stcon.engine.batch.torch_logits import greedy  # noqa: E402
from stcon.engine.sampling import Sampling  # noqa: E402
from stcon.errors import LimitTooSmall  # noqa: E402
from stcon.models.text import from_tokenizer  # noqa: E402
from stcon.models.transformers import TransformersModel  # noqa: E402
from stcon.vocab import Vocabulary  # noqa: E402

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}}},
    {"enum": ["hello world", "café", "over the moon", "here is the man"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5},
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Networks this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    """A random Llama of two layers."""
    words = tokenizer()
    return TransformersModel(network(len(words)), Vocabulary.from_tokenizer(words), from_tokenizer(words), name="tiny")


@pytest.fixture(scope="module")
def grammars():
    """Compiled schemas, and none."""
    return [*map(stcon.compile, SCHEMAS), stcon.compile_regex("(the|man|moon)( (of|is|and)){1,3}"), None]


def tokens(seed, count, size=300):
    return np.random.default_rng(seed).integers(3, size, count).tolist()


def test_packed_steps_give_the_sessions_logits(model):
    """Rows of other lengths, spans of other sizes, in any order: the logits are those of one session a row."""
    rows = packed_rows(model, 5)
    texts = [tokens(seed, 40) for seed in range(5)]
    numbers = [rows.join(40) for _ in texts]
    random = np.random.default_rng(0)
    done = [0] * 5
    while min(done) < 40:
        spans = []
        for i in random.permutation(5):
            count = min(int(random.integers(0, 9)), 40 - done[i])
            if count:
                spans.append((i, Span(numbers[i], texts[i][done[i] : done[i] + count], bool(random.integers(2)))))
                done[i] += count
        logits = rows.feed([span for _, span in spans])
        wanted = [i for i, span in spans if span.wants_logits]
        for place, i in enumerate(wanted):
            np.testing.assert_allclose(logits.row(place), model.session().append(texts[i][: done[i]]), atol=2e-4)
    assert [rows.length(number) for number in numbers] == [40] * 5


def test_packed_copies_are_independent_and_cut(model):
    """A copy of the first tokens of a row goes on by itself, also from a parked row and past what was set aside."""
    rows = packed_rows(model, 4)
    text = tokens(1, 30)
    first = rows.join(10)
    rows.feed([Span(first, text[:20], False)])
    rows.park(first)
    second = rows.copy(first, 12, 13)
    other = tokens(2, 9)
    logits = rows.feed([Span(second, other, True), Span(first, text[20:], True)])
    np.testing.assert_allclose(logits.row(0), model.session().append(text[:12] + other), atol=2e-4)
    np.testing.assert_allclose(logits.row(1), model.session().append(text), atol=2e-4)
    rows.leave(first)
    again = rows.feed([Span(second, [5], True)])
    np.testing.assert_allclose(again.row(0), model.session().append([*text[:12], *other, 5]), atol=2e-4)


@pytest.mark.parametrize("feeding", ["drip", "ragged", "auto"])
def test_packed_outputs_are_those_of_one_stream(model, grammars, feeding):
    """In float32 a row's tokens are the single stream's, with forced spans, shared prompts and a small chunk."""
    engine = Batch(packed_rows(model, 6), feeding=feeding, chunk=16, cache_bytes=1 << 20)
    wanted, handles = [], []
    for number in range(25):
        request = Request(
            tokens(number % 6, 5 + number * 3 % 40),
            grammars[number % len(grammars)],
            max_tokens=8 + number % 20,
            sampling=Sampling(temperature=(0.0, 0.8)[number % 2], seed=number),
            n=1 + number % 3 // 2,
        )
        try:
            handles.append(engine.submit(request))
        except LimitTooSmall:
            continue
        wanted.append(request)
        engine.step()
    engine.run()
    assert len(wanted) >= 20
    for request, handle in zip(wanted, handles, strict=True):
        for index, generation in enumerate(handle.result(0)):
            assert essence(generation) == essence(alone(model, request, index))
    assert engine.stats.cached_tokens > 0


def test_packed_leaves_the_models_own_sessions_alone(model):
    """The network that sessions use is not changed: only the modules are copied, the weights are shared."""
    before = model.network.config._attn_implementation
    rows = packed_rows(model, 2)
    assert model.network.config._attn_implementation == before
    ours = {id(p) for p in rows._network.parameters()}
    assert ours == {id(p) for p in model.network.parameters()}


def test_packed_memory_plan_counts_what_torch_says(model):
    """τ is the bytes of a token's keys and values in all layers; W the bytes of the weights."""
    rows = packed_rows(model, 2)
    assert rows.token_bytes == 2 * 2 * 2 * 8 * 4
    assert rows.weight_bytes == sum(p.nbytes for p in model.network.parameters())
    number = rows.join(10)
    assert rows._rows[number].buffer.nbytes == 10 * rows.token_bytes


def test_packed_refuses_windows_and_recurrence():
    """Networks with sliding windows or recurrent layers are not taken; a batch of them runs by sessions."""
    words = tokenizer()
    vocabulary, text = Vocabulary.from_tokenizer(words), from_tokenizer(words)
    windowed = transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=len(words),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            sliding_window=8,
        )
    ).eval()
    assert packed_rows(TransformersModel(windowed, vocabulary, text, name="w"), 2) is None
    recurrent = transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, state_size=4)
    ).eval()
    model = TransformersModel(recurrent, vocabulary, text, name="m")
    assert packed_rows(model, 2) is None
    engine = Batch(SessionRows(model, 3, token_bytes=1000), cache_bytes=1 << 20, chunk=8)
    wanted = [Request(tokens(0, 12) + tokens(seed, 3), max_tokens=10) for seed in (1, 2, 1)]
    for request, [generation] in zip(wanted, engine.generate(wanted), strict=True):
        assert essence(generation) == essence(alone(model, request))


def test_greedy_on_the_device_is_the_hosts(model):
    """The argmax drawn by torch under packed masks is numpy's: sizes around a word, ties, nothing admissible, NaN."""
    random = np.random.default_rng(0)
    for size in (31, 32, 33, 97):
        rows = random.integers(-3, 3, (6, size + 5)).astype(np.float32)
        rows[4, 2] = np.nan
        bits = random.integers(0, 2, (6, size)).astype(bool)
        bits[3] = False
        words = [np.packbits(np.pad(row, (0, -size % 32)), bitorder="little").view(np.int32) for row in bits]
        masks = [None if i == 1 else word for i, word in enumerate(words)]
        found = greedy(torch.tensor(rows), masks, size)
        for i in (0, 1, 2, 5):
            assert found[i] == np.where(bits[i] | (i == 1), rows[i, :size], -np.inf).argmax()
        assert found[3] == found[4] == -1


LEAN = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 8},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 8},
    "qwen3_5": {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "partial_rotary_factor": 0.5,
        "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_type": "default"},
    },
}


def lean_model(family):
    """A random network of our own with two layers."""
    from stcon.models.lean import llama, qwen3_5

    wrapper = pytest.importorskip("stcon.models.lean.model")
    from stcon.models.lean.network import Network
    from stcon.models.lean.settings import from_config

    words = tokenizer()
    config = {
        "vocab_size": len(words),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        **LEAN[family],
    }
    found = from_config(config)
    assert found is not None
    shapes = (qwen3_5 if family == "qwen3_5" else llama).shapes(found)
    torch.manual_seed(3)
    parameters = {name: 0.3 * torch.randn(shape) + ("norm" in name) for name, shape in shapes.items()}
    for name, tensor in parameters.items():
        if name.endswith("decay"):
            parameters[name] = -tensor.exp()
    network = Network(found, parameters)
    return wrapper.LeanModel(network, Vocabulary.from_tokenizer(words), from_tokenizer(words), name=family)


@pytest.mark.parametrize("feeding", ["drip", "ragged"])
@pytest.mark.parametrize("family", sorted(LEAN))
def test_packed_lean_outputs_are_those_of_one_stream(family, feeding, grammars):
    """Our own networks too, recurrent layers included: prompts in chunks, copies, a prompt cache."""
    model = lean_model(family)
    rows = packed_lean(model, 4)
    assert rows is not None
    assert rows.can_truncate == (family != "qwen3_5")
    engine = Batch(rows, feeding=feeding, chunk=16, cache_bytes=1 << 20)
    wanted = [
        Request(tokens(i % 3, 5 + i * 7 % 30), grammars[i % 5], max_tokens=24, budget=False, n=1 + i % 2)
        for i in range(10)
    ]
    for request, generations in zip(wanted, engine.generate(wanted), strict=True):
        for index, generation in enumerate(generations):
            assert essence(generation) == essence(alone(model, request, index))
    assert engine.generate(wanted[:1])[0][0].text == generations_of(model, wanted[0])
    assert engine.stats.cached_tokens > 0


def generations_of(model, request):
    """The single stream's text."""
    return alone(model, request).text
