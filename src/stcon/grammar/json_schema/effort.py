"""How much may be spent on a question, and what becomes of what would take more.

While a schema is compiled, what passes a limit is refused. Afterwards nothing is: rows of the machine are built while a
model writes, and there what passes a limit is left out, as if it could not come. The machine is narrower then, never
wider, and from every state something can still follow: the same answers decide what may come and what is left of it.
Only a row whose search is spent (`MAX_ROW_STEPS`) may leave out everything; then decoding stops there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stcon.errors import TooLarge

MAX_STEPS = 300_000
MAX_ROW_STEPS = 100_000
AUTOMATON_STEPS = 5  # what an automaton counts that several conditions meet in
PRODUCT_STEPS = 10_000  # what a product that turns out to be too large counts


class Effort:
    """The budget of one compilation, and of each row after it.

    Attributes:
        steps: how many have been made.
        strict: whether what passes a limit is refused (`TooLarge`), not left out.
        doubts: how many answers so far rest on an assumption or on a spent budget; who gives such an answer does not
            keep it.
    """

    def __init__(self) -> None:
        self.strict = True
        self.doubts = 0
        self.steps = 0
        self._most = MAX_STEPS

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent."""
        return self.steps > self._most

    def spend(self) -> bool:
        """One more step of a search; False, and a doubt, where the budget is spent."""
        self.steps += 1
        if self.steps <= self._most:
            return True
        if self.strict:
            raise TooLarge("steps to find out what can be satisfied", given=self.steps, limit=self._most)
        self.doubts += 1
        return False

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Within, what passes a limit is refused in any case."""
        strict, self.strict = self.strict, True
        try:
            yield
        finally:
            self.strict = strict

    def row_begins(self) -> None:
        """A new budget, where rows have one of their own."""
        if not self.strict:
            self.steps, self._most = 0, MAX_ROW_STEPS

    def admits(self, what: str, given: int, limit: int) -> bool:
        """Whether `given` is within `limit`; refused where it is not and strictness asks for that."""
        if given > limit and self.strict:
            raise TooLarge(what, given=given, limit=limit)
        return given <= limit
