"""The decode loop on a model without weights: exactness, counts, limits, ends, streams."""

import json

import numpy as np
import pytest
from engine_cases import MACHINES, VOCABULARIES, chain, grammar, greedy_vocabulary, words
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.engine.loop import generate
from stcon.engine.sampling import Sampling
from stcon.errors import DecodingError, InvalidOption, PromptTooLong
from stcon.grammar.grammar import Grammar
from stcon.models.fake import FakeModel, prefer, prefer_longest
from stcon.vocab.vocabulary import Vocabulary

MODES = ("mask", "any", "canonical")
PROMPT = [40, 41, 42]
BIASES = {
    "none": lambda v: None,
    "longest": prefer_longest,
    "punctuation": lambda v: prefer(v, lambda data: data[:1] in b'",}]'),
    "digits": lambda v: prefer(v, lambda data: data.isdigit(), 2.0),
    "short": lambda v: -prefer_longest(v, 1.0),
}

cases = st.tuples(
    st.sampled_from(sorted(VOCABULARIES)), st.sampled_from(sorted(MACHINES)), st.sampled_from(sorted(BIASES))
)


def fake(vocabulary="bpe", bias="none", seed=1, **options):
    vocabulary = VOCABULARIES[vocabulary]()
    return FakeModel(vocabulary, seed, bias=BIASES[bias](vocabulary), **options)


class Recorded(Sampling):
    """Sampling that keeps the logits of every draw."""

    def draw(self, logits, position):
        self.__dict__.setdefault("seen", []).append((position, logits.copy()))
        return super().draw(logits, position)


def record(temperature, seed):
    return Recorded(temperature=temperature, seed=seed)


def allowed(machine, config, vocabulary):
    """The admissible tokens by the definition of the machine: the oracle."""
    found = set(vocabulary.end_ids) if machine.accepts(config) else set()
    for token in range(vocabulary.size):
        data = vocabulary.token_bytes(token)
        if data and machine.run(config, data) is not None:
            found.add(token)
    return found


@settings(max_examples=150, deadline=None)
@given(cases, st.sampled_from(MODES), st.integers(0, 10**6), st.sampled_from([0.0, 1.0]), st.integers(1, 40))
def test_generate_feeding_forced_tokens_one_by_one_changes_nothing(case, mode, seed, temperature, max_tokens):
    """Theorem 19(i): F_φ and R_φ emit the same tokens and see bit-identical logits at every draw."""
    vocabulary, machine, bias = case
    outputs = []
    for drip in (False, True):
        model, sampling = fake(vocabulary, bias, seed), record(temperature, seed)
        output = generate(
            model, PROMPT, grammar(machine), max_tokens=max_tokens, mode=mode, sampling=sampling, drip=drip
        )
        outputs.append((output, sampling.__dict__.get("seen", []), model))
    (spans, spans_seen, spans_model), (single, single_seen, single_model) = outputs
    assert spans.tokens == single.tokens
    assert (spans.text, spans.finish_reason, spans.value) == (single.text, single.finish_reason, single.value)
    assert [position for position, _ in spans_seen] == [position for position, _ in single_seen]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(spans_seen, single_seen, strict=True))
    assert spans_model.num_appended == single_model.num_appended
    assert all(len(tokens) == 1 for tokens in single_model.passes[1:])


@settings(max_examples=150, deadline=None)
@given(cases, st.sampled_from(MODES), st.integers(0, 10**6), st.sampled_from([0.0, 1.3]), st.integers(1, 60))
def test_generate_counts(case, mode, seed, temperature, max_tokens):
    """Theorem 19: passes = draws; with forced text each draw has two admissible tokens or more; the sums are right."""
    vocabulary, machine, bias = case
    model = fake(vocabulary, bias, seed)
    output = generate(
        model,
        PROMPT,
        grammar(machine),
        max_tokens=max_tokens,
        mode=mode,
        sampling=Sampling(temperature=temperature, seed=seed),
    )
    assert output.passes == output.sampled == model.num_passes
    drawn = [token for token in output.tokens if token.kind != "forced"]
    assert len(drawn) == output.sampled
    assert output.sampled + output.forced == len(output.tokens) <= max_tokens
    if mode == "mask":
        assert output.forced == 0
    else:
        assert all(token.admissible >= 2 for token in drawn)
    assert all(token.admissible == 0 for token in output.tokens if token.kind == "forced")
    assert output.prompt_tokens == len(PROMPT)


@settings(max_examples=150, deadline=None)
@given(cases, st.sampled_from(MODES), st.integers(0, 10**6), st.sampled_from([0.0, 1.3]), st.integers(1, 60))
def test_generate_stays_in_the_grammar(case, mode, seed, temperature, max_tokens):
    """The output is always a prefix of the grammar; it ends by itself only inside it; `complete` says which."""
    vocabulary, machine, bias = case
    output = generate(
        fake(vocabulary, bias, seed),
        PROMPT,
        grammar(machine),
        max_tokens=max_tokens,
        mode=mode,
        sampling=Sampling(temperature=temperature, seed=seed),
    )
    definition = grammar(machine).machine
    data = b"".join(token.data for token in output.tokens)
    config = definition.run(definition.initial(), data)
    assert config is not None
    assert output.complete == definition.accepts(config)
    assert output.text == data.decode("utf-8", "replace")
    if output.finish_reason == "stop":
        assert output.complete
    else:
        assert len(output.tokens) == max_tokens
    expected = json.loads(output.text) if output.complete and machine != "spaces" else None
    assert output.value == expected


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("vocabulary", sorted(VOCABULARIES))
def test_generate_mask_mode_equals_brute_force(vocabulary, machine):
    """Masked greedy decoding is the loop that tries every token on the machine's definition and takes the best."""
    model = fake(vocabulary, "none", 3)
    definition = grammar(machine).machine
    config, tokens = definition.initial(), []
    while len(tokens) < 25:
        admissible = allowed(definition, config, model.vocabulary)
        if admissible <= set(model.vocabulary.end_ids):
            break
        row = model.logits([*PROMPT, *tokens])
        tokens.append(max(sorted(admissible), key=lambda token: row[token]))
        if tokens[-1] in model.vocabulary.end_ids:
            break
        config = definition.run(config, model.vocabulary.token_bytes(tokens[-1]))
    output = generate(model, PROMPT, grammar(machine), max_tokens=25, mode="mask")
    assert [token.id for token in output.tokens] == tokens


def test_generate_free_mode_equals_argmax():
    """Without a grammar the output is the argmax of every step, up to an end token."""
    model = fake(bias="short", seed=9)
    tokens = []
    while len(tokens) < 50 and tokens[-1:] != [0]:
        tokens.append(int(np.argmax(model.logits([*PROMPT, *tokens]))))
    output = generate(model, PROMPT, max_tokens=50)
    assert [token.id for token in output.tokens] == tokens
    assert output.mode == "free"
    assert (output.forced, output.complete, output.value) == (0, False, None)
    again = generate(model, PROMPT, grammar("person"), mode="free", max_tokens=50)
    assert again.tokens == output.tokens


@pytest.mark.parametrize("mode", ["any", "canonical"])
def test_generate_prompt_pass_carries_the_forced_beginning(mode):
    """The first pass feeds the prompt and φ(c0) together."""
    model = fake()
    output = generate(model, PROMPT, grammar("person"), mode=mode)
    beginning = []
    for token in output.tokens:
        if token.kind != "forced":
            break
        beginning.append(token.id)
    assert model.vocabulary.decode(beginning) == b'{"name":"'
    assert model.passes[0] == (*PROMPT, *beginning)


@pytest.mark.parametrize("mode", ["any", "canonical"])
def test_generate_determined_output_needs_no_pass(mode):
    """A grammar of one text is written without asking the model, even without a prompt."""
    model = fake()
    output = generate(model, [], grammar("only"), mode=mode)
    assert output.text == '{"kind":"constant"}'
    assert (output.passes, output.sampled, output.finish_reason) == (0, 0, "stop")
    assert output.value == {"kind": "constant"}
    assert output.forced == len(output.tokens)


def test_generate_canonical_forced_text_is_the_tokenizers_split():
    """The canonical mode spells a determined output as the tokenizer would."""
    model = fake()
    output = generate(model, [], grammar("only"))
    assert [token.id for token in output.tokens] == model.vocabulary.encode('{"kind":"constant"}')


def test_generate_healed_token_is_marked():
    """A drawn token that the planner replaces is emitted as what replaced it, and counted as one draw."""
    model = fake(bias="punctuation")
    outputs = [
        generate(model, PROMPT, grammar("person"), sampling=Sampling(temperature=1, seed=seed)) for seed in range(20)
    ]
    healed = [output for output in outputs if any(token.kind == "healed" for token in output.tokens)]
    assert healed
    assert all(output.passes == output.sampled for output in healed)


@pytest.mark.parametrize("mode", MODES)
def test_generate_end_token_ends_and_is_counted(mode):
    """Where the grammar is complete but could go on, the model may end: the end token is emitted and no text."""
    vocabulary = VOCABULARIES["bpe"]()
    ending = np.zeros(vocabulary.size, np.float32)
    ending[0] = 100
    ending[vocabulary.encode("1")[0]] = 50
    output = generate(FakeModel(vocabulary, bias=ending), PROMPT, grammar("prefixes"), mode=mode)
    assert [token.id for token in output.tokens] == [vocabulary.encode("1")[0], 0]
    assert (output.text, output.value, output.finish_reason) == ("1", 1, "stop")
    assert output.tokens[-1].data == b""
    assert output.passes == 2


@pytest.mark.parametrize("mode", MODES)
def test_generate_cut_by_the_limit(mode):
    """An output cut inside a value has finish_reason "length" and no value."""
    output = generate(fake(), PROMPT, grammar("person"), mode=mode, max_tokens=2)
    assert (output.finish_reason, output.value, output.complete) == ("length", None, False)
    assert len(output.tokens) == 2


@pytest.mark.parametrize("mode", MODES)
def test_generate_limit_at_a_complete_value(mode):
    """At the limit, a value that could have gone on is kept and called "length"; one that is over is "stop"."""
    vocabulary = greedy_vocabulary()
    one = prefer(vocabulary, lambda data: data == b"1")
    output = generate(FakeModel(vocabulary, bias=one), PROMPT, grammar("prefixes"), mode=mode, max_tokens=1)
    assert (output.text, output.value, output.finish_reason) == ("1", 1, "length")
    digit = prefer(vocabulary, lambda data: data == b"7")
    output = generate(FakeModel(vocabulary, bias=digit), PROMPT, grammar("nested"), mode=mode, max_tokens=1)
    assert (output.text, output.value, output.finish_reason) == ("7", 7, "stop")


def test_generate_limit_inside_forced_text():
    """Forced text is cut at the limit too, before any pass is made for it."""
    model = fake()
    output = generate(model, PROMPT, grammar("only"), max_tokens=3)
    assert (len(output.tokens), output.passes, output.finish_reason) == (3, 0, "length")


def test_generate_is_clipped_to_the_context():
    """Prompt and output together never pass the context's length."""
    model = fake(context_length=10)
    output = generate(model, PROMPT, grammar("person"), mode="mask", max_tokens=500)
    assert (len(output.tokens), output.finish_reason) == (7, "length")


@pytest.mark.parametrize("size", [10, 11, 500])
def test_generate_prompt_too_long(size):
    """A prompt that leaves no room for one token is refused with its length and the limit, before any pass."""
    model = fake(context_length=10)
    with pytest.raises(PromptTooLong) as caught:
        generate(model, [1] * size)
    assert (caught.value.given, caught.value.limit) == (size, 9)
    assert model.num_passes == 0


@pytest.mark.parametrize("mode", MODES)
def test_generate_no_admissible_token(mode):
    """Where the vocabulary cannot spell what the grammar requires, decoding ends in an error, not in a wrong output."""
    vocabulary = Vocabulary.from_bytes([None, b"a", b"b", b"c"], end_ids=(0,))
    needs_x = Grammar(words("ax", "ay", "bx"), kind="grammar", source=None)
    with pytest.raises(DecodingError):
        generate(FakeModel(vocabulary), [1], needs_x, mode=mode)


def test_generate_broken_model():
    """NaN logits end in an error that blames the model."""
    vocabulary = greedy_vocabulary()
    broken = FakeModel(vocabulary, bias=np.full(vocabulary.size, np.nan, np.float32))
    with pytest.raises(DecodingError, match="logits"):
        generate(broken, PROMPT, grammar("person"))


@pytest.mark.parametrize("mode", ["free", *MODES])
def test_generate_seed_reproduces(mode):
    """A seed gives the same output twice; the seed of an unseeded output gives it again; other seeds give others."""

    def run(seed):
        sampling = Sampling(temperature=1.5, seed=seed)
        return generate(fake(), PROMPT, grammar("person"), mode=mode, sampling=sampling, max_tokens=40)

    first = run(None)
    assert run(first.seed).tokens == first.tokens == run(first.seed).tokens
    assert len({run(seed).text for seed in range(6)}) > 3


def test_generate_streams_whole_characters():
    """The pieces add up to the text; each is valid UTF-8 although tokens cut characters; on_token sees every token."""
    pieces, tokens = [], []
    vocabulary = greedy_vocabulary()  # one token a byte outside ASCII
    for seed in range(12):
        pieces.clear()
        tokens.clear()
        output = generate(
            FakeModel(vocabulary, seed),
            PROMPT,
            grammar("accents"),
            mode="mask",
            stream=pieces.append,
            on_token=tokens.append,
        )
        assert "".join(pieces) == output.text
        assert output.finish_reason == "stop"
        assert all(piece and piece.encode().decode() == piece and "\ufffd" not in piece for piece in pieces)
        assert tuple(tokens) == output.tokens
    assert any(len(token.data.decode("utf-8", "ignore")) == 0 for token in tokens)


def test_generate_stop_string():
    """A stop string ends the output before it; a value cut that way is not parsed."""
    free = generate(fake(seed=2), PROMPT, max_tokens=30)
    word = free.text[5:7]
    cut = generate(fake(seed=2), PROMPT, max_tokens=30, stop=[word])
    assert cut.text == free.text[: free.text.index(word)]
    assert (cut.finish_reason, cut.passes < free.passes) == ("stop", True)
    output = generate(fake(), PROMPT, grammar("person"), stop=['"age"'])
    assert output.text.endswith(",")
    assert (output.finish_reason, output.value, output.complete) == ("stop", None, False)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_generate_bad_limit(limit):
    """max_tokens must be a positive integer."""
    with pytest.raises(InvalidOption, match="max_tokens"):
        generate(fake(), PROMPT, max_tokens=limit)


def test_generate_bad_mode_and_empty_prompt():
    """An unknown mode and a prompt without tokens are refused by name."""
    with pytest.raises(InvalidOption, match=r"mode: expected one of free, mask, any, canonical, got 'fast'"):
        generate(fake(), PROMPT, grammar("person"), mode="fast")
    with pytest.raises(InvalidOption, match="prompt"):
        generate(fake(), [])


def test_generate_times_add_up():
    """Prefill and decode are measured; the constraint's share is part of the total."""
    output = generate(fake(), PROMPT, grammar("person"))
    assert output.prefill_s > 0
    assert output.decode_s > 0
    assert 0 < output.mask_s <= output.prefill_s + output.decode_s


def test_generate_deep_nesting_ends_at_the_cap():
    """A model that always opens a bracket is stopped by the stack's cap, inside the grammar and within the limit."""
    vocabulary = greedy_vocabulary()
    opener = prefer(vocabulary, lambda data: set(data) == {ord("[")})
    output = generate(FakeModel(vocabulary, bias=opener), PROMPT, grammar("nested"), mode="mask", max_tokens=300)
    assert output.text.count("[") <= 64 * 40
    assert output.text.startswith("[" * 64)
    assert not output.text.startswith("[" * 65)


def test_generate_long_forced_text_is_fed_in_one_pass():
    """A forced text of a thousand bytes costs the one pass that the draw before it needs anyway."""
    middle = b"x" * 1000
    model = FakeModel(greedy_vocabulary())
    machine = chain({ord("a"), ord("b")}, b"!" + middle, {ord("0"), ord("1")}, b".")
    output = generate(model, PROMPT, Grammar(machine, kind="grammar", source=None), max_tokens=4000)
    assert output.finish_reason == "stop"
    assert middle in output.text.encode()
    assert max(len(tokens) for tokens in model.passes) >= 1000
    assert output.passes == output.sampled
