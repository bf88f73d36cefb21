"""One row of ``generate`` under our control: what was emitted, what must be fed, what may be drawn next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from stcon.engine.control import Step
from stcon.grammar.cfg.stacks import StackSetMachine
from stcon.integrations.transformers.masks import Mask

if TYPE_CHECKING:
    from stcon.engine.control import Control
    from stcon.engine.sampling import Int32
    from stcon.grammar.machine import Machine


class ForcedRow:
    """A row.

    Args:
        control: decides what follows a drawn token.
        machine: the grammar's; None: the row is free.
        number: of the row in its batch.
        limit: most tokens to emit.
        end_ids: tokens that end an output.
        end: the one that is written where nothing but an end can follow; None: none is.
        stops: called after each emitted token; whether the output ends there (stopping criteria).

    Attributes:
        tokens: everything emitted.
        pending: what was not fed yet.
        drawn: of each emitted token, whether it was drawn from scores.
        is_done: whether it goes no further.
    """

    def __init__(
        self,
        control: Control,
        machine: Machine | None,
        number: int,
        *,
        limit: int,
        end_ids: tuple[int, ...],
        end: int | None,
        stops: Callable[[ForcedRow], bool],
    ) -> None:
        self.control = control
        self.number = number
        self.limit = limit
        self.tokens: list[int] = []
        self.pending: list[int] = []
        self.drawn: list[bool] = []
        self.is_done = False
        self.step = Step(())
        self._machine = machine
        self._end_ids = end_ids
        self._end = end
        self._stops = stops

    def begin(self) -> None:
        """Emit what the grammar begins with. Raises `LimitTooSmall` where no output fits the limit."""
        self.step = self.control.begin()
        self._emit(first_is_drawn=False)

    def take(self, token: int) -> None:
        """Emit `token`, which was drawn, or what heals it, and the forced text after it."""
        self.step = Step((token,), is_done=True) if token in self._end_ids else self.control.choose(token)
        self._emit(first_is_drawn=True)

    def fits(self, token: int) -> bool:
        """Whether a completion fits behind `token`."""
        limit = self.step.limit
        return limit is None or limit.admits(token)

    @property
    def mask(self) -> Mask:
        """What may be drawn next."""
        step, machine = self.step, self._machine
        if machine is None:
            return Mask(None)
        place = step.place
        if place is None or not place.is_exact or isinstance(machine, StackSetMachine):
            return Mask(self._words)
        return Mask(self._words, machine, place.config, place.min_bytes)

    def mask_within(self, *, certain: bool) -> Mask:
        """What may be drawn next for the sake of the limit; `certain`: and surely may."""
        limit = self.step.limit
        assert limit is not None, "asked only where a limit binds"
        words = limit.certain if certain else limit.mask
        return Mask(lambda: words)

    def _words(self) -> Int32:
        step = self.step
        if step.mask is not None:
            return step.mask
        assert step.later is not None, "a row with a grammar has a mask"
        return np.asarray(step.later(), np.int32)

    def _emit(self, *, first_is_drawn: bool) -> None:
        for number, token in enumerate(self.step.tokens):
            self._write(token, is_drawn=first_is_drawn and not number)
            if self.is_done:
                return
        if self.step.is_done:
            ended = self.tokens and self.tokens[-1] in self._end_ids
            if self._end is not None and not ended:
                self._write(self._end, is_drawn=False)
            self.is_done = True

    def _write(self, token: int, *, is_drawn: bool) -> None:
        self.tokens.append(token)
        self.pending.append(token)
        self.drawn.append(is_drawn)
        self.is_done = len(self.tokens) >= self.limit or self._stops(self)
