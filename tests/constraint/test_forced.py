"""The forced planner: what Theorems 19 and 20 promise, on small languages and trained tokenizers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from constraint_lab import (
    LANGUAGES,
    SPLITS,
    Output,
    admitted,
    at_random,
    generate,
    language,
    machine,
    planner_for,
    random_text,
    vocabulary,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.constraint.forced import MAX_PENDING, TRIM_PENDING, Plan, Tail
from stcon.constraint.matcher import Matcher
from stcon.constraint.segments import segmenter_for
from stcon.errors import DecodingError, InvalidOption
from stcon.grammar.machine import Configuration, Machine
from stcon.vocab import Vocabulary

names = st.sampled_from(sorted(LANGUAGES))
splits = st.sampled_from(sorted(SPLITS))
seeds = st.integers(0, 2**32)


def canonical_chooser(target: list[int], end: int):
    """Picks the next token of `target`, which must be admissible, then the end token."""

    def choose(plan: Plan, tokens: list[int], output: Output) -> int:
        assert output.tokens == target[: len(output.tokens)], "what was committed is canonical"
        wanted = target[len(output.tokens)] if len(output.tokens) < len(target) else end
        assert wanted in tokens, "the canonical token is admissible"
        return wanted

    return choose


@settings(max_examples=150, deadline=None)
@given(names, splits, seeds, st.booleans())
def test_plan_canonical_choices_give_the_canonical_split(name: str, split: str, seed: int, heal: bool) -> None:
    """If every sampled token is the tokenizer's own next one, so is every committed one (Theorem 20)."""
    built, vocab = language(name), vocabulary(split)
    text = random_text(built, random.Random(seed), 60)
    target = vocab.encode_bytes(text)
    output = generate(planner_for(built, vocab, heal=heal), canonical_chooser(target, vocab.end_ids[0]))
    assert output.is_ended
    assert output.tokens == target
    assert output.healed == 0


@settings(max_examples=150, deadline=None)
@given(names, splits, seeds, st.sampled_from(["canonical", "any"]), st.booleans())
def test_plan_every_sampling_point_offers_two_tokens(name: str, split: str, seed: int, policy: str, heal: bool) -> None:
    """Wherever the model is asked it has two tokens or more, each of which can be read (Theorem 19(iii))."""
    built, vocab = language(name), vocabulary(split)
    output = generate(planner_for(built, vocab, policy=policy, heal=heal), at_random(random.Random(seed), vocab))
    assert output.is_ended
    for plan in output.plans:
        tokens = admitted(plan.mask)
        assert len(tokens) >= 2 or plan.is_done
        config = Configuration.unpack(plan.config)
        for token in random.Random(seed).sample(tokens, min(5, len(tokens))):
            data = vocab.token_bytes(token)
            assert built.accepts(config) if data is None else built.run(config, data)
            assert data is None or len(data) >= plan.cover
    final = built.run(built.initial(), vocab.decode(output.tokens))
    assert final is not None
    assert built.accepts(final)


@settings(max_examples=100, deadline=None)
@given(names, splits, seeds)
def test_plan_forced_blocks_are_canonical(name: str, split: str, seed: int) -> None:
    """However the model chooses, a block of the final text that holds forced tokens only is split canonically."""
    built, vocab = language(name), vocabulary(split)
    output = generate(planner_for(built, vocab, heal=False), at_random(random.Random(seed), vocab))
    text = vocab.decode(output.tokens)
    starts = vocab.block_starts(text.decode())
    edges = np.cumsum([0] + [len(vocab.token_bytes(token) or b"") for token in output.tokens]).tolist()
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        if begin in edges and end in edges:
            first, last = edges.index(begin), edges.index(end)
            if all(output.forced[first:last]):
                assert output.tokens[first:last] == vocab.encode_bytes(text[begin:end])


@settings(max_examples=100, deadline=None)
@given(names, splits, seeds, st.sampled_from(["canonical", "any", "none"]))
def test_plan_one_by_one_is_the_same_as_together(name: str, split: str, seed: int, policy: str) -> None:
    """A matcher fed every token singly commits the tokens and offers the masks of the plans (Theorem 19(i))."""
    built, vocab = language(name), vocabulary(split)
    matcher = Matcher(built, vocab, policy=policy)
    choose = at_random(random.Random(seed), vocab)

    def follow(plan: Plan, tokens: list[int], output: Output) -> int:
        assert matcher.forced() == plan.tokens
        for token in plan.tokens:
            assert matcher.accept(token)
        assert matcher.forced() == []
        assert (matcher.config == plan.config).all()
        assert (matcher.bitmask(min_bytes=plan.cover) == plan.mask).all()
        token = choose(plan, tokens, output)
        assert matcher.accept(token)
        return token

    generate(planner_for(built, vocab, policy=policy, heal=False), follow, limit=40)


@settings(max_examples=100, deadline=None)
@given(names, splits, seeds)
def test_plan_healed_tokens_spell_the_same_text(name: str, split: str, seed: int) -> None:
    """Healing replaces the last token by tokens that spell it and the forced text, and leads to the same place."""
    built, vocab = language(name), vocabulary(split)
    planner = planner_for(built, vocab)
    choose = at_random(random.Random(seed), vocab)
    seen: list[tuple[Plan, int]] = []

    def watch(plan: Plan, tokens: list[int], output: Output) -> int:
        if seen and plan.replace_last:
            last = vocab.token_bytes(seen[-1][1]) or b""
            assert vocab.decode(plan.tokens) == last + plan.committed
            assert plan.tokens[0] != seen[-1][1]
        elif seen:
            assert vocab.decode(plan.tokens) == plan.committed
        assert built.run(built.initial(), vocab.decode(output.tokens)) == Configuration.unpack(plan.config)
        seen.append((plan, choose(plan, tokens, output)))
        return seen[-1][1]

    generate(planner, watch)


def test_plan_heals_a_quote_that_the_tokenizer_would_join() -> None:
    """A lone closing quote before ``,"age":`` becomes the tokenizer's one token for ``","``, if that is asked for."""
    built, vocab = language("person"), vocabulary("gpt2")
    quote = vocab.encode('"')[0]
    joined = vocab.encode('","')
    assert len(joined) == 1, "the corpus teaches this token"
    before = vocab.encode('{"name":"Maria')
    config = built.initial().pack()
    for heal, expected in ((True, joined + vocab.encode("age")), (False, vocab.encode(',"') + vocab.encode("age"))):
        planner = planner_for(built, vocab, heal=heal)
        config = built.initial().pack()
        assert planner.kernel.advance(config, vocab.decode(before))
        sizes = tuple(len(vocab.token_bytes(token) or b"") for token in before)
        plan = planner.plan(config, Tail(vocab.decode(before), tuple(before), sizes), quote)
        assert plan.replace_last == heal
        assert plan.tokens == expected
        assert plan.committed == b',"age'
        assert plan.tail.data == b""


def test_plan_whole_forced_text_needs_no_model() -> None:
    """A language of one text is done before the model is asked, and is split canonically to its end."""
    vocab = vocabulary("qwen")
    plan = planner_for(language("whole"), vocab).start()
    assert plan.is_done
    assert plan.tokens == vocab.encode(LANGUAGES["whole"])
    assert admitted(plan.mask) == list(vocab.end_ids)


def test_plan_none_forces_nothing() -> None:
    """The policy "none" leaves every token to the model, whatever the mask says."""
    vocab = vocabulary("gpt2")
    planner = planner_for(language("whole"), vocab, policy="none")
    plan = planner.start()
    text = b""
    while not plan.is_done:
        assert plan.tokens == []
        assert plan.cover == 0
        token = admitted(plan.mask)[0]
        text += vocab.token_bytes(token) or b""
        plan = planner.step(plan, token)
    assert text.decode() == LANGUAGES["whole"]


def test_plan_any_commits_the_whole_chain() -> None:
    """The policy "any" commits every forced byte at once."""
    built, vocab = language("person"), vocabulary("gpt2")
    plan = planner_for(built, vocab, policy="any").start()
    assert plan.committed == b'{"name":"'
    assert vocab.decode(plan.tokens) == plan.committed


def test_plan_holds_back_a_block_that_may_grow() -> None:
    """Of ``,"age":`` before a number the last block may become ``":-``: it is held back, the rest is committed."""
    built, vocab = language("person"), vocabulary("gpt2")
    planner = planner_for(built, vocab)
    config = built.initial().pack()
    assert planner.kernel.advance(config, b'{"name":"Maria')
    plan = planner.plan(config, None, vocab.encode('"')[0])
    assert plan.committed == b',"age'
    assert planner.kernel.forced(plan.config, 99) == b'":'


def test_plan_cover_is_the_length_of_the_held_back_token() -> None:
    """A held-back block that is one token of 2 bytes leaves only tokens of 2 bytes and more to the model."""
    vocab = _bpe(["ab", "abc"])
    plan = planner_for(machine(["ab", ("alt", "c", "d", "x")]), vocab).start()
    assert plan.tokens == []
    assert plan.cover == 2
    assert sorted(vocab.token_bytes(token) or b"" for token in admitted(plan.mask)) == [b"ab", b"abc"]


def test_plan_cover_shrinks_where_the_tokenizer_would_begin_shorter() -> None:
    """If ``bc`` merges before ``ab``, the block ``abc`` begins with ``a``: the cover must let the model choose it."""
    vocab = _bpe(["bc", "ab"])
    assert vocab.encode("abc") == vocab.encode("a") + vocab.encode("bc")
    plan = planner_for(machine(["ab", ("alt", "c", "d", "x")]), vocab).start()
    assert plan.cover == 0
    assert [vocab.token_bytes(token) for token in admitted(plan.mask)] == [b"a", b"ab"]


@pytest.mark.parametrize("heal", [True, False])
def test_plan_certain_token_of_a_growing_block_is_committed(heal: bool) -> None:
    """``":`` may grow into ``":-`` but begins with one token in any case: it replaces a lone quote, only if asked."""
    vocab = _bpe(['":'])
    planner = planner_for(machine(["{a", '":', ("alt", "-", "1")]), vocab, heal=heal)
    plan = planner.start()
    assert vocab.decode(plan.tokens) == b'{a":'
    assert plan.tokens[-1] == vocab.encode('":')[0]
    config, (quote,) = planner.kernel.machine.initial().pack(), vocab.encode('"')
    assert planner.kernel.advance(config, b"{a")
    plan = planner.plan(config, Tail(b"a", (vocab.encode("a")[0],), (1,)), quote)
    assert plan.replace_last == heal
    assert plan.tokens == vocab.encode('":' if heal else ":")
    assert planner.kernel.advance(config, b'"')
    fed = planner.plan(config, Tail(b'a"', (vocab.encode("a")[0], quote), (1, 1)))
    assert not fed.replace_last
    assert fed.tokens == vocab.encode(":")


def test_certain_end_excludes_all_trailing_whitespace() -> None:
    """Two blocks of whitespace at the end may yet become one: neither is certain, unless the text ends here."""
    vocab = vocabulary("qwen")
    starts = vocab.block_starts("a\n\n  ")
    assert starts == [0, 1, 3]
    assert vocab.block_starts("a\n\n  \n") == [0, 1]
    segmenter = segmenter_for(vocab)
    live = np.zeros(256, np.bool_)
    assert segmenter.certain_end("a\n\n  ", starts, live=live) == 5
    live[ord("\n")] = True
    assert segmenter.certain_end("a\n\n  ", starts, live=live) == 1
    assert segmenter.certain_end("a\n\n  ", starts, live=None) == 1


def _bpe(merges: list[str]) -> Vocabulary:
    """Letters and pairs merged in this order, in one block of letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *merges, "<|end|>"]
    pairs = [(merge[:-1], merge[-1]) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return Vocabulary.from_tokenizer(tokenizer, end_ids=[len(tokens) - 1])


@settings(max_examples=60, deadline=None)
@given(splits, seeds, st.integers(TRIM_PENDING, 3 * TRIM_PENDING))
def test_plan_forgotten_text_changes_nothing(split: str, seed: int, length: int) -> None:
    """A plan is the same with the whole text before it as with the tail that the planner keeps."""
    built, vocab = language("spaced"), vocabulary(split)
    planner = planner_for(built, vocab)
    rng = random.Random(seed)
    words = " ".join(rng.choice(["the", "fox", "don't", "42", "--", "é中", "a  b"]) for _ in range(length // 3))
    tokens = vocab.encode('{"name": "' + words)
    config = built.initial().pack()
    assert planner.kernel.advance(config, vocab.decode(tokens))
    pieces = [vocab.token_bytes(token) or b"" for token in tokens]
    whole = Tail(b"".join(pieces), tuple(tokens), tuple(map(len, pieces)))
    kept = planner.trimmed(whole)
    assert len(kept.data) < len(whole.data)
    for token in vocab.encode('"'):
        plans = [planner.plan(config, tail, token) for tail in (whole, kept)]
        assert plans[0].tokens == plans[1].tokens
        assert plans[0].replace_last == plans[1].replace_last
        assert plans[0].cover == plans[1].cover
        assert plans[0].tail.data[-8:] == plans[1].tail.data[-8:]


def test_plan_endless_block_is_cut() -> None:
    """Text that never leaves its block costs bounded memory and stays in the grammar."""
    built, vocab = language("loop"), vocabulary("gpt2")
    longest = 0

    def choose(plan: Plan, tokens: list[int], output: Output) -> int:
        nonlocal longest
        longest = max(longest, len(plan.tail.data))
        going = [token for token in tokens if (vocab.token_bytes(token) or b"c")[-1:] != b"c"]
        return max(going, key=lambda token: len(vocab.token_bytes(token) or b""))

    output = generate(planner_for(built, vocab), choose, limit=MAX_PENDING // 2)
    assert longest <= MAX_PENDING + vocab.longest
    assert built.run(built.initial(), vocab.decode(output.tokens)) is not None


@pytest.mark.parametrize("text", ["a" * 100_000, "the " * 40_000, " " * 100_000, "中" * 30_000])
def test_plan_long_forced_text_needs_one_plan(text: str) -> None:
    """A hundred thousand forced bytes, in one block or in many, are committed at once."""
    vocab = vocabulary("gpt2")
    machine_of_text = Machine()
    data = text.encode()
    states = [machine_of_text.new_state() for _ in data]
    states.append(machine_of_text.new_state(label=0, final=True))
    for state, byte in enumerate(data):
        machine_of_text.set_edges(state, {byte: states[state + 1]})
    plan = planner_for(machine_of_text, vocab).start()
    assert plan.is_done
    assert plan.tokens == vocab.encode(text)


def test_plan_refuses_what_is_not_admissible() -> None:
    """A token that may not come, one without bytes, and an unknown policy are refused with one line."""
    built, vocab = language("person"), vocabulary("gpt2")
    planner = planner_for(built, vocab)
    with pytest.raises(InvalidOption, match="not admissible"):
        planner.step(planner.start(), vocab.encode("}")[0])
    with pytest.raises(InvalidOption, match="not admissible"):
        planner.step(planner.start(), vocab.end_ids[0])
    for token in (-1, vocab.size):
        with pytest.raises(InvalidOption, match="not admissible"):
            planner.step(planner.start(), token)
    with pytest.raises(InvalidOption, match="policy is one of"):
        planner_for(built, vocab, policy="best")


def test_plan_without_a_token_for_the_next_byte_says_so() -> None:
    """A vocabulary that cannot spell what the grammar wants is an error, not an empty mask."""
    vocab = Vocabulary.from_bytes([b"a", None], [1])
    for policy in ("canonical", "any", "none"):
        with pytest.raises(DecodingError, match="no token of the vocabulary"):
            planner_for(machine("b"), vocab, policy=policy).start()


def test_plan_at_the_nesting_cap_says_so() -> None:
    """Where the stack is full and the text must nest deeper, the error names the cap."""
    built, vocab = machine(["[", frozenset((1,)), "]"]), vocabulary("gpt2")  # [[[[…: no text at all, only nesting
    with pytest.raises(DecodingError, match="nested 6"):
        planner_for(built, vocab).start()
