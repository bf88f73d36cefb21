"""Pre-token blocks π(text): where a tokenizer's spelling of a text can be cut without changing it.

Three splitters, from the finest certainty to none:

- `PreTokenSplitter`: the tokenizer's own pre-tokenizer (byte-level BPE, tiktoken), plus its added tokens;
- `PairSplitter`: no pre-tokenizer (sentencepiece). A place between two bytes that are neighbours in no token is
  crossed by no token and no merge, so BPE and unigram spell both sides apart; exact and local by construction;
- `WholeSplitter`: one block, for a pre-tokenizer that breaks Assumption 1 (see `locality`).

All offsets here are in characters; `Vocabulary.block_starts` turns them into bytes.

Source: the paper's Section C.4 and Theorem 12 (block boundaries are cut vertices). We depart in the added tokens, which
the paper leaves out, and in `PairSplitter`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stcon.vocab.trie import PackedTokens

Starts = Callable[[str], list[int]]


class Splitter(Protocol):
    """Cuts text into blocks that the tokenizer spells one by one."""

    def starts(self, text: str) -> list[int]:
        """Character offsets of the blocks' starts, ascending, the first 0; [] for the empty text."""
        ...


class WholeSplitter:
    """One block: nothing before the end of the text is certain."""

    def starts(self, text: str) -> list[int]:
        """[0], or [] for the empty text."""
        return [0] if text else []


class PairSplitter:
    """Cuts between two bytes that are neighbours in no token.

    Right for an encoder whose pieces do not depend on each other across a place that no token crosses: BPE and unigram
    without a pre-tokenizer, greedy longest match.
    """

    def __init__(self, packed: PackedTokens) -> None:
        self.joined = _neighbours(packed)

    def starts(self, text: str) -> list[int]:
        """See `Splitter.starts`. Cost: O(bytes), vectorised."""
        data = np.frombuffer(text.encode(), np.uint8)
        if not len(data):
            return []
        cut = ~self.joined[data[:-1], data[1:]]
        char_starts = np.flatnonzero((data & 0xC0) != 0x80)
        return [0, *(np.flatnonzero(cut[char_starts[1:] - 1]) + 1).tolist()]


class PreTokenSplitter:
    """Cuts as the tokenizer's pre-tokenizer does, and around its added tokens.

    Args:
        pieces: character offsets of the pre-tokenizer's pieces, for a text without added tokens.
        added: surface forms of the added tokens that the encoder matches in text before pre-tokenizing.

    An added token that is still incomplete at the end of the text may yet swallow what is now several blocks
    (``<tool_call`` and then ``>``). From the first place where one may have begun, only the cuts are given that hold
    whether it completes or not.
    """

    def __init__(self, pieces: Starts, added: Sequence[str] = ()) -> None:
        self.pieces = pieces
        self.added = tuple(sorted(added, key=len, reverse=True))
        self._pattern = re.compile("|".join(map(re.escape, self.added))) if added else None
        self._longest = max(map(len, self.added), default=0)
        self._beginnings = frozenset(token[:length] for token in self.added for length in range(1, len(token)))

    def starts(self, text: str) -> list[int]:
        """See `Splitter.starts`."""
        if self._pattern is None:
            return self.pieces(text)
        certain = self._split(text)
        for position in self._unfinished(text):
            certain = common_prefix(certain, [*self._split(text[:position]), position])
        return certain

    def _split(self, text: str) -> list[int]:
        """The blocks of `text` read as complete."""
        assert self._pattern is not None
        starts: list[int] = []
        begin = 0
        for match in self._pattern.finditer(text):
            starts += [begin + start for start in self.pieces(text[begin : match.start()])]
            starts.append(match.start())
            begin = match.end()
        return starts + [begin + start for start in self.pieces(text[begin:])]

    def _unfinished(self, text: str) -> list[int]:
        """Where a suffix of `text` begins that is a proper prefix of an added token."""
        low = max(0, len(text) - self._longest + 1)
        return [position for position in range(low, len(text)) if text[position:] in self._beginnings]


def common_prefix(a: list[int], b: list[int]) -> list[int]:
    """What two ascending lists share from their beginning."""
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


def _neighbours(packed: PackedTokens) -> NDArray[np.bool_]:
    """bool[256, 256]: whether some token has byte a directly before byte b."""
    joined = np.zeros((256, 256), np.bool_)
    inside = np.ones(len(packed.data), np.bool_)
    inside[packed.offsets[:-1]] = False
    second = np.flatnonzero(inside)
    joined[packed.data[second - 1], packed.data[second]] = True
    return joined
