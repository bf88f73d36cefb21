"""Masks, steps and forced text under history constraints: the kernel's, less what would repeat an element.

`HistoryMasks` takes from a kernel's mask the tokens on which `stcon.grammar.liveness.read` is not defined, exactly: the
result equals reading every token. What it tries is kept small. A token can matter only if

* reading it enters a marked state, or falls back, at the depth of a collection that has elements (inside a string it
  then contains a quote): `CpuKernel.find_marked` finds these, once for each configuration;
* an element ends in it and so does what follows, so that another may come: an item of an array begun in it, or a name
  and its value (`_Tokens.doubles`, a few dozen in a vocabulary); or
* it only goes on with an element's text and agrees with an earlier one: the vocabulary's trie is followed along those.

**Cost.** Nothing where the machine has no marks. Where no open collection has elements yet, a look at the few doubles.
Else about 5 µs for each token tried.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.elements import key_of
from stcon.grammar.history import History, Scope, observe
from stcon.grammar.liveness import at_risk, is_alive, is_endless
from stcon.grammar.machine import END, STACK_CAP, Configuration, Machine
from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]

MAX_REMEMBERED = 4_096

_QUOTE, _BACKSLASH = b'"\\'
_NUMBER_BYTES = frozenset(b"0123456789.eE+-")
_SPACES = frozenset(b" \t\n\r")
_ALL_BYTES = frozenset(range(256))
_WHOLE_VALUE = rb'(?:".*"|[-0-9].*[,\s\]}]|.*(?:null|true|false)|.*[\]}])'
_DOUBLE = re.compile(rb'(?:\[|"\s*:)\s*' + _WHOLE_VALUE, re.DOTALL)


class MarkedKernel(Protocol):
    """What is needed of a kernel: `stcon.kernels.cpu.CpuKernel`. The last two only where the machine has marks."""

    @property
    def machine(self) -> Machine: ...

    @property
    def lock(self) -> AbstractContextManager[bool]: ...

    def mask(self, config: Int32, out: Int32) -> None: ...

    def advance(self, config: Int32, data: bytes) -> bool: ...

    def forced(self, config: Int32, limit: int) -> bytes: ...

    def live_bytes(self, config: Int32) -> NDArray[np.uint8]: ...

    def trace(self, config: Int32, data: bytes) -> list[list[int]] | None: ...

    def find_marked(self, config: Int32, places: Int32, depth: int, mark: int) -> Int32: ...


class HistoryMasks:
    """A kernel's answers under history constraints. Keeps nothing of a stream; what it remembers any stream may use.

    Args:
        vocabulary: the kernel's.
        kernel: steps, masks and events.
    """

    def __init__(self, vocabulary: Vocabulary, kernel: MarkedKernel) -> None:
        self.vocabulary = vocabulary
        self.kernel = kernel
        self._suspects: dict[bytes, Int32] = {}

    def advance(self, config: Int32, history: History, data: bytes) -> History | None:
        """Read `data`, moving `config`; the history after it, or None, and `config` unchanged, if it may not follow."""
        before = config.copy()
        after = self.follow(config, history, data)
        if after is not None and not self._is_alive(config, after):
            config[:] = before
            return None
        return after

    def follow(self, config: Int32, history: History, data: bytes) -> History | None:
        """`advance`, but what is reached may be dead: forced text goes wherever it leads."""
        machine = self.kernel.machine
        before = config.copy()
        if not machine.marks:
            if not self.kernel.advance(config, data):
                return None
            if not machine.marks:  # none was built on the way either
                return history
            config[:] = before
        events = self.kernel.trace(config, data)
        after = None if events is None else history.after(data, events, int(config[1]))
        if after is None:
            config[:] = before
        return after

    def mask(self, config: Int32, history: History, out: Int32) -> None:
        """Write the mask of `config` under `history` to `out` (int32[W])."""
        self.kernel.mask(config, out)
        if not self.kernel.machine.marks:
            return
        tokens = _tokens_of(self.vocabulary)
        with self.kernel.lock:
            suspects = self._find_suspects(config, history, out)
            refused = [place for place in suspects.tolist() if self._refuses(config, history, tokens.spelling(place))]
            ids = self.vocabulary.order[refused].tolist() if refused else []
            ids += self._refused_extensions(Configuration.unpack(config), history)
        words = out.view(np.uint32)
        for token in ids:
            words[token >> 5] &= ~np.uint32(1 << (token & 31))

    def can_continue(self, config: Int32, history: History) -> bool:
        """Whether some byte may follow."""
        for byte in np.flatnonzero(self.kernel.live_bytes(config)).tolist():
            if not history.scopes or not self._refuses(config, history, bytes((byte,))):
                return True
        return False

    def forced(self, config: Int32, history: History, limit: int) -> bytes:
        """The kernel's forced text, up to where it would repeat an element."""
        chain = self.kernel.forced(config, limit)
        if not chain or not self.kernel.machine.marks:
            return chain
        work = config.copy()
        events = self.kernel.trace(work, chain)
        assert events is not None, "forced text can be read"
        if history.after(chain, events, int(work[1])) is not None:
            return chain
        with self.kernel.lock:
            place = Configuration.unpack(config)
            for length in range(len(chain)):
                reached = observe(self.kernel.machine, place, history, chain[length : length + 1])
                if reached is None:
                    return chain[:length]
                place, history = reached
        raise AssertionError("what repeats an element read whole repeats it read byte by byte")

    # ------------------------------------------------------------------------------------------------- inside

    def _is_alive(self, config: Int32, history: History) -> bool:
        if at_risk(history, int(config[1])) is None:
            return True
        with self.kernel.lock:  # a search may build rows
            return is_alive(self.kernel.machine, Configuration.unpack(config), history)

    def _refuses(self, config: Int32, history: History, data: bytes) -> bool:
        """Whether `stcon.grammar.liveness.read` is not defined on `data`."""
        work = config.copy()
        after = self.follow(work, history, data)
        return after is None or not self._is_alive(work, after)

    def _find_suspects(self, config: Int32, history: History, mask: Int32) -> Int32:
        """Places (in ``vocabulary.order``) of the tokens of `mask` that must be read to know; none of them only goes on
        with an element's text."""
        scopes, depth = history.scopes, int(config[1])
        watched = next((scope for scope in reversed(scopes) if scope.elements or not scope.names), None)
        level = -1 if watched is None else watched.depth
        is_between = watched is not None and watched.text is None and level == depth
        key = config[: 3 + depth].tobytes() + bytes((level + 1, history.quoted, is_between))
        found = self._suspects.get(key)
        if found is None:
            if len(self._suspects) >= MAX_REMEMBERED:
                self._suspects.clear()
            found = self._suspects[key] = self._search_suspects(config, history.quoted > 0, level, is_between, mask)
        return found

    def _search_suspects(self, config: Int32, quoted: bool, level: int, is_between: bool, mask: Int32) -> Int32:
        tokens = _tokens_of(self.vocabulary)
        doubles = tokens.quoted_doubles if quoted else tokens.doubles
        found = self.kernel.find_marked(config, tokens.among(doubles, mask), STACK_CAP, END)
        if level >= 0:
            places = tokens.among(tokens.quotes, mask) if quoted else tokens.admitted(mask)
            marked = places if is_between else self.kernel.find_marked(config, places, level, 0)
            found = np.union1d(found, marked).astype(np.int32)
        return found

    def _refused_extensions(self, config: Configuration, history: History) -> list[int]:
        """Tokens that go on with an element's text, agree with an earlier one so far, and cannot but become equal."""
        refused: list[int] = []
        if any(scope.elements and scope.text is not None for scope in history.scopes):
            tokens = _tokens_of(self.vocabulary)
            pending = [(0, len(tokens.skip), config, history)]
            while pending:
                begin, end, place, past = pending.pop()
                for node, byte in tokens.children(begin, end, _next_bytes(self.kernel.machine, place, past)):
                    reached = observe(self.kernel.machine, place, past, (byte,))
                    if reached is None or at_risk(reached[1], len(reached[0].stack)) is None:
                        continue
                    ids = tokens.ending(node)
                    if len(ids) and not is_alive(self.kernel.machine, *reached):
                        refused += ids
                    if tokens.skip[node] > node + 1:
                        pending.append((node + 1, int(tokens.skip[node]), *reached))
        return refused


def _next_bytes(machine: Machine, config: Configuration, history: History) -> frozenset[int]:
    """The bytes with which a text that agrees with an earlier element can go on agreeing, and may yet fail to end."""
    index = at_risk(history, len(config.stack))
    if index is None or is_endless(machine, config, history, index):
        return frozenset()
    found: set[int] = set()
    for scope in history.scopes:
        if scope.elements and scope.text is not None:
            found |= _agreeing(scope, scope.text)
    return frozenset(found)


def _agreeing(scope: Scope, text: bytes) -> frozenset[int]:
    if not text:
        first = {key[0] for key in scope.elements.starting(b"")}
        return frozenset(first - {0x23}) | (_NUMBER_BYTES if 0x23 in first else frozenset())
    if text[:1].isdigit() or text[:1] == b"-":
        return _NUMBER_BYTES
    if text[:1] == b'"' and b"\\" in text:
        return _ALL_BYTES
    agreed = key_of(text)
    following = {key[len(agreed)] for key in scope.elements.starting(agreed) if len(key) > len(agreed)}
    return frozenset(following | ({_BACKSLASH} if text[:1] == b'"' else _SPACES))


class _Tokens:
    """What is asked of a vocabulary's tokens, by their places in its order.

    Attributes:
        quotes: int32[n], the tokens with a quote.
        doubles, quoted_doubles: those that may hold an element and what follows it; of these, those with a quote.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._data = vocabulary.data.tobytes()
        self._offsets = vocabulary.offsets
        self._order = vocabulary.order
        self._place = np.full(32 * vocabulary.num_words, -1, np.int32)
        self._place[self._order] = np.arange(len(self._order), dtype=np.int32)
        self.quotes = self._containing(_QUOTE)
        openings = np.union1d(self._containing(0x5B), self._containing(0x3A)).tolist()
        self.doubles = np.array([place for place in openings if _DOUBLE.search(self.spelling(place))], np.int32)
        self.quoted_doubles = np.intersect1d(self.doubles, self.quotes).astype(np.int32)
        trie = vocabulary.trie
        self.skip, self._byte, self._first, self._ids = trie.skip, trie.byte, trie.first, trie.tokens
        self._roots = list(self._all_children(0, len(self.skip)))

    def spelling(self, place: int) -> bytes:
        """The bytes of a token."""
        return self._data[self._offsets[place] : self._offsets[place + 1]]

    def among(self, places: Int32, mask: Int32) -> Int32:
        """Those of `places` whose tokens are in `mask`."""
        ids = self._order[places]
        chosen: Int32 = places[(mask[ids >> 5] >> (ids & 31)) & 1 == 1]
        return chosen

    def admitted(self, mask: Int32) -> Int32:
        """The places of the tokens in `mask`, end tokens left out."""
        places = self._place[np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))]
        return places[places >= 0]

    def children(self, begin: int, end: int, wanted: frozenset[int]) -> Iterator[tuple[int, int]]:
        """The nodes of the trie that follow one another from `begin` to `end`, with their bytes, of `wanted` bytes."""
        if not wanted:
            return
        nodes = self._roots if begin == 0 else self._all_children(begin, end)
        for node, byte in nodes:
            if byte in wanted:
                yield node, byte

    def ending(self, node: int) -> list[int]:
        """The tokens that end at a node."""
        ids: list[int] = self._ids[self._first[node] : self._first[node + 1]].tolist()
        return ids

    def _all_children(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        while begin < end:
            yield begin, int(self._byte[begin])
            begin = int(self.skip[begin])

    def _containing(self, byte: int) -> Int32:
        counts = np.concatenate([[0], np.cumsum(np.frombuffer(self._data, np.uint8) == byte)])
        return np.flatnonzero(counts[self._offsets[1:]] > counts[self._offsets[:-1]]).astype(np.int32)


_known_tokens: weakref.WeakKeyDictionary[Vocabulary, _Tokens] = weakref.WeakKeyDictionary()


def _tokens_of(vocabulary: Vocabulary) -> _Tokens:
    tokens = _known_tokens.get(vocabulary)
    if tokens is None:
        tokens = _known_tokens[vocabulary] = _Tokens(vocabulary)
    return tokens
