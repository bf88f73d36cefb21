"""Proposition 3: the expression of the texts that contain no literal, against brute force."""

import itertools
import random

import pytest

from stcon.automata import accepts, minimize
from stcon.automata.compile import Budget, compile_tree
from stcon.errors import InvalidOption
from stcon.grammar.tools.free import not_containing

LITERALS = [
    ["<a"],
    ["<ab"],
    ["<a", "<ab"],
    ["<ab", "<ba"],
    ["<aab", "<aaa", "<b"],
    ["<tool_call>", "<function="],
    ["</parameter>"],
    ["[a]", "[ab"],
]


def automaton(literals):
    return minimize(compile_tree(not_containing(literals), False, Budget(10_000)))


@pytest.mark.parametrize("literals", LITERALS, ids=" ".join)
def test_all_short_texts(literals):
    """Every text of at most six characters is accepted iff no literal occurs in it."""
    found = automaton(literals)
    letters = {"b", *sorted({c for text in literals for c in text})[:3]}
    for length in range(7 if len(letters) < 4 else 6):
        for text in map("".join, itertools.product(sorted(letters), repeat=length)):
            assert (accepts(found, text) >= 0) == (not any(one in text for one in literals)), text


@pytest.mark.parametrize("literals", LITERALS, ids=" ".join)
def test_random_texts(literals):
    """Two thousand texts made of literals, their pieces and other characters: the same."""
    found, draw = automaton(literals), random.Random(3)
    pieces = [one[:n] for one in literals for n in range(1, len(one) + 1)] + ["x", "\n", "é", "😀", "<", ">"]
    for _ in range(2000):
        text = "".join(draw.choices(pieces, k=draw.randrange(6)))
        assert (accepts(found, text) >= 0) == (not any(one in text for one in literals)), text


@pytest.mark.parametrize("literals", [[], [""], ["<"], ["<a", "b<"], ["<a<"]])
def test_other_literals_are_refused(literals):
    """The expression is right for literals with one opening character, and refuses others."""
    with pytest.raises(InvalidOption):
        not_containing(literals)
