"""`Grammar`: a compiled constraint, whatever it was written in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from stcon.grammar.history import repeats_nothing
from stcon.grammar.machine import Machine

if TYPE_CHECKING:
    from stcon.grammar.cfg.conflict import Conflict


class Grammar:
    """A compiled constraint: the control machine and where it came from. Shareable; its rows are built on demand.

    Attributes:
        machine: the control machine.
        kind: "json" (texts are JSON values), "regex" or "grammar".
        source: what was compiled: the schema, the pattern or the grammar.
        conflict: why it is not deterministic, for grammars that are not (they run on the CPU only); else None.
    """

    conflict: Conflict | None = None

    def __init__(self, machine: Machine, *, kind: Literal["json", "regex", "grammar"], source: Any) -> None:
        self.machine = machine
        self.kind = kind
        self.source = source

    def __repr__(self) -> str:
        return f"<Grammar {self.kind}: {self.num_states} states>"

    def accepts(self, text: str | bytes) -> bool:
        """Whether `text` is in the language. Cost: one or two `Machine.step` a byte."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        end = self.machine.run(self.machine.initial(), data)
        return end is not None and self.machine.accepts(end) and repeats_nothing(self.machine, data)

    def shortest(self) -> str:
        """A shortest text of the language; where it takes long to make items or names differ, a short one.

        Builds the whole machine; raises `TooLarge` past its state budget or that of the search.
        """
        from stcon.grammar.analysis import shortest

        text = shortest(self.machine)
        if not repeats_nothing(self.machine, text):
            from stcon.grammar.distinct import short_distinct

            text = short_distinct(self.machine)
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
        self.machine.build_all()
        return self
