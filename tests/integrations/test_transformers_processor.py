"""`GrammarProcessor` inside transformers' own loops: the same text as our engine, valid in every way of drawing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.errors import DecodingError, InvalidOption, LimitTooSmall

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import cuda_on_cpu  # noqa: E402
import tiny_networks as tiny  # noqa: E402

from stcon.integrations.prefixes import Prefixes  # noqa: E402
from stcon.integrations.transformers import GrammarProcessor, vocabulary_of  # noqa: E402
from stcon.integrations.transformers.masks import CudaMasks, HostMasks, Mask  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads only wait for each other over networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def processor(names, limit, **options):
    """A processor for one grammar, or one for each prompt."""
    chosen = [None if name is None else tiny.grammar(name) for name in names] if isinstance(names, list) else None
    options.setdefault("eos_token_id", tiny.vocabulary().end_ids)
    return GrammarProcessor(chosen or tiny.grammar(names), tiny.vocabulary(), limit, **options)


def outputs(family, prompts, names, limit, *, masks=None, **options):
    """The outputs of generate."""
    batch, mask = tiny.ids(*prompts)
    found = tiny.network(family).generate(
        batch,
        attention_mask=mask,
        max_new_tokens=limit,
        logits_processor=[processor(names, limit, masks=masks)],
        **options,
    )
    return [row[batch.shape[1] :].tolist() for row in found]


@pytest.mark.parametrize("name", ["person", "tree", "pattern"])
@pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
def test_greedy_equals_the_engine(family, name):
    """Greedy search under the processor writes what our engine writes in mask mode, with the same limit."""
    for prompt, limit in zip(tiny.PROMPTS[:2], (30, 60), strict=True):
        (tokens,) = outputs(family, [prompt], name, limit, do_sample=False)
        assert tiny.text_of(tokens) == tiny.own(family, prompt, name, limit, "mask").text
        assert len(tokens) <= limit
        assert tiny.grammar(name).accepts(tiny.text_of(tokens))


@pytest.mark.parametrize("family", tiny.PLAIN)
def test_batch_with_left_padding(family):
    """Rows of a padded batch write what each writes alone; one of them is free."""
    names = ["person", "tree", None, "pattern"]
    rows = outputs(family, tiny.PROMPTS, names, 50, do_sample=False)
    for prompt, name, tokens in zip(tiny.PROMPTS, names, rows, strict=True):
        if name is not None:
            assert tiny.text_of(tokens) == tiny.own(family, prompt, name, 50, "mask").text


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "temperature": 1.5, "top_k": 9}, {"length_penalty": 2.0}])
@pytest.mark.parametrize("name", ["person", "tree", "pattern"])
def test_beams_are_valid(name, options):
    """Every beam that is returned is valid and complete within the limit."""
    options = {"do_sample": False, **options}
    rows = outputs("llama", tiny.PROMPTS[:2], name, 40, num_beams=4, num_return_sequences=3, **options)
    assert len(rows) == 6
    for tokens in rows:
        assert tiny.grammar(name).accepts(tiny.text_of(tokens)), tiny.text_of(tokens)


def test_beam_search_finds_the_most_probable():
    """Over few texts, beams as wide as there are texts return them all, in the order of their probability."""
    texts = ["red", "green", "grey", "blue"]
    from stcon import compile_regex

    grammar = compile_regex("|".join(texts))
    network, (batch, mask) = tiny.network("llama"), tiny.ids("the man")
    found = network.generate(
        batch,
        attention_mask=mask,
        do_sample=False,
        num_beams=16,
        num_return_sequences=4,
        max_new_tokens=8,
        length_penalty=0.0,
        early_stopping=False,
        logits_processor=[GrammarProcessor(grammar, tiny.vocabulary(), 8, eos_token_id=2)],
    )
    assert {tiny.text_of(row[batch.shape[1] :].tolist()) for row in found} <= set(texts)


@pytest.mark.parametrize("name", ["person", "tree", "pattern"])
def test_sampling_is_valid(name):
    """Several samples of each prompt, at a high temperature and under the library's filters, are valid."""
    torch.manual_seed(3)
    filters = {"temperature": 2.0, "top_k": 20, "top_p": 0.9}
    rows = outputs("qwen2", tiny.PROMPTS[:2], name, 30, do_sample=True, num_return_sequences=5, **filters)
    assert all(tiny.grammar(name).accepts(tiny.text_of(tokens)) for tokens in rows)
    assert len({tuple(tokens) for tokens in rows}) > 2


@pytest.mark.parametrize("options", [{"prompt_lookup_num_tokens": 3}, {"assistant": 8}, {"assistant": 7}])
def test_assisted_generation_changes_nothing(options):
    """Drafts of another network, of the network itself or from the prompt are taken back exactly."""
    assistant = options.pop("assistant", None)
    if assistant is not None:
        options = {"assistant_model": tiny.network("llama", assistant)}
    prompt = '{"name":"anna bell","age":34}'
    (plain,) = outputs("llama", [prompt], "person", 40, do_sample=False)
    (assisted,) = outputs("llama", [prompt], "person", 40, do_sample=False, **options)
    assert tiny.text_of(assisted) == tiny.text_of(plain)


def test_loop_stops_at_its_own_end_token():
    """Only the end tokens at which the loop stops are admitted, so that nothing follows a finished output."""
    batch, mask = tiny.ids("the man")
    for end in (0, 2):
        found = tiny.network("llama").generate(
            batch,
            attention_mask=mask,
            eos_token_id=end,
            max_new_tokens=60,
            do_sample=False,
            logits_processor=[processor("person", 60, eos_token_id=end)],
        )
        assert [token for token in found[0].tolist() if token in (0, 2)] == [end]


def test_limit_too_small():
    """A limit that no text fits is refused before the model is asked."""
    with pytest.raises(LimitTooSmall):
        processor("person", 3)


def test_contradiction_with_other_processors():
    """Where the library forbids all that the grammar admits, the error says so, and no wrong token is drawn."""
    from stcon import compile_regex

    batch, mask = tiny.ids("the man")
    only = GrammarProcessor(compile_regex("ab"), tiny.vocabulary(), eos_token_id=2)
    with pytest.raises(DecodingError, match="min_new_tokens"):
        tiny.network("llama").generate(
            batch, attention_mask=mask, min_new_tokens=10, max_new_tokens=20, logits_processor=[only]
        )


def test_one_generate_each():
    """Another prompt starts anew; an input that skips tokens is refused until `reset`."""
    once = processor("pattern", None)
    row, more = torch.zeros(1, len(tiny.tokenizer())), torch.tensor([[5, 6, 7]])
    first = once(more, row)
    assert torch.equal(first, once(torch.tensor([[9, 9]]), row))
    assert torch.equal(first, once(more, row))
    with pytest.raises(InvalidOption, match="reset"):
        once(torch.tensor([[5, 6, 7, 8, 9]]), row)
    once.reset()
    assert torch.equal(first, once(torch.tensor([[5, 6, 7, 8, 9]]), row))


def test_end_token_that_is_text_is_refused():
    """A loop that stops at a token of text would cut outputs: refused by name."""
    letter = tiny.vocabulary().encode("a")[0]
    with pytest.raises(InvalidOption, match="ends the output"):
        processor("person", 40, eos_token_id=letter)


def test_vocabulary_of_is_made_once():
    """A tokenizer's vocabulary is shared, and made anew when tokens are added."""
    words = tiny.tiny_llama.tokenizer()
    first = vocabulary_of(words)
    assert vocabulary_of(words) is first
    words.add_tokens(["<tool>"])
    assert vocabulary_of(words).size == first.size + 1


# ------------------------------------------------------------------------------------------------- rows by prefix


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_prefixes_find_rows_again(data):
    """However rows are permuted, copied, cut and extended between calls, masks are those of fresh matchers."""
    words, limit = tiny.vocabulary(), 24
    names = data.draw(st.lists(st.sampled_from(["person", "tree", "pattern"]), min_size=1, max_size=2))
    grammars, width = [tiny.grammar(name) for name in names], data.draw(st.integers(1, 3))
    prefixes = Prefixes(grammars, words, limit)
    rows = [[] for _ in range(width * len(names))]
    for _ in range(8):
        found = prefixes.follow(rows)
        for number, (row, tokens) in enumerate(zip(found, rows, strict=True)):
            fresh = Prefixes([grammars[number // width]], words, limit)
            (expected,) = fresh.follow([tokens])
            assert np.array_equal(prefixes.mask(row), fresh.mask(expected))
            assert row.is_over == expected.is_over
        following = []
        for number in range(len(rows)):
            source = data.draw(st.integers(0, width - 1)) + number // width * width
            kept = rows[source][: data.draw(st.integers(max(0, len(rows[source]) - 4), len(rows[source])))]
            (row,) = Prefixes([grammars[number // width]], words, limit).follow([kept])
            admitted = np.flatnonzero(np.unpackbits(prefixes.mask(row).view(np.uint8), bitorder="little"))
            wrong = data.draw(st.booleans()) and data.draw(st.booleans())
            token = data.draw(st.integers(3, words.size - 1)) if wrong else int(data.draw(st.sampled_from(admitted)))
            following.append(kept if len(kept) >= limit else [*kept, token])
        rows = following


# ------------------------------------------------------------------------------------------------- on a GPU


def cuda_masks(rows=8):
    """The CUDA kernels' own text, compiled for the CPU."""
    from stcon.kernels.cuda import CudaGrammars, CudaWalker

    grammars = CudaGrammars(torch.device("cpu"))
    walker = CudaWalker(tiny.vocabulary(), grammars, rows, kernels=cuda_on_cpu.HostKernels())
    return CudaMasks(tiny.vocabulary(), grammars, walker)


def test_cuda_masks_write_the_same():
    """Greedy batches and beams under the device's masks write what they write under the host's."""
    names = ["person", "tree", None, "pattern"]
    for options in ({}, {"num_beams": 2}):
        host, device = (
            outputs("llama", tiny.PROMPTS, names, 40, do_sample=False, masks=masks, **options)
            for masks in (HostMasks(tiny.vocabulary()), cuda_masks())
        )
        assert host == device


def test_cuda_masks_walk_on_the_device():
    """A row far from its limit is walked there, and never asks the host for its mask."""
    (row,) = (prefixes := Prefixes([tiny.grammar("person")], tiny.vocabulary(), 10_000)).follow([[]])
    machine, config = prefixes.place(row)

    def refuse():
        raise AssertionError("the host is asked")

    scores = torch.zeros(1, len(tiny.tokenizer()))
    masked = cuda_masks().apply([Mask(refuse, machine, config)], scores)
    assert torch.equal(masked, HostMasks(tiny.vocabulary()).apply([Mask(lambda: prefixes.mask(row))], scores))
