"""`Grammar`: a compiled constraint, whatever it was written in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from stcon.grammar.history import EMPTY, observe, repeats_nothing
from stcon.grammar.locks import lock_of
from stcon.grammar.machine import Machine

if TYPE_CHECKING:
    from stcon.grammar.cfg.conflict import Conflict


class Grammar:
    """A compiled constraint: the control machine and where it came from. Shareable; its rows are built on demand.

    Args:
        machine: the control machine.
        renew: makes the same machine anew, where its states depend on the texts that were read.

    Attributes:
        kind: "json" (texts are JSON values), "regex" or "grammar".
        source: what was compiled: the schema, the pattern or the grammar.
        conflict: why it is not deterministic, for grammars that are not (they run on the CPU only); else None.
    """

    conflict: Conflict | None = None

    def __init__(
        self,
        machine: Machine,
        *,
        kind: Literal["json", "regex", "grammar"],
        source: Any,
        renew: Callable[[], Machine] | None = None,
    ) -> None:
        self._machine = machine
        self._renew = renew
        self._lock = Lock()
        self.kind = kind
        self.source = source

    @property
    def machine(self) -> Machine:
        """The control machine as it is now.

        A machine keeps what it has built. One that has used up half of its state budget on the texts read so far, and
        is not whole, gives way to a new one, so that the budget is one text's; whoever holds the old one goes on with
        it.
        """
        if self._renew is not None and self._machine.num_states > self._machine.max_states // 2:
            with self._lock:
                if self._machine.num_states > self._machine.max_states // 2 and not self._machine.is_whole:
                    self._machine = self._renew()
        return self._machine

    def __repr__(self) -> str:
        return f"<Grammar {self.kind}: {self.num_states} states>"

    def accepts(self, text: str | bytes) -> bool:
        """Whether `text` is in the language.

        Cost: one `Machine.step` a byte, with a history beside it where elements may repeat.
        """
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        machine = self.machine
        with nullcontext() if machine.is_whole else lock_of(machine):
            if not machine.marks:
                end = machine.run(machine.initial(), data)
                if end is None or not machine.marks:  # none was built on the way either
                    return end is not None and machine.accepts(end)
            reached = observe(machine, machine.initial(), EMPTY, data)
            return reached is not None and machine.accepts(reached[0])

    def shortest(self) -> str:
        """A shortest text of the language; where it takes long to make items or names differ, a short one.

        Builds the whole machine; raises `TooLarge` past its state budget or that of the search.
        """
        from stcon.grammar.analysis import shortest

        machine = self.machine
        with lock_of(machine):
            text = shortest(machine)
            if not repeats_nothing(machine, text):
                from stcon.grammar.distinct import short_distinct

                text = short_distinct(machine)
        return text.decode()

    @property
    def num_states(self) -> int:
        """States so far; all of them after `build`."""
        return self.machine.num_states

    @property
    def nbytes(self) -> int:
        """Bytes that a device needs for the machine as built so far."""
        return self.machine.nbytes

    def build(self) -> Grammar:
        """Build every state now. Raises `TooLarge` past the state budget."""
        machine = self.machine
        with lock_of(machine):
            machine.build_all()
        return self
