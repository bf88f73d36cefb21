"""Each fused kernel against its plain reference: on a GPU if there is one, else (where installed) interpreted."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
triton = pytest.importorskip("triton")

from stcon.models.lean import cuda, four_bit, int4, reference  # noqa: E402
from stcon.models.lean.cuda import plans  # noqa: E402
from stcon.models.lean.settings import Delta  # noqa: E402
from stcon.models.lean.shapes import Heads, Step, packing  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [] if DEVICE == "cuda" else pytest.mark.long  # minutes in the interpreter
ROWS, CAPACITY, DIM = 3, 700, 32
DELTA = Delta(key_heads=2, value_heads=4, key_dim=32, value_dim=64, taps=4)


@pytest.fixture(autouse=True)
def plain_launches(monkeypatch):
    """The interpreter knows no programmatic launches, and some versions of it do not run with the newest numpy."""
    if DEVICE == "cuda":
        return
    monkeypatch.setattr(plans, "PDL", 0)
    try:
        cuda.attend(*attention_case(2, gated=False)[:5])
    except Exception as error:
        if type(error).__name__ != "InterpreterError":
            raise
        pytest.skip(f"this Triton's interpreter does not run here: {error}")


def draw(*shape):
    return torch.randn(*shape, device=DEVICE)


def workspace():
    """What a cache gives the kernels, poisoned."""
    settings = SimpleNamespace(head_dim=DIM, delta=DELTA)
    space = plans.workspace(settings, ROWS, DEVICE)
    for tensor in (space.partial, space.stats, space.deltas):
        tensor.fill_(torch.nan)
    return space


def step(size, lengths=(0, 7, 600), counts=None, rotated=DIM):
    lengths = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    counts = None if counts is None else torch.tensor(counts, dtype=torch.int32, device=DEVICE)
    cos, sin = draw(CAPACITY, rotated // 2), draw(CAPACITY, rotated // 2)
    return Step(len(lengths), size, lengths, counts, cos, sin, workspace())


def close(found, expected, limit=1e-5):
    """Float32 throughout, so equal up to the order of sums."""
    return float((found - expected).norm() / expected.norm()) < limit


@pytest.mark.parametrize("columns", [80, 96])
@pytest.mark.parametrize("size", [96, 640])
@pytest.mark.parametrize("tokens", [1, 2, 3, 17, 32, 33])
def test_products(tokens, size, columns):
    """Norm, product, bias; product and residual; gate and up: from one row to more than our kernels take."""
    torch.manual_seed(tokens)
    at = step(1)
    x, weight, norm, bias = draw(tokens, size), draw(columns, size), draw(size), draw(columns)
    residual = draw(tokens, columns)
    for ours, theirs in (
        [ops.norm_linear(x, norm, 1e-6, weight, at, bias) for ops in (cuda, reference)],
        [ops.norm_linear(x, norm, 1e-6, weight, at, exact=True) for ops in (cuda, reference)],
        [ops.linear_add(x, weight, residual.clone(), at) for ops in (cuda, reference)],
        [ops.gate_up(x, norm, 1e-6, weight, at) for ops in (cuda, reference)],
    ):
        assert close(ours, theirs)
    assert not at.workspace.arrived.any()


def attention_case(size, gated):
    """Projections, heads, norms, a cache of random numbers and the step; half the dimensions rotate if gated."""
    torch.manual_seed(size)
    heads = Heads(8 if gated else 6, 2, DIM, 1e-6, gated)
    norms = (draw(DIM), draw(DIM)) if gated else None
    at = step(size, rotated=DIM // 2 if gated else DIM)
    return draw(ROWS * size, heads.width), heads, norms, draw(2, ROWS, 2, CAPACITY, DIM), at


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 16, 40])
def test_attend(size, gated):
    """Rows of no, few and many keys, split and not: the same output and the same cache afterwards."""
    qkv, heads, norms, kv, at = attention_case(size, gated)
    ours, theirs = kv.clone(), kv.clone()
    found = cuda.attend(qkv, heads, norms, ours, at)
    assert close(found, reference.attend(qkv, heads, norms, theirs, at))
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert not at.workspace.arrived.any()


def test_attend_one_token_as_many_rows_do(monkeypatch):
    """The kernel that many rows take gives for one token what the other does."""
    qkv, heads, norms, kv, at = attention_case(1, gated=True)
    expected = reference.attend(qkv, heads, norms, kv.clone(), at)
    monkeypatch.setattr(plans, "one_token", lambda heads, dim: None)
    assert close(cuda.attend(qkv, heads, norms, kv.clone(), at), expected)


@pytest.mark.parametrize("counts", [None, "ragged"])
@pytest.mark.parametrize("size", [1, 2, 5, 16, 40])
def test_delta(size, counts):
    """Real tokens' outputs, states and recent inputs are the reference's; a row without real tokens keeps its own."""
    torch.manual_seed(size)
    at = step(size, lengths=(0, 2, 35), counts=None if counts is None else (size, 0, max(1, size - 2)))
    width = DELTA.channels + DELTA.value_heads * DELTA.value_dim + 2 * DELTA.value_heads
    weights = {"conv": draw(DELTA.channels, 4), "dt_bias": draw(4), "decay": -draw(4).abs(), "delta_norm": draw(64)}
    mixed, state, recent = draw(ROWS * size, width), draw(ROWS, 4, 32, 64), draw(ROWS, 32, DELTA.channels)
    kept = [(state.clone(), recent.clone()) for _ in range(2)]
    found = [
        ops.delta(mixed, DELTA, weights, 1e-6, *memory, at).view(ROWS, size, -1)
        for ops, memory in zip((cuda, reference), kept, strict=True)
    ]
    real = torch.ones(ROWS, size, dtype=torch.bool, device=DEVICE) if at.real is None else at.real
    assert close(found[0][real], found[1][real])
    assert close(kept[0][0], kept[1][0])
    assert torch.equal(kept[0][1], kept[1][1])
    assert not at.workspace.arrived.any()


@pytest.mark.parametrize(("size", "counts", "total"), [(2, (1, 0, 2), 4), (5, (5, 1, 3), 9), (16, (2, 16, 1), 32)])
def test_packed_rows_are_the_padded_ones(size, counts, total):
    """Attention and delta rule over tokens one behind another: real tokens, caches and states as padded rows have."""
    qkv, heads, norms, kv, _ = attention_case(size, gated=True)
    at = step(size, lengths=(0, 7, 600), counts=counts, rotated=DIM // 2)
    packed = replace(at, packing=packing(at.counts, size, total))
    real, sources = sum(counts), packed.packing.sources
    ours, theirs = kv.clone(), kv.clone()
    expected = reference.attend(qkv, heads, norms, theirs, at)[sources][:real]
    assert close(cuda.attend(qkv[sources].contiguous(), heads, norms, ours, packed)[:real], expected)
    for row, (length, count) in enumerate(zip((0, 7, 600), counts, strict=True)):
        assert torch.allclose(ours[:, row, :, : length + count], theirs[:, row, :, : length + count], atol=1e-5)
    width = DELTA.channels + DELTA.value_heads * DELTA.value_dim + 2 * DELTA.value_heads
    weights = {"conv": draw(DELTA.channels, 4), "dt_bias": draw(4), "decay": -draw(4).abs(), "delta_norm": draw(64)}
    mixed, state, recent = draw(ROWS * size, width), draw(ROWS, 4, 32, 64), draw(ROWS, 32, DELTA.channels)
    kept = [(state.clone(), recent.clone()) for _ in range(2)]
    expected = reference.delta(mixed, DELTA, weights, 1e-6, *kept[0], at)[sources][:real]
    found = cuda.delta(mixed[sources].contiguous(), DELTA, weights, 1e-6, *kept[1], packed)[:real]
    assert close(found, expected)
    assert close(kept[1][0], kept[0][0])
    assert torch.allclose(kept[1][1], kept[0][1], atol=1e-5)
    assert not packed.workspace.arrived.any()


@pytest.mark.parametrize("columns", [40, 96])
@pytest.mark.parametrize("size", [96, 2560])
@pytest.mark.parametrize("tokens", [1, 2, 16, 50, 65])
def test_four_bit_products(tokens, size, columns):
    """Weights in four bits give the products of the matrix that they stand for, for one row, few and many."""
    torch.manual_seed(tokens)
    at = step(1)
    x, norm, bias, residual = draw(tokens, size), draw(size), draw(columns), draw(tokens, columns)
    weight = four_bit.pack(int4.rounded(draw(columns, size)))
    plain = weight.dense()
    for ours, theirs in (
        [ops.norm_linear(x, norm, 1e-6, w, at, bias) for ops, w in ((cuda, weight), (reference, plain))],
        [ops.norm_linear(x, norm, 1e-6, w, at, exact=True) for ops, w in ((cuda, weight), (reference, plain))],
        [ops.linear_add(x, w, residual.clone(), at) for ops, w in ((cuda, weight), (reference, plain))],
        [ops.gate_up(x, norm, 1e-6, w, at) for ops, w in ((cuda, weight), (reference, plain))],
    ):
        assert close(ours, theirs, 2e-4)  # numbers beside ones, which cancel
    assert not at.workspace.arrived.any()
