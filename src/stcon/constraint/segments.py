"""What the tokenizer's own split says about text that is still growing: which of its tokens are certain already.

A tokenizer cuts text into pre-token blocks and encodes each alone. `Segmenter` answers, for one vocabulary:

* `certain_end`: up to where blocks are certain whatever follows (Theorem 20, both parts);
* `beginning`: which tokens of a block that has only begun are certain nevertheless, and the cover of the next one;
* `canonical`, `greedy`: the tokenizer's split of a piece of text, and any split at all.

Every answer about what may follow quantifies over the bytes that the constraint allows there, and over no others.

Source: the paper's Sections C.4 and D.3, Theorem 20. We depart from D.3 in two places. The whitespace clause of
Theorem 20(i) is applied in full, not only to the last block. And where D.3 sets a cover if the held-back block is one
token, its length ℓ, `beginning` looks at the splits that the block can still get: the cover is exact, and tokens on
which all of them agree are committed.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

MAX_CROSSING = 5_000
MAX_TRIED_BYTES = 200_000
MAX_REMEMBERED = 4_096

# characters that stand for all that are not ASCII, where pre-tokenizers might tell them apart
_SAMPLES = ("é", "中", "あ", "\u0301", "ſ", "²", "€", "😀", "\u00a0", "\u3000", "\u2028", "\u200d")


class Beginning(NamedTuple):
    """What is certain of a block that has only begun.

    Attributes:
        tokens: its first tokens, whatever follows.
        cover: the fewest bytes of the token after them; 0 or 1: nothing is known.
    """

    tokens: tuple[int, ...] = ()
    cover: int = 0


NOTHING = Beginning()


class Segmenter:
    """Questions about the split of growing text, for one vocabulary; answers are remembered.

    Safe to share between threads: the vocabulary is immutable and what is remembered is only ever recomputed equal.

    Args:
        vocabulary: whose tokenizer is asked. Where it is not local (Assumption 1), only the boundaries that it calls
            certain are used, and a last block is never committed before the text's end is.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._order = vocabulary.order
        self._data = vocabulary.data.tobytes()
        self._offsets = vocabulary.offsets
        self._beginnings: dict[tuple[str, bytes], Beginning] = {}
        self._long_words: dict[int, Int32] = {}

    # ------------------------------------------------------------------------------------------------- certainty

    def certain_end(self, text: str, starts: list[int], *, live: Bool | None) -> int:
        """The end, in bytes, of the blocks of `text` that are certain.

        Args:
            text: not empty; begins at a block start.
            starts: its block starts, in bytes.
            live: bool[256], the bytes that may follow `text` (none: the text ends here); None where `text` was cut at
                a character and is known to go on.

        Cost: one `block_starts` of the last block a character that may follow, the first time; then a look-up.
        Source: Theorem 20(i), and (ii) as the stable-tail test. End of text, where it is possible, is always stable:
        the split of the text as it stands is then the split of the whole.
        """
        size = len(text.encode())
        if live is not None and (not live.any() or self.vocabulary.tail_is_stable(text, _bytes(live))):
            return size
        limit = min(starts[-1], len(text.rstrip().encode()))
        return starts[bisect_right(starts, limit) - 1]

    def beginning(self, block: str, live: Bool) -> Beginning:
        """What every block that begins with `block` and goes on with a byte of `live`, or ends, has in common.

        If the tokens of such a block do not break at the end of `block`, one of them crosses it. In a byte-pair
        encoding (and for unigram models and longest match) a run of neighbouring canonical tokens is the canonical
        split of its own text, so it is enough to split `block` with the end of each token that could cross, and
        without. Hence what all of these splits agree on is certain although the block is not, and the shortest of the
        next tokens is the cover. (``":`` before a number: if ``:-`` is a token as well, ``":-`` may be split as ``"``,
        ``:-``, and the cover is 1, not the paper's 2.)

        Nothing is claimed for a block that ends in whitespace or that some next character would cut inside, and where
        more than `MAX_CROSSING` tokens could cross, or `MAX_TRIED_BYTES` would have to be split.

        Args:
            block: not empty; it begins where a block certainly begins.
            live: bool[256], the bytes that may follow `block`.

        Cost: one encoding a crossing token (a few to a thousand), the first time; then a look-up.
        """
        key = (block, np.packbits(live).tobytes())
        known = self._beginnings.get(key)
        if known is None:
            if len(self._beginnings) >= MAX_REMEMBERED:
                self._beginnings = {}
            known = self._beginnings[key] = self._find_beginning(block, live)
        return known

    def _find_beginning(self, block: str, live: Bool) -> Beginning:
        if block[-1].isspace():
            return NOTHING
        data = block.encode()
        crossing = self._crossing(data, live)
        if crossing is None or len(crossing) * len(data) > MAX_TRIED_BYTES:
            return NOTHING
        if not self._stays_whole(block, live, crossing):
            return NOTHING
        first = self._begun_inside("", block)
        if first is None:
            return NOTHING
        certain, cover = len(first), 0  # the text may end with `block`: its own split is the first candidate
        for text in crossing:
            split = self._begun_inside(text, block)
            if split is None:
                return NOTHING
            agree = len(common_prefix(first[:certain], split))
            if agree < certain:
                certain, cover = agree, self._size_of(first[agree])
            # where `split` is certain to its end, nothing is known of the token after it
            cover = min(cover, self._size_of(split[agree])) if agree < len(split) else 0
            if not certain and cover <= 1:
                return NOTHING
        return Beginning(tuple(first[:certain]), cover if cover > 1 else 0)

    def _begun_inside(self, text: str, block: str) -> list[int] | None:
        """The tokens of `block` with `text` behind it that begin inside `block`; None if no split spells them."""
        tokens = self.canonical((block + text).encode())
        begin, size = 0, len(block.encode())
        for count, token in enumerate(tokens or ()):
            if begin >= size:
                return tokens[:count] if tokens else None
            begin += self._size_of(token)
        return tokens

    def _size_of(self, token: int) -> int:
        return len(self.vocabulary.token_bytes(token) or b"")

    def _stays_whole(self, block: str, live: Bool, crossing: Iterable[str]) -> bool:
        """Whether no character that may follow makes the pre-tokenizer cut inside `block` (samples are tried)."""
        size = len(block.encode())
        following = {text[0] for text in crossing} | {chr(byte) for byte in _bytes(live) if byte < 0x80}
        following.update(_SAMPLES if live[0x80:].any() else ())
        return all(
            start == 0 or start >= size
            for character in following
            for start in self.vocabulary.block_starts(block + character)
        )

    def _crossing(self, block: bytes, live: Bool) -> set[str] | None:
        """Text after `block` that some token, begun inside `block`, reaches; None if there are too many of them."""
        tails: set[bytes] = set()
        for cut in range(max(0, len(block) - self.vocabulary.longest), len(block)):
            suffix = block[cut:]
            low, high = self._range(suffix)
            for byte in _bytes(live) if low < high else ():
                first, last = self._range(suffix + bytes((byte,)), low, high)
                if len(tails) + last - first > MAX_CROSSING:
                    return None
                tails.update(self._spelling(i)[len(suffix) :] for i in range(first, last))
        return {text for tail in tails for text in completions(tail)}

    # ------------------------------------------------------------------------------------------------- splitting

    def canonical(self, data: bytes) -> list[int] | None:
        """The tokenizer's split of `data`, or None where it is not text or the tokens do not spell it."""
        try:
            tokens = self.vocabulary.encode_bytes(data)
        except (UnicodeDecodeError, InvalidOption):  # not text, or no token for one of its bytes
            return None
        return tokens if self.vocabulary.spells(tokens, data) else None

    def greedy(self, data: bytes) -> list[int]:
        """`data` split into longest tokens, left to right; ends early where no token fits.

        Cost: O(log N) comparisons a byte.
        """
        tokens: list[int] = []
        position = 0
        while position < len(data) and (found := self._longest(data, position)) is not None:
            tokens.append(int(self._order[found]))
            position += len(self._spelling(found))
        return tokens

    def at_least(self, size: int) -> Int32:
        """int32[W]: the tokens of at least `size` bytes, and the end tokens, which no length rules out."""
        words = self._long_words.get(size)
        if words is None:
            vocabulary = self.vocabulary
            bits = np.zeros(vocabulary.num_words * 32, np.uint8)
            bits[self._order[np.diff(self._offsets) >= size]] = 1
            bits[list(vocabulary.end_ids)] = 1
            words = self._long_words[size] = np.packbits(bits, bitorder="little").view(np.int32)
        return words

    def _longest(self, data: bytes, position: int) -> int | None:
        """The index of the longest token that `data` has at `position`."""
        best, low, high = None, 0, len(self._order)
        for end in range(position + 1, min(len(data), position + self.vocabulary.longest) + 1):
            low, high = self._range(data[position:end], low, high)
            if low == high:
                break
            if self._size(low) == end - position:
                best = low
        return best

    def _range(self, prefix: bytes, low: int = 0, high: int | None = None) -> tuple[int, int]:
        """The tokens that begin with `prefix`, as a range of the lexicographic order."""
        high = len(self._order) if high is None else high
        first = bisect_left(range(high), prefix, lo=low, key=self._spelling)
        size = len(prefix)
        return first, bisect_right(range(high), prefix, lo=first, key=lambda i: self._spelling(i)[:size])

    def _spelling(self, index: int) -> bytes:
        return self._data[self._offsets[index] : self._offsets[index + 1]]

    def _size(self, index: int) -> int:
        return int(self._offsets[index + 1] - self._offsets[index])


_segmenters: weakref.WeakKeyDictionary[Vocabulary, weakref.ref[Segmenter]] = weakref.WeakKeyDictionary()
_warm: deque[Segmenter] = deque(maxlen=4)
_segmenters_lock = Lock()


def segmenter_for(vocabulary: Vocabulary) -> Segmenter:
    """The segmenter of `vocabulary`, shared by all that ask, and kept a while after the last of them is gone."""
    with _segmenters_lock:
        known = _segmenters.get(vocabulary)
        segmenter = known() if known is not None else None
        if segmenter is None:
            segmenter = Segmenter(vocabulary)
            _segmenters[vocabulary] = weakref.ref(segmenter)
            _warm.append(segmenter)
        return segmenter


def completions(tail: bytes) -> list[str]:
    """`tail` as text; where it ends inside a character, with a few ways to end it; [] if it is not text at all."""
    for endings in _ENDINGS:
        texts = [text for ending in endings if (text := _decode(tail + ending)) is not None]
        if texts:
            return texts
    return []


# nothing, or one to three continuation bytes; the first is restricted after E0, ED, F0 and F4
_ENDINGS = ((b"",), *(tuple(bytes((b,)) + b"\x80" * n for b in (0x80, 0x9F, 0xA0, 0xBF)) for n in range(3)))


def common_prefix(first: Sequence[int], *others: Sequence[int]) -> list[int]:
    """What all of them begin with."""
    size = len(first)
    for other in others:
        size = next(
            (i for i, (a, b) in enumerate(zip(first[:size], other, strict=False)) if a != b), min(size, len(other))
        )
    return list(first[:size])


def _bytes(live: Bool) -> frozenset[int]:
    return frozenset(np.flatnonzero(live).tolist())


def _decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def text_prefix(data: bytes) -> str | None:
    """The longest valid UTF-8 prefix of `data`, if what it leaves out is only a character cut short; else None."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.end == len(data) and error.reason == "unexpected end of data":
            return data[: error.start].decode()
        return None
