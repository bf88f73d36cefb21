"""`Lookup` against a search through the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from stcon.engine.lookup import SIZES, Lookup

TEXTS = st.lists(st.integers(0, 2), max_size=30)


def expected(text, least):
    """Where the last tokens, as many as are looked for, stood last before the end."""
    for size in SIZES:
        if size < least or size > len(text):
            continue
        end = text[len(text) - size :]
        for place in range(len(text) - 1, size - 1, -1):
            if text[place - size : place] == end:
                return place
    return None


@given(st.lists(TEXTS, max_size=4), st.sampled_from([2, 3]))
def test_find_is_the_last_place_where_the_end_stood_before(parts, least):
    """However the text came, `find` is the longest match's last place, and `following` what stands there."""
    lookup, text = Lookup(), []
    for part in parts:
        lookup.extend(part)
        text += part
    place = lookup.find(least=least)
    assert place == expected(text, least)
    if place is not None:
        assert lookup.following(place, 3) == text[place : place + 3]


def test_nothing_is_found_in_a_text_without_repetition():
    """The end itself is no place where it stood before."""
    lookup = Lookup(range(10))
    assert lookup.find() is None
    lookup.extend([3, 4])
    assert lookup.find() == 5
    assert lookup.find(least=3) is None
    assert lookup.following(5, 2) == [5, 6]
