"""Free text up to a trigger, as an automaton.

Source: A. V. Aho and M. J. Corasick, Efficient string matching: an aid to bibliographic search (1975).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from stcon.automata import CharDfa, charset, encode_utf8, minimize
from stcon.automata.dfa import ByteDfa


def free_text(triggers: tuple[str, ...], *, stops: bool) -> ByteDfa:
    """The texts in which no trigger occurs; or, if it `stops`, those in which one occurs at the end alone.

    Returns:
        Labels are 0; or the number of the trigger (the first of those that end together).
    """
    children, fails, found = _trie(triggers)
    letters = sorted({c for trigger in triggers for c in trigger})
    starts, classes, members = charset.partition([charset.single(ord(c)) for c in letters])
    # the class of each letter, and of all other characters
    letter_of = {k: letters[bits.bit_length() - 1] for k, bits in enumerate(members) if bits}
    count = len(children)
    dead = count
    delta = np.full((count + 1, len(members)), dead, np.int32)
    labels = np.full(count + 1, -1, np.int32)
    for node in range(count):
        if found[node] >= 0:
            labels[node] = found[node] if stops else -1
            continue
        labels[node] = -1 if stops else 0
        for k in range(len(members)):
            target = _next(children, fails, node, letter_of.get(k, ""))
            delta[node, k] = dead if found[target] >= 0 and not stops else target
    return encode_utf8(minimize(CharDfa(np.array(starts, np.int32), np.array(classes, np.int32), delta, labels, 0)))


def _trie(triggers: tuple[str, ...]) -> tuple[list[dict[str, int]], list[int], list[int]]:
    """Children, failure links, and the trigger that ends at each node (-1: none does)."""
    children: list[dict[str, int]] = [{}]
    found = [-1]
    for number, trigger in enumerate(triggers):
        node = 0
        for letter in trigger:
            if letter not in children[node]:
                children[node][letter] = len(children)
                children.append({})
                found.append(-1)
            node = children[node][letter]
        if found[node] < 0:
            found[node] = number
    fails = [0] * len(children)
    todo = deque(children[0].values())
    while todo:
        node = todo.popleft()
        if found[node] < 0:
            found[node] = found[fails[node]]
        for letter, child in children[node].items():
            fails[child] = _next(children, fails, fails[node], letter)
            todo.append(child)
    return children, fails, found


def _next(children: list[dict[str, int]], fails: list[int], node: int, letter: str) -> int:
    while node and letter not in children[node]:
        node = fails[node]
    return children[node].get(letter, 0)
