"""`StackSetGrammar`: a grammar that is not deterministic, as a set of stacks on the CPU."""

from __future__ import annotations

from threading import Lock
from typing import Any

from stcon.errors import TooLarge, Unsupported
from stcon.grammar.cfg.conflict import Conflict
from stcon.grammar.cfg.lexer import Lexer
from stcon.grammar.cfg.pushdown import Pushdown
from stcon.grammar.cfg.stacks import MAX_SEARCHED, StackSetMachine
from stcon.grammar.grammar import Grammar
from stcon.grammar.machine import Machine

RENEW_STATES = 20_000


class StackSetGrammar(Grammar):
    """A compiled constraint whose machine is made while texts are read, and made anew when it has grown.

    Args:
        conflict: why it is not deterministic.
        pushdown, lexer: the grammar.
        max_states: state budget of one machine.

    Attributes:
        machine: the present machine. It is replaced by a fresh one, when asked for, after `RENEW_STATES` states;
            whoever holds the old one goes on with it.
    """

    def __init__(self, pushdown: Pushdown, lexer: Lexer, conflict: Conflict, *, source: Any, max_states: int) -> None:
        self.conflict = conflict
        self._pushdown, self._lexer, self._max_states = pushdown, lexer, max_states
        self._lock = Lock()
        self._stacks = StackSetMachine(pushdown, lexer, max_states=max_states)
        self._stacks.conflict = str(conflict)
        self.kind, self.source = "grammar", source

    @property
    def machine(self) -> Machine:
        """The present machine."""
        with self._lock:
            if self._stacks.num_states > min(RENEW_STATES, self._max_states // 2):
                self._stacks = StackSetMachine(self._pushdown, self._lexer, max_states=self._max_states)
                self._stacks.conflict = str(self.conflict)
            return self._stacks

    def accepts(self, text: str | bytes) -> bool:
        """Whether `text` is in the language. Cost: a row for each byte not met before."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        machine = self.machine
        end = machine.run(machine.initial(), data)
        return end is not None and machine.accepts(end)

    def shortest(self) -> str:
        """A shortest text of the language. Raises `TooLarge` where the search for it is cut."""
        text = self._stacks.completion(self._stacks.start)
        if text is None:
            raise TooLarge("states searched for a shortest text", given=MAX_SEARCHED, limit=MAX_SEARCHED)
        return text.decode("utf-8", "replace")

    def build(self) -> Grammar:
        """Refused: its states are endless."""
        raise Unsupported(f"a grammar that is not deterministic has no whole machine: {self.conflict}")
