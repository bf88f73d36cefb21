"""The shortest way to the end of a field, so that what comes behind can be read before the field is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stcon.grammar.completion import steps

if TYPE_CHECKING:
    from stcon.grammar.completion import Completions
    from stcon.grammar.machine import Configuration

MAX_BYTES = 48
MAX_KEPT = 4096


class Closings:
    """Shortest ends, remembered.

    Args:
        completions: of the machine; None: there are no ends.
    """

    def __init__(self, completions: Completions | None) -> None:
        self._completions = completions
        self._known: dict[tuple[Configuration, Configuration], bytes] = {}

    def after(self, config: Configuration, end: Configuration) -> bytes:
        """Few bytes that lead from `config` to the cut configuration `end`; b"" if `MAX_BYTES` do not.

        They are the fewest where no bound of a length is in the way: what is left to acceptance falls with each byte,
        and every way to acceptance leads through `end`.

        Cost: a look at each byte class for each byte; nothing the second time.
        """
        if (config, end) not in self._known:
            while len(self._known) >= MAX_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[config, end] = self._found(config, end)
        return self._known[config, end]

    def _found(self, config: Configuration, end: Configuration) -> bytes:
        text = bytearray()
        while self._completions is not None and len(text) <= MAX_BYTES:
            if (config.state, config.stack) == (end.state, end.stack):
                return bytes(text)
            left = ((self._completions.needed(after), byte, after) for byte, after in steps(self._completions, config))
            ways = [way for way in left if way[0] is not None]
            if not ways:
                break
            _, byte, config = min(ways, key=lambda way: way[0] or 0)
            text.append(byte)
        return b""
