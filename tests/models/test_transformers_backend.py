"""The transformers backend on a tiny random Llama: the same output, caches, chunks, and clear failures."""

import sys
import time

import numpy as np
import pytest

from stcon.errors import InvalidOption, ModelUnavailable, PromptTooLong

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_llama  # noqa: E402

from stcon.models import load_model  # noqa: E402
from stcon.models.gguf_weights import load_llama  # noqa: E402
from stcon.models.text import PromptText  # noqa: E402
from stcon.models.transformers import TransformersModel  # noqa: E402
from stcon.vocab.vocabulary import Vocabulary  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other over networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The model as a directory, its embedding five rows larger than its tokenizer."""
    path = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    tiny_llama.save(path, padding=5)
    return path


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """The model as a GGUF file, its head apart from its embedding."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    words = tiny_llama.tokenizer()
    tiny_llama.save_gguf(path, words, tiny_llama.network(len(words)))
    return path


@pytest.fixture(scope="module")
def odd_gguf(tmp_path_factory):
    """The same with a tied head and one setting that the quick loader does not know."""
    path = tmp_path_factory.mktemp("odd") / "odd.gguf"
    words = tiny_llama.tokenizer()
    tiny_llama.save_gguf(path, words, tiny_llama.network(len(words), tie_word_embeddings=True), unheard_of="yes")
    return path


@pytest.fixture(scope="module")
def model(directory):
    return load_model(directory, device="cpu", runner="transformers")


def greedy(network, ids, count):
    """What ``generate`` of transformers gives, without the prompt."""
    output = network.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids)),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
    )
    return output[0, len(ids) :].tolist()


@pytest.mark.parametrize("prompt", ["the man", '{"name":"', "日本 café", "<|im_start|>user\nHi"])
def test_generate_equals_transformers(model, prompt):
    """Free greedy output has the ids of the library's own generate."""
    ids = model.encode_prompt(prompt)
    output = model.generate(prompt, max_tokens=40, raw=True)
    assert [token.id for token in output.tokens] == greedy(model.network, ids, 40)
    assert output.prompt_tokens == len(ids)


@pytest.mark.parametrize(("file", "quick"), [("gguf", True), ("odd_gguf", False)])
def test_load_llama_takes_only_what_it_knows(request, file, quick):
    """A plain Llama is read the quick way; one unknown setting leaves the file to transformers."""
    assert (load_llama(request.getfixturevalue(file), torch.float32) is not None) == quick


@pytest.mark.parametrize("file", ["gguf", "odd_gguf"])
def test_generate_from_gguf_equals_transformers(request, file):
    """A GGUF file gives the library's weights and ids, for prompt and output, either way, and keeps its template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf = request.getfixturevalue(file)
    model = load_model(gguf, device="cpu", runner="transformers")
    theirs = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    words = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    messages = [{"role": "user", "content": "the man 123 <|im_end|> x"}]
    prompt = words.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False, chat_template=tiny_llama.TEMPLATE
    )
    ids = words.encode(prompt, add_special_tokens=False)
    assert model.chat_template == tiny_llama.TEMPLATE
    assert model.prompt_ids(messages) == ids
    output = model.generate(messages, max_tokens=40)
    assert [token.id for token in output.tokens] == greedy(theirs, ids, 40)
    for name, parameter in theirs.state_dict().items():
        assert torch.equal(model.network.state_dict()[name], parameter), name


def test_load_model_reads_the_conventions(model):
    """Vocabulary, context, end tokens, template and name come from the directory."""
    assert model.vocabulary.size == model.network.config.vocab_size
    assert model.context_length == 256
    assert 2 in model.end_ids
    assert model.name == "tiny-llama"
    asked = model.prompt_ids("Hi")
    assert asked[0] == 1
    assert model.vocabulary.decode(asked) == b"user\nHi\nassistant"  # Jinja drops a template's last newline


def test_vocabulary_padding_has_no_bytes(model):
    """The embedding's padding rows are tokens without bytes, which no constraint admits."""
    size = model.vocabulary.size
    assert all(model.vocabulary.token_bytes(token) is None for token in range(size - 5, size))
    assert model.session().append([5]).shape == (size,)


@pytest.mark.parametrize("sizes", [(12,), (1,) * 12, (5, 7), (7, 1, 4)])
@pytest.mark.parametrize("chunk", [512, 3])
def test_append_split_changes_little(model, monkeypatch, sizes, chunk):
    """Logits do not depend on how a prefix is cut into passes and chunks, up to float32 rounding."""
    tokens = list(range(40, 52))
    expected = model.network(torch.tensor([tokens])).logits[0].detach().numpy()
    monkeypatch.setattr(model, "chunk", chunk)
    session, done = model.session(), 0
    for size in sizes:
        row = session.append(tokens[done : done + size])
        done += size
        assert session.length == done
        assert np.allclose(row, expected[done - 1], atol=1e-4)
        assert row.dtype == np.float32
    rows = model.session().append(tokens, all_positions=True)
    assert np.allclose(rows, expected, atol=1e-4)


def test_append_result_is_the_callers(model):
    """The returned row may be written to without touching the next one."""
    first = model.session().append([40, 41])
    kept = first.copy()
    first[:] = -np.inf
    assert np.array_equal(model.session().append([40, 41]), kept)


def test_truncate_and_copy(model):
    """Going back and a copy both continue as a fresh session with the same prefix does."""
    session = model.session()
    session.append([40, 41, 42])
    assert session.can_truncate
    other = session.copy()
    session.append([50, 51, 52])
    assert (session.length, other.length) == (6, 3)
    session.truncate(3)
    expected = model.session().append([40, 41, 42, 43])
    assert np.allclose(session.append([43]), expected, atol=1e-4)
    assert np.allclose(other.append([43]), expected, atol=1e-4)
    session.truncate(0)
    assert np.allclose(session.append([40, 41, 42, 43]), expected, atol=1e-4)
    with pytest.raises(InvalidOption):
        session.truncate(9)


def test_append_past_the_context(model):
    """A context overrun is refused before the network runs, in a session and for a prompt."""
    session = model.session()
    session.append([40] * 200)
    with pytest.raises(PromptTooLong):
        session.append([40] * 57)
    assert session.length == 200
    with pytest.raises(PromptTooLong) as caught:
        model.generate("a" * 2000, raw=True)
    assert caught.value.limit == 255


def test_sliding_window_cannot_truncate(tmp_path):
    """A model whose layers forget says so rather than going back wrongly."""
    from transformers import MistralConfig, MistralForCausalLM

    words = tiny_llama.tokenizer()
    config = MistralConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
        eos_token_id=2,
    )
    MistralForCausalLM(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    model = load_model(tmp_path, device="cpu")
    session = model.session()
    session.append(list(range(40, 60)))
    assert not session.can_truncate
    with pytest.raises(NotImplementedError, match="cannot go back"):
        session.truncate(5)
    output = model.generate("the man", max_tokens=30, raw=True)
    assert [token.id for token in output.tokens] == greedy(model.network, model.encode_prompt("the man"), 30)


def test_bfloat16(directory):
    """The weights can be kept in bfloat16; logits are float32 all the same."""
    model = load_model(directory, device="cpu", dtype="bfloat16", runner="transformers")
    assert model.network.dtype == torch.bfloat16
    assert model.session().append([40]).dtype == np.float32


# ------------------------------------------------------------------------------------------------- failures


def fails(name, words, **options):
    """Loading `name` ends in one line that contains `words`."""
    with pytest.raises(ModelUnavailable) as caught:
        load_model(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert words in message
    return message


def test_load_model_missing_path(tmp_path):
    """A path that does not exist is named."""
    missing = tmp_path / "nowhere"
    assert str(missing) in fails(missing, "no such file or directory")
    fails(str(missing), "no such file or directory")
    fails("./nowhere", "no such file or directory")
    fails(str(tmp_path / "nowhere.gguf"), "no such file")


def test_load_model_wrong_directory(tmp_path):
    """A directory without a model, one without weights and one without a tokenizer each fail in one line."""
    fails(tmp_path, "cannot be loaded as a causal language model")
    words = tiny_llama.tokenizer()
    tiny_llama.network(len(words)).config.save_pretrained(tmp_path)
    fails(tmp_path, "cannot be loaded")
    tiny_llama.network(len(words)).save_pretrained(tmp_path)
    fails(tmp_path, "tokenizer")


def test_load_model_broken_weights(tmp_path):
    """Weights that are not a safetensors file fail in one line."""
    tiny_llama.save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    fails(tmp_path, "cannot be loaded")


@pytest.mark.parametrize("keep", [0, 3, 4, 23, 100, 0.3, 0.6, 0.95])
def test_load_model_gguf_cut_short(gguf, tmp_path, keep):
    """A GGUF file that ends early, wherever, fails in one line."""
    data = gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    fails(path, str(path))


def test_load_model_not_a_gguf(tmp_path):
    """A file of another kind is refused, whatever its name."""
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(500))
    fails(path, "GGUF")
    other = tmp_path / "weights.bin"
    other.write_bytes(bytes(10))
    fails(other, "expected a model directory or a .gguf file")


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_load_model_without_the_extra(monkeypatch, directory, package):
    """Where torch or transformers is not installed, the error says what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    assert package in fails(directory, "pip install 'stcon[torch]'")


def test_load_model_gguf_without_the_extra(monkeypatch, gguf):
    """The same for the package that reads GGUF files."""
    monkeypatch.setitem(sys.modules, "gguf", None)
    fails(gguf, "pip install 'stcon[torch]'")


def test_load_model_hub_offline(monkeypatch):
    """A hub id that is not cached fails within seconds where the hub cannot be reached, without retries."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    fails("some-owner/some-model", "the hub cannot be reached")
    assert time.monotonic() - started < 20


def test_load_model_default_is_the_environments(monkeypatch, directory):
    """STCON_MODEL takes the place of the default model."""
    monkeypatch.setenv("STCON_MODEL", str(directory))
    assert load_model(device="cpu").name == "tiny-llama"


def test_load_model_options(directory):
    """An unknown dtype, device or runner is an invalid option."""
    with pytest.raises(InvalidOption, match="dtype: expected one of auto"):
        load_model(directory, dtype="int4")
    with pytest.raises(InvalidOption, match="runner: expected one of auto"):
        load_model(directory, runner="fast")
    with pytest.raises(InvalidOption, match="device"):
        load_model(directory, device="gpu9")


# ------------------------------------------------------------------------------------------------- recurrent families

COMMON = {"vocab_size": 100, "hidden_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ATTENTION = {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
FAMILIES = {
    "mamba": {"num_hidden_layers": 2, "state_size": 8},
    "mamba2": {"num_hidden_layers": 2, "num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "qwen3_5_text": {**ATTENTION, **LINEAR, "head_dim": 8},
    "qwen3_next": {
        **ATTENTION,
        **LINEAR,
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
    "lfm2": {**ATTENTION, "layer_types": ["conv", "full_attention"]},
    "gemma3_text": {**ATTENTION, "head_dim": 8, "sliding_window": 8},
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_append_spans_in_every_family(family):
    """Appended spans see the state before them, also where the library forgets it: spans equal the whole prefix."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.for_model(family, **COMMON, **FAMILIES[family], initializer_range=0.2)
    except (ValueError, KeyError):
        pytest.skip(f"this version of transformers has no {family}")
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(99))], end_ids=(0,))
    network = AutoModelForCausalLM.from_config(config).eval()
    model = TransformersModel(network, vocabulary, PromptText(list, list), name=family)
    tokens = list(range(3, 40))
    expected = network(torch.tensor([tokens])).logits[0].detach().numpy()
    session = model.session()
    parts = [(0, 10), (10, 14), (14, 15), (15, 29), (29, 37)]
    rows = np.concatenate([session.append(tokens[a:b], all_positions=True) for a, b in parts])
    assert np.abs(rows - expected).max() < 1e-3 * np.abs(expected).max()
    kept = session.copy()
    session.append([50, 51, 52])
    again = model.session().append([*tokens, 60])
    assert np.abs(kept.append([60]) - again).max() < 1e-3 * np.abs(expected).max()


def test_model_without_a_cache_is_refused():
    """A network that takes no cache cannot be run token by token, and says so."""

    class Cacheless(torch.nn.Module):
        config = None

        def forward(self, input_ids):
            return input_ids

    with pytest.raises(ModelUnavailable, match="no cache"):
        TransformersModel(Cacheless(), None, PromptText(list, list), name="odd")
