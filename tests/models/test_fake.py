"""The fake model: causal, exact however a prefix is split, and what it counts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.errors import InvalidOption, PromptTooLong
from stcon.models.fake import FakeModel, prefer, prefer_longest
from stcon.vocab.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(32, 127)), b"the", b"12"], end_ids=(0,))
TOKENS = st.lists(st.integers(0, VOCABULARY.size - 1), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(TOKENS, st.lists(st.integers(1, 11), max_size=4), st.integers(0, 2**70))
def test_append_is_exact_however_split(tokens, cuts, seed):
    """The same prefix gives bit-identical logits, whatever passes it was fed in."""
    whole = FakeModel(VOCABULARY, seed).session().append(tokens)
    session = FakeModel(VOCABULARY, seed).session()
    edges = [0, *sorted({cut for cut in cuts if cut < len(tokens)}), len(tokens)]
    for begin, end in pairwise(edges):
        row = session.append(tokens[begin:end])
    assert np.array_equal(row, whole)
    assert row.dtype == np.float32
    assert row.shape == (VOCABULARY.size,)


@settings(max_examples=60, deadline=None)
@given(TOKENS, TOKENS)
def test_append_all_positions_is_causal(tokens, others):
    """Row s depends on the first s + 1 tokens alone: another future leaves it as it is."""
    rows = FakeModel(VOCABULARY).session().append(tokens, all_positions=True)
    assert rows.shape == (len(tokens), VOCABULARY.size)
    for position, row in enumerate(rows):
        again = FakeModel(VOCABULARY).session().append([*tokens[: position + 1], *others], all_positions=True)
        assert np.array_equal(row, again[position])


def test_logits_differ_between_prefixes_and_seeds():
    """Prefixes that differ in one token, in order or in length, and other seeds, give other logits."""
    prefixes = [[1], [2], [1, 2], [2, 1], [1, 1], [1, 1, 1]]
    rows = [FakeModel(VOCABULARY, seed).logits(prefix).tobytes() for seed in (0, 1) for prefix in prefixes]
    assert len(set(rows)) == len(rows)


def test_truncate_and_copy():
    """Going back to a prefix gives its logits again; a copy goes on by itself."""
    session = FakeModel(VOCABULARY).session()
    first = session.append([5, 6, 7])
    other = session.copy()
    session.append([8, 9])
    assert np.array_equal(other.append([8]), FakeModel(VOCABULARY).session().append([5, 6, 7, 8]))
    assert (session.length, other.length) == (5, 4)
    session.truncate(2)
    assert session.length == 2
    assert np.array_equal(session.append([7]), first)


def test_truncate_out_of_range():
    """A length that the session never had is refused."""
    session = FakeModel(VOCABULARY).session()
    session.append([1, 2])
    for length in (-1, 3):
        with pytest.raises(InvalidOption, match="truncate"):
            session.truncate(length)


def test_append_limits():
    """No tokens, or more than the context takes, are refused and change nothing."""
    session = FakeModel(VOCABULARY, context_length=3).session()
    session.append([1, 2])
    with pytest.raises(InvalidOption):
        session.append([])
    with pytest.raises(PromptTooLong) as caught:
        session.append([1, 2])
    assert (caught.value.given, caught.value.limit, session.length) == (4, 3, 2)


def test_counts():
    """Passes and tokens are counted over all sessions."""
    model = FakeModel(VOCABULARY)
    model.session().append([1, 2, 3])
    model.session().append([4])
    assert (model.num_passes, model.num_appended, model.passes) == (2, 4, [(1, 2, 3), (4,)])


def test_bias():
    """Tokens are favoured by an array, by their bytes, by their length, or by a function of the prefix."""
    ids = {VOCABULARY.token_bytes(token): token for token in range(VOCABULARY.size)}
    longest = FakeModel(VOCABULARY, bias=prefer_longest(VOCABULARY))
    assert longest.logits([1]).argmax() == ids[b"the"]
    digits = FakeModel(VOCABULARY, bias=prefer(VOCABULARY, bytes.isdigit))
    assert VOCABULARY.token_bytes(int(digits.logits([1]).argmax())).isdigit()

    def repeat(prefix):
        row = np.zeros(VOCABULARY.size, np.float32)
        row[prefix[-1]] = 50
        return row

    assert FakeModel(VOCABULARY, bias=repeat).logits([1, 17]).argmax() == 17
