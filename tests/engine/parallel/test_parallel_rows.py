"""Certified decoding over every kind of rows: logits at several places of a span, rows that are cut."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))

from parallel_cases import PROMPT, SCHEMAS, check, compiled, form, model  # noqa: E402
from test_static_rows import CutStatic, HashStatic  # noqa: E402
from tiny_llama import network, tokenizer  # noqa: E402

import stcon  # noqa: E402
from stcon.engine import parallel  # noqa: E402
from stcon.engine.batch import SessionRows  # noqa: E402
from stcon.engine.batch.choose import rows_for  # noqa: E402
from stcon.engine.batch.model import Span  # noqa: E402
from stcon.engine.batch.packed import PackedRows  # noqa: E402
from stcon.engine.batch.static import StaticRows  # noqa: E402
from stcon.engine.batch.torch_logits import TorchLogits  # noqa: E402
from stcon.engine.loop import generate as sequential  # noqa: E402
from stcon.models.text import from_tokenizer  # noqa: E402
from stcon.models.transformers import TransformersModel  # noqa: E402
from stcon.vocab import Vocabulary  # noqa: E402


def everywhere(kind):
    """The static stand-in `kind`, giving logits after every token where asked to."""

    class Everywhere(kind):
        def forward(self, tokens, lengths, cache, counts=None, all_positions=False):
            if not all_positions:
                return super().forward(tokens, lengths, cache, counts)
            steps = [
                super(Everywhere, self).forward(tokens[:, i : i + 1], lengths + i, cache)
                for i in range(tokens.shape[1])
            ]
            return torch.stack(steps, 1)

    return Everywhere


@pytest.fixture(scope="module")
def tiny():
    """A random Llama of two layers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    words = tokenizer()
    yield TransformersModel(network(len(words)), Vocabulary.from_tokenizer(words), from_tokenizer(words), name="tiny")
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", [HashStatic, CutStatic])
@pytest.mark.parametrize("name", SCHEMAS)
def test_generate_on_static_rows_is_sequential(name, kind):
    """Slots of a static cache, with and without recurrent states, and few of them."""
    fake = model("previous")
    rows = StaticRows(fake, everywhere(kind)(fake), 6, row_tokens=400)
    one = sequential(fake, PROMPT, compiled(name), max_tokens=150)
    check(one, parallel.generate(fake, PROMPT, compiled(name), max_tokens=150, rows=rows))
    assert not rows._active, "every row is given back"


@pytest.mark.parametrize("kind", [HashStatic, CutStatic])
@pytest.mark.parametrize("limit", [None, 60])
def test_generate_with_draws_where_the_logits_are_is_sequential(kind, limit, monkeypatch):
    """As on a GPU: tokens are found by torch, under each place's own mask; near a limit the host draws."""
    drawn = []

    def on_device(logits, masks):
        monkeypatch.setattr(logits, "_on_device", True)
        drawn.extend(masks)
        return greedy(logits, masks)

    greedy = TorchLogits.greedy
    monkeypatch.setattr(TorchLogits, "greedy", on_device)
    fake = model("previous")
    rows = StaticRows(fake, everywhere(kind)(fake), 6, row_tokens=400)
    options = {"max_tokens": limit or 150, "budget": limit is not None}
    one = sequential(fake, PROMPT, compiled("flat"), **options)
    check(one, parallel.generate(fake, PROMPT, compiled("flat"), rows=rows, **options))
    assert len(drawn) >= one.sampled


def test_generate_on_packed_rows_is_sequential(tiny):
    """A network's packed steps: the outputs of its sessions, in fewer passes than tokens are drawn."""
    rows = rows_for(tiny, 16)
    assert isinstance(rows, PackedRows)
    grammar, prompt = stcon.compile(form(8)), tiny.prompt_ids("hello world")
    one = sequential(tiny, prompt, grammar, max_tokens=200)
    two = parallel.generate(tiny, prompt, grammar, max_tokens=200, rows=rows)
    check(one, two)
    assert two.passes < one.passes


@pytest.mark.parametrize("num_tokens", [1, 5, 40])
def test_feed_positions_are_the_sessions(tiny, num_tokens):
    """Logits at places of a span are those of sessions; a row that was cut goes on as if never longer."""
    rows, session = rows_for(tiny, 4), SessionRows(tiny, 4)
    tokens = [(3 + 7 * i) % tiny.vocabulary.size for i in range(num_tokens)]
    places = sorted({0, num_tokens // 2, num_tokens - 1})
    found = []
    for kind in (rows, session):
        row, other = kind.join(64), kind.join(64)
        logits = kind.feed([Span(other, tokens[:1], True), Span(row, tokens, True, places)])
        first = [logits.row(index) for index in range(1 + len(places))]
        kind.truncate(row, num_tokens // 2)
        found.append(np.stack([*first, kind.feed([Span(row, [5], True)]).row(0)]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)
