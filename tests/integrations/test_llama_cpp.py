"""llama.cpp through llama-cpp-python: our model on it, rows of a batch, and the processor in its own loop."""

import gc

import numpy as np
import pytest

import stcon
from stcon.errors import DecodingError, InvalidOption, LimitTooSmall, ModelUnavailable, NoRoom, PromptTooLong

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: pip install 'stcon[llama-cpp]'")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

import tiny_llama
import tiny_networks as tiny

from stcon.engine.batch.batch import Batch
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.llama_cpp import LlamaCppRows
from stcon.engine.batch.request import Request
from stcon.integrations.llama_cpp import GrammarProcessor, constrained, vocabulary_of
from stcon.models.llama_cpp import LlamaCppModel

NEAR = 1e-3


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """A random Llama with float32 matrices, which are multiplied as such."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    words = tiny_llama.tokenizer()
    tiny_llama.save_gguf(path, words, tiny_llama.network(len(words)), blocks="F32")
    return path


@pytest.fixture(scope="module")
def model(gguf):
    return LlamaCppModel(gguf, gpu_layers=0, num_sequences=6, num_threads=1)


@pytest.fixture(scope="module")
def llm(gguf):
    """llama-cpp-python's own class on the same file."""
    from llama_cpp import Llama

    found = Llama(str(gguf), n_ctx=256, n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False)
    yield found
    found.close()


def test_load_model(gguf):
    """`load_model` gives the model by its runner's name; conventions are the file's."""
    model = stcon.load_model(gguf, runner="llama.cpp", device="cpu")
    assert isinstance(model, LlamaCppModel)
    assert model.context_length == 256
    assert 2 in model.end_ids
    assert model.chat_template == tiny_llama.TEMPLATE
    assert model.encode_prompt("<|im_start|>the man")[0] == 1


def test_token_bytes_are_llama_cpps(model):
    """Every token's bytes are what llama.cpp writes for it."""
    for token in range(model.vocabulary.size):
        assert (model.vocabulary.token_bytes(token) or b"") == model.weights.piece(token)


def test_logits_equal_our_runner(gguf, model):
    """The logits of a text are those of our own runner on the same weights, at every position."""
    tokens = model.encode_prompt('the man of the moon {"name":"anna"}')
    ours = stcon.load_model(gguf, device="cpu").session().append(tokens, all_positions=True)
    theirs = model.session().append(tokens, all_positions=True)
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(ours).max()  # keys and values are cached in float16
    assert (ours.argmax(1) == theirs.argmax(1)).mean() > 0.9


def test_sessions(model):
    """Spans equal single tokens; copies go their own ways; what is cut off leaves no trace."""
    tokens = model.encode_prompt('the man of the moon {"name":"anna","age":34}')
    whole = model.session().append(tokens, all_positions=True)
    session = model.session()
    singles = np.stack([session.append([token]) for token in tokens])
    assert np.abs(singles - whole).max() < NEAR * np.abs(whole).max()
    other = session.copy()
    other.append([5, 6, 7])
    session.truncate(10)
    assert (session.length, other.length) == (10, len(tokens) + 3)
    again = session.append(tokens[10:])
    assert np.abs(again - whole[-1]).max() < NEAR * np.abs(whole).max()
    fresh = model.session().append([*tokens, 5, 6, 7, 8])
    assert np.abs(other.append([8]) - fresh).max() < NEAR * np.abs(fresh).max()


def test_long_prompts_are_fed_in_calls(gguf, model):
    """More tokens than a decode call takes give what they give in any other split."""
    from stcon.models.llama_cpp.context import BATCH_TOKENS

    long = LlamaCppModel(gguf, gpu_layers=0, context_length=4 * BATCH_TOKENS, num_threads=1)
    tokens = [3 + (7 * i) % 300 for i in range(BATCH_TOKENS + 90)]
    first, second = long.session(), long.session()
    rows = first.append(tokens, all_positions=True)
    second.append(tokens[:77])
    assert np.abs(second.append(tokens[77:]) - rows[-1]).max() < 3 * NEAR * np.abs(rows).max()
    assert rows.shape == (len(tokens), long.vocabulary.size)


def test_room(model):
    """A full context and a full list of sequences are refused by name, leave the session as it was, and come free."""
    gc.collect()
    session = model.session()
    session.append([5] * 100)
    with pytest.raises(PromptTooLong):
        session.append([5] * 200)
    crowd = [model.session() for _ in range(3)]
    crowd[0].append([6] * 120)
    with pytest.raises(NoRoom, match="cached tokens"):
        crowd[1].append([6] * 120)
    assert crowd[1].length == 0
    assert session.length == 100
    assert np.isfinite(session.append([7])).all()
    crowd += [model.session(), model.session()]
    with pytest.raises(NoRoom, match="sequences"):
        model.session()
    del crowd
    gc.collect()
    model.session().append([6] * 120)


@pytest.mark.parametrize("mode", ["mask", "any", "canonical"])
@pytest.mark.parametrize("name", ["person", "tree", "pattern"])
def test_engine(model, name, mode):
    """The engine's outputs on it are complete within every limit, one pass a drawn token."""
    for prompt, limit in zip(tiny.PROMPTS, (30, 40, 60, 90), strict=True):
        output = model.generate(prompt, tiny.grammar(name), limit, mode=mode, raw=True)
        assert output.complete
        assert len(output.tokens) <= limit
        assert output.passes == output.sampled
        assert (output.forced > 0) or mode == "mask" or name == "tree"


def test_rows_of_a_batch(model):
    """Rows fed together in one call, copied, cut and parked give what sessions give."""
    rows = rows_for(model, 4, row_tokens=128)
    assert isinstance(rows, LlamaCppRows)
    requests = [
        Request(model.encode_prompt(prompt), tiny.grammar(name), max_tokens=50)
        for prompt, name in zip(tiny.PROMPTS, ("person", "tree", "pattern", "person"), strict=True)
    ]
    batch = Batch(rows)
    for _ in range(2):  # the second time out of the prompt cache
        for (output,), request in zip(batch.generate(requests), requests, strict=True):
            alone = model.generate(
                model.vocabulary.decode(request.prompt_ids).decode(), request.grammar, 50, mode="canonical", raw=True
            )
            assert output.complete
            assert output.text == alone.text


def test_many_parked_rows(model):
    """The prompt cache never takes the last sequence, however short the prompts it keeps are."""
    batch = Batch(rows_for(model, 2, row_tokens=64))
    grammar = stcon.compile_regex("(yes|no)")
    for number in range(12):
        request = Request([5 + number, 6, 7 + number], grammar, max_tokens=8, n=1)
        ((output,),) = batch.generate([request])
        assert output.complete


def test_certified_fields(model):
    """Fields drafted side by side on copied sequences give the sequential output, or part where two logits are near."""
    for prompt in tiny.PROMPTS:
        sequential = model.generate(prompt, tiny.grammar("person"), 60, raw=True)
        parallel = model.generate(prompt, tiny.grammar("person"), 60, raw=True, parallel=True)
        assert parallel.complete
        assert parallel.parallel is not None
        first, second = ([token.id for token in output.tokens] for output in (sequential, parallel))
        if first != second:
            at = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
            row = model.session().append([*model.encode_prompt(prompt), *first[:at]])
            assert abs(float(row[first[at]] - row[second[at]])) < 3 * NEAR * np.abs(row).max()


def test_failures(tmp_path, gguf):
    """What cannot be loaded is refused in one line that says why."""
    with pytest.raises(ModelUnavailable, match=r"needs a \.gguf file"):
        stcon.load_model(tmp_path, runner="llama.cpp")
    with pytest.raises(InvalidOption, match="leave dtype"):
        stcon.load_model(gguf, runner="llama.cpp", dtype="float32")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf.read_bytes()[: gguf.stat().st_size // 2])
    with pytest.raises(ModelUnavailable, match="cannot load it"):
        stcon.load_model(broken, runner="llama.cpp")


# ------------------------------------------------------------------------------------------------- its own loop


@pytest.mark.parametrize("name", ["person", "tree", "pattern"])
def test_create_completion(model, llm, name):
    """Greedy completions under the processor are what our engine writes in mask mode on the same library."""
    for prompt, limit in zip(tiny.PROMPTS, (30, 40, 60, 90), strict=True):
        llm.reset()
        ids = model.encode_prompt(prompt)
        options = constrained(llm, tiny.grammar(name), limit)
        text = llm.create_completion(ids, temperature=0.0, **options)["choices"][0]["text"]
        assert text == model.generate(prompt, tiny.grammar(name), limit, mode="mask", raw=True).text


def test_create_chat_completion_and_sampling(llm):
    """Chat and sampling at a high temperature are valid, whole and streamed."""
    messages = [{"role": "user", "content": "the man"}]
    for seed in range(4):
        options = {"temperature": 2.0, "seed": seed, **constrained(llm, tiny.grammar("tree"), 40, chat=True)}
        text = llm.create_chat_completion(messages, **options)["choices"][0]["message"]["content"]
        assert tiny.grammar("tree").accepts(text)
        options.update(constrained(llm, tiny.grammar("tree"), 40, chat=True))
        chunks = llm.create_chat_completion(messages, stream=True, **options)
        pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert tiny.grammar("tree").accepts("".join(pieces))


@pytest.mark.filterwarnings("ignore:the output is cut short:RuntimeWarning")
def test_errors_come_through(llm):
    """An error inside the processor, which C code would drop, ends the call as that error; in chat, with a warning."""
    from llama_cpp import LogitsProcessorList

    def failing(**options):
        found = constrained(llm, tiny.grammar("person"), 40, **options)
        nothing = [lambda ids, scores: np.full_like(scores, -np.inf), *found["logits_processor"]]
        return found | {"logits_processor": LogitsProcessorList(nothing)}

    with pytest.raises(DecodingError, match="other processors"):
        llm.create_completion("the man", **failing())
    messages = [{"role": "user", "content": "the man"}]
    options = failing(chat=True)
    assert llm.create_chat_completion(messages, **options)["choices"][0]["message"]["content"] == ""
    assert isinstance(options["logits_processor"][-1].error, DecodingError)
    with pytest.raises(LimitTooSmall):
        constrained(llm, tiny.grammar("person"), 2)
    used = constrained(llm, tiny.grammar("person"), 40)
    llm.create_completion("the man", **used)
    with pytest.raises(InvalidOption, match="one call"):
        llm.create_completion("Hello world", **used)


def test_draft_models_are_refused(llm):
    """The library shows drafts to processors as if they were text: refused."""
    llm.draft_model = lambda ids: ids
    try:
        with pytest.raises(InvalidOption, match="draft_model"):
            constrained(llm, tiny.grammar("person"))
    finally:
        llm.draft_model = None


def test_processor_alone(llm):
    """Masks are those of a matcher, for the tokens after what the first call had."""
    processor = GrammarProcessor(tiny.grammar("person"), vocabulary_of(llm), 30)
    scores = np.zeros(llm.n_vocab(), np.float32)
    matcher = stcon.Matcher(tiny.grammar("person"), vocabulary_of(llm), policy="none")
    ids = [5, 6]
    for _ in range(4):
        masked = processor(np.array(ids, np.intc), scores)
        words = matcher.bitmask(remaining=30 - len(ids) + 2)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(scores)].astype(bool)
        assert np.array_equal(np.isfinite(masked), bits)
        ids.append(int(np.flatnonzero(bits)[0]))
        assert matcher.accept(ids[-1])
