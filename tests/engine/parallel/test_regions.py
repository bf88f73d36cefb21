"""Finite regions: every option's log-probability, by brute force over the model; the most probable is written."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_cases import PROMPT, VOCABULARY, RecurrentModel, closed, compiled, model, string

import stcon
from stcon.engine.batch import SessionRows
from stcon.engine.parallel import decide
from stcon.errors import InvalidOption
from stcon.models.fake import FakeModel


def logprob(fake, prompt, text, written):
    """Of the split of `text` but for its first `written` tokens, which are there already, and of the end."""
    split = VOCABULARY.encode(text)
    total, tokens = 0.0, [*prompt, *split[:written]]
    for token in [*split[written:], None]:
        logits = fake.logits(tokens).astype(np.float64)
        logits -= np.log(np.exp(logits).sum())
        total += np.log(np.exp(logits[list(VOCABULARY.end_ids)]).sum()) if token is None else logits[token]
        tokens.append(token)
    return total


@settings(max_examples=30, deadline=None)
@given(
    words=st.sets(st.text("abrg", min_size=1, max_size=4), min_size=2, max_size=12),
    seed=st.integers(0, 100),
    kind=st.sampled_from([FakeModel, RecurrentModel]),
    num_rows=st.integers(3, 20),
)
def test_decide_words_has_the_probability_of_each(words, seed, kind, num_rows):
    """Of a choice of words, one of which may begin another, all are scored as whole outputs, and the best is taken."""
    fake = model("none", seed, kind)
    grammar = stcon.compile_regex("|".join(sorted(words)))
    output = decide(fake, PROMPT, grammar, rows=SessionRows(fake, num_rows))
    if not output.decisions:  # the first byte decides: nothing was left to score at once
        assert output.text in words
        return
    options = dict(output.decisions[0].options)
    assert set(options) == words
    for word in words:
        assert options[word] == pytest.approx(logprob(fake, PROMPT, word, output.decisions[0].at), abs=1e-4)
    assert output.text == max(options, key=options.get) == output.decisions[0].options[0].text
    assert output.finish_reason == "stop"
    assert output.complete


def test_decide_fields_of_a_document():
    """Enums and booleans in a document are decided as wholes; its other fields are written as always."""
    schema = closed(
        {
            "a": {"enum": ["red", "green", "grey"]},
            "b": string(),
            "e": {"enum": ["xab", "xbb"]},
            "c": {"type": "boolean"},
            "d": {"enum": [1, 12]},
        }
    )
    for kind in (FakeModel, RecurrentModel):
        fake = model("own", 3, kind)
        output = decide(fake, PROMPT, stcon.compile(schema), budget=True, max_tokens=60, rows=SessionRows(fake, 8))
        assert [{option.text for option in decision.options} for decision in output.decisions] == [
            {'"red"', '"green"', '"grey"'},
            {'"xab"', '"xbb"'},
            {"true", "false"},
            {"1", "12"},
        ]
        value = json.loads(output.text)
        chosen = [json.loads(decision.options[0].text) for decision in output.decisions]
        assert chosen == [value["a"], value["e"], value["c"], value["d"]]


def test_decide_leaves_large_regions_to_the_tokens():
    """A field of more texts than asked for is decoded token by token, as the sequential decoder does."""
    from stcon.engine.loop import generate

    fake = model("none")
    output = decide(fake, PROMPT, compiled("word"), max_options=2, rows=SessionRows(fake, 8))
    assert output.decisions == ()
    assert output.tokens == generate(fake, PROMPT, compiled("word")).tokens


def test_generate_asks_for_one_way_of_decoding():
    """`decide` takes two values, and not together with `parallel`; free text has no options."""
    fake = model("none")
    assert fake.generate("a", compiled("word"), decide="sequence").decisions
    for options in ({"decide": "text"}, {"decide": "sequence", "parallel": True}):
        with pytest.raises(InvalidOption, match="decide"):
            fake.generate("a", compiled("word"), **options)
    with pytest.raises(InvalidOption, match="options"):
        fake.generate("a", decide="sequence")
    with pytest.raises(InvalidOption, match="max_options"):
        decide(fake, PROMPT, compiled("word"), max_options=1)
