"""The backend and the scheduler behind vLLM's interfaces, driven by stand-ins that call as vLLM 0.32.0 does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from vllm_fakes import (
    FakeAsked,
    FakeAsyncScheduler,
    FakeManager,
    FakeParams,
    FakeRequest,
    FakeScheduler,
    FakeValidationError,
    forget_ours,
    install,
)
from vllm_lab import END, OTHER_END, vocabulary

import stcon
from stcon.errors import InvalidOption, LimitTooSmall, ModelUnavailable
from stcon.integrations.vllm import CONFIG_KEY, PROPOSER, SCHEDULER
from stcon.integrations.vllm.gate import Gate, Refused
from stcon.models.fake import FakeModel

torch = pytest.importorskip("torch")

VOCABULARY = vocabulary()
THINK_END = ord("#")
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
}
SCHEMA = json.dumps(PERSON)


class Tokenizer:
    """A tokenizer as far as it is looked at."""

    def __len__(self) -> int:
        return VOCABULARY.size


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(monkeypatch)
    monkeypatch.setattr("stcon.integrations.vllm.versions.installed_version", lambda: "0.32.0")
    from stcon.integrations.vllm import backend

    monkeypatch.setattr(backend, "_vocabulary_of", lambda tokenizer, size, ends: VOCABULARY)
    yield
    forget_ours()


def config(drafts: int = 0, think_end: int | None = None, **settings: Any) -> Any:
    """An engine's configuration."""
    speculative = SimpleNamespace(method="custom_class", model=PROPOSER, num_speculative_tokens=drafts)
    return SimpleNamespace(
        tokenizer=Tokenizer(),
        think_end=think_end,
        additional_config={CONFIG_KEY: settings},
        num_speculative_tokens=drafts,
        speculative_config=speculative if drafts else None,
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(async_scheduling=False, scheduler_cls=SCHEDULER),
        model_config=SimpleNamespace(
            max_model_len=500,
            is_diffusion=False,
            get_vocab_size=lambda: VOCABULARY.size,
            try_get_generation_config=dict,
        ),
    )


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    """A gate for all tests."""
    found = Gate(60.0)
    yield found
    found.close()


def front(gate: Gate) -> Any:
    """What stands in vLLM's front end."""
    from stcon.integrations.vllm.frontend import Front

    found = Front(config(), Tokenizer())
    found.gate = gate
    return found


def scheduler(vllm_config: Any) -> Any:
    """A scheduler as vLLM's engine makes it."""
    from stcon.integrations.vllm.scheduler import make_scheduler

    return make_scheduler(vllm_config=vllm_config, structured_output_manager=FakeManager(vllm_config))


def ask(kind: str | None = "json", text: str = SCHEMA, name: str = "r", **params: Any) -> FakeRequest:
    """A request."""
    return FakeRequest(name, [65, 66], FakeParams(FakeAsked(kind, text) if kind else None, **params))


def text_of(request: FakeRequest) -> str:
    """What was written."""
    return VOCABULARY.decode(request.output).decode()


@pytest.mark.parametrize("drafts", [0, 1, 8])
def test_batches_are_answered_as_by_our_engine(drafts: int) -> None:
    """Constrained requests of one batch get our own engine's text; a free one gets what it gets without us."""
    model = FakeModel(VOCABULARY, 4)
    made = scheduler(config(drafts, mode="any"))
    free = ask(None, name="free", max_tokens=9)
    person = ask(name="person", max_tokens=40, stop_token_ids=[OTHER_END])
    word = ask("regex", "(abc|ab)+", "word", max_tokens=12, stop_token_ids=[OTHER_END])
    made.run([person, free, word], model)
    own = [
        model.generate("AB", grammar, limit, mode="any", raw=True).text
        for grammar, limit in ((stcon.compile(PERSON), 40), (stcon.compile_regex("(abc|ab)+"), 12))
    ]
    assert [text_of(person), text_of(word)] == own
    alone = ask(None, max_tokens=9)
    FakeScheduler(structured_output_manager=None).run([alone], FakeModel(VOCABULARY, 4))
    assert free.output == alone.output
    assert made.num_accepted == made.num_drafted
    assert (made.num_drafted > 0) == (drafts > 0)


def test_preempted_requests_are_not_drafted_for_until_read_again() -> None:
    """A request that gave its cache up gets no drafts until the model has read all but its last token again."""
    made, request = scheduler(config(8, mode="canonical")), ask()
    made.structured_output_manager.grammar_init(request)
    made.running.append(request)
    made.schedule()
    grammar = request.structured_output_request.grammar
    request.output += grammar.drafts(1)
    assert grammar.accept_tokens("r", request.output)
    ((_, drafted),) = made.schedule()
    assert VOCABULARY.decode([*request.output, *drafted]) == b'{"name":"'
    made.preempt(request)
    ((_, drafted),) = made.schedule()
    assert drafted == []


@pytest.mark.parametrize("drafts", [0, 5])
@pytest.mark.parametrize("max_tokens", [40, 60])
def test_limits_count_what_was_written_before(drafts: int, max_tokens: int) -> None:
    """Where reasoning comes before an output, both together keep the limit, and the output is complete."""
    made, request = scheduler(config(drafts, think_end=THINK_END)), ask(max_tokens=max_tokens)
    thoughts = [ord("h"), ord("m"), THINK_END]

    def thinks_first(prefix: Any) -> Any:
        written, bias = len(prefix) - len(request.prompt), np.zeros(VOCABULARY.size, np.float32)
        if written < len(thoughts):
            bias[thoughts[written]] = 100.0
        return bias

    made.run([request], FakeModel(VOCABULARY, 2, bias=thinks_first))
    assert request.output[:3] == thoughts
    text = VOCABULARY.decode(request.output[3:]).decode()
    assert Draft202012Validator(PERSON).is_valid(json.loads(text))
    assert request.status in ("stop", "length")


def test_reasoning_that_leaves_no_room_is_not_refused() -> None:
    """Where reasoning has used the limit up, the output is cut, as vLLM cuts it, and the request ends."""
    made, request = scheduler(config(think_end=THINK_END)), ask(max_tokens=25)
    made.structured_output_manager.grammar_init(request)
    request.output += [ord("h")] * 23 + [THINK_END]
    request.structured_output_request.reasoning_ended = True
    made.running.append(request)
    for scheduled, drafts in made.schedule():
        made._update(scheduled, drafts, made._sample(scheduled, drafts, FakeModel(VOCABULARY, 1)))
    assert request.status == "length"
    assert '{"name":"'.startswith(text_of(request).split("#")[1])


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ask(text='{"type": "objekt"}'), Refused),
        (ask("regex", "(a"), Refused),
        (ask(max_tokens=3), LimitTooSmall),
        (ask(eos_token_id=None), InvalidOption),
        (ask(stop_token_ids=[ord("a")]), InvalidOption),
        (ask(ignore_eos=True), InvalidOption),
        (ask(min_tokens=2), InvalidOption),
        (ask(extra_args={"stcon_mode": "free"}), InvalidOption),
        (ask(extra_args={"stcon_modes": "mask"}), InvalidOption),
        (ask("choice", "[]"), Refused),
    ],
)
def test_refusals_end_one_request(request_: FakeRequest, error: type[Exception], gate: Gate) -> None:
    """What cannot be served is refused by the server with the reason, and by the engine with an error for it alone."""
    checked = front(gate)
    with pytest.raises(FakeValidationError, match="structured outputs: ") as told:
        checked.check(request_)
    assert isinstance(told.value.__cause__, error)
    good = ask(name="good", max_tokens=40)
    scheduler(config()).run([request_, good], FakeModel(VOCABULARY, 1))
    assert request_.status == "error"
    assert Draft202012Validator(PERSON).is_valid(json.loads(text_of(good)))


def test_what_was_compiled_needs_no_thread(gate: Gate) -> None:
    """A constraint that has passed is prepared, a new one is not, and what is refused at sight needs no thread."""
    checked, known = front(gate), ask("regex", "known")
    assert not checked.is_prepared(known.sampling_params)
    checked.prepare(known.sampling_params)
    assert checked.is_prepared(known.sampling_params)
    assert checked.is_prepared(ask(ignore_eos=True).sampling_params)


def test_requests_that_go_on_later_are_refused(gate: Gate) -> None:
    """A request that can be resumed is refused where it asks for a structured output."""
    request = ask()
    request.resumable = True
    with pytest.raises(FakeValidationError, match="resumed"):
        front(gate).check(request)


@pytest.mark.parametrize("method", ["fill", "accept", "rollback", "drafts", "validate"])
def test_errors_of_ours_end_one_request(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in one request's grammar ends that request with an error; others go on, and nothing is raised."""
    made = scheduler(config(4))
    bad, good = ask(name="bad", max_tokens=40), ask(name="good", max_tokens=40)
    manager = made.structured_output_manager
    original = manager._create_grammar

    def create(request: FakeRequest) -> Any:
        grammar = original(request)
        if request.request_id == "bad":

            def broken(*args: Any) -> Any:
                raise RuntimeError("a defect")

            setattr(grammar.session, method, broken)
        return grammar

    manager._create_grammar = create
    made.run([bad, good], FakeModel(VOCABULARY, 1))
    assert bad.status in ("error", "stop") if method == "validate" else bad.status == "error"
    assert Draft202012Validator(PERSON).is_valid(json.loads(text_of(good)))


def test_end_tokens_are_the_requests() -> None:
    """A request ends at its own end tokens and no others of the vocabulary."""
    request = ask("regex", "(abc|ab)+", eos_token_id=OTHER_END, max_tokens=30)
    scheduler(config()).run([request], FakeModel(VOCABULARY, 6))
    assert END not in request.output
    assert request.status in ("stop", "length")


def test_defaults_and_requests_settings() -> None:
    """An engine's settings are those of its requests, which may set others."""
    from stcon.integrations.vllm import backend

    engine = backend.Engine(config(whitespace="json", budget=False), Tokenizer())
    settings = engine.constraint(ask().sampling_params).settings
    assert (settings.whitespace, settings.budget, settings.mode) == ("json", False, "mask")
    extra = {"stcon_whitespace": "pretty", "stcon_budget": "true", "other": 1}
    settings = engine.constraint(ask(extra_args=extra).sampling_params).settings
    assert (settings.whitespace, settings.budget) == ("pretty", True)


def test_context_is_a_limit_too() -> None:
    """An output has no more tokens than the context leaves room for, and is complete within them."""
    from stcon.integrations.vllm import backend

    engine = backend.Engine(config(), Tokenizer())
    params = ask(max_tokens=400).sampling_params
    assert engine.limit(params, 470) == 30
    assert engine.session(params, 470).limit == 30
    assert engine.limit(params, 20) == 400


def test_asynchronous_engines_get_an_asynchronous_scheduler() -> None:
    """Where vLLM would schedule ahead, so do we."""
    ahead = config()
    ahead.scheduler_config.async_scheduling = True
    assert isinstance(scheduler(ahead), FakeAsyncScheduler)
    assert not isinstance(scheduler(config()), FakeAsyncScheduler)


def test_what_cannot_be_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release, a model that does not write from left to right, or no tokenizer: refused, with the reason."""
    diffusion = config()
    diffusion.model_config.is_diffusion = True
    with pytest.raises(ModelUnavailable, match="left to right"):
        scheduler(diffusion)
    staged = config(drafts=4)
    staged.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(ModelUnavailable, match="pipeline parallelism"):
        scheduler(staged)
    bare = config()
    bare.tokenizer = None
    with pytest.raises(ModelUnavailable, match="tokenizer"):
        scheduler(bare)
    monkeypatch.setattr("stcon.integrations.vllm.versions.installed_version", lambda: "0.33.1")
    with pytest.raises(ModelUnavailable, match=r"0\.32\.0, and this is 0\.33\.1"):
        scheduler(config())
    monkeypatch.setenv("STCON_VLLM_ANY_VERSION", "1")
    assert scheduler(config()) is not None
