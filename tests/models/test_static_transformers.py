"""`StaticTransformers` against the library's own caches: spans, ragged rows, slices, copies, rollback, refusals."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_llama  # noqa: E402

from stcon.errors import InvalidOption, ModelUnavailable  # noqa: E402
from stcon.models.static_transformers import StaticTransformers  # noqa: E402

ATTENTION = {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
COMMON = {"vocab_size": 100, "hidden_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES = {
    "llama": ATTENTION,
    "qwen3": {**ATTENTION, "head_dim": 8},
    "gemma3_text": {**ATTENTION, "head_dim": 8, "sliding_window": 32},
    "qwen3_5_text": {**ATTENTION, **LINEAR, "head_dim": 8},
}
RECURRENT = {"qwen3_5_text"}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other over networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def networks():
    """One random network of each family, made when first asked for."""
    made = {}

    def get(family):
        from transformers import AutoConfig, AutoModelForCausalLM

        if family not in made:
            try:
                config = AutoConfig.for_model(family, **COMMON, **FAMILIES[family], initializer_range=0.2)
            except (ValueError, KeyError):
                pytest.skip(f"this version of transformers has no {family}")
            torch.manual_seed(0)
            made[family] = AutoModelForCausalLM.from_config(config).eval()
        return made[family]

    return get


def tokens_of(row, size=30):
    return [(3 + 17 * row + 29 * i) % 99 for i in range(size)]


def reference(network, tokens):
    """float32[S, V]: the library's logits after every token."""
    with torch.no_grad():
        return network(torch.tensor([tokens])).logits[0]


def lengths_of(*values):
    return torch.tensor(values, dtype=torch.int32)


def close(found, expected):
    return float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_forward_in_spans_equals_the_library_in_one_pass(networks, family):
    """However a prefix is split into passes, the logits are those of the whole prefix."""
    network = networks(family)
    model = StaticTransformers(network)
    tokens = tokens_of(0)
    expected = reference(network, tokens)
    cache = model.new_cache(1, 30)
    start = 0
    for span in (7, 1, 2, 1, 16, 3):
        part = torch.tensor([tokens[start : start + span]])
        rows = model.forward(part, lengths_of(start), cache, all_positions=True)[0]
        assert close(rows, expected[start : start + span])
        assert rows.dtype == torch.float32
        start += span


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_rows_of_different_lengths_share_a_pass(networks, family):
    """Each row reads and writes at its own positions, whatever the rows beside it hold."""
    network = networks(family)
    model = StaticTransformers(network)
    cache = model.new_cache(3, 30)
    held = [4, 11, 1]
    for row, length in enumerate(held):
        alone = cache.slice(row, row + 1)
        model.forward(torch.tensor([tokens_of(row)[:length]]), lengths_of(0), alone)
    span = 5
    part = torch.tensor([tokens_of(row)[n : n + span] for row, n in enumerate(held)])
    last = model.forward(part, lengths_of(*held), cache)
    for row, length in enumerate(held):
        assert close(last[row], reference(network, tokens_of(row)[: length + span])[-1])


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - RECURRENT))
def test_padding_reaches_nothing(networks, family):
    """With counts, the logits are those after each row's last real token, and the next pass sees no padding."""
    network = networks(family)
    model = StaticTransformers(network)
    cache = model.new_cache(3, 12)
    counts = [4, 1, 3]
    part = torch.full((3, 4), 77)
    for row, count in enumerate(counts):
        part[row, :count] = torch.tensor(tokens_of(row)[:count])
    first = model.forward(part, lengths_of(0, 0, 0), cache, counts=lengths_of(*counts))
    second = model.forward(
        torch.tensor([[tokens_of(row)[count]] for row, count in enumerate(counts)]), lengths_of(*counts), cache
    )
    for row, count in enumerate(counts):
        expected = reference(network, tokens_of(row)[: count + 1])
        assert close(first[row], expected[-2])
        assert close(second[row], expected[-1])


def test_padding_past_the_capacity_is_not_stored(networks):
    """A row that is full to its capacity survives the padding of a wider pass."""
    network = networks("llama")
    model = StaticTransformers(network)
    cache = model.new_cache(1, 16)
    tokens = tokens_of(0)
    model.forward(torch.tensor([tokens[:15]]), lengths_of(0), cache)
    wide = torch.tensor([[tokens[15], *[77] * 15]])
    assert close(
        model.forward(wide, lengths_of(15), cache, counts=lengths_of(1))[0], reference(network, tokens[:16])[-1]
    )
    again = model.forward(torch.tensor([[tokens[15]]]), lengths_of(15), cache)[0]
    assert close(again, reference(network, tokens[:16])[-1])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_row_with_count_zero_stays_as_it_was(networks, family):
    """``counts[b] = 0`` changes neither keys within the length nor recurrent states."""
    network = networks(family)
    model = StaticTransformers(network)
    cache = model.new_cache(2, 20)
    for row in range(2):
        model.forward(torch.tensor([tokens_of(row)[:6]]), lengths_of(0), cache.slice(row, row + 1))
    one = torch.tensor([[tokens_of(0)[6]], [55]])
    model.forward(one, lengths_of(6, 6), cache, counts=lengths_of(1, 0))
    two = torch.tensor([[tokens_of(0)[7]], [tokens_of(1)[6]]])
    rows = model.forward(two, lengths_of(7, 6), cache)
    assert close(rows[0], reference(network, tokens_of(0)[:8])[-1])
    assert close(rows[1], reference(network, tokens_of(1)[:7])[-1])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_restore_takes_tokens_back(networks, family):
    """After `save`, other tokens, `restore` and the shorter length, it is as if they had never been fed."""
    network = networks(family)
    model = StaticTransformers(network)
    cache = model.new_cache(2, 24)
    assert cache.recurrent == (family in RECURRENT)
    both = torch.tensor([tokens_of(0)[:8], tokens_of(1)[:8]])
    model.forward(both, lengths_of(0, 0), cache)
    cache.save()
    model.forward(torch.full((2, 3), 50), lengths_of(8, 8), cache)
    cache.restore(torch.tensor([True, False]))
    rows = model.forward(torch.tensor([[tokens_of(0)[8]], [60]]), lengths_of(8, 11), cache)
    assert close(rows[0], reference(network, tokens_of(0)[:9])[-1])
    assert close(rows[1], reference(network, [*tokens_of(1)[:8], 50, 50, 50, 60])[-1])
    cache.restore()
    rows = model.forward(both[:, :1], lengths_of(0, 0), cache)  # length 0: empty, whatever was restored
    assert close(rows[1], reference(network, tokens_of(1)[:1])[-1])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_copy_rows_shares_a_prefix(networks, family):
    """A copied row continues as its source would."""
    network = networks(family)
    model = StaticTransformers(network)
    cache = model.new_cache(3, 24)
    model.forward(torch.tensor([tokens_of(0)[:9]]), lengths_of(0), cache.slice(0, 1))
    cache.copy_rows([0, 0], [1, 2], 9)
    rows = model.forward(torch.tensor([[9], [8], [7]]), lengths_of(9, 9, 9), cache)
    for row, token in enumerate((9, 8, 7)):
        assert close(rows[row], reference(network, [*tokens_of(0)[:9], token])[-1])
    assert cache.nbytes > 0


def test_sliding_windows_end_the_context(networks):
    """Past its window a sliding layer is no full attention, so no cache reaches there."""
    model = StaticTransformers(networks("gemma3_text"))
    assert model.context_length == 32
    with pytest.raises(InvalidOption, match="capacity"):
        model.new_cache(1, 33)


def test_mamba_is_refused(networks):
    """A family whose layers are not known here is refused with its name, not run wrongly."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("mamba", **COMMON, num_hidden_layers=2, state_size=8)
    network = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(ModelUnavailable, match="Mamba"):
        StaticTransformers(network)


def test_a_network_that_differs_is_refused():
    """The comparison before first use sees a network that ignores the mask it is given."""
    network = tiny_llama.network(100)
    attention = network.model.layers[0].self_attn
    inner = attention.forward
    attention.forward = lambda *args, attention_mask=None, **kw: inner(
        *args, attention_mask=None if attention_mask is None else torch.ones_like(attention_mask), **kw
    )
    with pytest.raises(ModelUnavailable, match="other logits"):
        StaticTransformers(network)
