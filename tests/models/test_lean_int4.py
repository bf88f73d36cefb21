"""Four-bit weights on the CPU: what the file says, what rounding costs, when they are used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_llama  # noqa: E402

from stcon.errors import InvalidOption  # noqa: E402
from stcon.models import load_model  # noqa: E402
from stcon.models.lean import blocks, four_bit, int4, reference  # noqa: E402
from stcon.models.lean.gguf import GgufFile  # noqa: E402


def dense(groups):
    """The matrix that the groups stand for."""
    scale, offset = (x.repeat_interleave(32, 1) for x in (groups.scale, groups.offset))
    return groups.numbers * scale + offset


@pytest.mark.parametrize("kind", [blocks.Q4_0, blocks.Q4_1])
def test_numbers_are_the_blocks_weights(kind):
    """number · scale + offset is what dequantising the block gives."""
    octets = torch.from_numpy(
        np.random.default_rng(kind).integers(0, 256, (200, blocks.BLOCK_BYTES[kind]), dtype=np.uint8)
    )
    octets[:, [1, 3]] &= 0x3F  # scales and offsets that are numbers
    numbers, scale, offset = blocks.numbers(octets, kind)
    expected = blocks.dequantise(octets, kind)
    assert numbers.max() <= 15
    assert torch.allclose(numbers * scale[:, None] + offset[:, None], expected, rtol=1e-5, atol=1e-6)


def test_numbers_of_other_formats():
    """Eight bits are not four."""
    assert blocks.numbers(torch.zeros(3, 34, dtype=torch.uint8), blocks.Q8_0) is None


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 5),
    groups=st.integers(1, 3),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_rounded_is_within_half_a_step(rows, groups, spread, seed):
    """Rounding to nearest moves no weight by more than half of its group's scale; a group of equal weights by none."""
    draw = torch.Generator().manual_seed(seed)
    weight = 3 + spread * torch.randn(rows, 32 * groups, generator=draw)
    found = int4.rounded(weight)
    scale = found.scale.repeat_interleave(32, 1)
    assert ((dense(found) - weight).abs() <= 0.5 * scale + 1e-5).all()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 4), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_pack_keeps_the_numbers(rows, groups, seed):
    """The words that the CUDA kernels read hold the same numbers, with scales and offsets rounded to bfloat16."""
    draw = np.random.default_rng(seed)
    numbers = torch.from_numpy(draw.integers(0, 16, (rows, 32 * groups), dtype=np.uint8))
    scale, offset = (torch.from_numpy(draw.normal(size=(rows, groups)).astype(np.float32)) for _ in range(2))
    packed = four_bit.pack(int4.Groups(numbers, scale, offset))
    found = packed.groups()
    assert packed.shape == (rows, 32 * groups)
    assert packed.nbytes == rows * groups * 20
    assert torch.equal(found.numbers, numbers)
    assert torch.equal(found.scale, scale.bfloat16().float())
    assert torch.equal(found.offset, offset.bfloat16().float())
    assert torch.equal(packed.dense(), dense(found))


@pytest.mark.parametrize("tokens", [1, 4])
def test_multiply_is_the_product(tokens):
    """The packed product is the product with the dequantised matrix, up to bfloat16."""
    torch.manual_seed(tokens)
    groups = int4.rounded(torch.randn(48, 96) * 0.1)
    weight = dense(groups)
    x = torch.randn(tokens, 96).bfloat16()
    expected = x.float() @ weight.T
    found = int4.Int4(groups).multiply(x).float()
    assert (found - expected).norm() < 2e-2 * expected.norm()


def test_product_chooses_by_the_number_of_tokens(monkeypatch):
    """A few tokens take the four-bit form, more the dense one; a weight without the form is dense."""
    weight = torch.randn(32, 64).bfloat16()
    x = torch.randn(int4.FEW + 1, 64).bfloat16()
    dense = torch.nn.functional.linear(x, weight)
    assert torch.equal(reference.product(x, weight), dense)
    weight.int4 = int4.Int4(int4.rounded(torch.zeros(32, 64)))
    assert torch.equal(reference.product(x, weight), dense)
    assert not reference.product(x[: int4.FEW], weight).any()
    assert torch.equal(reference.product(x[:1], weight, torch.ones(32).bfloat16()), torch.ones(1, 32).bfloat16())


def test_groups_of_a_file(tmp_path):
    """A file's own four-bit numbers reach the rows that transformers gives queries and keys."""
    from gguf import GGMLQuantizationType, quants

    words, path = tiny_llama.tokenizer(), tmp_path / "tiny.gguf"
    network = tiny_llama.network(len(words))
    weight = network.state_dict()["model.layers.0.self_attn.q_proj.weight"].numpy()
    tiny_llama.save_gguf(path, words, network, blocks="Q4_1")
    file = GgufFile(path)
    name = "model.layers.0.self_attn.q_proj.weight"
    found = dense(file.groups(name))
    assert torch.allclose(found, file.tensor(name), rtol=1e-5, atol=1e-6)
    expected = quants.dequantize(quants.quantize(weight, GGMLQuantizationType.Q4_1), GGMLQuantizationType.Q4_1)
    assert np.allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert file.groups("model.embed_tokens.weight") is None


def test_load_model_int4(tmp_path):
    """Single steps give the logits of the rounded weights, and every matrix of the layers is packed."""
    tiny_llama.save(tmp_path, initializer_range=0.1)
    four, full = load_model(tmp_path, device="cpu", weights="int4"), load_model(tmp_path, device="cpu")
    packed = [name for name in int4.MATRICES if hasattr(four.network.layers[0].get(name), "int4")]
    assert packed == ["qkv", "out", "gate_up", "down"]
    for layer in full.network.layers:
        layer |= {name: dense(int4.rounded(layer[name].bfloat16())) for name in packed}
    sessions = [model.session() for model in (four, full)]
    for token in range(40, 52):
        ours, theirs = (session.append([token]) for session in sessions)
        assert np.linalg.norm(ours - theirs) < 5e-2 * np.linalg.norm(theirs)


@pytest.mark.parametrize("options", [{"weights": "int3"}, {"dtype": "float32"}, {"runner": "transformers"}])
def test_load_model_int4_options(tmp_path, options):
    """What does not go with four bits is refused before anything is read."""
    with pytest.raises(InvalidOption):
        load_model(tmp_path, **{"device": "cpu", "weights": "int4", **options})
