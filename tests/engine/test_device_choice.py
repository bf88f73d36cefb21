"""Which outputs go to a device: models with a static form on a GPU, where the kernels can be had."""

import warnings

import pytest

torch = pytest.importorskip("torch")

from device_stand_ins import HashModel, HostGrammars, HostWalker  # noqa: E402
from engine_cases import grammar, greedy_vocabulary  # noqa: E402

from stcon.engine import device_loop  # noqa: E402
from stcon.engine.loop import generate  # noqa: E402
from stcon.errors import ModelUnavailable  # noqa: E402
from stcon.models.fake import FakeModel  # noqa: E402


class Placed(HashModel):
    """A static model that says it is on a GPU."""

    device = torch.device("cuda", 0)


class OnDevice(FakeModel):
    """A fake model with a static form."""

    def __init__(self, static=Placed, **options):
        super().__init__(greedy_vocabulary(), 1, **options)
        self.placed = static(self)

    @property
    def static(self):
        return self.placed


def test_engine_for_makes_one_engine_a_model(monkeypatch):
    """The kernels are loaded once, for the model's device and vocabulary."""
    made = []

    def grammars(device):
        made.append(device)
        return HostGrammars()

    monkeypatch.setattr("stcon.kernels.cuda.CudaGrammars", grammars)
    monkeypatch.setattr("stcon.kernels.cuda.CudaWalker", lambda words, tables, max_rows: HostWalker(words, tables))
    model = OnDevice()
    engine = device_loop.engine_for(model)
    assert engine is device_loop.engine_for(model)
    assert engine.vocab_size == model.vocabulary.size
    assert made == [Placed.device]


def test_engine_for_says_once_where_kernels_are_missing(monkeypatch):
    """Without the extra a GPU decodes by the plain loop, and one warning says so."""

    def refuse(device):
        raise ModelUnavailable("cuda.core is not installed")

    monkeypatch.setattr("stcon.kernels.cuda.CudaGrammars", refuse)
    model = OnDevice()
    with pytest.warns(RuntimeWarning, match=r"cuda\.core is not installed"):
        assert device_loop.engine_for(model) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert device_loop.engine_for(model) is None
        assert generate(model, [40], grammar("person"), max_tokens=20).tokens


def test_engine_for_models_elsewhere_is_none():
    """No static form, or one on the CPU: no engine."""
    assert device_loop.engine_for(FakeModel(greedy_vocabulary(), 1)) is None
    assert device_loop.engine_for(OnDevice(HashModel)) is None


def test_generate_decodes_on_the_device_what_fits_there(monkeypatch):
    """`generate` hands outputs to the engine, but for the reference decoder and what is longer than its context."""
    model = OnDevice(HashModel, context_length=300)
    tables = HostGrammars()
    walker = HostWalker(model.vocabulary, tables)
    engine = device_loop.DeviceEngine(model.placed, lambda: (tables, walker), vocab_size=model.vocabulary.size)
    monkeypatch.setattr(device_loop, "engine_for", lambda _: engine)
    expected = generate(FakeModel(greedy_vocabulary(), 1), [40], grammar("person"), max_tokens=30)
    found = generate(model, [40], grammar("person"), max_tokens=30)
    assert found.tokens == expected.tokens
    assert model.num_passes == 0
    assert generate(model, [40], grammar("person"), max_tokens=30, drip=True).tokens == expected.tokens
    assert model.num_passes > 0
    model.placed.context_length = 20
    before = model.num_passes
    assert generate(model, [40], grammar("person"), max_tokens=30).tokens == expected.tokens
    assert model.num_passes > before
