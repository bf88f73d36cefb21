"""The device loop against the plain loop: same tokens under every grammar, mode, limit, sampling and way ahead."""

from functools import cache

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

torch = pytest.importorskip("torch")

from cuda_on_cpu import HostKernels  # noqa: E402
from device_stand_ins import HashModel, HostGrammars, HostWalker, MoodyModel, PrefixModel  # noqa: E402
from engine_cases import MACHINES, VOCABULARIES, chain, grammar  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import stcon  # noqa: E402
from stcon.engine.adjust import Adjustment  # noqa: E402
from stcon.engine.control import control_for  # noqa: E402
from stcon.engine.device_loop import DeviceEngine  # noqa: E402
from stcon.engine.loop import decode, generate  # noqa: E402
from stcon.engine.output import Output  # noqa: E402
from stcon.engine.sampling import Sampling  # noqa: E402
from stcon.engine.thinking import Thinking  # noqa: E402
from stcon.errors import DecodingError, InvalidOption, LimitTooSmall, StconError  # noqa: E402
from stcon.grammar.grammar import Grammar  # noqa: E402
from stcon.kernels.cuda import CudaGrammars, CudaWalker  # noqa: E402
from stcon.models.fake import FakeModel, prefer, prefer_longest  # noqa: E402
from stcon.vocab.vocabulary import Vocabulary  # noqa: E402

PROMPT = [40, 41, 42]
BIASES = {
    "none": lambda v: None,
    "longest": prefer_longest,
    "punctuation": lambda v: prefer(v, lambda data: data[:1] in b'",}]'),
    "short": lambda v: -prefer_longest(v, 1.0),
}
SAMPLINGS = (Sampling(), Sampling(1.0, seed=3), Sampling(0.7, top_k=9, top_p=0.9, min_p=0.01, seed=2**64 - 5))


def made(
    vocabulary="bpe", bias="none", seed=1, *, ahead="quiet", guess=False, is_lazy=True, kind=FakeModel, static=HashModel
):
    """A fake model and a device engine over the same logits, with its walker."""
    words = VOCABULARIES[vocabulary]()
    fake = kind(words, seed, bias=BIASES[bias](words))
    grammars = HostGrammars(is_lazy)
    walker = HostWalker(words, grammars)
    engine = DeviceEngine(static(fake), lambda: (grammars, walker), vocab_size=words.size, ahead=ahead, guess=guess)
    return fake, engine, walker


def attempt(function):
    """The result, or the error in one line."""
    try:
        return function()
    except StconError as error:
        return f"{type(error).__name__}: {error}"


def summary(result):
    if isinstance(result, str):
        return result
    tokens = [(token.id, token.kind, token.admissible) for token in result.tokens]
    return tokens, result.text, result.finish_reason, result.complete, result.sampled, result.value


CASES = st.tuples(
    st.sampled_from(sorted(VOCABULARIES)), st.sampled_from(sorted(MACHINES)), st.sampled_from(sorted(BIASES))
)


@settings(max_examples=200, deadline=None)
@given(
    CASES,
    st.sampled_from(["free", "mask", "any", "canonical"]),
    st.sampled_from(["quiet", "always", "never"]),
    st.sampled_from(SAMPLINGS),
    st.tuples(st.integers(0, 10**6), st.integers(1, 40), st.booleans(), st.booleans()),
)
def test_decode_equals_the_plain_loop(case, mode, ahead, sampling, numbers):
    """Tokens, kinds, text, value and end are the plain loop's, with limits and rows missing on the device too."""
    vocabulary, machine, bias = case
    seed, max_tokens, budget, is_lazy = numbers
    fake, engine, _ = made(vocabulary, bias, seed, ahead=ahead, is_lazy=is_lazy)
    options = {"max_tokens": max_tokens, "mode": mode, "sampling": sampling, "budget": budget}
    expected = attempt(lambda: generate(fake, PROMPT, grammar(machine), **options))
    for _ in range(2):  # the second time the device knows all rows
        found = attempt(lambda: engine.decode(Output(fake, PROMPT, grammar(machine), **options)))
        assert summary(found) == summary(expected)
        if not isinstance(found, str) and (ahead == "never" or mode == "canonical"):
            assert found.passes >= expected.passes


@settings(max_examples=200, deadline=None)
@given(
    CASES,
    st.sampled_from(["mask", "any", "canonical"]),
    st.sampled_from(["quiet", "never"]),
    st.sampled_from(SAMPLINGS),
    st.sampled_from([HashModel, PrefixModel]),
    st.tuples(st.integers(0, 10**6), st.integers(1, 40), st.booleans(), st.booleans()),
)
def test_decode_with_guesses_equals_the_plain_loop(case, mode, ahead, sampling, static, numbers):
    """Right guesses save passes and wrong ones change nothing: recurrent states and caches are taken back exactly."""
    vocabulary, machine, bias = case
    seed, max_tokens, budget, is_lazy = numbers
    options = {"ahead": ahead, "guess": True, "is_lazy": is_lazy, "kind": MoodyModel, "static": static}
    fake, engine, _ = made(vocabulary, bias, seed, **options)
    options = {"max_tokens": max_tokens, "mode": mode, "sampling": sampling, "budget": budget}
    expected = attempt(lambda: generate(fake, PROMPT, grammar(machine), **options))
    for _ in range(2):
        found = attempt(lambda: engine.decode(Output(fake, PROMPT, grammar(machine), **options)))
        assert summary(found) == summary(expected)


@pytest.mark.parametrize("static", [HashModel, PrefixModel])
def test_guesses_save_passes(static):
    """A model that repeats itself is asked less often than it draws."""
    saved = launches = 0
    for seed in range(12):
        fake, engine, _ = made("bpe", "short", seed, guess=True, kind=MoodyModel, static=static)
        result = engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=60))
        assert summary(result) == summary(generate(fake, PROMPT, grammar("person"), max_tokens=60))
        saved += result.sampled - result.passes
        launches += result.passes
    assert saved > launches / 6


def test_guesses_with_the_kernels_own_text():
    """The GPU's walker, its C++ compiled for the CPU, draws at several places of one pass: the same tokens."""
    words, saved = VOCABULARIES["bpe"](), 0

    def kernels():
        grammars = CudaGrammars("cpu", ahead=0)
        return grammars, CudaWalker(words, grammars, 8, kernels=HostKernels(), chunk_words=((1024, 4),))

    for machine in ("person", "colours", "nested", "accents"):
        for number, sampling in enumerate(SAMPLINGS):
            fake = MoodyModel(words, number, bias=BIASES["short"](words))
            engine = DeviceEngine(HashModel(fake), kernels, vocab_size=words.size)
            options = {"max_tokens": 40, "sampling": sampling, "budget": number == 1}
            expected = generate(fake, PROMPT, grammar(machine), **options)
            found = engine.decode(Output(fake, PROMPT, grammar(machine), **options))
            assert summary(found) == summary(expected)
            saved += found.sampled - found.passes
    assert saved > 5


@settings(max_examples=40, deadline=None)
@given(
    CASES,
    st.sampled_from(["free", "mask", "any", "canonical"]),
    st.sampled_from(["quiet", "always"]),
    st.sampled_from(SAMPLINGS),
    st.tuples(st.integers(0, 10**6), st.integers(1, 30), st.booleans()),
)
def test_decode_with_the_kernels_own_text_equals_the_plain_loop(case, mode, ahead, sampling, numbers):
    """The GPU's walker, its C++ compiled for the CPU, its machines built as their rows are missed: the same tokens."""
    vocabulary, machine, bias = case
    seed, max_tokens, budget = numbers
    words = VOCABULARIES[vocabulary]()
    fake = FakeModel(words, seed, bias=BIASES[bias](words))

    def kernels():
        grammars = CudaGrammars("cpu", ahead=0)
        return grammars, CudaWalker(words, grammars, 1, kernels=HostKernels(), chunk_words=((1024, 4),))

    engine = DeviceEngine(HashModel(fake), kernels, vocab_size=words.size, ahead=ahead)
    options = {"max_tokens": max_tokens, "mode": mode, "sampling": sampling, "budget": budget}
    expected = attempt(lambda: generate(fake, PROMPT, grammar(machine), **options))
    found = attempt(lambda: engine.decode(Output(fake, PROMPT, grammar(machine), **options)))
    assert summary(found) == summary(expected)


def test_schemas_with_the_kernels_own_text():
    """Schemas whose machines are built as they are met, among them recursive ones and repeated items."""
    schemas = (
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "yy"]}}, "required": ["a", "b"]},
        {
            "$ref": "#/$defs/t",
            "$defs": {"t": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/t"}}]}},
        },
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2},
    )
    words = VOCABULARIES["bpe"]()

    def kernels():
        grammars = CudaGrammars("cpu", ahead=0)
        return grammars, CudaWalker(words, grammars, 1, kernels=HostKernels(), chunk_words=((1024, 4),))

    for schema in schemas:
        compiled = stcon.compile(schema)
        for seed in range(4):
            fake = FakeModel(words, seed, bias=BIASES["longest"](words))
            engine = DeviceEngine(HashModel(fake), kernels, vocab_size=words.size)
            expected = generate(fake, PROMPT, compiled, max_tokens=25, budget=True)
            found = engine.decode(Output(fake, PROMPT, compiled, max_tokens=25, budget=True))
            assert summary(found) == summary(expected)


def test_the_device_follows_a_machine_that_the_host_builds_first():
    """Forced text and guesses take the host to states that the device's tables are older than: it is told of them."""
    words, num_late = VOCABULARIES["bpe"](), 0

    class Counting(CudaGrammars):
        def include(self, index, config):
            nonlocal num_late
            num_late += int(config[0]) >= self._entry(index).num_states
            super().include(index, config)

    def kernels():
        grammars = Counting("cpu", ahead=0)
        return grammars, CudaWalker(words, grammars, 8, kernels=HostKernels(), chunk_words=((1024, 4),))

    for seed in range(3):
        values = [
            {"enum": [f"v{i}", f"w{i}", f"x{i}"]} if i % 2 else {"type": "string", "maxLength": 3} for i in range(8)
        ]
        properties = {f"first{seed}{i}": value for i, value in enumerate(values)}
        fresh = stcon.compile({"type": "object", "properties": properties, "required": list(properties)})
        fake = FakeModel(words, seed, bias=BIASES["longest"](words))
        engine = DeviceEngine(HashModel(fake), kernels, vocab_size=words.size)
        found = engine.decode(Output(fake, PROMPT, fresh, max_tokens=90))  # before anything else builds the machine
        assert summary(found) == summary(generate(fake, PROMPT, fresh, max_tokens=90))
    assert num_late > 3


@cache
def covering():
    """A grammar and a tokenizer with many covers: ``ab`` is held back where ``abc`` may be the token, ``":`` too."""
    merges = ["ab", "abc", '":', '":-', "xy"]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *merges, "<|end|>"]
    pairs = [(merge[:-1], merge[-1]) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = Vocabulary.from_tokenizer(tokenizer, end_ids=[len(tokens) - 1])
    return stcon.compile_regex('([1-]ab[cdx]":){1,6}'), words


@pytest.mark.parametrize("ahead", ["quiet", "always", "never"])
def test_covers_are_kept(ahead):
    """Where the next token must have some bytes at least, the device leaves out shorter ones, run ahead or not."""
    held, words = covering()
    num_covers = 0
    for seed in range(25):
        fake = FakeModel(words, seed, bias=-prefer_longest(words, 1.0))  # the model would rather write short tokens
        grammars = HostGrammars(is_lazy=seed % 2 == 0)
        walker = HostWalker(words, grammars)
        engine = DeviceEngine(HashModel(fake), lambda g=grammars, w=walker: (g, w), vocab_size=words.size, ahead=ahead)
        expected = generate(fake, PROMPT, held, max_tokens=40)
        assert summary(engine.decode(Output(fake, PROMPT, held, max_tokens=40))) == summary(expected)
        num_covers += sum(token.kind == "sampled" and token.data in {b"ab", b'":'} for token in expected.tokens)
    assert num_covers > 20


@pytest.mark.parametrize("mode", ["mask", "any", "canonical"])
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_decode_without_running_ahead_makes_no_pass_more(machine, mode):
    """``ahead="never"`` makes the least passes there are without guesses (Theorem 19(iii)), long spans apart."""
    fake, engine, _ = made("bpe", "longest", ahead="never")
    result = engine.decode(Output(fake, PROMPT, grammar(machine), max_tokens=40, mode=mode))
    assert result.passes == result.sampled


def test_decode_runs_ahead_where_nothing_is_forced():
    """In mode mask every step but the first runs ahead: one token a launch, none of them dropped but the last."""
    fake, engine, _ = made("greedy", "short", is_lazy=False)
    result = engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=40, mode="mask"))
    graphs = engine._graphs
    assert engine.model.spans[1:] == [1] * (graphs.launches)
    assert graphs.launches - 1 <= len(result.tokens) <= graphs.launches + 1


def test_decode_feeds_spans_of_every_length():
    """Forced text of more than 16 tokens goes in passes of 16; the tokens are those of the plain loop."""
    for length in (1, 2, 15, 16, 17, 31, 32, 33, 50):
        forced = Grammar(chain({97, 98}, bytes(48 + i % 10 for i in range(length)), {97, 98}), kind="regex", source="")
        fake, engine, _ = made("greedy")
        expected = generate(fake, PROMPT, forced, max_tokens=100, mode="any")
        assert summary(engine.decode(Output(fake, PROMPT, forced, max_tokens=100, mode="any"))) == summary(expected)
        assert max(engine.model.spans[1:]) <= 16


def test_missing_rows_are_built_once():
    """A row that is missing stalls its first draw only: a second stream of the same grammar meets none."""
    fake, engine, walker = made("greedy", "short")
    for expected in (True, False):
        before = walker.num_stalls
        engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=30, mode="canonical"))
        assert (walker.num_stalls > before) == expected
    assert walker.grammars.num_added == 1


def test_grammars_make_room_for_each_other(monkeypatch):
    """Of more grammars than fit, the one used longest ago is removed; results stay the same."""
    monkeypatch.setattr("stcon.engine.device_loop.MAX_GRAMMARS", 2)
    fake, engine, walker = made("greedy")
    for name in ("person", "colours", "person", "prefixes", "colours", "person"):
        expected = generate(fake, PROMPT, grammar(name), max_tokens=30)
        assert summary(engine.decode(Output(fake, PROMPT, grammar(name), max_tokens=30))) == summary(expected)
        assert len(walker.grammars.machines) <= 2


def test_what_one_stream_left_is_nothing_to_the_next():
    """A stream may end while a step that ran ahead misses a row of its machine; the next follows another or none."""
    fake, engine, walker = made("greedy", "short", ahead="always")
    for limit in (3, 12, 30):
        for name, mode in (("colours", "any"), ("person", "free"), ("accents", "canonical"), ("nested", "canonical")):
            walker.grammars.known = {index: set() for index in walker.grammars.known}
            expected = generate(fake, PROMPT, grammar(name), max_tokens=limit, mode=mode)
            found = engine.decode(Output(fake, PROMPT, grammar(name), max_tokens=limit, mode=mode))
            assert summary(found) == summary(expected)


def test_histories_are_handed_over():
    """Under a schema whose items may not repeat, the host's mask decides: same output, valid."""
    schema = {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2}
    unique = stcon.compile(schema)
    for seed in range(6):
        for mode in ("mask", "canonical"):
            for ahead in ("quiet", "always"):
                fake, engine, _ = made("bpe", "none", seed, ahead=ahead)
                options = {"max_tokens": 30, "mode": mode, "budget": True}
                expected = generate(fake, PROMPT, unique, **options)
                assert summary(engine.decode(Output(fake, PROMPT, unique, **options))) == summary(expected)
                assert expected.complete


def test_a_control_without_a_grammar_hands_its_masks_over():
    """A control of the caller's own decides: nothing of its machine is on the device, so every mask is the host's."""
    fake, engine, walker = made("bpe", "longest", guess=True)

    def output():
        control = control_for(grammar("person"), fake.vocabulary, "canonical")
        return Output(fake, PROMPT, max_tokens=30, control=control)

    assert summary(engine.decode(output())) == summary(decode(output(), fake.session()))
    assert walker.grammars.num_added == 0


def test_penalties_and_logprobs_come_to_the_host():
    """Outputs that need the logits themselves get them, and report what the plain loop reports."""
    adjustment = Adjustment(frequency=0.5, bias={50: 3.0})
    fake, engine, _ = made("bpe", "longest")

    def output(model):
        return Output(model, PROMPT, grammar("person"), max_tokens=20, logprobs=2, adjustment=adjustment)

    plain = output(fake)
    session = fake.session()
    plain.begin()
    while plain.finish is None:
        logits = session.append(plain.pending)
        plain.pending.clear()
        plain.take(logits)
    expected, found = plain.result(0.0), engine.decode(output(fake))
    assert summary(found) == summary(expected)
    assert found.logprobs == expected.logprobs


def test_nan_is_an_error_with_a_grammar_and_without():
    """Logits that are not numbers end in a `DecodingError`, also where a step ran ahead of the news."""
    for mode in ("free", "mask", "canonical"):
        words = VOCABULARIES["greedy"]()

        def bias(tokens, size=words.size):
            return np.zeros(size, np.float32)

        fake = FakeModel(words, 1, bias=bias)
        model = HashModel(fake)
        inner, calls = fake.logits, []

        def logits(tokens, digest=None, inner=inner, calls=calls):
            calls.append(0)
            row = inner(tokens, digest)
            return np.full_like(row, np.nan) if len(calls) > 4 else row

        fake.logits = logits
        grammars = HostGrammars()
        walker = HostWalker(words, grammars)
        engine = DeviceEngine(model, lambda g=grammars, w=walker: (g, w), vocab_size=words.size)
        with pytest.raises(DecodingError, match="not finite"):
            engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=30, mode=mode))


def test_callbacks_see_tokens_and_text_as_they_come():
    """`on_token` and `stream` get everything in order."""
    fake, engine, _ = made("bpe", "longest")
    tokens, pieces = [], []
    result = engine.decode(
        Output(fake, PROMPT, grammar("accents"), max_tokens=30, on_token=tokens.append, stream=pieces.append)
    )
    assert tuple(tokens) == result.tokens
    assert "".join(pieces) == result.text


def test_a_callback_that_fails_leaves_the_engine_usable():
    """An exception from the user's callback ends that stream; the next one decodes as ever."""
    fake, engine, _ = made("bpe", "longest")
    expected = generate(fake, PROMPT, grammar("person"), max_tokens=30)

    def fail(token):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=30, on_token=fail))
    assert summary(engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=30))) == summary(expected)


def test_an_output_made_inside_another_is_not_taken():
    """While a thread decodes, the engine refuses a second stream of the same thread: it would wait for itself."""
    fake, engine, _ = made("bpe", "longest")
    seen = []
    other = Output(fake, PROMPT, grammar("person"), max_tokens=5)
    assert engine.takes(other)
    engine.decode(
        Output(fake, PROMPT, grammar("person"), max_tokens=9, on_token=lambda _: seen.append(engine.takes(other)))
    )
    assert seen[0]  # forced text that begins the output is emitted before the device is taken
    assert not seen[-1]
    assert engine.takes(other)


def test_contexts_past_the_models_are_not_taken():
    """What does not fit the static cache goes to the plain loop."""
    fake, engine, _ = made("bpe")
    fake.context_length = engine.model.context_length = 100
    assert engine.takes(Output(fake, PROMPT, grammar("person"), max_tokens=97))
    engine.model.context_length = 60
    assert not engine.takes(Output(fake, PROMPT, grammar("person"), max_tokens=97))


def test_longer_streams_get_larger_caches():
    """A stream that needs more room than any before makes new graphs, and decodes the same."""
    fake, engine, _ = made("greedy", "short")
    for limit in (20, 700, 30):
        expected = generate(fake, PROMPT, grammar("person"), max_tokens=limit, mode="mask")
        found = engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=limit, mode="mask"))
        assert summary(found) == summary(expected)
    assert engine._graphs.capacity == 1024


def test_limits_too_small_are_refused_before_the_model_runs():
    """`LimitTooSmall`, and no pass."""
    fake, engine, _ = made("bpe")
    with pytest.raises(LimitTooSmall):
        engine.decode(Output(fake, PROMPT, grammar("person"), max_tokens=1, budget=True))
    assert engine.model.spans == []


def test_options_are_checked():
    """No such way to run ahead; an empty prompt without forced text."""
    with pytest.raises(InvalidOption, match="ahead"):
        made(ahead="sometimes")
    fake, engine, _ = made()
    with pytest.raises(InvalidOption, match="prompt is empty"):
        engine.decode(Output(fake, [], grammar("colours"), max_tokens=5, mode="mask"))


@pytest.mark.parametrize("static", [HashModel, PrefixModel])
def test_an_output_that_thinks_first_is_the_plain_loops(static):
    """Thoughts under the host's masks, then an answer under the machine's own, with guesses in it."""
    saved = 0
    for seed in range(8):
        options = {"max_tokens": 70, "thinking": Thinking(max_tokens=20), "budget": seed % 2 == 0}
        fake, engine, _ = made("bpe", "short", seed, guess=True, kind=MoodyModel, static=static)

        def output(model, options=options):
            return Output(model, PROMPT, grammar("person"), **options)

        expected, found = decode(output(fake), fake.session()), engine.decode(output(fake))
        assert summary(found) == summary(expected)
        assert found.thinking == expected.thinking
        saved += found.sampled - found.passes
    assert saved > 0
