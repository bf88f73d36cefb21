"""Certified decoding writes what sequential decoding writes, in no more passes, whatever the drafts are worth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_cases import BIASES, MACHINES, SCHEMAS, VOCABULARY, RecurrentModel, both, check, compiled, form, model

import stcon
from stcon.engine import parallel
from stcon.engine.adjust import Adjustment
from stcon.engine.batch import SessionRows
from stcon.engine.sampling import Sampling
from stcon.errors import InvalidOption, LimitTooSmall

COPIED = VOCABULARY.encode("abcdeedcbaacebdacebd")
NAMES = [*SCHEMAS, *sorted(MACHINES)]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", NAMES)
def test_generate_is_sequential_for_every_dependence(name, bias):
    """Tokens are the sequential decoder's, and never more passes, however fields depend on each other."""
    one, two = both(model(bias), compiled(name), max_tokens=150)
    check(one, two)
    assert two.passes <= one.passes


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", ["flat", "nested", "choice", "prefixes"])
def test_generate_is_sequential_where_caches_cannot_go_back(name, bias):
    """The same with recurrent states, for which the prompt may be read in a pass of its own."""
    one, two = both(model(bias, kind=RecurrentModel), compiled(name), max_tokens=150)
    check(one, two)
    assert two.passes <= one.passes + 1


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    bias=st.sampled_from(sorted(BIASES)),
    mode=st.sampled_from(["canonical", "any", "mask"]),
    seed=st.integers(0, 5),
    temperature=st.sampled_from([0.0, 0.5, 5.0]),
    max_tokens=st.integers(20, 60),
    num_rows=st.integers(1, 5),
    kind=st.sampled_from([type(model()), RecurrentModel]),
)
def test_generate_is_sequential_for_every_option(name, bias, mode, seed, temperature, max_tokens, num_rows, kind):
    """Modes, seeded sampling, limits that are kept, and few rows change nothing of that."""
    fake = model(bias, seed, kind)
    sampling = Sampling(temperature, top_k=5, seed=seed)
    try:
        one, two = both(
            fake,
            compiled(name),
            max_tokens=max_tokens,
            mode=mode,
            sampling=sampling,
            budget=True,
            num_rows=num_rows + 3,
        )
    except LimitTooSmall:
        return
    check(one, two)


def test_generate_independent_fields_take_few_passes():
    """Where fields depend on nothing else, a form of 48 takes less than a quarter of the passes."""
    one, two = both(model("own"), stcon.compile(form(48)), max_tokens=1000, num_rows=64)
    check(one, two)
    assert 4 * two.passes <= one.passes


def test_generate_drafts_after_a_choice():
    """The fields behind a discriminator are found once it is written."""
    one, two = both(model("own"), compiled("choice"), max_tokens=150)
    check(one, two)
    assert two.parallel.plans > 1
    assert two.passes < one.passes


def test_generate_goes_on_alone_after_the_last_round():
    """After `max_rounds` certificates no draft is looked at."""
    one, two = both(model("none"), stcon.compile(form(12)), max_tokens=300, settings=parallel.Settings(max_rounds=2))
    check(one, two)
    assert two.parallel.num_rounds == 2


def test_generate_repairs_later_fields_in_the_same_round():
    """A round names fields after the first wrong one that the model would not write like that either."""
    _, two = both(model("previous"), stcon.compile(form(12)), max_tokens=300, num_rows=20)
    assert any(len(round.failed) > 1 for round in two.parallel.rounds)


def test_generate_streams_certified_text_only():
    """The pieces that are streamed, and the tokens, are the output's, in order."""
    fake, pieces, tokens = model("previous"), [], []
    output = parallel.generate(
        fake, [1], compiled("flat"), rows=SessionRows(fake, 8), stream=pieces.append, on_token=tokens.append
    )
    assert "".join(pieces) == output.text
    assert tuple(tokens) == output.tokens


def test_generate_keeps_stop_strings_penalties_and_logprobs():
    """What the output asks of its logits is asked of the certificate's."""
    fake = model("own")
    for options in ({"stop": ["k2"]}, {"stop": ["a"]}):
        check(*both(fake, compiled("flat"), max_tokens=150, **options))
    adjusted = Adjustment(frequency=2.0)
    outputs = [
        parallel.generate(
            fake,
            [1, 2],
            compiled("flat"),
            rows=SessionRows(fake, 8),
            adjustment=adjusted,
            logprobs=2,
            settings=parallel.Settings(max_rounds=rounds),
        )
        for rounds in (0, 24)
    ]
    assert outputs[0].tokens == outputs[1].tokens
    assert outputs[0].logprobs == outputs[1].logprobs
    assert outputs[1].passes < outputs[0].passes


def test_generate_without_a_grammar_is_refused():
    """There are no fields in free text."""
    with pytest.raises(InvalidOption, match="fields"):
        parallel.generate(model(), [1], None)


def copying(tokens):
    """A bias towards what the prompt has after the last three bytes."""
    text = VOCABULARY.decode(tokens)
    prompt = VOCABULARY.decode(COPIED)
    at = prompt.find(text[-3:])
    rest = prompt[at + 3 :] if at >= 0 else b""
    wanted = [VOCABULARY.token_bytes(t) or b"-" for t in range(VOCABULARY.size)]
    return np.array([50.0 * len(data) if rest.startswith(data) else 0.0 for data in wanted], np.float32)


@pytest.mark.parametrize("kind", [type(model()), RecurrentModel])
@pytest.mark.parametrize("lookup", [1, 3])
def test_generate_lookup_is_sequential_and_saves_passes_where_a_model_copies(kind, lookup):
    """Drafts found in the prompt are certified like others; the grammar keeps what it forbids out of them."""
    fake = kind(VOCABULARY, 1, bias=copying, spread=0.01)
    grammar = stcon.compile_regex("[a-c]{3}[a-e]{20,30}")
    one, two = both(fake, grammar, COPIED, max_tokens=60, settings=parallel.Settings(lookup=lookup))
    check(one, two)
    assert two.passes < one.passes
    for bias in BIASES:
        check(*both(model(bias), compiled("flat"), COPIED, max_tokens=99, settings=parallel.Settings(lookup=lookup)))


@pytest.mark.parametrize("settings", [{"max_rounds": -1}, {"max_drawn": 1.5}, {"max_plans": True}])
def test_settings_out_of_range_are_refused(settings):
    """Settings are integers from 0."""
    with pytest.raises(InvalidOption, match=next(iter(settings))):
        parallel.Settings(**settings)
