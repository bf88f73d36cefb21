"""The GPU's choice of a token and its step, run on the CPU from their own text, are the host's."""

from __future__ import annotations

import kernel_cases as cases
import numpy as np
import pytest
from cuda_on_cpu import HostKernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_random_machines import ALPHABET, configurations, machines

from stcon.engine.sampling import Sampling, apply_bitmask
from stcon.errors import InvalidOption
from stcon.grammar.machine import Configuration, Machine
from stcon.kernels import reference
from stcon.vocab.vocabulary import Vocabulary

torch = pytest.importorskip("torch")

from stcon.kernels.cuda import CudaGrammars, CudaWalker, DeviceSampling  # noqa: E402 (needs torch)

DTYPES = ("float32", "float16", "bfloat16")
ROWS = 6


def new_walker(machine: Machine, vocabulary: Vocabulary, reverse: bool = False, **options: int) -> CudaWalker:
    """Six rows that follow `machine` from different states, the last without a constraint."""
    grammars = CudaGrammars("cpu", **options)
    walker = CudaWalker(vocabulary, grammars, ROWS, kernels=HostKernels(reverse), chunk_words=((1024, 2),))
    index = grammars.add(machine)
    for row in range(ROWS - 1):
        walker.set_row(row, index, Configuration(row % machine.num_states))
    return walker


def host_masks(walker: CudaWalker, machine: Machine) -> list[np.ndarray]:
    """The reference's mask of each row."""
    rows = []
    for row in range(ROWS - 1):
        config = walker.configuration(row)
        assert config is not None
        rows.append(reference.mask(machine, config, walker.vocabulary))
    return [*rows, np.full(walker.vocabulary.num_words, -1, np.int32)]


def random_logits(seed: int, columns: int, dtype: str, distinct: int = 8) -> torch.Tensor:
    """Few distinct values, so that there are ties; padding columns hold the greatest."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-distinct, distinct, (ROWS, columns), generator=generator).float() / 4
    values[:, -3:] = 100
    return values.to(getattr(torch, dtype))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_argmax_and_mask_logits(dtype: str, reverse: bool) -> None:
    """The best admissible token, the lowest id on a tie; -inf elsewhere and in padding; twice, from one scratch."""
    machine, vocabulary = cases.json_values(), cases.text_vocabulary()
    walker = new_walker(machine, vocabulary, reverse)
    allowed = host_masks(walker, machine)
    for seed in range(2):
        logits = random_logits(seed, vocabulary.size + 3, dtype)
        expected = logits.clone()
        for row, words in enumerate(allowed):
            masked = apply_bitmask(expected[row, : vocabulary.size].float().numpy(), words)
            expected[row, : vocabulary.size] = torch.from_numpy(masked).to(logits.dtype)
        expected[:, vocabulary.size :] = -torch.inf
        tokens = torch.full((ROWS,), -7, dtype=torch.int32)
        walker.argmax(logits, tokens)
        best = [int(row.argmax()) if bool((row > -torch.inf).any()) else -1 for row in expected]
        assert tokens.tolist() == best
        walker.mask_logits(logits)
        assert torch.equal(logits, expected)


def test_a_logit_that_is_not_finite_gives_no_token() -> None:
    """NaN and +inf among the admissible, and -inf throughout, give -1; the same outside the mask does not matter."""
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"c", b"d", None], [4])
    walker = new_walker(cases.dfa(), vocabulary)
    logits = torch.zeros((ROWS, 5))
    logits[0, 0] = torch.nan  # rows 0 and 3 stand at the start, where a, b, d and the end may come
    logits[3, 0] = torch.inf
    logits[1, 0] = torch.nan  # row 1 takes c alone
    logits[2, 0] = torch.nan  # row 2 takes the end alone
    logits[4] = -torch.inf
    tokens = torch.empty(ROWS, dtype=torch.int32)
    walker.argmax(logits, tokens)
    assert tokens.tolist() == [-1, 2, 4, -1, -1, 0]


def test_a_stalled_row_gives_no_token_and_does_not_move() -> None:
    """Until its edges are built; then the step goes as if they had always been."""
    machine, vocabulary = cases.built_on_the_way(), cases.full_vocabulary(longest=2)
    walker = new_walker(machine, vocabulary, ahead=0)
    logits = torch.zeros((ROWS, vocabulary.size))
    logits[0, vocabulary.encode("aa")[0]] = 1
    tokens = torch.empty(ROWS, dtype=torch.int32)
    before = walker.config.clone()
    walker.argmax(logits, tokens)
    assert tokens[0] == -1
    assert walker.missing[0] >= 0
    walker.advance(tokens)
    walker.advance(torch.tensor(vocabulary.encode("aa") * ROWS, dtype=torch.int32))
    assert torch.equal(walker.config[0], before[0])
    while walker.build_missing():
        walker.argmax(logits, tokens)
    walker.advance(tokens)
    expected = machine.run(machine.initial(), b"aa")
    assert vocabulary.token_bytes(int(tokens[0])) == b"aa"
    assert walker.configuration(0) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_advance_of_random_machines(data: st.DataObject) -> None:
    """Any tokens in a row from any configuration: all are read, or none and the token that may not follow is named."""
    machine = data.draw(machines())
    texts = st.binary(min_size=1, max_size=6).map(lambda text: bytes(ALPHABET[b % len(ALPHABET)] for b in text))
    tokens: list[bytes | None] = [*data.draw(st.lists(texts, min_size=1, max_size=12)), None, None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    config = data.draw(configurations(machine))
    chosen = data.draw(st.lists(st.integers(-1, len(tokens) - 1), min_size=1, max_size=4))
    walker = new_walker(machine, vocabulary, ahead=0)
    walker.set_row(1, 0, config)
    batch = torch.full((ROWS, len(chosen)), -1, dtype=torch.int32)
    batch[1] = torch.tensor(chosen, dtype=torch.int32)
    others = walker.config[[0, 2, 3, 4, 5]].clone()
    walker.advance(batch)
    while walker.build_missing():
        walker.advance(batch)
    expected, refused = read(machine, vocabulary, config, chosen)
    assert walker.configuration(1) == (config if refused >= 0 else expected)
    assert walker.refused.tolist() == [-1, refused, -1, -1, -1, -1]
    if refused < 0 and expected is not None:
        np.testing.assert_array_equal(walker.config[1].numpy(), expected.pack())
    assert torch.equal(walker.config[[0, 2, 3, 4, 5]], others)


def read(
    machine: Machine, vocabulary: Vocabulary, config: Configuration, tokens: list[int]
) -> tuple[Configuration | None, int]:
    """The configuration after `tokens` (None: finished), and the token that may not follow, or -1."""
    here: Configuration | None = config
    for token in tokens:
        if token == -1:
            continue
        if token in vocabulary.end_ids:
            if here is not None and not machine.accepts(here):
                return here, token
            here = None
            continue
        text = vocabulary.token_bytes(token)
        after = machine.run(here, text) if here is not None and text else None
        if after is None:
            return here, token
        here = after
    return here, -1


def test_a_finished_row_admits_end_tokens_alone() -> None:
    """So a graph may go on with the other rows; `remaining` counts every token read."""
    vocabulary = cases.vocabulary(33, seed=6)
    machine = cases.dfa()
    walker = new_walker(machine, vocabulary)
    walker.remaining[0] = 10
    end = vocabulary.end_ids[0]
    walker.advance(torch.tensor([[end, end], [end, -1], [-1, -1], [-1, -1], [-1, -1], [-1, -1]], dtype=torch.int32))
    assert walker.configuration(0) is None
    assert walker.configuration(1) == Configuration(1)
    assert walker.refused.tolist() == [-1, end, -1, -1, -1, -1]
    assert walker.remaining[0] == 8
    words = torch.empty((ROWS, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    only_ends = sum(1 << token for token in vocabulary.end_ids)
    assert [word & 0xFFFFFFFF for word in words[0].tolist()] == [only_ends & 0xFFFFFFFF, only_ends >> 32]


OPTIONS = [
    Sampling(),
    Sampling(temperature=1.0, seed=3),
    Sampling(temperature=0.7, top_k=3, seed=2**64 - 1),
    Sampling(temperature=1.5, top_p=0.6, seed=9),
    Sampling(temperature=0.3, top_p=0.05, seed=12),
    Sampling(temperature=2.0, min_p=0.2, seed=5),
    Sampling(temperature=1.2, top_k=9, top_p=0.83, min_p=0.05, seed=77),
    Sampling(temperature=1e-6, top_p=0.5, seed=4),
    Sampling(temperature=1e-300, top_k=2, seed=4),
    Sampling(temperature=1e6, top_p=0.9, seed=10),
]


@pytest.mark.parametrize("distinct", [2, 8, 400])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sample_draws_what_the_host_draws(dtype: str, distinct: int) -> None:
    """The same tokens as `Sampling.draw` on the masked logits, over rows, positions and ties."""
    machine, vocabulary = cases.json_values(), cases.text_vocabulary()
    walker = new_walker(machine, vocabulary)
    allowed = host_masks(walker, machine)
    sampling = DeviceSampling(ROWS, "cpu")
    tokens = torch.empty(ROWS, dtype=torch.int32)
    for number, options in enumerate(OPTIONS):
        for row in range(ROWS):
            sampling.set_row(row, options, position=row)
        for turn in range(3):
            logits = random_logits(10 * number + turn, vocabulary.size + 3, dtype, distinct)
            logits[:, : vocabulary.size] += 7  # far from 0, where few floats are distinct
            walker.sample(logits, sampling, tokens)
            for row, words in enumerate(allowed):
                masked = apply_bitmask(logits[row, : vocabulary.size].float().numpy().copy(), words)
                if not (masked > -np.inf).any():
                    assert tokens[row] == -1
                    continue
                assert tokens[row] == options.draw(masked, int(sampling.positions[row]) - 1), (options, row)


def test_sample_among_thousands_of_ties() -> None:
    """More equal logits than a bin lists: the same tokens as the host's, cut among the ties by id."""
    vocabulary = cases.full_vocabulary(longest=6)
    walker = CudaWalker(vocabulary, CudaGrammars("cpu"), 2, kernels=HostKernels())
    sampling = DeviceSampling(2, "cpu")
    logits = torch.zeros((2, vocabulary.size))
    logits[1, ::3] = 0.001
    tokens = torch.empty(2, dtype=torch.int32)
    for seed, top_p in enumerate((0.0003, 0.3123, 0.77777)):
        for top_k in (0, 50):
            options = Sampling(temperature=1.0, top_k=top_k, top_p=top_p, seed=seed)
            for row in range(2):
                sampling.set_row(row, options)
            walker.sample(logits, sampling, tokens)
            assert tokens.tolist() == [options.draw(logits[row].numpy(), 0) for row in range(2)], options


def test_sample_follows_the_distribution() -> None:
    """Over many seeds, tokens come as often as `Sampling.distribution` says (within 5 standard deviations)."""
    vocabulary = Vocabulary.from_bytes([b"a", b"b", b"c", b"d", None], [4])
    walker = new_walker(cases.dfa(), vocabulary)
    options = Sampling(temperature=0.8, top_k=3, seed=0)
    logits = torch.tensor([[0.5, 1.0, 3.0, -0.2, 0.9]]).repeat(ROWS, 1)  # c may not come, d is cut
    masked = apply_bitmask(logits[0].numpy().copy(), host_masks(walker, cases.dfa())[0])
    chances = np.zeros(5)
    chances[options.distribution(masked)[0]] = options.distribution(masked)[1]
    sampling = DeviceSampling(ROWS, "cpu")
    for row in range(ROWS):
        sampling.set_row(row, Sampling(temperature=0.8, top_k=3, seed=row))
    tokens, counts = torch.empty(1, dtype=torch.int32), np.zeros(5)
    for _ in range(600):
        walker.sample(logits[:1], sampling, tokens)
        counts[int(tokens[0])] += 1
    deviation = np.sqrt(600 * chances * (1 - chances))
    assert (np.abs(counts - 600 * chances) <= 5 * deviation).all(), counts


def test_tensors_that_kernels_would_misread_are_refused() -> None:
    """Another type, too few columns or too many rows."""
    walker = new_walker(cases.dfa(), cases.vocabulary(33, seed=7))
    tokens = torch.empty(ROWS, dtype=torch.int32)
    for logits in (torch.zeros(ROWS, 32), torch.zeros(ROWS, 33).double(), torch.zeros(33, ROWS).T):
        with pytest.raises(InvalidOption, match="expected"):
            walker.argmax(logits, tokens)
    with pytest.raises(InvalidOption, match="6 rows at most"):
        walker.bitmask(torch.empty((7, 2), dtype=torch.int32))
    with pytest.raises(InvalidOption, match="int32"):
        walker.advance(tokens.long())
