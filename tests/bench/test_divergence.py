"""Where engines part: accounts over models without weights, whose differences are known."""

import numpy as np
import pytest
from click.testing import CliRunner

import stcon
from stcon.bench.divergence import NEAR_TIE, Engine, Models, as_json, compare, fidelity, tasks, texts
from stcon.errors import InvalidOption
from stcon.models.fake import FakeModel
from stcon.vocab.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(256))], end_ids=(0,))


def load(runner, dtype):
    """Float32 is one model, everything else rounds its logits to a grid: ties go the lower token."""
    return FakeModel(VOCABULARY, 1, context_length=1 << 14) if dtype == "float32" else Rounded(VOCABULARY, 1)


class Rounded(FakeModel):
    """Logits on a grid of 0.25."""

    context_length = 1 << 14

    def __init__(self, *arguments):
        super().__init__(*arguments, context_length=1 << 14)

    def logits(self, tokens, digest=None):
        """See `FakeModel.logits`."""
        return np.round(super().logits(tokens, digest) * 4).astype(np.float32) / 4


def test_engines_of_one_arithmetic_do_not_part():
    """Streams, batches and certified fields of an exact model write the same; every way is compared with the first."""
    models = Models(load)
    given = [Engine.parse(f"auto:float32{way}") for way in ("", ":batch", ":parallel")]
    found = list(compare(given, models, tasks(models.exact, most=1), 24))
    assert [one.engine for one in found] == ["auto:float32:batch", "auto:float32:parallel"]
    assert all(one.ties.compared == 2 and one.ties.divergent == 0 for one in found)


def test_rounding_parts_at_near_ties_that_float32_decides():
    """Each gap is no larger than the grid, and float32 sides with its own tokens."""
    models = Models(load)
    (found,) = compare([Engine("auto", "float32"), Engine("auto", "coarse")], models, tasks(models.exact, most=2), 40)
    places = [place for place in found.places.values() if place is not None]
    assert places
    assert all(0 <= place.gap <= 0.26 for place in places)
    assert found.ties.prefers_first == sum(place.gap > 0 for place in places)
    assert not found.failures
    data = as_json([found], [], {})
    assert len(data["divergences"]) == found.ties.divergent == data["outputs"][0]["divergent"]


def test_a_gap_that_no_rounding_explains_is_named():
    """Another model under the same name is a defect."""
    models = Models(lambda _, dtype: FakeModel(VOCABULARY, dtype == "other", context_length=1 << 14))
    (found,) = compare([Engine("auto", "float32"), Engine("auto", "other")], models, tasks(models.exact, most=1), 24)
    assert found.ties.max_gap > NEAR_TIE
    assert found.failures


def test_fidelity_is_exact_for_itself_and_measured_for_a_grid():
    """Against itself nothing differs; on a grid of 0.25 no logit is farther than 0.125, and divergences are small."""
    models = Models(load)
    read = texts(models.exact, most=1, positions=16)
    exact, coarse = (fidelity("auto", dtype, models, read, 16) for dtype in ("float32", "coarse"))
    assert (exact.positions, exact.top1, exact.max_kl, exact.max_difference) == (16, 1.0, 0.0, 0.0)
    assert 0 < coarse.mean_kl <= coarse.p99_kl <= coarse.max_kl < 0.01
    assert 0.1 < coarse.max_difference <= 0.126


@pytest.mark.parametrize("text", ["float32", "auto:float32:both", "a:b:stream:d"])
def test_engines_are_named_by_three_parts(text):
    """Anything else is refused with the form that is wanted."""
    with pytest.raises(InvalidOption, match="RUNNER:DTYPE"):
        Engine.parse(text)
    assert Engine.parse("lean:float32:stream").name == "lean:float32"


def test_command_prints_both_tables(monkeypatch, tmp_path):
    """Two engines, two accounts, and a file with each place."""
    from stcon.commands.bench import bench

    monkeypatch.setattr(stcon, "load_model", lambda name, *, device, runner, dtype: load(runner, dtype))
    result = CliRunner().invoke(
        bench,
        ["divergence", "--quick", "auto:float32", "auto:coarse", "--json", str(tmp_path / "r.json")],
        standalone_mode=False,
        catch_exceptions=False,
    )
    assert result.return_value == 0
    assert "auto:coarse" in result.output
    assert "mean KL" in result.output
    assert '"logits"' in (tmp_path / "r.json").read_text()
