"""Random automata, and slow oracles for what the fast code computes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from stcon.automata import NUM_CODE_POINTS, CharDfa

# Ends of intervals where encodings change length, escapes begin, and planes and surrogates lie.
CUTS = [0x09, 0x0B, 0x20, 0x22, 0x23, 0x5C, 0x61, 0x7F, 0x80, 0xE9, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xD800]
CUTS += [0xDC00, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x1F601, 0x3FFFF, 0x40000, 0x10FFFF]
ALPHABET = sorted({c for cut in [*CUTS, 0, 0x2F] for c in (cut - 1, cut, cut + 1) if 0 <= c < NUM_CODE_POINTS})

code_point_texts = st.lists(st.sampled_from(ALPHABET), max_size=5).map(lambda points: "".join(map(chr, points)))
scalar_texts = code_point_texts.map(lambda text: "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000))


@st.composite
def char_dfas(draw: st.DrawFn, max_states: int = 6, max_label: int = 1) -> CharDfa:
    """A complete DFA, usually neither minimal nor trim."""
    starts = [0, *sorted(draw(st.sets(st.sampled_from(CUTS), max_size=6)))]
    num_classes = draw(st.integers(1, 3))
    classes = [draw(st.integers(0, num_classes - 1)) for _ in starts]
    num_states = draw(st.integers(1, max_states))
    cell = st.integers(0, num_states - 1)
    delta = [[draw(cell) for _ in range(num_classes)] for _ in range(num_states)]
    labels = [draw(st.integers(-1, max_label)) for _ in range(num_states)]
    return CharDfa(
        np.array(starts, np.int32),
        np.array(classes, np.int32),
        np.array(delta, np.int32),
        np.array(labels, np.int32),
        0,
    )


def naive_blocks(rows: list[list[int]], values: list[object]) -> list[int]:
    """Moore's algorithm as in the textbook: the partition by equivalence, starting from `values`."""
    number: dict[object, int] = {}
    block = [number.setdefault(value, len(number)) for value in values]
    while True:
        signatures = [(block[q], *[block[t] for t in row]) for q, row in enumerate(rows)]
        fresh: dict[object, int] = {}
        finer = [fresh.setdefault(signature, len(fresh)) for signature in signatures]
        if len(fresh) == len(set(block)):
            return block
        block = finer


def reachable(rows: list[list[int]], start: int) -> list[int]:
    """States with a path from `start`."""
    order = [start]
    for state in order:
        order.extend(t for t in dict.fromkeys(rows[state]) if t >= 0 and t not in order)
    return order
