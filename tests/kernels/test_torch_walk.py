"""The portable walk equals the reference, and its walker the CUDA one's interface."""

from __future__ import annotations

import kernel_cases as cases
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_random_machines import ALPHABET, configurations, machines, string_machines

from stcon.engine.sampling import Sampling, apply_bitmask
from stcon.grammar.machine import Configuration, Machine
from stcon.kernels import reference
from stcon.vocab.vocabulary import Vocabulary

torch = pytest.importorskip("torch")

from stcon.kernels.cuda.sampling import DeviceSampling  # noqa: E402 (needs torch)
from stcon.kernels.torch import TorchGrammars, TorchWalker, pack_bits, unpack_bits  # noqa: E402

ROWS = 8
PLAN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def walker_for(machine: Machine, vocabulary: Vocabulary) -> TorchWalker:
    """Eight rows that follow `machine`."""
    grammars = TorchGrammars("cpu")
    index = grammars.add(machine)
    walker = TorchWalker(vocabulary, grammars, ROWS)
    for row in range(ROWS):
        walker.set_row(row, index)
    return walker


def assert_masks_equal(machine: Machine, vocabulary: Vocabulary, configs: list[Configuration]) -> None:
    walker = walker_for(machine, vocabulary)
    for begin in range(0, len(configs), ROWS):
        part = configs[begin : begin + ROWS]
        for row, config in enumerate(part):
            walker.set_row(row, 0, config)
        words = torch.full((len(part), vocabulary.num_words), 0x5A5A5A5A, dtype=torch.int32)
        walker.bitmask(words)
        for config, mask in zip(part, words.tolist(), strict=True):
            assert mask == reference.mask(machine, config, vocabulary).tolist(), config


@pytest.mark.parametrize("name", cases.SMALL)
def test_bitmask_of_small_machines(name: str) -> None:
    """Every state with stacks up to 2 symbols, and nearly full ones."""
    machine = cases.SMALL[name]()
    configs = [*cases.configurations(machine, depth=2, counters=(0, 3)), *cases.near_the_cap(machine, seed=1, count=8)]
    assert_masks_equal(machine, cases.vocabulary(65, seed=1), configs)


@pytest.mark.parametrize("name", ["unbounded", "from_2_to_5", "refused_inside", "two_by_states_at_most_4"])
def test_bitmask_of_text(name: str) -> None:
    """Plain tokens by their length, the others walked."""
    machine = cases.TEXTS[name]()
    configs = list(cases.configurations(machine, depth=1, counters=(0, 2, 4)))
    assert_masks_equal(machine, cases.text_vocabulary(), configs)


@PLAN
@given(st.data())
def test_bitmask_of_random_machines(data: st.DataObject) -> None:
    """Any edges, effects, bounds and labels, some rows built when first met, any stack."""
    machine = data.draw(machines())
    texts = st.binary(min_size=1, max_size=6).map(lambda text: bytes(ALPHABET[b % len(ALPHABET)] for b in text))
    tokens: list[bytes | None] = [*data.draw(st.lists(texts, min_size=1, max_size=40)), None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    assert_masks_equal(machine, vocabulary, data.draw(st.lists(configurations(machine), min_size=1, max_size=8)))


@PLAN
@given(st.data())
def test_bitmask_of_random_string_machines(data: st.DataObject) -> None:
    """Whatever the bounds on and inside characters."""
    machine = data.draw(string_machines())
    configs = data.draw(st.lists(configurations(machine), min_size=1, max_size=8))
    assert_masks_equal(machine, cases.text_vocabulary(), configs)


@PLAN
@given(st.data())
def test_advance_of_random_machines(data: st.DataObject) -> None:
    """A token moves the row where the reference goes, or is named as refused and the row stays."""
    machine = data.draw(machines())
    texts = st.binary(min_size=1, max_size=6).map(lambda text: bytes(ALPHABET[b % len(ALPHABET)] for b in text))
    tokens: list[bytes | None] = [*data.draw(st.lists(texts, min_size=1, max_size=12)), None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    config = data.draw(configurations(machine))
    token = data.draw(st.integers(0, len(tokens) - 2))
    walker = walker_for(machine, vocabulary)
    walker.set_row(0, 0, config)
    walker.advance(torch.tensor([token], dtype=torch.int32))
    expected = machine.run(config, tokens[token] or b"")
    assert walker.configuration(0) == (config if expected is None else expected)
    assert walker.refused.tolist()[0] == (token if expected is None else -1)


def test_choices_and_limits() -> None:
    """argmax, sample and masked logits are the host's on the same mask; limits, the end and free rows count."""
    machine, vocabulary = cases.json_values(), cases.text_vocabulary()
    walker = walker_for(machine, vocabulary)
    for row in range(machine.num_states % ROWS + 2):
        walker.set_row(row, 0, Configuration(row))
    walker.set_row(7, -1)
    walker.min_bytes[1] = 2
    walker.banned[2, :2] = torch.tensor([4, 40])
    walker.num_banned[2] = 2
    words = torch.empty((ROWS, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    assert int(words[2, 0]) >> 4 & 1 == int(words[2, 1]) >> 8 & 1 == 0
    logits = torch.randn((ROWS, vocabulary.size + 2), generator=torch.Generator().manual_seed(1))
    masked = [
        apply_bitmask(row[: vocabulary.size].numpy().copy(), w.numpy()) for row, w in zip(logits, words, strict=True)
    ]
    tokens = torch.empty(ROWS, dtype=torch.int32)
    walker.argmax(logits, tokens)
    assert tokens.tolist() == [int(np.argmax(row)) if np.isfinite(row.max()) else -1 for row in masked]
    sampling, options = DeviceSampling(ROWS, "cpu"), Sampling(temperature=0.9, top_k=20, top_p=0.8, seed=6)
    for row in range(ROWS):
        sampling.set_row(row, options, position=row)
    walker.sample(logits, sampling, tokens)
    assert tokens.tolist() == [options.draw(r, i) if np.isfinite(r.max()) else -1 for i, r in enumerate(masked)]
    walker.mask_logits(logits)
    np.testing.assert_array_equal(logits[:, : vocabulary.size].numpy(), np.stack(masked))
    assert bool((logits[:, vocabulary.size :] == -torch.inf).all())


def test_a_finished_row_admits_end_tokens_alone() -> None:
    """As on CUDA."""
    vocabulary = cases.vocabulary(33, seed=6)
    walker = walker_for(cases.dfa(), vocabulary)
    end = vocabulary.end_ids[0]
    walker.advance(torch.tensor([[end, end]], dtype=torch.int32))
    words = torch.empty((1, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    assert walker.configuration(0) is None
    assert unpack_bits(words, vocabulary.size)[0].nonzero()[:, 0].tolist() == sorted(vocabulary.end_ids)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64])
def test_bits_packed_and_unpacked(size: int) -> None:
    """The bit of token t is bit t % 32 of word t // 32, the sign bit too."""
    bits = torch.rand((3, size), generator=torch.Generator().manual_seed(size)) < 0.5
    words = pack_bits(bits)
    assert torch.equal(unpack_bits(words, size), bits)
    assert [int(words[0, t // 32]) >> t % 32 & 1 for t in range(size)] == bits[0].int().tolist()
