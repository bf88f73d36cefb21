"""Text pieces: always whole characters, nothing lost, stop strings."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.engine.stream import TextStream
from stcon.errors import InvalidOption


def feed(stream, parts):
    """All pieces of `parts` and of the end."""
    return [stream.push(part) for part in parts] + [stream.push(b"", final=True)]


def split(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20), st.lists(st.integers(0, 99), max_size=8))
def test_pieces_concatenate_to_the_text(text, cuts):
    """However the bytes are cut, the pieces are valid UTF-8 and add up to the text, with nothing held at the end."""
    text = text.encode("utf-8", "ignore").decode()
    stream = TextStream()
    pieces = feed(stream, split(text.encode(), cuts))
    assert "".join(pieces) == text == stream.text
    assert all(piece.encode().decode() == piece for piece in pieces)


def test_piece_waits_for_the_end_of_a_character():
    """The first bytes of a character give an empty piece, the last one gives the character."""
    stream = TextStream()
    assert [stream.push(bytes([byte])) for byte in "é€😀".encode()] == ["", "é", "", "", "€", "", "", "", "😀"]


def test_bytes_that_are_not_text_become_replacement_characters():
    """Broken bytes, and a character that never ends, are shown as U+FFFD, as other decoders do."""
    assert "".join(feed(TextStream(), [b"a\xffb", b"\xe2\x82"])) == "a\ufffdb\ufffd"


@settings(max_examples=300, deadline=None)
@given(
    st.text("abé", max_size=14),
    st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 99), max_size=6),
)
def test_stop_cuts_at_the_string_completed_first(text, stop, cuts):
    """Fed in characters, the text ends before the first completed stop string, and pieces never show part of it."""
    data = [character.encode() for character in text]
    stream = TextStream(stop)
    pieces = feed(stream, data)
    ends = [(text.find(word) + len(word), text.find(word)) for word in stop if word in text]
    expected = text[: min(ends)[1]] if ends else text
    assert "".join(pieces) == expected == stream.text
    assert stream.stopped == bool(ends)
    # and the same however the bytes are cut
    assert "".join(feed(TextStream(stop), split(text.encode(), cuts))) == expected


def test_nothing_follows_a_stop_string():
    """After a stop string every further piece is empty."""
    stream = TextStream(["END"])
    assert [stream.push(part) for part in (b"one E", b"ND two", b"three")] == ["one ", "", ""]
    assert stream.stopped


def test_text_that_only_began_a_stop_string_is_released():
    """Text held back because it might begin a stop string comes out as soon as it does not, or at the end."""
    stream = TextStream(["END"])
    assert stream.push(b"E") == ""
    assert stream.push(b"N!") == "EN!"
    assert stream.push(b"EN") == ""
    assert stream.push(b"", final=True) == "EN"


@pytest.mark.parametrize("stop", [[""], [3], ["ok", ""]])
def test_empty_stop_string_is_refused(stop):
    """A stop string that is empty or no string is an invalid option."""
    with pytest.raises(InvalidOption, match="stop"):
        TextStream(stop)
