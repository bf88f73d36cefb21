"""The device loop on networks: the plain loop's tokens in float32, with attention and recurrent layers; rows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from device_stand_ins import HostGrammars, HostWalker  # noqa: E402

import stcon  # noqa: E402
from stcon.engine.device_loop import DeviceEngine, engine_for, warm_up  # noqa: E402
from stcon.engine.loop import generate  # noqa: E402
from stcon.engine.output import Output  # noqa: E402
from stcon.engine.sampling import Sampling  # noqa: E402
from stcon.models.graphs import StepGraphs  # noqa: E402
from stcon.models.static_transformers import StaticTransformers  # noqa: E402
from stcon.models.text import PromptText  # noqa: E402
from stcon.models.transformers import TransformersModel  # noqa: E402
from stcon.vocab.vocabulary import Vocabulary  # noqa: E402

COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
FAMILIES = {
    "llama": {},
    "qwen3_5_text": {
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "status": {"enum": ["approved", "pending"]},
    },
    "required": ["name", "age", "status"],
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other over networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def vocabulary():
    longer = [b'{"', b'":', b'":"', b'","', b"name", b"age", b"status", b"appro", b"ved", b'e"', b"12"]
    pieces = [None, *(bytes([byte]) for byte in range(256)), *longer]
    return Vocabulary.from_bytes(pieces, end_ids=(0,))


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def model(request, vocabulary):
    """A random network of a family, its head a few rows larger than the vocabulary."""
    from transformers import AutoConfig, AutoModelForCausalLM

    options = {**COMMON, **FAMILIES[request.param], "vocab_size": vocabulary.size + 5}
    try:
        config = AutoConfig.for_model(request.param, **options)
    except (ValueError, KeyError):
        pytest.skip(f"this version of transformers has no {request.param}")
    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(config).eval()
    return TransformersModel(network, vocabulary, PromptText(list, list), name=request.param)


def engine_over(model, **options):
    grammars = HostGrammars()
    walker = HostWalker(model.vocabulary, grammars)
    static = StaticTransformers(model.network)
    return DeviceEngine(static, lambda: (grammars, walker), vocab_size=model.vocabulary.size, **options)


@pytest.mark.parametrize("ahead", ["quiet", "always", "never"])
def test_decode_equals_the_plain_loop_on_networks(model, ahead):
    """Token for token in float32: free, masked, with forced text, sampled, under limits."""
    grammar = stcon.compile(SCHEMA)
    engine = engine_over(model, ahead=ahead)
    for number, mode in enumerate(["free", "mask", "any", "canonical"]):
        for sampling, budget in ((Sampling(), False), (Sampling(1.0, top_k=40, seed=number), True)):
            prompt = [70 + number, 80, 90, 100 + number]
            options = {"max_tokens": 40, "mode": mode, "sampling": sampling, "budget": budget}
            expected = generate(model, prompt, grammar, **options)
            found = engine.decode(Output(model, prompt, grammar, **options))
            assert [t.id for t in found.tokens] == [t.id for t in expected.tokens]
            assert found.text == expected.text
            assert found.complete == expected.complete


def test_a_model_on_the_cpu_decodes_by_the_plain_loop(model):
    """There is no launch to save on the CPU, so no engine is made there."""
    assert model.static is None
    assert engine_for(model) is None


def test_rows_of_graphs_are_streams_of_their_own(model):
    """Ragged rows fed, chained, drawn again: each row's tokens are what the network alone gives that row."""
    grammars = HostGrammars()
    graphs = StepGraphs(
        StaticTransformers(model.network),
        HostWalker(model.vocabulary, grammars, rows=3),
        vocab_size=model.vocabulary.size,
        rows=3,
        capacity=64,
    )
    prompts = [[70, 71, 72], [80, 81], [90, 91, 92, 93, 94]]
    for row, prompt in enumerate(prompts):
        graphs.prefill(row, prompt)
    graphs.inbox.host["grammar"][:] = -1
    graphs.draw()
    drawn = [[token] for token in graphs.read().tolist()]
    for _ in range(4):
        graphs.chain(careful=True)
        for row, token in enumerate(graphs.read().tolist()):
            drawn[row].append(token)
    inbox = graphs.inbox.host
    inbox["lengths"][:] = [len(prompt) + 4 for prompt in prompts]
    inbox["tokens"][:, :2] = [[tokens[-1], 65] for tokens in drawn]
    graphs.feed(2)
    for row, token in enumerate(graphs.read().tolist()):
        drawn[row] += [65, token]
    for prompt, tokens in zip(prompts, drawn, strict=True):
        whole = [*prompt, *tokens]
        with torch.no_grad():
            logits = model.network(torch.tensor([whole])).logits[0, :, : model.vocabulary.size]
        best = logits.argmax(dim=1).tolist()
        start = len(prompt) - 1
        assert tokens[:5] == best[start : start + 5]
        assert tokens[6] == best[start + 6]


def test_rows_of_graphs_take_counts(model):
    """With ``ragged`` each row has its own number of tokens, and 0 leaves it where it was."""
    graphs = StepGraphs(StaticTransformers(model.network), None, vocab_size=model.vocabulary.size, rows=2, capacity=32)
    prompts = [[70, 71, 72], [80, 81]]
    for row, prompt in enumerate(prompts):
        graphs.prefill(row, prompt)
    inbox = graphs.inbox.host
    inbox["lengths"][:] = [3, 2]
    inbox["tokens"][:, 0] = [66, 67]
    inbox["counts"][:] = [1, 0]
    graphs.feed(1, ragged=True)
    graphs.drain()
    inbox["lengths"][:] = [4, 2]
    inbox["tokens"][:, 0] = [68, 69]
    graphs.feed(1)
    found = graphs.read().tolist()
    for tokens, wanted in zip(([70, 71, 72, 66, 68], [80, 81, 69]), found, strict=True):
        with torch.no_grad():
            assert int(model.network(torch.tensor([tokens])).logits[0, -1, : model.vocabulary.size].argmax()) == wanted


def test_warm_up_leaves_no_trace(model):
    """A stream after `warm_up` is the stream without it."""
    grammar = stcon.compile(SCHEMA)
    cold, warm = engine_over(model), engine_over(model)
    warm_up(warm, 60, spans=(1, 2, 5))
    outputs = [engine.decode(Output(model, [70, 71], grammar, max_tokens=40)) for engine in (cold, warm)]
    assert outputs[0].tokens == outputs[1].tokens
    assert np.isfinite(outputs[0].decode_s)
