"""The lean runner on small random models of every family: the logits of transformers, however the tokens are fed."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_llama  # noqa: E402

from stcon.errors import ModelUnavailable, PromptTooLong  # noqa: E402
from stcon.models import load, load_model  # noqa: E402
from stcon.models.lean import blocks, delta_rule  # noqa: E402
from stcon.models.lean.cache import WINDOW, rotary_frequencies  # noqa: E402
from stcon.models.lean.load import from_folder, from_gguf  # noqa: E402
from stcon.models.lean.model import LeanModel  # noqa: E402
from stcon.models.lean.settings import from_config  # noqa: E402

TOKENS = 48
ROWS = 3
COMMON = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "max_position_embeddings": 256,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
FAMILIES = {
    "llama": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, **LLAMA3}},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 16, "num_attention_heads": 6, "hidden_size": 96},
    "qwen3_5_text": {
        "num_hidden_layers": 4,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 16,
        "tie_word_embeddings": True,
    },
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other over networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def pair(request, tmp_path_factory):
    """A family's lean network, read from a folder of transformers, and that library's logits of three rows."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(5)
    config = AutoConfig.for_model(request.param, **{**COMMON, **FAMILIES[request.param]})
    network = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms of one and biases of zero would hide a mistake
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    folder = tmp_path_factory.mktemp(request.param)
    network.save_pretrained(folder)
    lean = from_folder(folder, "cpu", torch.float32)
    assert lean is not None
    tokens = torch.randint(0, 100, (ROWS, TOKENS), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        return lean, tokens, network(tokens).logits


def close(found, expected):
    """Equal up to float32 rounding."""
    return float((found - expected).abs().max()) < 1e-3 * float(expected.abs().max())


def zeros(rows=ROWS):
    return torch.zeros(rows, dtype=torch.int32)


def feed(lean, tokens, sizes, cache, start=0):
    """Logits of all positions, the rows fed `sizes` tokens at a time."""
    parts, done = [], start
    for size in sizes:
        lengths = zeros(len(tokens)) + done
        parts.append(lean.forward(tokens[:, done - start : done - start + size], lengths, cache, all_positions=True))
        done += size
    return torch.cat(parts, 1)


def test_forward_whole_prompt(pair):
    """One pass gives the logits of transformers at every position, and the last one's alone when asked for that."""
    lean, tokens, expected = pair
    assert close(feed(lean, tokens, [TOKENS], lean.new_cache(ROWS, TOKENS)), expected)
    assert close(lean.forward(tokens, zeros(), lean.new_cache(ROWS, TOKENS)), expected[:, -1])


@pytest.mark.parametrize("size", range(1, 17))
def test_forward_every_step_size(pair, size):
    """Steps of S tokens, S from 1 to 16, after a prompt: the same logits."""
    lean, tokens, expected = pair
    steps = [size] * ((TOKENS - 11) // size)
    found = feed(lean, tokens, [11, *steps], lean.new_cache(ROWS, TOKENS))
    assert close(found, expected[:, : found.shape[1]])


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_forward_ragged_rows(pair, data):
    """Rows that take different numbers of real tokens a step, none among them, end with the logits of whole rows."""
    lean, tokens, expected = pair
    cache, done, last = lean.new_cache(ROWS, TOKENS + 16), [0] * ROWS, {}
    while min(done) < TOKENS:
        size = data.draw(st.sampled_from([1, 2, 5, 16, 40]))
        counts = [min(data.draw(st.integers(0, size)), TOKENS - n) for n in done]
        if not any(counts):
            counts = [min(1, TOKENS - n) for n in done]
        fed = torch.full((ROWS, size), 99)
        for row, (n, count) in enumerate(zip(done, counts, strict=True)):
            fed[row, :count] = tokens[row, n : n + count]
        lengths, real = (torch.tensor(numbers, dtype=torch.int32) for numbers in (done, counts))
        total = data.draw(st.integers(sum(counts), ROWS * size)) if size <= 16 else None  # packed, with room or without
        logits = lean.forward(fed, lengths, cache, counts=real, total=total)
        for row, count in enumerate(counts):
            done[row] += count
            if count and done[row] == TOKENS:
                last[row] = logits[row]
    assert close(torch.stack([last[row] for row in range(ROWS)]), expected[:, -1])


def test_restore_takes_tokens_back(pair):
    """After `save`, wrong tokens and `restore` of some rows, these rows go on as if nothing had been fed."""
    lean, tokens, expected = pair
    cache = lean.new_cache(ROWS, TOKENS)
    feed(lean, tokens[:, :20], [20], cache)
    cache.save()
    feed(lean, tokens[:, :9].flip(0), [9], cache, start=20)
    cache.restore(torch.tensor([True, False, True]))
    found = feed(lean, tokens[:, 20:], [12, 16], cache, start=20)
    assert close(found[[0, 2]], expected[[0, 2], 20:])
    assert not cache.recurrent or not close(found[1], expected[1, 20:])
    cache.restore()


def test_copied_rows_and_slices(pair):
    """A row prefilled through a slice and copied over another one continues there."""
    lean, tokens, expected = pair
    cache = lean.new_cache(ROWS, TOKENS)
    feed(lean, tokens[:1].flip(1), [30], cache.slice(2, 3))
    feed(lean, tokens[:1], [17], cache.slice(1, 2))
    cache.copy_rows([1], [2], 17)
    found = feed(lean, tokens[:1, 17:], [3, 28], cache.slice(2, 3), start=17)
    assert close(found, expected[:1, 17:])


def test_row_of_length_zero_is_empty(pair):
    """A row starts afresh at length 0 whatever its slot held, without clearing."""
    lean, tokens, expected = pair
    cache = lean.new_cache(ROWS, TOKENS)
    feed(lean, tokens.flip(0), [TOKENS], cache)
    assert close(feed(lean, tokens, [7, 41], cache), expected)


def test_tokens_past_the_capacity_are_not_stored(pair):
    """Padding past the capacity harms nothing."""
    lean, tokens, expected = pair
    cache = lean.new_cache(ROWS, 40)
    feed(lean, tokens[:, :36], [36], cache)
    logits = lean.forward(tokens[:, 36:52], zeros() + 36, cache, counts=zeros() + 4)
    assert close(logits, expected[:, 39])


def test_cache_reports_its_bytes(pair):
    """`nbytes` counts every tensor, saved states included."""
    lean, _, _ = pair
    cache = lean.new_cache(2, 10)
    before = cache.nbytes
    assert before >= cache.kv.nbytes
    cache.save()
    grown = 0 if not cache.recurrent else cache.states.nbytes + cache.recent.nbytes
    assert cache.nbytes == before + grown


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 90),
    chunk=st.sampled_from([16, 32, 64]),
    value_dim=st.sampled_from([4, 8]),
    seed=st.integers(0, 99),
)
def test_delta_rule_by_chunk_equals_by_token(tokens, chunk, value_dim, seed):
    """The chunked rule equals its definition, token after token."""
    draw = torch.Generator().manual_seed(seed)
    q, k = (torch.nn.functional.normalize(torch.randn(2, 3, tokens, 8, generator=draw), dim=-1) for _ in "qk")
    v = torch.randn(2, 3, tokens, value_dim, generator=draw)
    g, beta = -torch.rand(2, 3, tokens, generator=draw), torch.rand(2, 3, tokens, generator=draw)
    state = torch.randn(2, 3, 8, value_dim, generator=draw)
    expected = delta_rule.by_token(q, k, v, g, beta, state)
    found = delta_rule.by_chunk(q, k, v, g, beta, state, chunk)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


def test_window_holds_a_step_and_its_past():
    """No step overwrites the inputs that it reads."""
    from stcon.models.lean.cache import MAX_STEP

    assert WINDOW >= MAX_STEP + 4 - 1


# ------------------------------------------------------------------------------------------------- models and sessions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("lean") / "tiny-llama"
    tiny_llama.save(path, padding=5)
    return path


@pytest.fixture(scope="module")
def both(folder):
    """The same folder by either runner."""
    return load_model(folder, device="cpu"), load_model(folder, device="cpu", runner="transformers")


def test_load_model_chooses_lean(both):
    """A known family runs lean by itself, and has the conventions of the generic runner."""
    lean, generic = both
    assert isinstance(lean, LeanModel)
    assert not isinstance(generic, LeanModel)
    assert lean.name == generic.name
    assert lean.context_length == generic.context_length
    assert lean.end_ids == generic.end_ids
    assert lean.vocabulary.size == generic.vocabulary.size
    messages = [{"role": "user", "content": "Hi <|im_end|> there"}]
    assert lean.prompt_ids(messages) == generic.prompt_ids(messages)


@pytest.mark.parametrize("prompt", ["the man", '{"name":"', "日本 café"])
def test_generate_equals_the_generic_runner(both, prompt):
    """Greedy text has the same ids."""
    outputs = [model.generate(prompt, max_tokens=40, raw=True) for model in both]
    assert [token.id for token in outputs[0].tokens] == [token.id for token in outputs[1].tokens]


def test_session_grows_truncates_and_copies(both):
    """A session's cache grows past its first size; going back and copies continue as a fresh session does."""
    lean, generic = both
    tokens = [(7 * i) % 300 for i in range(250)]
    session = lean.session()
    session.append(tokens[:100])
    other = session.copy()
    rows = session.append(tokens[100:], all_positions=True)
    expected = generic.session().append(tokens, all_positions=True)
    assert np.abs(rows - expected[100:]).max() < 1e-3 * np.abs(expected).max()
    assert session.can_truncate
    session.truncate(120)
    for again, start in ((session, 120), (other, 100)):
        row = again.append(tokens[start:])
        assert np.abs(row - expected[-1]).max() < 1e-3 * np.abs(expected).max()
        row[:] = 0  # the caller's own
    with pytest.raises(PromptTooLong):
        session.append([1] * 10)
    assert session.length == 250


def test_gguf_equals_its_folder(tmp_path):
    """A GGUF file gives the weights that transformers reads from it, bit for bit."""
    from transformers import AutoModelForCausalLM

    words = tiny_llama.tokenizer()
    path = tmp_path / "tiny.gguf"
    tiny_llama.save_gguf(path, words, tiny_llama.network(len(words)))
    lean = from_gguf(path, "cpu", torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).state_dict()
    assert torch.equal(lean.head, theirs["lm_head.weight"])
    for i in range(2):
        parts = [theirs[f"model.layers.{i}.self_attn.{part}_proj.weight"] for part in "qkv"]
        assert torch.equal(lean.parameters[f"{i}.qkv"], torch.cat(parts))
        assert torch.equal(lean.parameters[f"{i}.down"], theirs[f"model.layers.{i}.mlp.down_proj.weight"])


@pytest.mark.parametrize("kind", sorted(blocks.BLOCK_BYTES))
@pytest.mark.parametrize("count", [1, 33, (1 << 14) + 5])
def test_blocks_equal_the_gguf_package(kind, count):
    """Every block format gives that package's numbers, bit for bit."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    octets = np.random.default_rng(kind).integers(0, 256, (count, blocks.BLOCK_BYTES[kind]), dtype=np.uint8)
    octets[:, 1] &= 0x3F  # scales and offsets that are numbers
    octets[:, 3] &= 0x3F
    expected = dequantize(octets, GGMLQuantizationType(kind))
    assert np.array_equal(blocks.dequantise(torch.from_numpy(octets), kind).numpy(), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_safetensors_are_mapped(folder):
    """A tensor that is used as it lies is not copied: its memory is the file's."""
    lean = from_folder(folder, "cpu", torch.float32)
    address = lean.parameters["embed"].data_ptr()
    with open("/proc/self/maps") as maps:
        ranges = [line.split() for line in maps if "model.safetensors" in line]
    spans = [tuple(int(end, 16) for end in fields[0].split("-")) for fields in ranges]
    assert any(start <= address < end for start, end in spans)


# ------------------------------------------------------------------------------------------------- what is not known

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": ["MistralForCausalLM"]},
        {"model_type": "mistral"},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"use_sliding_window": True},
        {"rope_interleaved": True},
        {"quantization_config": {"bits": 4}},
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": ["full_attention"]},
        {"pretraining_tp": 2},
        {"num_hidden_layers": 1 << 40},
        {"num_hidden_layers": 0},
        {"rms_norm_eps": None},
    ],
)
def test_from_config_takes_only_what_it_knows(change):
    """Every setting that changes the arithmetic sends the model to the generic runner."""
    assert from_config(CONFIG) is not None
    assert from_config({**CONFIG, **change}) is None


def test_rotary_frequencies_of_llama3():
    """The older spelling of the settings gives the frequencies of transformers."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 8192}
    ours = from_config({**CONFIG, "head_dim": 128, "rope_theta": 500000.0, "rope_scaling": scaling})
    config = LlamaConfig(head_dim=128, rope_parameters={"rope_theta": 500000.0, **scaling})
    theirs, factor = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    assert factor == 1.0
    assert torch.allclose(rotary_frequencies(ours), theirs, rtol=1e-5)


def test_unexpected_tensor_goes_to_the_generic_runner(folder, tmp_path):
    """A checkpoint with a tensor that the family does not have is not run lean."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    save_file({**tensors, "model.layers.0.self_attn.sinks": torch.zeros(4)}, tmp_path / "model.safetensors")
    assert from_folder(tmp_path, "cpu", torch.float32) is None
    with pytest.raises(ModelUnavailable, match="not of a family"):
        load_model(tmp_path, device="cpu", runner="lean")


@pytest.fixture
def hub_calls(monkeypatch):
    """Stand-ins for the hub that note what is asked of it; nothing is a known family until `folder` is set."""
    calls = SimpleNamespace(made=[], folder=None, cached=True)

    def folder(name, *, local_only):
        calls.made.append(("folder", local_only))
        return calls.folder

    def pretrained(source, name, how, *, local_only):
        calls.made.append(("generic", local_only))
        if local_only and not calls.cached:
            raise ModelUnavailable("not cached")
        return "generic"

    monkeypatch.setattr(load, "_hub_folder", folder)
    monkeypatch.setattr(load, "_from_pretrained", pretrained)
    monkeypatch.setattr(load, "_check_hub", lambda name: calls.made.append("network"))
    return calls


def test_hub_model_in_the_cache_needs_no_network(hub_calls, folder):
    """Whichever runner takes it."""
    assert load_model("owner/unknown", device="cpu") == "generic"
    assert load_model("owner/unknown", device="cpu", runner="transformers") == "generic"
    hub_calls.folder = folder
    assert isinstance(load_model("owner/known", device="cpu"), LeanModel)
    assert hub_calls.made == [("folder", True), ("generic", True), ("generic", True), ("folder", True)]


def test_hub_model_is_fetched_for_its_runner(hub_calls):
    """What is not cached is asked for after one check; the lean runner refuses what it does not know."""
    hub_calls.cached = False
    assert load_model("owner/unknown", device="cpu") == "generic"
    wanted = [("folder", True), ("generic", True), "network", ("folder", False), ("generic", False)]
    assert hub_calls.made == wanted
    with pytest.raises(ModelUnavailable, match="not of a family"):
        load_model("owner/unknown", device="cpu", runner="lean")


def test_damaged_files_are_one_clear_line(folder, tmp_path):
    """An index that is no index, tensors of integers, a GGUF file that counts other layers than it has."""
    from safetensors.torch import load_file, save_file

    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.norm.weight": torch.ones(32, dtype=torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelUnavailable, match=r"model.norm.weight holds torch.int8"):
        load_model(tmp_path, device="cpu")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(ModelUnavailable, match="cannot be loaded"):
        load_model(tmp_path, device="cpu")
    words, path = tiny_llama.tokenizer(), tmp_path / "layers.gguf"
    network = tiny_llama.network(len(words))
    network.config.num_hidden_layers = 1 << 31
    tiny_llama.save_gguf(path, words, network)
    with pytest.raises(ModelUnavailable, match="do not fit its settings"):
        load_model(path, device="cpu")


def test_tensor_of_another_shape_is_refused(folder, tmp_path):
    """Settings and tensors that do not fit are one clear line."""
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 60}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ModelUnavailable, match="does not fit its settings") as caught:
        load_model(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
