"""`Model.generate` on compiled schemas and patterns, with a model without weights."""

import json
import re

import pytest
from engine_cases import small_vocabulary, words
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import stcon
from stcon.errors import InvalidOption
from stcon.grammar.grammar import Grammar
from stcon.models.fake import FakeModel, prefer

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"

SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "grey", "grün"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
    },
    "optional": {
        "type": "object",
        "properties": {"first": {"type": "boolean"}, "second": {"const": {"a": [1, None]}}, "third": {"type": "null"}},
    },
    "tree": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "id": {"enum": [1, 2, 3]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["id", "children"],
            }
        },
        "$ref": "#/$defs/node",
    },
    "either": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[a-c]{2,4}$"}, {"type": "boolean"}]},
}
GRAMMARS = {}


def grammar(name):
    if name not in GRAMMARS:
        GRAMMARS[name] = stcon.compile(SCHEMAS[name])
    return GRAMMARS[name]


def fake(seed=0, **options):
    vocabulary = small_vocabulary()
    closing = prefer(vocabulary, lambda data: data[:1] in b'"]}', 3.0)  # so that strings and trees end
    return FakeModel(vocabulary, seed, bias=closing, chat_template=TEMPLATE, **options)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SCHEMAS)),
    st.sampled_from(["mask", "any", "canonical"]),
    st.integers(0, 10**6),
    st.sampled_from([{}, {"temperature": 1.0}, {"temperature": 2.0, "top_k": 9, "top_p": 0.9, "min_p": 0.01}]),
)
def test_generate_output_satisfies_the_schema(name, mode, seed, sampling):
    """Whatever the model likes, an output is valid, cut short or not, and its value is what its text says."""
    output = fake(seed).generate("Go.", grammar(name), max_tokens=100, mode=mode, seed=seed, **sampling)
    assert output.passes == output.sampled
    assert len(output.tokens) <= 100
    assert output.value == json.loads(output.text)
    assert Draft202012Validator(SCHEMAS[name]).is_valid(output.value)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
@pytest.mark.parametrize("mode", ["mask", "any", "canonical"])
def test_generate_usually_completes(name, mode):
    """The examples above are not all cut by the limit."""
    outputs = [fake(seed).generate("Go.", grammar(name), max_tokens=200, mode=mode) for seed in range(8)]
    assert sum(output.complete for output in outputs) >= 6


def test_generate_regex_has_no_value():
    """A pattern's output is text: it matches, and is not parsed."""
    output = fake().generate("Go.", stcon.compile_regex("[0-9]{3}-(ab|cd)"))
    assert re.fullmatch("[0-9]{3}-(ab|cd)", output.text)
    assert (output.value, output.complete, output.finish_reason) == (None, True, "stop")


def test_generate_prompts():
    """A text is a user message, messages are rendered, raw text is itself; the prompt's length is reported."""
    model = fake()
    asked = model.generate("Go.", max_tokens=1)
    written = model.generate([{"role": "user", "content": "Go."}], max_tokens=1)
    raw = model.generate("Go.", max_tokens=1, raw=True)
    assert model.vocabulary.decode(model.passes[0]) == b"[user] Go.\n[assistant]"
    assert model.passes[0] == model.passes[1]
    assert model.vocabulary.decode(model.passes[2]) == b"Go."
    assert asked.prompt_tokens == written.prompt_tokens > raw.prompt_tokens


def test_generate_passes_options_on():
    """Mode, sampling options, stop, seed and the callbacks reach the loop."""
    model, pieces, tokens = fake(), [], []
    output = model.generate(
        "Go.",
        grammar("person"),
        max_tokens=100,
        mode="any",
        temperature=1.0,
        top_k=5,
        seed=4,
        stop='"age"',
        stream=pieces.append,
        on_token=tokens.append,
    )
    assert (output.mode, output.seed) == ("any", 4)
    assert output.text == "".join(pieces)
    assert '"age"' not in output.text
    assert tuple(tokens) == output.tokens
    assert model.generate("Go.", grammar("person")).mode == "canonical"
    assert model.generate("Go.").mode == "free"


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"top_p": 2},
        {"max_tokens": 0},
        {"mode": "best"},
        {"stop": ""},
        {"min_p": "x"},
        {"seed": -4},
    ],
)
def test_generate_bad_options(options):
    """A bad option is refused before any pass."""
    model = fake()
    with pytest.raises(InvalidOption):
        model.generate("Go.", grammar("person"), **options)
    assert model.num_passes == 0


def test_generate_takes_no_schema_for_a_grammar():
    """A schema that was not compiled is refused, and the error says to compile it."""
    with pytest.raises(InvalidOption, match="compile"):
        fake().generate("Go.", {"type": "object"})


def test_generate_integer_past_what_python_reads():
    """A complete output that Python's JSON reader refuses for its length has its text and no value."""
    digits = "1" * 5_000
    model = FakeModel(small_vocabulary(), context_length=20_000)
    output = model.generate("Go.", Grammar(words(digits), kind="json", source=None), max_tokens=6_000)
    assert output.text == digits
    assert (output.complete, output.value) == (True, None)
