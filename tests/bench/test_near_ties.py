"""Divergences are found where they are, with the gap that the model gives there."""

from stcon.bench.near_ties import Divergence, divergence, summarize
from stcon.models.fake import FakeModel
from stcon.vocab.vocabulary import Vocabulary

PROMPT = [5, 6, 7]


def bytes_vocabulary():
    return Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(256))], end_ids=(0,))


def test_divergence_is_the_first_difference_with_its_gap():
    """Position, tokens and gap are those of the first difference; what follows is not looked at."""
    model = FakeModel(bytes_vocabulary(), 3)
    found = divergence(model, PROMPT, [10, 11, 12, 13], [10, 11, 99, 98])
    logits = model.logits([*PROMPT, 10, 11])
    one, other = float(logits[12]), float(logits[99])
    assert found == Divergence(2, 12, 99, one - other, (one, other))
    swapped = divergence(model, PROMPT, [10, 11, 99], [10, 11, 12])
    assert swapped.gap == -found.gap
    assert model.num_passes == 2


def test_divergence_of_equal_outputs_is_none_and_costs_nothing():
    """No pass is made where nothing differs."""
    model = FakeModel(bytes_vocabulary(), 3)
    assert divergence(model, PROMPT, [10, 11], [10, 11]) is None
    assert divergence(model, PROMPT, [], []) is None
    assert model.num_passes == 0


def test_divergence_where_one_output_ends_has_no_gap():
    """An output that is a beginning of the other parts from it where it ends."""
    model = FakeModel(bytes_vocabulary(), 3)
    assert divergence(model, PROMPT, [10], [10, 11]) == Divergence(1, None, 11, None)
    assert divergence(model, PROMPT, [10, 11], [10]) == Divergence(1, 11, None, None)


def test_summarize_counts_preferences_and_gaps():
    """A row of Table 24 from four pairs, two of them with gaps."""
    row = summarize([None, Divergence(3, 1, 2, 0.5), Divergence(0, 1, 2, -0.1), Divergence(1, None, 4, None)])
    assert (row.compared, row.divergent) == (4, 3)
    assert (row.median_gap, row.max_gap) == (0.3, 0.5)
    assert (row.prefers_first, row.prefers_second) == (1, 1)
    assert summarize([None]).max_gap is None
