"""Masks, steps and forced text under history constraints: the kernel's, less what would repeat an element.

`HistoryMasks` takes from a kernel's mask the tokens on which `stcon.grammar.liveness.read` is not defined, exactly: the
result equals reading every token. Which tokens are tried depends on the open collections:

* In an object whose names are not scarce (nearly all are not), only a name's end can be refused. Looked up are the
  tokens that end the present name as an earlier one ends, and those that hold an earlier name between two quotes.
* In arrays of distinct items and where names are scarce, a token can matter only if reading it enters a marked state,
  or falls back, at the depth of the collection (`CpuKernel.classify`, once for each configuration), or if it goes
  on with an element's text and agrees with an earlier one: the vocabulary's trie is followed along those.
* A token may hold elements of its own: `ElementTokens.pairs` and `doubles`, a handful in a vocabulary.

**Cost.** Nothing where the machine has no marks; some 5 µs where names may repeat; else about 5 µs a token tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.element_tokens import ElementTokens, element_tokens
from stcon.constraint.scarce import ScarceElements, is_watched
from stcon.grammar.elements import Elements, is_cut, key_of
from stcon.grammar.history import History, Scope, observe
from stcon.grammar.liveness import at_risk, is_alive
from stcon.grammar.machine import Configuration, Machine
from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]

MAX_REMEMBERED = 4_096


class MarkedKernel(Protocol):
    """What is needed of a kernel: `stcon.kernels.cpu.CpuKernel`. The last three only where the machine has marks."""

    @property
    def machine(self) -> Machine: ...

    @property
    def lock(self) -> AbstractContextManager[bool]: ...

    def mask(self, config: Int32, out: Int32) -> None: ...

    def advance(self, config: Int32, data: bytes) -> bool: ...

    def forced(self, config: Int32, limit: int) -> bytes: ...

    def live_bytes(self, config: Int32) -> NDArray[np.uint8]: ...

    def trace(self, config: Int32, data: bytes) -> list[list[int]] | None: ...

    @property
    def is_scarce(self) -> bool: ...

    def classify(self, config: Int32, places: Int32, depth: int) -> tuple[NDArray[np.uint8], Int32, Int32, Int32]: ...


class HistoryMasks:
    """A kernel's answers under history constraints. Keeps nothing of a stream; what it remembers any stream may use.

    Args:
        vocabulary: the kernel's.
        kernel: steps, masks and events.
    """

    def __init__(self, vocabulary: Vocabulary, kernel: MarkedKernel) -> None:
        self.vocabulary = vocabulary
        self.kernel = kernel
        self._holders: dict[Elements, list[int]] = {}

    def advance(self, config: Int32, history: History, data: bytes) -> History | None:
        """Read `data`, moving `config`; the history after it, or None, and `config` unchanged, if it may not follow."""
        before = config.copy()
        after = self.follow(config, history, data)
        if after is not None and not self.is_alive(config, after):
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

    def mask(self, config: Int32, history: History, out: Int32) -> bool:
        """Write the mask of `config` under `history` to `out` (int32[W]); returns whether it is the kernel's own."""
        self.kernel.mask(config, out)
        if not self.kernel.machine.marks:
            return True
        tokens, scopes = self._tokens, history.scopes
        is_scarce = self.kernel.is_scarce or any(map(is_watched, scopes))
        if not is_scarce and not len(tokens.pairs) and not any(scope.elements for scope in scopes):
            return True
        refused = [place for scope in scopes for place in self._ends_again(scope)]
        suspects = [place for scope in scopes for place in self._holding(scope)]
        if len(tokens.pairs):
            suspects += tokens.among(tokens.pairs, out).tolist()
        refuses = partial(self._refuses, config, history)
        refused += [place for place in suspects if refuses(tokens.spelling(place))]
        ids = []
        if is_scarce:
            with self.kernel.lock:  # rows may be built
                refused += self._scarce.refused(config, history, out, refuses)
                ids = self._scarce.refused_extensions(config, history)
        words = out.view(np.uint32)
        taken = [*tokens.ids(refused), *ids]
        for token in taken:
            words[token >> 5] &= ~np.uint32(1 << (token & 31))
        return not taken

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

    @cached_property
    def _tokens(self) -> ElementTokens:
        return element_tokens(self.vocabulary)

    @cached_property
    def _scarce(self) -> ScarceElements:
        return ScarceElements(self.kernel, self._tokens)

    def is_alive(self, config: Int32, history: History) -> bool:
        """Whether a text that is at `config` with `history` can be completed."""
        if at_risk(history, int(config[1])) is None:
            return True
        with self.kernel.lock:  # a search may build rows
            return is_alive(self.kernel.machine, Configuration.unpack(config), history)

    def _refuses(self, config: Int32, history: History, data: bytes) -> bool:
        """Whether `stcon.grammar.liveness.read` is not defined on `data`."""
        work = config.copy()
        after = self.follow(work, history, data)
        return after is None or not self.is_alive(work, after)

    def _ends_again(self, scope: Scope) -> Iterator[int]:
        """The tokens that end the present string, a name or an item, as an earlier one."""
        if scope.elements and scope.text and scope.text[:1] == b'"' and not is_cut(scope.text):
            agreed = key_of(scope.text)
            for key in scope.elements.starting(agreed):
                yield from self._tokens.ending(key[len(agreed) :])

    def _holding(self, scope: Scope) -> list[int]:
        """The tokens that hold an earlier name between quotes; remembered, as they change only when a name ends."""
        if not scope.names or not scope.elements:
            return []
        found = self._holders.get(scope.elements)
        if found is None:
            if len(self._holders) >= MAX_REMEMBERED:
                self._holders.clear()
            tokens = self._tokens
            found = [place for key in scope.elements.starting(b"") for place in tokens.holding(key[1:])]
            self._holders[scope.elements] = found
        return found
