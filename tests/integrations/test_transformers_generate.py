"""`Constrained` as transformers' custom generate: our engine's outputs and passes, on the user's model and cache."""

import pytest

from stcon.errors import DecodingError, InvalidOption, LimitTooSmall

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tiny_networks as tiny  # noqa: E402
from transformers import DynamicCache, StoppingCriteria, StopStringCriteria, TextIteratorStreamer  # noqa: E402
from transformers.generation import GenerateDecoderOnlyOutput  # noqa: E402

from stcon.integrations.transformers import Constrained  # noqa: E402

CACHE = "cache" if "cache" in GenerateDecoderOnlyOutput.__dataclass_fields__ else "past_key_values"


def cache_of(result):
    """The cache in an output, under the name that this version of the library has for it."""
    return getattr(result, CACHE)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other over networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def loop(names, **options):
    """`Constrained` for one grammar, or one for each prompt."""
    chosen = [None if name is None else tiny.grammar(name) for name in names] if isinstance(names, list) else None
    return Constrained(chosen or tiny.grammar(names), tiny.vocabulary(), **options)


def generate(family, prompts, constrained, limit, **options):
    """The outputs of generate."""
    batch, mask = tiny.ids(*prompts)
    options = {"do_sample": False, "max_new_tokens": limit, **options}
    found = tiny.network(family).generate(batch, attention_mask=mask, custom_generate=constrained, **options)
    return [row[batch.shape[1] :].tolist() for row in found]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["person", "tree", "pattern"])
@pytest.mark.parametrize("family", tiny.PLAIN)
def test_text_and_passes_equal_the_engine(family, name, cache):
    """One prompt on a growing and on a fixed cache: the engine's tokens, in the engine's passes, and an end token."""
    for mode in ("canonical", "any"):
        constrained = loop(name, mode=mode)
        for prompt, limit in zip(tiny.PROMPTS, (30, 40, 60, 90), strict=True):
            own = tiny.own(family, prompt, name, limit, mode)
            (tokens,) = generate(family, [prompt], constrained, limit, cache_implementation=cache)
            expected = [token.id for token in own.tokens]
            assert tokens[: len(expected)] == expected
            assert len(tokens) <= limit
            assert all(token in tiny.vocabulary().end_ids for token in tokens[len(expected) :])
            assert constrained.passes == own.passes


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("family", ["gemma3_text", "qwen3_5_text"])
def test_other_caches_are_exact(family, cache):
    """Windows and recurrent layers give the engine's text too, past the window, whatever passes that takes."""
    for name in ("person", "tree"):
        for prompt, limit in zip(tiny.PROMPTS[:2], (30, 90), strict=True):
            own = tiny.own(family, prompt, name, limit, "canonical")
            constrained = loop(name)
            (tokens,) = generate(family, [prompt], constrained, limit, cache_implementation=cache)
            assert tiny.text_of(tokens) == own.text
            assert constrained.passes >= own.passes


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
def test_batch_of_several_grammars(family, cache):
    """Rows of a padded batch under different grammars write what each writes alone, whatever the cache."""
    names = ["person", "tree", None, "pattern"]
    constrained = loop(names)
    rows = generate(family, tiny.PROMPTS, constrained, 60, cache_implementation=cache)
    drawn = []
    for prompt, name, tokens in zip(tiny.PROMPTS, names, rows, strict=True):
        if name is not None:
            own = tiny.own(family, prompt, name, 60, "canonical")
            assert tiny.text_of(tokens) == own.text
            drawn.append(own.passes)
    assert constrained.passes >= max(drawn)
    assert len({len(row) for row in rows}) == 1


def test_batch_without_free_rows_saves_passes():
    """A batch takes as many passes as its slowest row."""
    constrained = loop("person")
    generate("llama", tiny.PROMPTS, constrained, 60)
    assert constrained.passes == max(tiny.own("llama", p, "person", 60, "canonical").passes for p in tiny.PROMPTS)


def test_sampling():
    """Samples are valid, differ, and repeat with torch's seed; the library's filters work on what the mask leaves."""
    constrained = loop("tree")
    options = {"do_sample": True, "temperature": 1.7, "top_k": 5, "num_return_sequences": 6}
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        runs.append(generate("qwen2", tiny.PROMPTS[:1], constrained, 30, **options))
    assert runs[0] == runs[1]
    texts = {tiny.text_of(tokens) for tokens in runs[0]}
    assert len(texts) > 1
    assert all(tiny.grammar("tree").accepts(text) for text in texts)


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"num_beams": 3, "do_sample": True}, {"mode": "mask"}])
def test_loops_of_the_library(options):
    """Beams, and mask mode, run in the library's own loop, with the budget of the call."""
    options = dict(options)
    constrained = loop("tree", **({"mode": options.pop("mode")} if "mode" in options else {}))
    rows = generate("llama", tiny.PROMPTS[:2], constrained, 30, **options)
    assert constrained.passes is None
    assert all(tiny.grammar("tree").accepts(tiny.text_of(tokens)) for tokens in rows)
    if options == {}:
        assert tiny.text_of(rows[0]) == tiny.own("llama", tiny.PROMPTS[0], "tree", 30, "mask").text


def test_prompt_lookup():
    """Drafts from the prompt run in the library's loop and change nothing."""
    prompt = '{"name":"anna bell","age":34}'
    (tokens,) = generate("llama", [prompt], loop("person"), 40, prompt_lookup_num_tokens=4)
    assert tiny.text_of(tokens) == tiny.own("llama", prompt, "person", 40, "mask").text


def test_processors_cannot_break_the_output():
    """A processor that sets all scores anew (forced_eos_token_id) is overruled; one that changes them is heard."""

    def reverse(input_ids, scores):
        return -scores.nan_to_num(neginf=0)

    (plain,) = generate("llama", ["the man"], loop("tree"), 40)
    (forced,) = generate("llama", ["the man"], loop("tree"), 40, forced_eos_token_id=2)
    (changed,) = generate("llama", ["the man"], loop("tree"), 40, logits_processor=[reverse])
    for tokens in (plain, forced, changed):
        assert tiny.grammar("tree").accepts(tiny.text_of(tokens))
    assert changed != plain


def test_contradiction():
    """Where the library forbids what the grammar needs, the error says so."""
    with pytest.raises(DecodingError, match="suppress_tokens"):
        generate("llama", ["a"], loop("pattern"), 40, suppress_tokens=list(range(3, 320)))


def test_stopping_criteria():
    """Stop strings end the output where they appear, inside forced text too; a criterion of one's own works."""

    class AfterFive(StoppingCriteria):
        def __call__(self, input_ids, scores, **options):
            return torch.tensor([input_ids.shape[1] >= 6 + prompt.shape[1]])

    prompt, _ = tiny.ids("the man")
    stop = StopStringCriteria(tiny.tokenizer(), ['"age":'])
    (tokens,) = generate("llama", ["the man"], loop("person"), 40, stopping_criteria=[stop])
    assert '"age":' in tiny.text_of(tokens)
    assert "active" not in tiny.text_of(tokens)
    (tokens,) = generate("llama", ["the man"], loop("person"), 40, stopping_criteria=[AfterFive()])
    assert len(tokens) == 6


def test_streamer():
    """What is streamed is the text, without the prompt."""
    streamer = TextIteratorStreamer(tiny.tokenizer(), skip_prompt=True, skip_special_tokens=True)
    (tokens,) = generate("llama", ["the man"], loop("person", streamer=streamer), 40)
    pieces = list(streamer)
    assert "".join(pieces) == tiny.text_of(tokens)


def test_return_dict():
    """With return_dict_in_generate: sequences, a score row for each token, and a cache to go on with."""
    batch, mask = tiny.ids("the man")
    options = {"attention_mask": mask, "max_new_tokens": 40, "do_sample": False, "custom_generate": loop("person")}
    result = tiny.network("llama").generate(batch, return_dict_in_generate=True, output_scores=True, **options)
    tokens = result.sequences[0, batch.shape[1] :].tolist()
    assert len(result.scores) == len(tokens)
    for row, token in zip(result.scores, tokens, strict=True):
        assert torch.isfinite(row[0, token])
        assert row.shape == (1, len(tiny.tokenizer()))
    assert tiny.text_of(tokens) == tiny.own("llama", "the man", "person", 40, "canonical").text
    assert batch.shape[1] < cache_of(result).get_seq_length() <= result.sequences.shape[1]


def test_goes_on_from_a_cache():
    """A second turn on the cache that the first returned writes what it writes from nothing."""
    network = tiny.network("llama")
    batch, mask = tiny.ids("the man")
    first = network.generate(
        batch,
        attention_mask=mask,
        max_new_tokens=40,
        do_sample=False,
        return_dict_in_generate=True,
        custom_generate=loop("person"),
    )
    more, _ = tiny.ids(" Hello world")
    whole = torch.cat([first.sequences, more], dim=1)
    options = {"max_new_tokens": 40, "do_sample": False, "attention_mask": torch.ones_like(whole)}
    fresh = network.generate(whole, custom_generate=loop("tree"), **options)
    resumed = network.generate(whole, **{CACHE: cache_of(first)}, custom_generate=loop("tree"), **options)
    assert torch.equal(fresh, resumed)
    cache = DynamicCache(config=network.config)
    with torch.no_grad():
        network(whole[:, :-4], **{CACHE: cache}, use_cache=True)
    alone = network.generate(whole[:, -4:], **{CACHE: cache}, custom_generate=loop("tree"), **options)
    assert torch.equal(alone[:, 4:], fresh[:, whole.shape[1] :])


def test_output_that_is_forced_whole():
    """A grammar of one text asks the model nothing; the limit is kept to the token."""
    from stcon import compile_regex

    constrained = Constrained(compile_regex("the man of the moon"), tiny.vocabulary())
    (tokens,) = generate("llama", ["a"], constrained, 60)
    assert tiny.text_of(tokens) == "the man of the moon"
    assert constrained.passes == 0


def test_every_limit():
    """Each limit is refused or kept, and the least that is kept is the one that refusals name."""
    with pytest.raises(LimitTooSmall) as refusal:
        generate("llama", ["a"], loop("person"), 1)
    least = refusal.value.needed
    for limit in range(2, least):
        with pytest.raises(LimitTooSmall):
            generate("llama", ["a"], loop("person"), limit)
    for limit in range(least, least + 12):
        (tokens,) = generate("llama", ["a"], loop("person"), limit)
        assert len(tokens) <= limit
        assert tiny.grammar("person").accepts(tiny.text_of(tokens))


def test_without_a_budget_outputs_are_cut():
    """budget=False: the limit cuts, as the library does."""
    (tokens,) = generate("llama", ["a"], loop("person", budget=False), 5)
    assert len(tokens) == 5
    assert not tiny.grammar("person").accepts(tiny.text_of(tokens))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_cache": False}, "mode='mask'"),
        ({"output_logits": True, "return_dict_in_generate": True}, "output_logits"),
        ({"penalty_alpha": 0.5, "top_k": 4, "trust_remote_code": True}, "contrastive|not served"),
    ],
)
def test_refusals(options, message):
    """What the loop does not do is refused by name."""
    with pytest.raises(InvalidOption, match=message):
        generate("llama", ["a"], loop("person"), 30, **options)


def test_number_of_grammars():
    """Grammars that do not divide the rows are refused."""
    with pytest.raises(InvalidOption, match="3 rows where there are 2"):
        generate("llama", tiny.PROMPTS[:3], loop(["person", "tree"]), 30)


def test_encoder_decoder():
    """Forced text is for decoders alone and says so; in mask mode an encoder-decoder writes what the grammar admits."""
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(3)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "init_std": 0.5}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = BartConfig(vocab_size=len(tiny.tokenizer()), **sizes, **heads, **ends, forced_eos_token_id=None)
    network = BartForConditionalGeneration(config).eval()
    batch, _ = tiny.ids("the man")
    options = {"max_new_tokens": 40, "do_sample": False, "num_beams": 1}
    with pytest.raises(InvalidOption, match="decoders alone"):
        network.generate(batch, custom_generate=loop("person"), **options)
    for beams in (1, 3):
        options["num_beams"] = beams
        found = network.generate(batch, custom_generate=loop("person", mode="mask"), **options)
        assert tiny.grammar("person").accepts(tiny.text_of(found[0, 1:].tolist()))
