"""Minimisation gives the smallest automaton of the same language."""

from __future__ import annotations

import automata_strategies as strategies
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.automata import CharDfa, accepts, length_between, minimize
from stcon.automata.minimize import refine

quick = settings(max_examples=200, deadline=None)


def naive_size(dfa: CharDfa) -> int:
    """States of the minimal complete DFA."""
    rows = dfa.delta[:, np.unique(dfa.classes)].tolist()
    blocks = strategies.naive_blocks(rows, dfa.labels.tolist())
    return len({blocks[q] for q in strategies.reachable(rows, dfa.start)})


@given(strategies.char_dfas(max_states=9), st.lists(strategies.code_point_texts, max_size=5))
@quick
def test_minimize_keeps_labels_and_has_as_few_states_as_moore(dfa: CharDfa, texts: list[str]) -> None:
    """Every text keeps its label, and the number of states is that of Moore's algorithm."""
    smallest = minimize(dfa)
    assert smallest.num_states == naive_size(dfa)
    for text in texts:
        assert accepts(smallest, text) == accepts(dfa, text)


@given(strategies.char_dfas(max_states=7))
@quick
def test_minimize_is_canonical(dfa: CharDfa) -> None:
    """Renumbering the states and doubling the automaton changes nothing in the result."""
    smallest = minimize(dfa)
    n = dfa.num_states
    permutation = np.random.default_rng(n).permutation(2 * n).astype(np.int32)
    doubled = np.concatenate([dfa.delta + n, dfa.delta])
    delta, labels = np.empty_like(doubled), np.empty(2 * n, np.int32)
    delta[permutation] = permutation[doubled]
    labels[permutation] = np.concatenate([dfa.labels, dfa.labels])
    again = minimize(CharDfa(dfa.starts, dfa.classes, delta, labels, int(permutation[dfa.start])))
    for one, other in ((smallest.delta, again.delta), (smallest.labels, again.labels), (smallest.starts, again.starts)):
        assert np.array_equal(one, other)
    assert np.array_equal(smallest.classes, again.classes)
    assert smallest.start == again.start == 0


@given(strategies.char_dfas())
@quick
def test_minimize_merges_classes_that_no_state_tells_apart(dfa: CharDfa) -> None:
    """No two columns are equal, and neighbouring intervals have different classes."""
    smallest = minimize(dfa)
    assert len(np.unique(smallest.delta, axis=1).T) == smallest.num_classes
    assert (smallest.classes[1:] != smallest.classes[:-1]).all()


@pytest.mark.parametrize("states, classes, seed", [(300, 1, 0), (301, 2, 1), (700, 3, 2), (1000, 2, 3)])
def test_refine_of_large_random_automata_equals_moore(states: int, classes: int, seed: int) -> None:
    """The vectorised start and the worklist agree with Moore's algorithm where equivalent states abound."""
    generator = np.random.default_rng(seed)
    base = generator.integers(0, states // 3, (states // 3, classes))
    copies = generator.integers(0, 3, (states, classes)) * (states // 3)
    delta = (base[np.arange(states) % (states // 3)] + copies).astype(np.int32) % states
    labels = (generator.random(states // 3) < 0.05).astype(np.int32)[np.arange(states) % (states // 3)]
    blocks = refine(delta, labels).tolist()
    expected = strategies.naive_blocks(delta.tolist(), labels.tolist())
    assert len(set(zip(blocks, expected, strict=True))) == len(set(blocks)) == len(set(expected))


def test_minimize_of_a_long_chain_and_a_long_cycle() -> None:
    """A chain of 5,000 states is minimal; a cycle that accepts every fifth state shrinks to five."""
    assert minimize(length_between(0, 5_000)).num_states == 5_002
    zero = np.zeros(1, np.int32)
    delta = ((np.arange(5_000) + 1) % 5_000).astype(np.int32).reshape(-1, 1)
    labels = np.where(np.arange(5_000) % 5 == 0, 0, -1).astype(np.int32)
    assert minimize(CharDfa(zero, zero, delta, labels, 0)).num_states == 5
