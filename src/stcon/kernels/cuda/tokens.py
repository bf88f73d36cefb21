"""A vocabulary's tables as the device keeps them (``source/walk.cuh``, struct ``Tokens``): tokens by chunk and byte.

A block of threads owns a chunk of token ids, so it can write whole words of the mask. The tokens of a chunk lie in
three lists, sorted so that those which can live in a configuration are found by a look at 256 bytes (``walk.cuh``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption
from stcon.kernels.plain import PlainTokens

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

UInt8 = NDArray[np.uint8]
Int32 = NDArray[np.int32]
UInt32 = NDArray[np.uint32]

MAX_CHUNK_WORDS = 512
NUM_LISTS = 3

# whole plain characters: well-formed UTF-8 but the quote, the backslash and controls below U+0020 (Unicode, Table 3-7)
_PLAIN_PREFIX = re.compile(
    rb"(?:[\x20-\x21\x23-\x5b\x5d-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*"
)


_ASCII_RUN = re.compile(rb"[\x20-\x21\x23-\x5b\x5d-\x7f]+")
MAX_RUN = 255  # a run's length is kept in a byte; of a longer one the beginning


class PackedBytes(NamedTuple):
    """Every token's bytes, padded to words.

    Attributes:
        words: uint32[], little-endian.
        places: int32[V], where in `words` each token begins.
        lengths: uint16[V], its bytes; 0 for a token without.
    """

    words: UInt32
    places: Int32
    lengths: NDArray[np.uint16]


class TokenLists(NamedTuple):
    """The lists of one size of chunk.

    Attributes:
        records: uint32[3·N or less, 4], ``struct Record``.
        starts: int32[3, chunks, 257], where the records of each byte begin.
        chunk_words: words of a chunk.
    """

    records: UInt32
    starts: Int32
    chunk_words: int

    @property
    def num_chunks(self) -> int:
        """Chunks of the vocabulary."""
        return int(self.starts.shape[1])


class TokenTables:
    """The arrays that all kernels of a vocabulary share; `lists` gives those of one size of chunk.

    Cost: one look at each token (0.3 s for 248k). On the device 16 bytes a token and size of chunk, its bytes, and the
    plain masks (1.5 MB).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        if vocabulary.longest >= 2**15:
            raise InvalidOption(f"tokens of {vocabulary.longest:,} bytes do not fit the device's tables")
        self.vocabulary = vocabulary
        self.packed = _packed_bytes(vocabulary)
        plain = PlainTokens(vocabulary)
        self.plain_words, self.row_of_run, self.longest_plain = plain.words, plain.row_of_run, plain.longest
        self.end_ids = np.array(vocabulary.end_ids, np.int32)
        order, data, offsets = vocabulary.order, vocabulary.data, vocabulary.offsets
        spelled = [vocabulary.token_bytes(token) or b"" for token in order.tolist()]
        prefix = np.array([_end(_PLAIN_PREFIX.match(token)) for token in spelled], np.int64)
        self._is_plain = prefix == vocabulary.packed.lengths
        self._prefix = np.minimum(prefix, np.array([_cut(token, MAX_RUN) for token in spelled], np.int64))
        starts = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])
        characters = starts[offsets[:-1] + self._prefix] - starts[offsets[:-1]]
        begin, end = np.array([_longest_run(token) for token in spelled], np.int64).reshape(-1, 2).T
        self._runs = (self._prefix | characters << 8 | begin << 16 | end << 24).astype(np.uint32)

    def lists(self, chunk_words: int) -> TokenLists:
        """The lists for chunks of `chunk_words` words, at most `MAX_CHUNK_WORDS`."""
        assert 0 < chunk_words <= MAX_CHUNK_WORDS, "a chunk's words fit in shared memory"
        vocabulary = self.vocabulary
        order, data, first = vocabulary.order, vocabulary.data, vocabulary.offsets[:-1]
        num_chunks = max(1, -(-vocabulary.num_words // chunk_words))
        chunk = order // (32 * chunk_words)
        rest = np.flatnonzero(~self._is_plain)
        choices = [
            (np.arange(len(order)), data[first]),
            (rest, data[first[rest]]),
            (rest, data[first[rest] + self._prefix[rest]]),
        ]
        starts = np.zeros((NUM_LISTS, num_chunks, 257), np.int32)
        sorted_places, base = [], 0
        for number, (places, byte) in enumerate(choices):
            group = chunk[places] * 256 + byte
            sorted_places.append(places[np.argsort(group, kind="stable")])
            sums = np.cumsum(np.bincount(group, minlength=256 * num_chunks)).reshape(num_chunks, 256)
            starts[number, :, 1:] = sums
            starts[number, 1:, 0] = sums[:-1, -1]
            starts[number] += base
            base += len(places)
        return TokenLists(self._records(np.concatenate(sorted_places), chunk_words), starts, chunk_words)

    def _records(self, places: NDArray[np.intp], chunk_words: int) -> UInt32:
        """``struct Record`` of the tokens at these places of the vocabulary's order."""
        ids = self.vocabulary.order[places]
        records = np.zeros((max(1, len(places)), 4), np.uint32)
        records = records[: len(places)] if len(places) else records
        place = self.packed.places[ids]
        records[: len(places), 0] = place
        records[: len(places), 1] = ids % (32 * chunk_words) | self.packed.lengths[ids].astype(np.uint32) << 16
        records[: len(places), 2] = self._runs[places]
        records[: len(places), 3] = self.packed.words[place]
        return records


def _end(match: re.Match[bytes] | None) -> int:
    return match.end() if match else 0


def _cut(token: bytes, limit: int) -> int:
    """Where to cut `token` between characters, at most `limit` bytes on."""
    while limit < len(token) and token[limit] & 0xC0 == 0x80:
        limit -= 1
    return min(limit, len(token))


def _longest_run(token: bytes) -> tuple[int, int]:
    """Begin and end of the longest run of plain characters below 128 that begins within `MAX_RUN` bytes, cut there."""
    runs = [match.span() for match in _ASCII_RUN.finditer(token[:MAX_RUN])]
    return max(runs, key=lambda run: run[1] - run[0], default=(0, 0))


def _packed_bytes(vocabulary: Vocabulary) -> PackedBytes:
    order, lengths = vocabulary.order, vocabulary.packed.lengths.astype(np.int64)
    words = -(-lengths // 4)
    place = np.cumsum(words) - words
    data = np.zeros(4 * (int(words.sum()) + 1), np.uint8)
    within = np.arange(len(vocabulary.data)) - np.repeat(vocabulary.offsets[:-1].astype(np.int64), lengths)
    data[np.repeat(4 * place, lengths) + within] = vocabulary.data
    places, sizes = np.zeros(vocabulary.size, np.int32), np.zeros(vocabulary.size, np.uint16)
    places[order], sizes[order] = place, lengths
    return PackedBytes(data.view("<u4").astype(np.uint32), places, sizes)
