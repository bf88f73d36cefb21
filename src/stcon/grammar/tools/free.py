"""Texts that contain none of some literals, as a regular expression.

Source: the paper's Proposition 3. There the literals begin with ``<``; here with any one character that they share.
"""

from __future__ import annotations

from collections.abc import Sequence

from stcon.automata import regex
from stcon.errors import InvalidOption

_LAST = 0x110000


def not_containing(literals: Sequence[str]) -> regex.Node:
    """The texts in which no literal occurs.

    A text is cut at each opening character; no literal occurs iff no segment after one starts with the rest of a
    literal. In the trie of the rests such a segment ends at a node, or leaves the trie there, before any rest is whole.

    Args:
        literals: at least one; each begins with the same character and has it nowhere else, and has another one.

    Raises:
        InvalidOption: the literals are not of that kind.

    Cost: linear in the literals.
    """
    opening = literals[0][:1] if literals else ""
    if not opening or any(len(t) < 2 or t[0] != opening or opening in t[1:] for t in literals):
        raise InvalidOption("literals begin with one character that they share and have nowhere else")
    other = _except({opening})
    ends: list[regex.Node] = []
    for path, children in _open_nodes([text[1:] for text in literals]).items():
        leaving = regex.concatenation([_except({opening, *children}), regex.Repeat(other, 0, None)])
        ends.append(regex.concatenation([*map(_single, path), regex.Alternation((leaving, regex.EMPTY))]))
    segment = regex.concatenation([_single(opening), regex.Alternation(tuple(ends))])
    return regex.concatenation([regex.Repeat(other, 0, None), regex.Repeat(segment, 0, None)])


def _open_nodes(rests: list[str]) -> dict[str, set[str]]:
    """The trie's nodes that have no whole rest as a prefix: path → the characters of their children."""
    paths = {text[:length] for text in rests for length in range(len(text) + 1)}
    nodes = {path for path in paths if not any(path.startswith(text) for text in rests)}
    return {path: {text[len(path)] for text in rests if text.startswith(path)} for path in sorted(nodes)}


def _single(letter: str) -> regex.Node:
    return regex.Characters(((ord(letter), ord(letter) + 1),))


def _except(letters: set[str]) -> regex.Node:
    """Every character but `letters`."""
    ranges, begin = [], 0
    for point in sorted(map(ord, letters)):
        if begin < point:
            ranges.append((begin, point))
        begin = point + 1
    return regex.Characters((*ranges, (begin, _LAST)))
