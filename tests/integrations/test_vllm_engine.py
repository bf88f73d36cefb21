"""vLLM itself, its CPU build with SmolLM2: constraints of every kind, under preemption, caching, sampling, speculation.

``make test-integrations`` runs these; they are skipped where there is no vLLM (see `vllm_process`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration_matrix import Asked, extractions, model_directory, oracle, package_missing, recursive_task
from jsonschema import Draft202012Validator
from vllm_process import VllmProcess, request, why_no_vllm

import stcon

NO_VLLM = why_no_vllm() or package_missing("transformers", "gguf")
pytestmark = [pytest.mark.model, pytest.mark.long, pytest.mark.skipif(NO_VLLM is not None, reason=str(NO_VLLM))]

# 20 blocks of 32 tokens: room for one request of the longest kind, and not for six at once
SMALL_CACHE: dict[str, Any] = {
    "max_model_len": 512,
    "max_num_seqs": 8,
    "block_size": 32,
    "num_gpu_blocks_override": 20,
    "enable_prefix_caching": True,
}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
GBNF = r"""
root  ::= "(" list? ")"
list  ::= item ("," item)*
item  ::= [a-z]{1,6} | root
"""
QUESTION = "Write a short list of animals."


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    """Forced text drafted, and a small cache."""
    yield from _engine(tmp_path_factory, {"forced": True}, **SMALL_CACHE)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    """No drafts, and a small cache."""
    yield from _engine(tmp_path_factory, {}, **SMALL_CACHE)


@pytest.fixture(scope="module")
def ngram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    """Drafts looked up in the prompt, as vLLM has them."""
    yield from _engine(tmp_path_factory, {}, **SMALL_CACHE, speculative_config=NGRAM)


def _engine(folders: pytest.TempPathFactory, stcon_options: dict[str, Any], **llm: Any) -> Iterator[VllmProcess]:
    log = folders.mktemp("vllm") / "vllm.log"
    engine = VllmProcess(model_directory(), log, stcon_options, **llm)
    yield engine
    engine.close()


def asked(one: Asked, **sampling: Any) -> dict[str, Any]:
    """A request of the matrix as vLLM's."""
    limit = sampling.pop("max_tokens", one.max_tokens)
    return request(one.prompt_ids, limit, None if one.schema is None else {"json": one.schema}, **sampling)


def only(result: dict[str, Any]) -> dict[str, Any]:
    """The one answer of a result."""
    ((answer,),) = result["answers"]
    found: dict[str, Any] = answer
    return found


def question(structured: dict[str, Any], max_tokens: int = 40, **sampling: Any) -> dict[str, Any]:
    """A request whatever the constraint."""
    return request(oracle().prompt_ids(QUESTION), max_tokens, structured, **sampling)


KINDS: dict[str, tuple[dict[str, Any], stcon.Grammar]] = {
    "regex": ({"regex": "(cat|dog)(, (cat|dog)){2,9}\\."}, stcon.compile_regex("(cat|dog)(, (cat|dog)){2,9}\\.")),
    "choice": ({"choice": ["cats (2)", "dogs [3]"]}, stcon.compile_regex("cats \\(2\\)|dogs \\[3\\]")),
    "gbnf": ({"grammar": GBNF}, stcon.compile_grammar(GBNF, syntax="gbnf")),
    "json_object": ({"json_object": True}, stcon.compile({"type": "object"})),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_kinds_of_constraints(forced: VllmProcess, kind: str, temperature: float) -> None:
    """Every kind of constraint is kept within the limit, drawn at random or not, and every draft is accepted."""
    structured, grammar = KINDS[kind]
    result = forced.generate([question(structured, temperature=temperature, seed=seed) for seed in range(4)])
    assert "refused" not in result, result
    for (answer,) in result["answers"]:
        assert grammar.accepts(answer["text"]), answer
        assert len(answer["tokens"]) <= 40
    assert result["counts"]["accepted"] == result["counts"]["drafted"]


@pytest.mark.parametrize("name", ["person", "classification", "tool_call"])
def test_drafts_change_the_number_of_steps_alone(forced: VllmProcess, masked: VllmProcess, name: str) -> None:
    """An extraction has the same tokens with forced text drafted as without, in fewer steps than it has tokens."""
    work = extractions()[name]
    with_drafts = forced.generate([asked(work)])
    without = masked.generate([asked(work, extra_args={"stcon_mode": "canonical"})])
    assert only(with_drafts)["tokens"] == only(without)["tokens"]
    assert without["counts"]["steps"] == len(only(without)["tokens"])
    counts = with_drafts["counts"]
    assert counts["accepted"] == counts["drafted"] > 0
    assert counts["steps"] == len(only(with_drafts)["tokens"]) - counts["accepted"]


def test_speculation_of_vllms_own(ngram: VllmProcess, masked: VllmProcess) -> None:
    """Under vLLM's drafts from the prompt, right and wrong ones, outputs are those without drafts."""
    accepted = drafted = 0
    for work in list(extractions().values())[:3]:
        speculated = ngram.generate([asked(work)])
        assert only(speculated)["tokens"] == only(masked.generate([asked(work)]))["tokens"]
        accepted += speculated["counts"]["accepted"]
        drafted += speculated["counts"]["drafted"]
    assert 0 < accepted < drafted


def test_preemption(forced: VllmProcess) -> None:
    """Requests that are put back and begun again go on where they were: all of them are valid, and none is cut."""
    works = list(extractions().values())
    result = forced.generate([asked(work, temperature=0.7, seed=5) for work in works])
    assert result["counts"]["preempted"] > 0
    for work, (answer,) in zip(works, result["answers"], strict=True):
        assert work.is_valid(answer["text"]), answer
    assert result["counts"]["accepted"] == result["counts"]["drafted"]


def test_prefix_caching(forced: VllmProcess) -> None:
    """A prompt that is in the cache is not read again, and the answer is the same."""
    work = extractions()["person"]
    first, second = forced.generate([asked(work)]), forced.generate([asked(work)])
    assert second["cached"][0] > 0
    assert only(first)["tokens"] == only(second)["tokens"]


def test_mixed_batch(forced: VllmProcess) -> None:
    """Beside constrained requests, free ones write what they write alone."""
    free = request(oracle().prompt_ids("What is the capital of France?"), 12)
    alone = only(forced.generate([free]))
    result = forced.generate([asked(extractions()["person"]), free, question(KINDS["regex"][0])])
    (person,), (beside,), (list_,) = result["answers"]
    assert beside["tokens"] == alone["tokens"]
    assert extractions()["person"].is_valid(person["text"])
    assert KINDS["regex"][1].accepts(list_["text"])


def test_several_answers(forced: VllmProcess) -> None:
    """With n above 1 every answer is valid, and they differ."""
    work = extractions()["person"]
    ((*answers,),) = forced.generate([asked(work, n=3, temperature=1.0, seed=11)])["answers"]
    texts = {answer["text"] for answer in answers}
    assert len(answers) == 3
    assert len(texts) > 1
    assert all(work.is_valid(text) for text in texts)


@pytest.mark.parametrize("more", [0, 3, 30])
def test_budgets_at_random(forced: VllmProcess, more: int) -> None:
    """Recursive answers drawn at temperature 1 are complete within the least limit there is, and within others."""
    task = recursive_task()
    least = stcon.Matcher(task.grammar, oracle().vocabulary, policy="none").need()
    assert least is not None
    sampling = {"temperature": 1.0, "max_tokens": least + more}
    result = forced.generate([asked(task, **sampling, seed=seed) for seed in range(4)])
    for (answer,) in result["answers"]:
        assert len(answer["tokens"]) <= least + more
        assert Draft202012Validator(task.schema).is_valid(json.loads(answer["text"]))


def test_without_budget_an_output_may_be_cut(forced: VllmProcess) -> None:
    """A request that asks for no budget is cut where its limit is."""
    work = extractions()["person"]
    sampling = {"max_tokens": 8, "extra_args": {"stcon_budget": False}}
    answer = only(forced.generate([asked(work, **sampling)]))
    assert answer["finish"] == "length"
    assert len(answer["tokens"]) == 8


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no schema": ({"json": {"type": "objekt"}}, {}, "type must be a type name"),
    "unsatisfiable": ({"json": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, {}, "no JSON value"),
    "pattern": ({"regex": "(a"}, {}, "structured outputs:"),
    "limit": ({"json": {"const": "a" * 200}}, {"max_tokens": 5}, "5 are allowed"),
    "ignore_eos": ({"regex": "a"}, {"ignore_eos": True}, "ignore_eos"),
    "min_tokens": ({"regex": "a"}, {"min_tokens": 5}, "min_tokens"),
    "stop token": ({"regex": "a"}, {"stop_token_ids": [28]}, "stop_token_ids"),
    "setting": ({"regex": "a"}, {"extra_args": {"stcon_modus": "mask"}}, "stcon_modus"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(forced: VllmProcess, name: str) -> None:
    """What cannot be served is refused with the reason, before the engine has it; the engine goes on."""
    structured, sampling, reason = REFUSED[name]
    refused = forced.generate([question(structured, **sampling)])["refused"]
    assert reason in refused, refused
    assert KINDS["choice"][1].accepts(only(forced.generate([question(KINDS["choice"][0])]))["text"])


def test_another_release_is_refused(tmp_path: Path) -> None:
    """Where the installed vLLM is none that this is made for, the engine does not start, and says why."""
    fake = tmp_path / "vllm-0.0.1.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.0.1\n")
    with pytest.raises(RuntimeError, match=r"made and tested for vLLM 0\.32\.0, and this is 0\.0\.1"):
        VllmProcess(model_directory(), tmp_path / "log", {}, {"PYTHONPATH": str(tmp_path)})
