"""Random grammars against the naive recogniser: verdicts, masks, trimness, budgets, forced text; both strategies."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from cfg_oracle import SHORT_WORDS, Grammar, as_gbnf, as_lark, derives, grammars, language
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import stcon
from stcon.constraint.budget import budget_for
from stcon.constraint.sharing import kernel_for
from stcon.grammar.analysis import check
from stcon.kernels import reference
from stcon.vocab.vocabulary import Vocabulary

TOKENS: list[bytes | None] = [*(bytes([byte]) for byte in range(256)), b"ab", b"ba", b"((", b"aab(", b"bbbb", None]
VOCABULARY = Vocabulary.from_bytes(TOKENS, end_ids=(len(TOKENS) - 1,))
END = len(TOKENS) - 1
LEXED_WORDS = ["".join(w) for n in range(5) for w in itertools.product("ab( ", repeat=n) if "  " not in w]


def compiled(grammar: Grammar, strategy: str) -> stcon.Grammar | None:
    """The grammar, or None where it has no text."""
    try:
        return stcon.compile_grammar(as_gbnf(grammar), syntax="gbnf", start="A", strategy=strategy)
    except stcon.Unsatisfiable:
        return None


def same_verdicts(grammar: Grammar, words: list[str]) -> None:
    automatic, stacks = compiled(grammar, "auto"), compiled(grammar, "stacks")
    assert (automatic is None) == (stacks is None)
    short = language(grammar, 4)
    for word in words:
        expected = word in short if len(word) <= 4 else derives(grammar, word)
        for found in (automatic, stacks):
            assert (found is not None and found.accepts(word)) == expected, (word, as_gbnf(grammar))


@settings(max_examples=30, deadline=None)
@given(grammars(), st.lists(st.text("ab(", min_size=5, max_size=7), max_size=2))
def test_verdicts_are_the_recognisers(grammar: Grammar, long_words: list[str]) -> None:
    """Deterministic or not, a compiled grammar accepts what its rules derive."""
    same_verdicts(grammar, [*SHORT_WORDS, *long_words])


@pytest.mark.long
@settings(max_examples=800, deadline=None)
@given(grammars(), st.lists(st.text("ab(", min_size=5, max_size=12), max_size=8))
def test_verdicts_are_the_recognisers_long(grammar: Grammar, long_words: list[str]) -> None:
    """The same, on many more grammars and longer words."""
    same_verdicts(grammar, [*SHORT_WORDS, *long_words])


PATTERNS = ["a", "b", "ab", "a+", "[ab]+", "b?a", "\\(", "\\(a*", "a|bb"]


@settings(max_examples=30, deadline=None)
@given(
    grammars(),
    st.lists(st.sampled_from(PATTERNS), min_size=3, max_size=3),
    st.sampled_from(["", "\n%ignore / +/", "\n%ignore / a?/"]),
)
def test_lexemes_by_both_strategies(grammar: Grammar, patterns: list[str], ignored: str) -> None:
    """With a lexer, the machine and the sets of stacks accept the same texts: two readings of what a lexeme is."""
    same_lexemes(as_lark(grammar, patterns) + ignored)


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(
    grammars(),
    st.lists(st.sampled_from(PATTERNS), min_size=3, max_size=3),
    st.sampled_from(["", "\n%ignore / +/", "\n%ignore / a?/"]),
)
def test_lexemes_by_both_strategies_long(grammar: Grammar, patterns: list[str], ignored: str) -> None:
    """The same, on many more grammars."""
    same_lexemes(as_lark(grammar, patterns) + ignored)


def same_lexemes(text: str) -> None:
    try:
        automatic = stcon.compile_grammar(text, syntax="lark", start="a")
        stacks = stcon.compile_grammar(text, syntax="lark", start="a", strategy="stacks")
    except stcon.Unsatisfiable:
        return
    for word in LEXED_WORDS:
        assert automatic.accepts(word) == stacks.accepts(word), (word, text)


@settings(max_examples=15, deadline=None)
@given(grammars(), st.randoms(use_true_random=False))
def test_masks_of_both_strategies_are_equal(grammar: Grammar, chance: random.Random) -> None:
    """Where a grammar is deterministic its machine and the sets of stacks have the same masks, the oracle's."""
    machine, stacks = compiled(grammar, "auto"), compiled(grammar, "stacks")
    assume(machine is not None and stacks is not None and machine.conflict is None)
    assert machine is not None
    assert stacks is not None
    mine, theirs = stcon.Matcher(machine, VOCABULARY), stcon.Matcher(stacks, VOCABULARY)
    config = machine.machine.initial()
    for _ in range(8):
        mask = mine.bitmask()
        assert np.array_equal(mask, theirs.bitmask())
        assert np.array_equal(mask, reference.mask(machine.machine, config, VOCABULARY))
        assert mine.forced_bytes(20) == theirs.forced_bytes(20) == reference.forced(machine.machine, config, 20)
        token = chance.choice(admitted(mask))
        if token == END:
            break
        assert mine.accept(token)
        assert theirs.accept(token)
        following = machine.machine.run(config, VOCABULARY.token_bytes(token) or b"")
        assert following is not None
        config = following


def admitted(mask: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()  # type: ignore[no-any-return]


@settings(max_examples=20, deadline=None)
@given(grammars())
def test_machines_are_trim(grammar: Grammar) -> None:
    """From every place of a deterministic machine a text can be completed, and every label has a target."""
    found = compiled(grammar, "auto")
    assume(found is not None and found.conflict is None)
    assert found is not None
    assert [v for v in check(found.machine) if v.kind != "ambiguous"] == []


@settings(max_examples=15, deadline=None)
@given(grammars(), st.sampled_from(["auto", "stacks"]), st.randoms(use_true_random=False))
def test_limits_are_kept(grammar: Grammar, strategy: str, chance: random.Random) -> None:
    """Whatever is drawn under the mask of a limit, the text is complete when the limit is reached."""
    found = compiled(grammar, strategy)
    assume(found is not None)
    assert found is not None
    matcher = stcon.Matcher(found, VOCABULARY)
    needed = matcher.need()
    assert needed is not None
    remaining = needed + chance.randrange(6)
    while remaining > 0:
        mask = matcher.bitmask(remaining=remaining)
        allowed = admitted(mask)
        if not allowed or (token := chance.choice(allowed)) == END:
            break
        assert matcher.accept(token)
        remaining -= 1
        needed = matcher.need()
        assert needed is not None
        assert needed <= remaining
    assert matcher.is_complete


@settings(max_examples=15, deadline=None)
@given(grammars())
def test_byte_needs_bound_token_needs(grammar: Grammar) -> None:
    """The byte bound of the sets of stacks is never below the exact need of the machine, and is met by a text."""
    machine, stacks = compiled(grammar, "auto"), compiled(grammar, "stacks")
    assume(machine is not None and stacks is not None and machine.conflict is None)
    assert machine is not None
    assert stacks is not None
    exact = budget_for(kernel_for(machine.machine, VOCABULARY)).start
    bound = budget_for(kernel_for(stacks.machine, VOCABULARY)).start
    assert exact is not None
    assert bound is not None
    assert exact <= bound == len(stacks.shortest())
    assert machine.accepts(stacks.shortest())
