"""Where the output stands among the fields, and when the fields are looked for again."""

from __future__ import annotations

from stcon.engine.parallel.fields import Field, fields_of, segments_of
from stcon.grammar.machine import Configuration, Machine

PLAN_AFTER = (1, 4, 16, 64)


class Front:
    """The place of an output in the fields of its machine.

    Args:
        machine: of the grammar.
        max_plans: how often segments are computed at most; those known from earlier outputs do not count.

    Attributes:
        fields: those from the last plan on; one that has no end where none can be told apart.
        index: of the field that the output is in; ``len(fields)`` past the last.
        written: the field's text so far, from its anchor on.
        text: the output's.
        config: where that ends.
        drawn: tokens drawn in the field.
        num_plans: how often segments were computed or found.
    """

    def __init__(self, machine: Machine, max_plans: int) -> None:
        self.machine = machine
        self.fields: tuple[Field, ...] = ()
        self.index = 0
        self.written = b""
        self.num_plans = 0
        self._segments = segments_of(machine)
        self._plans_left = max_plans
        self._can_plan = True
        self.config: Configuration | None = machine.initial()
        self.text = b""
        self.drawn = 0

    def read(self, data: bytes, drawn: int) -> None:
        """Go on over `data`, in which `drawn` tokens were drawn."""
        self.drawn += drawn
        for number, byte in enumerate(data, 1):
            self.config = None if self.config is None else self.machine.step(self.config, byte)
            self.written += data[number - 1 : number]
            if self.config is not None and self.index < len(self.fields):
                end = self.fields[self.index].end
                if end is not None and (self.config.state, self.config.stack) == (end.state, end.stack):
                    self.index, self.written, self.drawn = self.index + 1, b"", 0
        self.text += data

    @property
    def is_due(self) -> bool:
        """Whether the fields should be looked for from here: a choice may have been made that opens some.

        That is so inside a field, after some numbers of drawn tokens.
        """
        return self._can_plan and self.index < len(self.fields) and self.drawn in PLAN_AFTER

    def plan(self) -> dict[int, int] | None:
        """Look for the fields from here on; take them if there are more of them than before.

        Returns:
            Where the fields ahead have gone: old index → new index; None if nothing changed.

        Cost: `stcon.grammar.cuts.cut_states`, unless its answer is known.
        """
        if self.config is None:
            return None
        if not self._segments.knows(self.config):
            if not self._plans_left:
                return None
            self._plans_left -= 1
        segments = self._segments.after(self.machine, self.config)
        self.num_plans += 1
        self._can_plan = bool(segments)
        found = fields_of(segments, self.config, self.text) or (_whole(self.config),)
        if len(found) <= len(self.fields) - self.index:
            return None
        places = {(field.anchor.state, field.anchor.stack): i for i, field in enumerate(found) if i}
        ahead = range(self.index + 1, len(self.fields))
        anchors = {i: (self.fields[i].anchor.state, self.fields[i].anchor.stack) for i in ahead}
        self.fields, self.index, self.written = found, 0, b""
        return {i: places[anchor] for i, anchor in anchors.items() if anchor in places}


def _whole(start: Configuration) -> Field:
    """All that comes, where no fields can be told apart."""
    return Field(b"", start, start, None, b"", remembers=True)
