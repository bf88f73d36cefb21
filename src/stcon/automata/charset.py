"""Sets of code points as sorted, disjoint, non-adjacent half-open ranges.

A `CharSet` is a plain tuple, so it hashes, compares and is shared freely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stcon.automata.dfa import NUM_CODE_POINTS

CharSet = tuple[tuple[int, int], ...]

EMPTY: CharSet = ()
ANY: CharSet = ((0, NUM_CODE_POINTS),)
SURROGATES: CharSet = ((0xD800, 0xE000),)

ASCII_DIGIT: CharSet = ((0x30, 0x3A),)
ASCII_WORD: CharSet = ((0x30, 0x3A), (0x41, 0x5B), (0x5F, 0x60), (0x61, 0x7B))
ASCII_SPACE: CharSet = ((0x09, 0x0E), (0x20, 0x21))
NEWLINE: CharSet = ((0x0A, 0x0B),)


def normalize(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The set covered by half-open `ranges`, which may overlap, touch or be empty, in any order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(r for r in ranges if r[0] < r[1]):
        if merged and low <= merged[-1][1]:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


# ECMA-262, 22.2.2.9 (CharacterClassEscape :: s): WhiteSpace and LineTerminator.
ECMA_SPACE: CharSet = normalize(
    [
        (0x09, 0x0E),
        (0x20, 0x21),
        (0xA0, 0xA1),
        (0x1680, 0x1681),
        (0x2000, 0x200B),
        (0x2028, 0x202A),
        (0x202F, 0x2030),
        (0x205F, 0x2060),
        (0x3000, 0x3001),
        (0xFEFF, 0xFF00),
    ]
)
# ECMA-262, 12.3 (LineTerminator).
ECMA_LINE_TERMINATOR: CharSet = ((0x0A, 0x0B), (0x0D, 0x0E), (0x2028, 0x202A))


def single(code_point: int) -> CharSet:
    """The set of one code point."""
    return ((code_point, code_point + 1),)


def of(characters: Iterable[str]) -> CharSet:
    """The set of the given one-character strings."""
    return normalize((ord(c), ord(c) + 1) for c in characters)


def union(*sets: CharSet) -> CharSet:
    """The code points in any of `sets`."""
    if len(sets) == 1:
        return sets[0]
    return normalize(r for s in sets for r in s)


def complement(charset: CharSet) -> CharSet:
    """The code points not in `charset`."""
    result = []
    previous = 0
    for low, high in charset:
        if previous < low:
            result.append((previous, low))
        previous = high
    if previous < NUM_CODE_POINTS:
        result.append((previous, NUM_CODE_POINTS))
    return tuple(result)


def intersection(a: CharSet, b: CharSet) -> CharSet:
    """The code points in both sets. Cost: O(len(a) + len(b))."""
    result = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low < high:
            result.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def difference(a: CharSet, b: CharSet) -> CharSet:
    """The code points in `a` and not in `b`."""
    return intersection(a, complement(b))


def contains(charset: CharSet, code_point: int) -> bool:
    """Whether `code_point` is in `charset`."""
    return any(low <= code_point < high for low, high in charset)


def partition(sets: Sequence[CharSet]) -> tuple[list[int], list[int], list[int]]:
    """The coarsest classes of code points that no set in `sets` splits.

    Returns:
        (starts, classes, members): interval i starts at code point ``starts[i]`` and has class ``classes[i]``; bit s of
        ``members[k]`` is set iff class k lies in ``sets[s]``. ``starts[0] == 0``; neighbouring intervals differ.

    Cost: O(B log B) for B range ends in all.
    """
    toggles: dict[int, int] = {0: 0}
    for index, charset in enumerate(sets):
        bit = 1 << index
        for low, high in charset:
            toggles[low] = toggles.get(low, 0) ^ bit
            toggles[high] = toggles.get(high, 0) ^ bit
    toggles.pop(NUM_CODE_POINTS, None)
    starts: list[int] = []
    classes: list[int] = []
    number: dict[int, int] = {}
    signature = 0
    for point in sorted(toggles):
        if toggles[point] == 0 and starts:
            continue
        signature ^= toggles[point]
        starts.append(point)
        classes.append(number.setdefault(signature, len(number)))
    return starts, classes, list(number)
