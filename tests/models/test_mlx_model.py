"""mlx-lm's models on the engine: sessions, rows, whole outputs, and a GGUF file against our own runner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stcon
from stcon.errors import InvalidOption, ModelUnavailable, PromptTooLong

pytest.importorskip("mlx.core", reason="mlx is not installed (the extra mlx)")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (the extra mlx)")

from mlx_networks import KINDS, VOCABULARY, model

from stcon.engine.batch import Batch, Request
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.mlx import MlxRows
from stcon.engine.batch.model import Span
from stcon.engine.loop import generate
from stcon.engine.sampling import Sampling

PROMPT = list(b"Give the name of the city, and whether it rains there.")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "rain": {"type": "boolean"}},
    "required": ["name", "rain"],
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "minimum": 0, "maximum": 9},
                "sub": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
            },
            "required": ["id", "sub"],
        }
    },
}


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.abs(a - b).max() < 2e-4 * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_do_not_depend_on_how_tokens_are_split(kind: str) -> None:
    """At once, in chunks, one by one; every position or the last."""
    tiny, whole = model(kind), model(kind, chunk=600)
    every = whole.session().append(PROMPT, all_positions=True)
    assert every.shape == (len(PROMPT), VOCABULARY.size)
    assert every.dtype == np.float32
    assert _close(tiny.session().append(PROMPT, all_positions=True), every)
    session = tiny.session()
    rows = [session.append([token]) for token in PROMPT]
    assert _close(np.stack(rows), every)
    assert _close(tiny.session().append(PROMPT), every[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_independent(kind: str) -> None:
    """Whoever goes on, the other stays where it was; copies of copies too."""
    tiny = model(kind)
    session = tiny.session()
    session.append(PROMPT)
    other = session.copy()
    first = session.append([65, 66, 67])
    session.append([68])
    assert other.length == len(PROMPT)
    third = other.copy()
    assert _close(other.append([65, 66, 67]), first)
    assert _close(third.append([65, 66, 67]), first)


def test_attention_can_go_back_and_recurrent_layers_cannot() -> None:
    """Cut back, a session gives what it gave; the hybrid says what to do instead."""
    session = model("llama").session()
    session.append(PROMPT)
    expected = session.copy().append([70, 71])
    session.append([1, 2, 3, 4])
    session.truncate(len(PROMPT))
    assert _close(session.append([70, 71]), expected)
    hybrid = model("qwen3_5").session()
    hybrid.append(PROMPT)
    assert not hybrid.can_truncate
    with pytest.raises(NotImplementedError, match="copy"):
        hybrid.truncate(3)


def test_what_does_not_fit_is_refused() -> None:
    """Before anything is computed."""
    session = model("llama").session()
    with pytest.raises(PromptTooLong):
        session.append([1] * 601)
    with pytest.raises(InvalidOption):
        session.append([])
    assert session.length == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", [SCHEMA, TREE], ids=["flat", "recursive"])
def test_outputs_are_valid_and_the_modes_agree_with_dripping(kind: str, schema: dict[str, object]) -> None:
    """Forced spans fed at once give the tokens of feeding one by one; budgets hold at three limits."""
    from jsonschema import Draft202012Validator

    tiny, grammar = model(kind, 3), stcon.compile(schema)
    one = generate(tiny, PROMPT, grammar, max_tokens=90, budget=True)
    drip = generate(tiny, PROMPT, grammar, max_tokens=90, budget=True, drip=True)
    assert [token.id for token in one.tokens] == [token.id for token in drip.tokens]
    assert one.passes < drip.passes
    need = stcon.Matcher(grammar, VOCABULARY).need()
    assert need is not None
    for limit in (need, need + 3, need + 20):
        answer = generate(tiny, PROMPT, grammar, max_tokens=limit, budget=True)
        assert len(answer.tokens) <= limit
        assert Draft202012Validator(schema).is_valid(answer.value)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_write_what_single_streams_write(kind: str) -> None:
    """Mixed grammars, one free row, samplers and lengths of their own; rows join and leave at different steps."""
    tiny = model(kind, 5)
    grammars = [stcon.compile(SCHEMA), None, stcon.compile(TREE), stcon.compile_regex("[a-c]{3,9}")]
    requests = [
        Request(PROMPT[: 20 + 9 * i], grammar, max_tokens=24 + 6 * i, sampling=Sampling(0.7 * (i % 2), seed=i))
        for i, grammar in enumerate(grammars * 2)
    ]
    rows = rows_for(tiny, 3)
    assert isinstance(rows, MlxRows)
    answers = [found[0] for found in Batch(rows).generate(requests)]
    for request, answer in zip(requests, answers, strict=True):
        alone = generate(
            tiny,
            request.prompt_ids,
            request.grammar,
            max_tokens=request.max_tokens,
            sampling=request.sampling,
            budget=request.grammar is not None,
        )
        assert answer.text == alone.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_rests_is_not_moved_on(kind: str) -> None:
    """Steps over some of the rows, copies out of the shared caches, rows that leave from the middle."""
    tiny = model(kind, 7)
    rows, plain = MlxRows(tiny, 4), {}
    numbers = [rows.join(100) for _ in range(3)]
    for i, row in enumerate(numbers):
        plain[row] = tiny.session()
        plain[row].append(PROMPT[: 5 + i])
        rows.feed([Span(row, PROMPT[: 5 + i], False)])

    def step(*some: int) -> None:
        spans = [Span(row, [60 + row + rows.length(row)], True) for row in some]
        expected = [plain[span.row].append(list(span.tokens)) for span in spans]
        found = rows.feed(spans)
        assert all(_close(found.row(i), logits) for i, logits in enumerate(expected))

    a, b, c = numbers
    step(a, b, c)
    step(c, a)
    step(a, b, c)
    d = rows.copy(b, rows.length(b), 100)
    plain[d] = plain[b].copy()
    step(a, b, c, d)
    rows.leave(b)
    step(d, a)
    step(a, c, d)
    rows.leave(a)
    step(c, d)
    assert rows.length(d) == plain[d].length


def test_a_gguf_file_is_read_without_torch_into_mlx(tmp_path: Path) -> None:
    """The default model's first layers' worth of logits, against our own runner in float32."""
    from stcon.models.mlx.load import load
    from stcon.models.pull import default_model_path

    try:
        path = default_model_path()
    except ModelUnavailable as error:
        pytest.skip(str(error))
    found, ours = load(path), stcon.load_model(path, device="cpu", dtype="float32", runner="lean")
    ids = found.prompt_ids("Name a city.")
    assert ids == ours.prompt_ids("Name a city.")
    a = found.session().append(ids[-6:], all_positions=True)
    b = ours.session().append(ids[-6:], all_positions=True)
    assert np.abs(a - b).max() < 1e-3 * np.abs(b).max()
    with pytest.raises(ModelUnavailable, match="no such file"):
        load(tmp_path / "nothing.gguf")
