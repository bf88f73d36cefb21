"""Drawing a token: masks, filters against a plain numpy oracle, seeds, bad options."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.engine.sampling import Sampling, apply_bitmask, count_bits, unpack_bitmask
from stcon.errors import DecodingError, InvalidOption


def oracle(logits, temperature, top_k, top_p, min_p):
    """The distribution by the definitions, one token at a time, with whole softmaxes in between."""
    alive = {t: float(x) / temperature for t, x in enumerate(logits) if x > -np.inf}
    if top_k:
        kth = sorted(alive.values(), reverse=True)[:top_k][-1]
        alive = {t: x for t, x in alive.items() if x >= kth}
    if top_p < 1:
        weights = softmax(alive)
        kept, before = {}, 0.0
        for token in sorted(alive, key=lambda t: (-alive[t], t)):
            if before < top_p:
                kept[token] = alive[token]
            before += weights[token]
        alive = kept
    if min_p:
        weights = softmax(alive)
        alive = {t: x for t, x in alive.items() if weights[t] >= min_p * max(weights.values())}
    return softmax(alive)


def softmax(values):
    top = max(values.values())
    weights = {t: np.exp(x - top) for t, x in values.items()}
    total = sum(weights.values())
    return {t: w / total for t, w in weights.items()}


def words_of(tokens, size):
    words = np.zeros(-(-size // 32), np.uint32)
    for token in tokens:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words.view(np.int32)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 1000])
def test_apply_bitmask_keeps_exactly_the_set_tokens(size):
    """Token t survives iff bit t % 32 of word t // 32 is set, also the sign bit, at sizes around a word."""
    rng = np.random.default_rng(size)
    tokens = [t for t in range(size) if rng.random() < 0.4 or t % 32 == 31]
    words = words_of(tokens, size)
    logits = rng.standard_normal(size).astype(np.float32)
    masked = apply_bitmask(logits.copy(), words)
    assert np.flatnonzero(masked > -np.inf).tolist() == tokens
    assert np.array_equal(masked[tokens], logits[tokens])
    assert count_bits(words) == len(tokens)
    assert np.flatnonzero(unpack_bitmask(words, size)).tolist() == tokens


def test_draw_greedy_takes_the_first_of_equal_logits():
    """On a tie the lowest id wins, and randomness is not used."""
    logits = np.array([0, 3, 3, 1], np.float32)
    assert {Sampling(seed=s).draw(logits, p) for s in range(3) for p in range(3)} == {1}


def test_draw_never_takes_a_masked_token():
    """A forbidden token is never drawn, however likely the model finds it."""
    logits = np.array([50, 1, 2, 49], np.float32)
    masked = apply_bitmask(logits, words_of([1, 2], 4))
    for options in ({"temperature": 0}, {"temperature": 5.0, "top_k": 1}, {"temperature": 9.0, "min_p": 0.9}):
        assert {Sampling(seed=7, **options).draw(masked, p) for p in range(200)} <= {1, 2}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.integers(-6, 6).map(lambda n: n / 2), st.just(-np.inf)), min_size=1, max_size=12).filter(
        lambda row: max(row) > -np.inf
    ),
    st.sampled_from([0.25, 1.0, 1.7]),
    st.integers(0, 5),
    st.sampled_from([0.05, 0.3, 0.62, 0.9, 1.0]),
    st.sampled_from([0.0, 0.07, 0.31, 1.0]),
)
def test_distribution_equals_the_definitions(row, temperature, top_k, top_p, min_p):
    """Temperature, top-k, top-p, min-p in this order, ties included, equal their one-token-at-a-time definitions."""
    logits = np.array(row, np.float32)
    tokens, probabilities = Sampling(temperature, top_k, top_p, min_p).distribution(logits)
    expected = oracle(logits, temperature, top_k, top_p, min_p)
    assert tokens.tolist() == sorted(expected)
    assert np.allclose(probabilities, [expected[t] for t in tokens.tolist()])


def test_distribution_equals_transformers():
    """Each filter alone keeps the tokens that the transformers library keeps."""
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(5)
    for _ in range(40):
        logits = (rng.standard_normal(50) * 3).astype(np.float32)
        warpers = [
            process.TemperatureLogitsWarper(0.8),
            process.TopKLogitsWarper(20),
            process.TopPLogitsWarper(0.85),
            process.MinPLogitsWarper(0.03),
        ]
        scores = torch.from_numpy(logits)[None]
        for warper in warpers:
            scores = warper(None, scores)
        expected = torch.softmax(scores[0].double(), -1).numpy()
        tokens, probabilities = Sampling(0.8, 20, 0.85, 0.03).distribution(logits)
        assert tokens.tolist() == np.flatnonzero(expected).tolist()
        assert np.allclose(probabilities, expected[tokens], atol=1e-6)


def test_draw_frequencies_follow_the_distribution():
    """Over 4,000 positions, each token's count is within five standard deviations of its expectation."""
    logits = np.array([1.0, 0.0, -np.inf, 2.0, 0.5], np.float32)
    sampling = Sampling(temperature=1.3, seed=11)
    tokens, probabilities = sampling.distribution(logits)
    counts = np.bincount([sampling.draw(logits, p) for p in range(4000)], minlength=5)
    assert counts[2] == 0
    deviation = np.sqrt(4000 * probabilities * (1 - probabilities))
    assert (np.abs(counts[tokens] - 4000 * probabilities) < 5 * deviation).all()


def test_draw_depends_on_seed_and_position_alone():
    """The same (seed, position) draws the same token in any order; other seeds and positions do not all agree."""
    logits = np.zeros(1000, np.float32)
    forwards = [Sampling(temperature=1, seed=3).draw(logits, p) for p in range(20)]
    backwards = [Sampling(temperature=1, seed=3).draw(logits, p) for p in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) > 10
    assert forwards != [Sampling(temperature=1, seed=4).draw(logits, p) for p in range(20)]


def test_seeded_takes_a_fresh_seed_once():
    """Without a seed one is taken, so that the output can be reproduced; a given one stays; greedy needs none."""
    fresh = Sampling(temperature=1).seeded()
    assert fresh.seed is not None
    assert fresh.seeded() == fresh
    assert Sampling(temperature=1).seeded() != fresh
    assert Sampling().seeded().seed == 0


def test_draw_survives_extreme_logits():
    """Huge and tiny logits at a tiny temperature give the largest, without a NaN."""
    logits = np.array([3e38, -3e38, 2.9e38, -np.inf], np.float32)
    assert Sampling(temperature=1e-30, seed=1).draw(logits, 0) == 0
    tokens, probabilities = Sampling(temperature=1e-30).distribution(logits)
    assert np.isfinite(probabilities).all()
    assert probabilities.sum() == pytest.approx(1)
    assert tokens.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([np.nan, 1.0], "not finite"),
        ([np.inf, 1.0], "not finite"),
        ([-np.inf, -np.inf], "no token"),
        ([1, np.nan], "not"),
    ],
)
def test_draw_refuses_what_is_not_a_choice(row, words):
    """NaN and +inf are the model's fault, an empty mask the constraint's; each says so, greedy or not."""
    for temperature in (0.0, 1.0):
        with pytest.raises(DecodingError, match=words):
            Sampling(temperature=temperature, seed=0).draw(np.array(row, np.float32), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "1"},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_k": True},
        {"top_p": 0},
        {"top_p": 1.01},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"seed": -1},
        {"seed": 2**64},
        {"seed": 0.5},
    ],
)
def test_sampling_out_of_range(options):
    """An option out of its range is refused with its name, what is expected and what was given."""
    (name,) = options
    with pytest.raises(InvalidOption, match=f"^{name}: expected .* got "):
        Sampling(**options)
