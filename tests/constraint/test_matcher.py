"""`Matcher`: accepting, taking back, forking; masks equal to the reference."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest
from constraint_lab import LANGUAGES, SPLITS, admitted, at_random, language, machine, random_text, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stcon.constraint import sharing
from stcon.constraint.matcher import Matcher
from stcon.errors import DecodingError, InvalidOption
from stcon.kernels import reference

names = st.sampled_from(sorted(LANGUAGES))


class MatcherAgainstReplay(RuleBasedStateMachine):
    """Whatever is accepted, refused, taken back and forked, a matcher is as if its history had just been read."""

    @initialize(name=names, split=st.sampled_from(sorted(SPLITS)), seed=st.integers(0, 2**32))
    def begin(self, name: str, split: str, seed: int) -> None:
        self.machine, self.vocabulary = language(name), vocabulary(split)
        self.rng = random.Random(seed)
        self.matcher = Matcher(self.machine, self.vocabulary, max_rollback=6)
        self.history: list[int | bytes] = []
        self.undoable = 0

    def note(self, item: int | bytes) -> None:
        self.history.append(item)
        self.undoable = min(6, self.undoable + 1)

    @precondition(lambda self: not self.matcher.is_finished)
    @rule()
    def accept_what_is_admitted(self) -> None:
        token = self.rng.choice(admitted(self.matcher.bitmask()))
        assert self.matcher.accept(token)
        self.note(token)

    @precondition(lambda self: not self.matcher.is_finished)
    @rule()
    def accept_forced_tokens(self) -> None:
        for token in self.matcher.forced():
            assert self.matcher.accept(token)
            self.note(token)

    @rule(token=st.integers(-2, 450))
    def accept_any_token(self, token: int) -> None:
        allowed = token in admitted(self.matcher.bitmask())
        assert self.matcher.accept(token) == allowed
        if allowed:
            self.note(token)

    @precondition(lambda self: not self.matcher.is_finished)
    @rule()
    def accept_forced_bytes(self) -> None:
        data = self.matcher.forced_bytes(5)
        assert self.matcher.accept_bytes(data)
        self.note(data)

    @rule()
    def refuse_bytes(self) -> None:
        assert not self.matcher.accept_bytes(b"\x00")

    @rule(n=st.integers(0, 8))
    def rollback(self, n: int) -> None:
        if n > self.undoable:
            with pytest.raises(InvalidOption, match="cannot take back"):
                self.matcher.rollback(n)
            return
        self.matcher.rollback(n)
        self.history = self.history[: len(self.history) - n]
        self.undoable -= n

    @rule()
    def fork(self) -> None:
        other = self.matcher.fork()
        if not self.matcher.is_finished:
            self.matcher.accept(self.rng.choice(admitted(self.matcher.bitmask())))
        self.matcher = other

    @rule()
    def reset(self) -> None:
        self.matcher.reset()
        self.history, self.undoable = [], 0

    @invariant()
    def is_as_if_replayed(self) -> None:
        if not hasattr(self, "matcher"):
            return
        text = b"".join(
            item if isinstance(item, bytes) else self.vocabulary.token_bytes(item) or b"" for item in self.history
        )
        ended = bool(self.history) and self.history[-1] in self.vocabulary.end_ids
        config = self.machine.run(self.machine.initial(), text)
        assert config is not None
        assert self.matcher.text == text
        assert (self.matcher.config == config.pack()).all()
        assert self.matcher.is_finished == ended
        assert self.matcher.is_complete == self.machine.accepts(config)
        assert self.matcher.can_continue == (not ended and bool(self.machine.live(config)))
        replayed = Matcher(self.machine, self.vocabulary)
        for item in self.history:
            assert replayed.accept_bytes(item) if isinstance(item, bytes) else replayed.accept(item)
        assert self.matcher.forced() == replayed.forced()


TestMatcherAgainstReplay = MatcherAgainstReplay.TestCase
TestMatcherAgainstReplay.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@settings(max_examples=60, deadline=None)
@given(names, st.sampled_from(sorted(SPLITS)), st.integers(0, 2**32), st.integers(0, 40))
def test_bitmask_is_the_references(name: str, split: str, seed: int, length: int) -> None:
    """After any prefix the mask is the reference's, and the finished mask is empty."""
    built, vocab = language(name), vocabulary(split)
    matcher = Matcher(built, vocab)
    prefix = random_text(built, random.Random(seed), 40)[:length]
    assert matcher.accept_bytes(prefix)
    config = built.run(built.initial(), prefix)
    assert config is not None
    expected = reference.mask(built, config, vocab)
    assert (matcher.bitmask() == expected).all()
    assert matcher.accept(vocab.end_ids[0]) == built.accepts(config)
    assert (matcher.bitmask() == (0 if matcher.is_finished else expected)).all()


def test_bitmask_min_bytes_leaves_long_tokens_and_end_tokens() -> None:
    """`min_bytes` takes out exactly the shorter tokens, and never an end token."""
    vocab = vocabulary("gpt2")
    matcher = Matcher(language("words"), vocab)
    assert matcher.accept_bytes(b"the")
    for size in (0, 1, 2, 3, 7, 1_000):
        expected = [
            token
            for token in admitted(matcher.bitmask())
            if token in vocab.end_ids or len(vocab.token_bytes(token) or b"") >= size
        ]
        assert admitted(matcher.bitmask(min_bytes=size)) == expected
    assert expected == list(vocab.end_ids)


@pytest.mark.parametrize(
    "out",
    [np.zeros(3, np.int32), np.zeros(14, np.int64), np.zeros((14, 2), np.int32)[:, 0], np.zeros((1, 14), np.int32)],
)
def test_bitmask_refuses_another_array(out: np.ndarray) -> None:
    """An array of another type, size or layout is refused before it is written to."""
    vocab = vocabulary("gpt2")
    assert vocab.num_words == 14
    with pytest.raises(InvalidOption, match="a mask is"):
        Matcher(language("enum"), vocab).bitmask(out)
    assert not out.any()


def test_bitmask_writes_into_a_row_of_a_batch() -> None:
    """`out` may be one row of a larger array, and is returned."""
    vocab = vocabulary("gpt2")
    batch = np.zeros((3, vocab.num_words), np.int32)
    row = batch[1]
    assert Matcher(language("enum"), vocab).bitmask(row) is row
    assert batch[1].any()
    assert not batch[[0, 2]].any()


def test_accept_end_token_only_when_complete() -> None:
    """An end token is taken when the text is complete, once, and can be taken back."""
    vocab = vocabulary("qwen")
    end = vocab.end_ids[0]
    matcher = Matcher(language("enum"), vocab)
    assert not matcher.accept(end)
    assert matcher.accept_bytes(b"null")
    assert matcher.is_complete
    assert not matcher.can_continue
    assert matcher.accept(end)
    assert matcher.is_finished
    assert not matcher.accept(end)
    assert not matcher.accept_bytes(b"")
    assert matcher.forced() == []
    assert matcher.forced_bytes() == b""
    with pytest.raises(DecodingError, match="finished"):
        matcher.plan()
    matcher.rollback(1)
    assert not matcher.is_finished
    assert matcher.text == b"null"


def test_forced_bytes_stops_at_the_limit() -> None:
    """At most `limit` forced bytes are followed, and none past a choice."""
    matcher = Matcher(language("person"), vocabulary("gpt2"))
    assert matcher.forced_bytes() == b'{"name":"'
    assert matcher.forced_bytes(4) == b'{"na'
    assert matcher.forced_bytes(0) == b""
    assert matcher.forced_bytes(-1) == b""


def test_forced_after_bytes_of_unknown_split_spells_the_forced_text() -> None:
    """After text that came without tokens, forced tokens go on from its end."""
    vocab = vocabulary("gpt2")
    matcher = Matcher(language("person"), vocab)
    assert matcher.accept_bytes(b'{"name":"Maria"')
    assert matcher.forced() == vocab.encode(',"') + vocab.encode("age")


def test_matcher_refuses_what_is_no_grammar() -> None:
    """A schema, a negative way back and an unknown policy are refused."""
    vocab = vocabulary("gpt2")
    with pytest.raises(InvalidOption, match="compile it first"):
        Matcher({"type": "object"}, vocab)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="max_rollback"):
        Matcher(language("enum"), vocab, max_rollback=-1)
    with pytest.raises(InvalidOption, match="policy is one of"):
        Matcher(language("enum"), vocab, policy="fast")  # type: ignore[arg-type]


def test_kernel_is_shared_and_let_go() -> None:
    """Matchers of one machine and vocabulary share a kernel; a kernel that no one keeps is not kept for ever."""
    vocab = vocabulary("gpt2")
    first, second = Matcher(language("enum"), vocab), Matcher(language("enum"), vocab)
    assert first._kernel is second._kernel
    assert Matcher(language("enum"), vocabulary("qwen"))._kernel is not first._kernel
    before = len(sharing._kernels)
    for _ in range(3 * sharing.NUM_KEPT_WARM):
        Matcher(machine("ab"), vocab)
    gc.collect()
    assert len(sharing._kernels) <= before + sharing.NUM_KEPT_WARM


def test_matchers_of_one_grammar_run_in_many_threads() -> None:
    """Eight threads with a matcher each, sharing one kernel, emit what one thread emits."""
    vocab, built = vocabulary("cl100k"), machine(LANGUAGES["tree"])

    def write(seed: int) -> bytes:
        matcher = Matcher(built, vocab)
        rng = random.Random(seed)
        for _ in range(60):
            for token in matcher.forced():
                matcher.accept(token)
            tokens = [token for token in admitted(matcher.bitmask()) if token not in vocab.end_ids]
            if not tokens:
                break
            matcher.accept(rng.choice(tokens))
        return matcher.text

    expected = [write(seed) for seed in range(8)]
    written: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda s=seed: written.update({s: write(s)})) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [written[seed] for seed in range(8)] == expected


def test_plan_leads_the_matcher_to_a_choice() -> None:
    """The loop of the module's docstring ends in a text of the language."""
    vocab, built = vocabulary("smollm"), language("tree")
    matcher = Matcher(built, vocab)
    choose = at_random(random.Random(3), vocab)
    from constraint_lab import Output

    output = Output()
    while not matcher.is_finished:
        for token in matcher.forced():
            assert matcher.accept(token)
        plan = matcher.plan()
        assert plan.tokens == []
        output.plans.append(plan)
        assert matcher.accept(choose(plan, admitted(plan.mask), output))
    final = built.run(built.initial(), matcher.text)
    assert final is not None
    assert built.accepts(final)
