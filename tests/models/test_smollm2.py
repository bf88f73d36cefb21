"""The default model itself: its prompt, equality with transformers, forced text fed in one pass and one by one."""

import numpy as np
import pytest

import stcon
from stcon.engine.loop import generate
from stcon.engine.sampling import Sampling
from stcon.models.pull import is_cached

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not is_cached(), reason="the default model is not in the cache; run: stcon pull"),
]

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "city": {"type": "string", "maxLength": 40},
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "city", "active"],
}
PROMPT = (
    "Text: Maria Lopez, 34, lives in Porto and is an active member.\n\n"
    "Write a JSON object with name, age, city and active for the person in the text."
)

# what transformers' own tokenizer of the same file makes of the question below, by apply_chat_template
QUESTION = "What is the capital of France?"
QUESTION_IDS = [
    *[1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198],
    *[1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198],
]

NEAR_TIE = 1e-3


@pytest.fixture(scope="module")
def model():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is small, and on a busy machine threads wait for each other
    yield stcon.load_model(device="cpu")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def generic():
    """The same file by transformers."""
    return stcon.load_model(device="cpu", runner="transformers").network


@pytest.fixture(scope="module")
def grammar():
    return stcon.compile(SCHEMA)


def test_conventions(model):
    """Prompt, context and end tokens are those of the model's own file."""
    assert model.prompt_ids(QUESTION) == QUESTION_IDS
    assert model.context_length == 8192
    assert set(model.end_ids) >= {0, 2}
    assert model.vocabulary.size == 49152


def test_logits_equal_transformers_token_by_token(model, generic):
    """Fed one token at a time, the lean runner gives the library's logits of the whole text at every position."""
    tokens = [*QUESTION_IDS, *model.encode_prompt(PROMPT)]
    with torch.inference_mode():
        expected = generic(torch.tensor([tokens])).logits[0].numpy()
    session = model.session()
    rows = np.stack([session.append([token]) for token in tokens])
    assert np.abs(rows - expected).max() < NEAR_TIE
    assert (rows.argmax(1) == expected.argmax(1)).all()


def test_free_answer_equals_transformers(model, generic):
    """Greedy text has the ids of the library's generate, and ends at the end of the turn."""
    output = model.generate(QUESTION, max_tokens=30)
    theirs = generic.generate(torch.tensor([QUESTION_IDS]), max_new_tokens=30, do_sample=False)
    assert [token.id for token in output.tokens] == theirs[0, len(QUESTION_IDS) :].tolist()
    assert output.text == "The capital of France is Paris."
    assert output.finish_reason == "stop"


@pytest.mark.parametrize("mode", ["mask", "any", "canonical"])
def test_extraction_is_valid(model, grammar, mode):
    """The record comes out valid with one pass a drawn token, and right where it is split as the model learnt it."""
    output = model.generate(PROMPT, grammar, mode=mode, max_tokens=60)
    assert output.complete
    assert grammar.accepts(output.text)
    assert output.value["name"] == "Maria Lopez"
    if mode != "any":  # a split the model never saw costs it the age
        assert output.value == {"name": "Maria Lopez", "age": 34, "city": "Porto", "active": True}
    assert output.passes == output.sampled
    assert (output.forced > 0) == (mode != "mask")


@pytest.mark.parametrize("mode", ["any", "canonical"])
def test_forced_text_in_one_pass_or_one_by_one(model, grammar, mode):
    """Theorem 19(i) in float32: the same tokens, or a first difference between two logits closer than `NEAR_TIE`."""
    ids = model.prompt_ids(PROMPT)
    spans = generate(model, ids, grammar, mode=mode, max_tokens=60)
    single = generate(model, ids, grammar, mode=mode, max_tokens=60, drip=True)
    assert single.passes > spans.passes
    first, second = ([token.id for token in output.tokens] for output in (spans, single))
    if first != second:
        at = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        row = model.session().append([*ids, *first[:at]])
        assert abs(float(row[first[at]] - row[second[at]])) < NEAR_TIE


def test_logits_do_not_depend_on_the_split(model):
    """One pass, chunks and single tokens give logits within 1e-3 of each other."""
    tokens = QUESTION_IDS
    whole = model.session().append(tokens, all_positions=True)
    session = model.session()
    rows = np.stack([session.append([token]) for token in tokens])
    assert np.abs(rows - whole).max() < NEAR_TIE
    assert (rows.argmax(1) == whole.argmax(1)).all()


def test_sampling_is_reproducible(model, grammar):
    """A seed gives the same record twice, and it is valid at a high temperature too."""
    options = {"temperature": 1.5, "top_p": 0.95, "seed": 12, "max_tokens": 24}
    first = model.generate(PROMPT, grammar, **options)
    assert first.tokens == model.generate(PROMPT, grammar, **options).tokens
    assert first.complete or first.finish_reason == "length"
    assert Sampling(seed=12).seeded().seed == first.seed
