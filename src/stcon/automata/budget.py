"""A bound on the work that one pattern may cause, so that hostile ones end in an error."""

from __future__ import annotations

from stcon.errors import TooLarge

DEFAULT_MAX_STATES = 20_000
# One unit is about a tenth of a microsecond of interpreter time; the whole is a second or two.
DEFAULT_MAX_WORK = 12_000_000
_ADVICE = "simplify the pattern or lower its repeat counts"


class Budget:
    """Counts states and units of work.

    Args:
        max_states: states that one automaton may have before it is minimised.
        max_work: units of work in all.
    """

    def __init__(self, max_states: int = DEFAULT_MAX_STATES, max_work: int = DEFAULT_MAX_WORK) -> None:
        self.max_states = max_states
        self.max_work = max_work
        self.work = 0

    def spend(self, units: int) -> None:
        """Note `units` of work. Raises `TooLarge` once the budget is spent."""
        self.work += units
        if self.work > self.max_work:
            raise TooLarge("work to compile the pattern", given=self.work, limit=self.max_work, advice=_ADVICE)

    def check_states(self, count: int) -> None:
        """Raises `TooLarge` if `count` states are too many."""
        if count > self.max_states:
            raise TooLarge("states of the pattern's automaton", given=count, limit=self.max_states, advice=_ADVICE)

    def check_positions(self, count: int) -> None:
        """Raises `TooLarge` if `count` characters of the expanded pattern are too many."""
        if count > self.max_states:
            raise TooLarge("length of the expanded pattern", given=count, limit=self.max_states, advice=_ADVICE)
