"""Where a grammar is not deterministic: the rule, two alternatives, and a text after which they are not told apart."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from stcon.errors import TooLarge
from stcon.grammar.cfg.determine import Undecided
from stcon.grammar.cfg.pushdown import Origin, Pushdown
from stcon.grammar.cfg.stacks import StackSetMachine
from stcon.grammar.machine import DEAD

MAX_TEXTS = 400


class Conflict(NamedTuple):
    """Why a grammar has no deterministic machine.

    Attributes:
        rule: the rule of the first alternative; "" where only the size was in the way.
        first, second: the alternatives, as written, with their places.
        prefix: a shortest text after which both are possible, and no bounded number of bytes tells them apart.
        reason: one line.
    """

    rule: str
    first: str
    second: str
    prefix: bytes
    reason: str

    def __str__(self) -> str:
        if not self.rule:
            return self.reason
        shown = self.prefix.decode("utf-8", "backslashreplace")
        where = f"after {shown!r}" if self.prefix else "at the beginning"
        return f"rule {self.rule}: {where}, {self.first} is not told apart from {self.second}; {self.reason}"


def describe(undecided: Undecided, pushdown: Pushdown, machine: StackSetMachine) -> Conflict:
    """The conflict of a grammar that `determine` gave up, with a shortest text that leads there.

    Cost: at most `MAX_TEXTS` rows of `machine`.
    """
    if undecided.pair is None:
        return Conflict("", "", "", b"", "its deterministic machine is past the limits on states")
    first, second = undecided.pair
    found = _shortest(machine, {first, second})
    here, there = pushdown.origins[first], pushdown.origins[second]
    other = "one more level of the same" if here == there else _shown(there)
    reason = "no bounded number of bytes decides"
    if undecided.why == "embedded":
        reason = "a JSON value is read by itself, or not at all"
    elif undecided.why == "size":
        reason = "telling them apart takes too many states"
    return Conflict(here.rule, _shown(here), other, found, reason)


def _shown(origin: Origin) -> str:
    text = " ".join(origin.text.split())
    if len(text) > 60:
        text = f"{text[:57]}…"
    if not origin.alternative:
        return f"{origin.rule} ({origin.place})"
    return f"alternative {origin.alternative} of {origin.rule} ({text}; {origin.place})"


def _shortest(machine: StackSetMachine, wanted: set[int]) -> bytes:
    """A shortest text after which all of `wanted` can move; the longest looked at where there is none."""
    came: dict[int, bytes] = {machine.start: b""}
    todo = deque(came)
    text = b""
    try:
        while todo and len(came) < MAX_TEXTS:
            state = todo.popleft()
            text = came[state]
            if wanted <= machine.tops(state):
                return text
            row = machine.row(state)[machine.byte_class]
            for byte in sorted(range(256), key=lambda b: (not 32 <= b < 127, b)):
                target = int(row[byte])
                if target != DEAD and target not in came:
                    came[target] = text + bytes([byte])
                    todo.append(target)
    except TooLarge:
        pass
    return text
