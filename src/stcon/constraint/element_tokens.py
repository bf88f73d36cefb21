"""What history constraints ask of a vocabulary's tokens: which can end, hold or go on with an element.

Tokens go by their places in ``vocabulary.order``. Cost: about a second for 248k tokens, once for each vocabulary.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.elements import unescaped
from stcon.vocab import Vocabulary
from stcon.vocab.trie import TokenTrie

Int32 = NDArray[np.int32]

_ENDING = re.compile(rb'\A((?:[^"\\]|\\.)*)"', re.DOTALL)
_HELD = re.compile(rb'(?="((?:[^"\\]|\\.)*)")', re.DOTALL)
_PAIR = re.compile(rb'"\s*:.*,\s*"(?:[^"\\]|\\.)*"', re.DOTALL)
_WHOLE_VALUE = rb'(?:".*"|[-0-9].*[,\s\]}]|.*(?:null|true|false)|.*[\]}])'
_DOUBLE = re.compile(rb'(?:\[|"\s*:)\s*' + _WHOLE_VALUE, re.DOTALL)
_NO_STRING = re.compile(rb"[\[\]{}:,\s0-9.eE+\-truefalsn]*")


ROOT = -1


class ElementTokens:
    """The tokens of one vocabulary, by what they do to elements.

    Attributes:
        quotes: int32[n], those with a quote.
        pairs: that may end a name and hold another after it.
        doubles: that may end an element and what follows it, so that another may come: an item of an array begun in
            it, or a name and its value. `quoted_doubles`: of these, those that may do so inside a string.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = weakref.ref(vocabulary)
        self._data = vocabulary.data.tobytes()
        self._offsets = vocabulary.offsets
        self._order = vocabulary.order
        self._place = np.full(32 * vocabulary.num_words, -1, np.int32)
        self._place[self._order] = np.arange(len(self._order), dtype=np.int32)
        quotes = self._counts(0x22)
        several = np.flatnonzero(quotes > 1).tolist()
        openings = np.flatnonzero(self._counts(0x5B) + self._counts(0x3A)).tolist()
        self.quotes = np.flatnonzero(quotes).astype(np.int32)
        self.pairs = self._matching(_PAIR, several)
        doubles = self._matching(_DOUBLE, openings)
        self.quoted_doubles = np.intersect1d(doubles, self.quotes).astype(np.int32)
        # without a quote, a token outside strings is made of what JSON has there
        plain = [place for place in doubles.tolist() if quotes[place] or _NO_STRING.fullmatch(self.spelling(place))]
        self.doubles = np.array(plain, np.int32)
        self._ending = self._by_content(_ENDING, self.quotes.tolist())
        self._holding = self._by_content(_HELD, several)

    def spelling(self, place: int) -> bytes:
        """The bytes of a token."""
        return self._data[self._offsets[place] : self._offsets[place + 1]]

    def ending(self, characters: bytes) -> list[int]:
        """The tokens that spell `characters` and then end the string."""
        return self._ending.get(characters, [])

    def holding(self, characters: bytes) -> list[int]:
        """The tokens that hold the whole string of `characters`, between quotes."""
        return self._holding.get(characters, [])

    def among(self, places: Int32, mask: Int32) -> Int32:
        """Those of `places` whose tokens are in `mask`."""
        ids = self._order[places]
        chosen: Int32 = places[(mask[ids >> 5] >> (ids & 31)) & 1 == 1]
        return chosen

    def admitted(self, mask: Int32) -> Int32:
        """The places of the tokens in `mask`, end tokens left out."""
        places = self._place[np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))]
        return places[places >= 0]

    def ids(self, places: list[int]) -> list[int]:
        """The tokens at `places`."""
        ids: list[int] = self._order[places].tolist() if places else []
        return ids

    # ------------------------------------------------------------------------------------------------- the trie

    def children(self, node: int, wanted: frozenset[int]) -> Iterator[tuple[int, int]]:
        """The nodes of the trie one byte after `node` (`ROOT`: of first bytes), with those bytes, if `wanted`."""
        if wanted:
            for child, byte in self._first_bytes if node == ROOT else self._after(node):
                if byte in wanted:
                    yield child, byte

    def at_node(self, node: int) -> list[int]:
        """The ids of the tokens that end at a node."""
        trie = self._trie
        ids: list[int] = trie.tokens[trie.first[node] : trie.first[node + 1]].tolist()
        return ids

    @cached_property
    def _trie(self) -> TokenTrie:
        vocabulary = self._vocabulary()
        assert vocabulary is not None, "asked by someone who has it"
        return vocabulary.trie

    @cached_property
    def _first_bytes(self) -> list[tuple[int, int]]:
        return list(self._after(ROOT))

    def _after(self, node: int) -> Iterator[tuple[int, int]]:
        trie = self._trie
        end = len(trie.skip) if node == ROOT else int(trie.skip[node])
        child = node + 1
        while child < end:
            yield child, int(trie.byte[child])
            child = int(trie.skip[child])

    # ------------------------------------------------------------------------------------------------- building

    def _counts(self, byte: int) -> NDArray[np.int64]:
        """int64[N]: how often `byte` occurs in each token."""
        if not len(self._order):
            return np.zeros(0, np.int64)
        found = np.frombuffer(self._data, np.uint8) == byte
        return np.add.reduceat(found, self._offsets[:-1], dtype=np.int64)

    def _matching(self, pattern: re.Pattern[bytes], places: list[int]) -> Int32:
        return np.array([place for place in places if pattern.search(self.spelling(place))], np.int32)

    def _by_content(self, pattern: re.Pattern[bytes], places: list[int]) -> dict[bytes, list[int]]:
        """The tokens by what the first group of `pattern`, the inside of a string, spells in them."""
        found: dict[bytes, list[int]] = {}
        for place in places:
            for match in pattern.finditer(self.spelling(place)):
                try:
                    characters = unescaped(match[1])
                except ValueError:  # an escape that JSON does not have
                    continue
                if place not in found.setdefault(characters, []):
                    found[characters].append(place)
        return found


_known: weakref.WeakKeyDictionary[Vocabulary, ElementTokens] = weakref.WeakKeyDictionary()


def element_tokens(vocabulary: Vocabulary) -> ElementTokens:
    """The element tokens of `vocabulary`, made when first asked for."""
    tokens = _known.get(vocabulary)
    if tokens is None:
        tokens = _known[vocabulary] = ElementTokens(vocabulary)
    return tokens
