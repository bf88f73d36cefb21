"""What the tokenizer's own split says about text that is still growing: which of its tokens are certain already.

A tokenizer cuts text into pre-token blocks and encodes each alone. `Segmenter` answers, for one vocabulary:

* `certain_end`: up to where blocks are certain whatever follows (Theorem 20, both parts);
* `cover`: if a held-back block is one token, how short the first token of a longer block can be (the boundary cover);
* `canonical`, `greedy`: the tokenizer's split of a piece of text, and any split at all.

Every answer about what may follow quantifies over the bytes that the constraint allows there, and over no others.

Source: the paper's Sections C.4 and D.3, Theorem 20. We depart from D.3 in two places: the whitespace clause of
Theorem 20(i) is applied in full, not only to the last block; and the cover is the paper's ℓ only where no canonical
continuation begins with a shorter token; where one does, the cover shrinks to it (see `Segmenter.cover`).
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

MAX_CONTINUATIONS = 5_000
MAX_REMEMBERED = 4_096

# characters that stand for all that are not ASCII, where pre-tokenizers might tell them apart
_SAMPLES = ("é", "中", "あ", "\u0301", "ſ", "²", "€", "😀", "\u00a0", "\u3000", "\u2028", "\u200d")


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
        self._covers: dict[tuple[str, bytes], int] = {}
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

    def cover(self, block: str, live: Bool) -> int:
        """The fewest bytes that the first token of a block beginning with `block` can have, or 0: nothing is claimed.

        Claims something only where `block` is one token, does not end in whitespace, and stays inside one block
        whatever follows. Then the paper's cover is the length ℓ of that token, which can be wrong: if ``":`` is a token
        and so is ``:-``, the block ``":-`` may be split as ``"``, ``:-``. So every token that crosses the end of
        `block` is tried: if the tokenizer would begin with a shorter token then, the cover is that token's length.
        This is exact for byte-pair encodings, where a run of neighbouring canonical tokens is the canonical split of
        its own text. Past `MAX_CONTINUATIONS` tokens to try, nothing is claimed.

        Args:
            block: not empty.
            live: bool[256], the bytes that may follow `block`.

        Cost: one encoding a crossing token (a few to a thousand), the first time; then a look-up.
        """
        key = (block, np.packbits(live).tobytes())
        known = self._covers.get(key)
        if known is None:
            if len(self._covers) >= MAX_REMEMBERED:
                self._covers = {}
            known = self._covers[key] = self._find_cover(block, live)
        return known

    def _find_cover(self, block: str, live: Bool) -> int:
        size = len(block.encode())
        if size == 1 or block[-1].isspace() or self._count(block) != 1:
            return 0
        continuations = self._crossings(block.encode(), live)
        if continuations is None or not self._stays_whole(block, live, continuations):
            return 0
        shortest = size
        for text in continuations:
            tokens = self.canonical((block + text).encode())
            first = self.vocabulary.token_bytes(tokens[0]) if tokens else None
            shortest = min(shortest, len(first or b""))  # past `size`, the first token covers `block`
        return shortest if shortest > 1 else 0

    def _stays_whole(self, block: str, live: Bool, continuations: Iterable[str]) -> bool:
        """Whether no character that may follow makes the pre-tokenizer cut inside `block` (samples are tried)."""
        size = len(block.encode())
        following = {text[0] for text in continuations} | {chr(byte) for byte in _bytes(live) if byte < 0x80}
        following.update(_SAMPLES if live[0x80:].any() else ())
        return all(
            start == 0 or start >= size
            for character in following
            for start in self.vocabulary.block_starts(block + character)
        )

    def _crossings(self, block: bytes, live: Bool) -> set[str] | None:
        """Text after `block` that some token, begun inside `block`, reaches; None if too many tokens to try."""
        tails: set[bytes] = set()
        for cut in range(1, len(block)):
            suffix = block[cut:]
            for byte in np.flatnonzero(live).tolist():
                low, high = self._range(suffix + bytes((byte,)))
                if len(tails) + high - low > MAX_CONTINUATIONS:
                    return None
                tails.update(self._spelling(i)[len(suffix) :] for i in range(low, high))
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

    def _count(self, block: str) -> int:
        tokens = self.canonical(block.encode())
        return 0 if tokens is None else len(tokens)

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
_segmenters_lock = Lock()


def segmenter_for(vocabulary: Vocabulary) -> Segmenter:
    """The segmenter of `vocabulary`, shared by all that ask while one of them keeps it."""
    with _segmenters_lock:
        known = _segmenters.get(vocabulary)
        segmenter = known() if known is not None else None
        if segmenter is None:
            segmenter = Segmenter(vocabulary)
            _segmenters[vocabulary] = weakref.ref(segmenter)
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
