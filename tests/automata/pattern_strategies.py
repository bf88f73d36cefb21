"""Random patterns and texts over a small alphabet that has every case that matters: word and other characters, a
newline, a letter beyond ASCII, an astral character."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

ALPHABET = "ab1 -\né😀"

texts = st.text(alphabet=ALPHABET, max_size=7)
ALL_SHORT_TEXTS = ["".join(letters) for n in range(4) for letters in itertools.product(ALPHABET, repeat=n)]

_ATOMS = ["a", "b", "1", " ", "-", "é", "😀", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[ab]", "[^a]", r"[^\d\n]"]
_ATOMS += [r"[a-bé-😀]", r"\n", r"\x61", r"\u00e9", r"[\w-]"]
_QUANTIFIERS = ["*", "+", "?", "{2}", "{1,}", "{0,2}", "{2,3}", "*?", "+?", "{1,2}?", "{0}"]

atoms = st.sampled_from(_ATOMS)
anchors = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = inner.map(lambda body: f"(?:{body})")
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: "(?:" + "|".join(options) + ")"),
        st.tuples(st.one_of(atoms, grouped), st.sampled_from(_QUANTIFIERS)).map("".join),
        inner.map(lambda body: f"({body})"),
    )


plain_patterns = st.recursive(atoms, _combined, max_leaves=7)
anchored_patterns = st.recursive(st.one_of(atoms, atoms, anchors.map(lambda a: f"(?:{a})")), _combined, max_leaves=7)

# `re` takes lookbehinds of fixed width only.
_fixed_width = st.lists(atoms, min_size=1, max_size=2).map("".join)
_behind_bodies = st.one_of(
    _fixed_width,
    _fixed_width.map(lambda body: rf"\b{body}"),
    _fixed_width.map(lambda body: rf"{body}\b"),
    st.tuples(_fixed_width, atoms).map(lambda parts: f"{parts[0]}(?={parts[1]})"),
    st.tuples(_fixed_width, atoms).map(lambda parts: f"(?!{parts[0]}){parts[1]}"),
    st.tuples(atoms, atoms).map(lambda parts: f"(?<!{parts[0]}){parts[1]}"),
)
_behinds = st.tuples(st.sampled_from(["(?<=", "(?<!"]), _behind_bodies).map(lambda parts: f"{parts[0]}{parts[1]})")


def _with_lookahead(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    ahead = st.tuples(st.sampled_from(["(?=", "(?!"]), inner).map(lambda parts: f"{parts[0]}{parts[1]})")
    return st.one_of(_combined(inner), ahead, st.tuples(ahead, inner).map("".join))


lookaround_patterns = st.recursive(
    st.one_of(atoms, atoms, anchors.map(lambda a: f"(?:{a})"), _behinds), _with_lookahead, max_leaves=6
)
