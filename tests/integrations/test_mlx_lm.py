"""The processor in mlx-lm's own loops, and its server with constraints."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import stcon
from stcon.errors import LimitTooSmall, RequestError

pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (the extra mlx)")

import mlx.core as mx
import mlx_lm  # noqa: F401
from mlx_networks import KINDS, VOCABULARY, model

from stcon.engine.loop import generate
from stcon.integrations.mlx_lm import GrammarProcessor

loops: Any = sys.modules["mlx_lm.generate"]
PROMPT = list(b"A city and its weather:")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "rain": {"type": "boolean"}},
    "required": ["name", "rain"],
}


def _run(kind: str, processor: GrammarProcessor, max_tokens: int) -> list[int]:
    """What `generate_step` yields, to the first end token."""
    found: list[int] = []
    for token, _ in loops.generate_step(
        mx.array(PROMPT), model(kind).network, max_tokens=max_tokens, logits_processors=[processor]
    ):
        found.append(int(token))
        if token in VOCABULARY.end_ids:
            break
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_output_is_our_loops_without_forced_text(kind: str) -> None:
    """Same model, same masks: the tokens of mode mask, at a generous limit and at the least one."""
    grammar = stcon.compile(SCHEMA)
    need = stcon.Matcher(grammar, VOCABULARY).need()
    assert need is not None
    for limit in (60, need):
        tokens = _run(kind, GrammarProcessor(grammar, VOCABULARY, limit), limit)
        ours = generate(model(kind), PROMPT, grammar, mode="mask", max_tokens=limit, budget=True)
        text = VOCABULARY.decode([token for token in tokens if token not in VOCABULARY.end_ids]).decode()
        assert json.loads(text) == ours.value
        assert text == ours.text
        assert len(tokens) <= limit
    with pytest.raises(LimitTooSmall):
        GrammarProcessor(grammar, VOCABULARY, need - 1)


@pytest.mark.parametrize("pattern", ["[ab]{2,6}", None])
def test_masks_walked_by_the_device_give_the_hosts_output(pattern: str | None) -> None:
    """The kernels' text, compiled for the CPU, walks the masks wherever the machine alone decides."""
    from mlx_on_cpu import HostKernels

    from stcon.integrations.mlx_lm.masks import DeviceMasks

    class Counted(DeviceMasks):
        calls = 0

        def apply(self, *arguments: Any) -> Any:
            self.calls += 1
            return super().apply(*arguments)

    grammar = stcon.compile(SCHEMA) if pattern is None else stcon.compile_regex(pattern)
    masks = Counted(VOCABULARY, HostKernels("metal"))
    found = _run("llama", GrammarProcessor(grammar, VOCABULARY, 60, masks=masks), 60)
    assert found == _run("llama", GrammarProcessor(grammar, VOCABULARY, 60), 60)
    assert masks.calls > 0


def test_a_batch_of_mixed_rows_is_constrained_row_by_row() -> None:
    """mlx-lm's BatchGenerator with a processor a sequence, and one sequence without."""
    tiny = model("llama")
    grammars = [stcon.compile(SCHEMA), None, stcon.compile_regex("[ab]{2,6}")]
    batch = loops.BatchGenerator(tiny.network, stop_tokens=[[token] for token in VOCABULARY.end_ids])
    limits = [40, 12, 30]
    processors = [
        [] if grammar is None else [GrammarProcessor(grammar, VOCABULARY, limit)]
        for grammar, limit in zip(grammars, limits, strict=True)
    ]
    prompts = [PROMPT, PROMPT[:7], PROMPT[:11]]
    ids = batch.insert(prompts, max_tokens=limits, logits_processors=processors)
    found: dict[int, list[int]] = {number: [] for number in ids}
    finished: set[int] = set()
    for _ in range(200):
        _, responses = batch.next()
        for response in responses:
            if response.finish_reason != "stop":
                found[response.uid].append(int(response.token))
            if response.finish_reason is not None:
                finished.add(response.uid)
        if len(finished) == len(ids):
            break
    texts = [VOCABULARY.decode(found[number]).decode("utf-8", "replace") for number in ids]
    assert grammars[0].accepts(texts[0])  # type: ignore[union-attr]
    assert grammars[2].accepts(texts[2])  # type: ignore[union-attr]
    assert len(found[ids[1]]) <= 12


def test_the_server_reads_constraints_and_refuses_what_it_cannot_enforce() -> None:
    """Every spelling of our own server; tools beside one of them are refused."""
    from stcon.integrations.mlx_lm.server import constraint_of

    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    grammar = constraint_of({"response_format": format_})
    assert grammar is not None
    assert grammar.accepts('{"name":"Oslo","rain":true}')
    assert constraint_of({"guided_regex": "a+"}) is not None
    assert constraint_of({}) is None
    with pytest.raises(RequestError, match="tools"):
        constraint_of({"response_format": format_, "tools": [{"type": "function"}]})
    with pytest.raises(RequestError):
        constraint_of({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}})


def test_the_constraint_travels_with_a_request() -> None:
    """Through the one argument that mlx-lm hands to the generating thread as it is."""
    from types import SimpleNamespace

    from stcon.integrations.mlx_lm.server import ConstrainedBias, processors

    bias = ConstrainedBias({3: -1.0}, stcon.compile(SCHEMA), 60)
    processor = bias.processor = GrammarProcessor(bias.grammar, VOCABULARY, bias.max_tokens)
    logits = SimpleNamespace(
        logit_bias=bias, repetition_penalty=0.0, repetition_context_size=20, presence_penalty=0.0,
        presence_context_size=20, frequency_penalty=0.0, frequency_context_size=20,
    )  # fmt: skip
    assert processors(SimpleNamespace(logits=logits))[-1] is processor
    logits.logit_bias = {3: -1.0}
    assert processor not in processors(SimpleNamespace(logits=logits))


def test_only_tokens_at_which_the_loop_stops_end_an_output() -> None:
    """A tokenizer may have other end tokens, which mlx-lm would write as text behind the answer."""
    from stcon.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), None, None], end_ids=(256, 257))
    processor = GrammarProcessor(stcon.compile_regex("a"), vocabulary, 5, prompt_tokens=1, end_ids=(257,))
    masked = processor(mx.array([0, ord("a")]), mx.zeros((1, 258)))
    assert [token for token, logit in enumerate(masked[0].tolist()) if logit == 0] == [257]
