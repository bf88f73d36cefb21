"""Guesses of the next tokens of one stream, and the pass that checks them.

A guess is a token that stood after the same text before (`stcon.engine.lookup`), and that leads to where nothing is
forced. A chain of them is fed behind the tokens that have to be fed anyway, and a token is drawn after each
(`stcon.models.span_draws`). Draws count as long as they are the tokens that were guessed, and the first that is not
counts too. So every pass gives at least the token it would have given, and each right guess saves one.

The chain follows the machine alone, since the device waits for it: whether the control, when it is asked, gives what
was taken for granted is found out once the guess was right (`is_as_taken`).

**When.** A pass of several tokens costs more than one of one (on an H200 1.25 times, by the lean runner; 1.7 for a
model so small that launches are all it does). So guesses ride free where forced text is fed; else they are made after
two equal tokens while they have been right often enough, after three when they have not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stcon.engine.control import LimitedControl, PlannedControl, Step
from stcon.engine.lookup import SIZES, Lookup
from stcon.engine.sampling import Int32
from stcon.engine.thinking import ThinkingControl

if TYPE_CHECKING:
    from stcon.constraint.forced import Kernel
    from stcon.engine.control import Control
    from stcon.engine.output import Output
    from stcon.models.span_draws import SpanDraws

ENOUGH = 0.5
WEIGHT = 0.2


class Guess(NamedTuple):
    """One of a chain.

    Attributes:
        token: that may be drawn after the one before.
        config: int32[67], the configuration after it.
    """

    token: int
    config: Int32

    def is_as_taken(self, step: Step) -> bool:
        """Whether `step`, which the control gave for the token, leaves the draw after it as it was made."""
        return step.tokens == (self.token,) and is_drawn(step) and step.place is not None and not step.place.min_bytes


class Guesser:
    """Makes guesses for one output, and has them drawn.

    Args:
        output: begun; its prompt and forced beginning are pending.
        draws: checks them.
        grammar: the output's, by its number on the device.

    Attributes:
        gain: passes saved by a pass with guesses, lately.
        num_right, num_wrong: guesses so far.
    """

    def __init__(self, output: Output, draws: SpanDraws, grammar: int) -> None:
        self.output = output
        self.draws = draws
        self.grammar = grammar
        self.gain = 1.0
        self.num_right = self.num_wrong = 0
        self._lookup = Lookup(output.pending)
        self._is_alone = False
        options: Any = output.sampling
        if not output.sampling.greedy:
            for row in range(draws.num_draws):
                draws.sampling.set_row(row, options)

    def extend(self, tokens: Sequence[int]) -> None:
        """The output goes on with `tokens`."""
        self._lookup.extend(tokens)

    def chain(self, num_fed: int, room: int) -> list[Guess]:
        """What may follow the output's last step; empty where nothing is worth guessing.

        Args:
            num_fed: tokens that have to be fed anyway.
            room: most guesses.
        """
        step, kernel = self.output.step, _kernel(self.output.control)
        self._is_alone = num_fed == 1
        place = self._lookup.find(least=self._least()) if is_drawn(step) and step.limit is None else None
        if place is None or kernel is None or step.place is None:
            return []
        config, guesses = step.place.config, list[Guess]()
        for token in self._lookup.following(place, min(room, self.draws.num_draws - 1)):
            after, data = config.copy(), self.output.vocabulary.token_bytes(token)
            if data is None or not kernel.advance(after, data) or kernel.forced(after, 1) or kernel.accepts(after):
                break
            guesses.append(Guess(token, after))
            config = after
        return guesses

    def launch(self, fed: Sequence[int], length: int, position: int, guesses: Sequence[Guess]) -> None:
        """Feed `fed`, which ends with the output's last step, and the guesses.

        Args:
            fed: at least one token.
            length: tokens in the cache.
            position: of the next token in the output.
            guesses: from `chain`.
        """
        inbox, place = self.draws.inbox.host, self.output.step.place
        assert place is not None, "there is no chain otherwise"
        for config in (place.config, *(guess.config for guess in guesses)):
            self.draws.walker.include(self.grammar, config)
        count, span = len(guesses) + 1, len(fed) + len(guesses)
        inbox["tokens"][0, :span] = [*fed, *(guess.token for guess in guesses)]
        inbox["lengths"][0] = length
        inbox["config"][count:, 0], inbox["places"][count:] = -1, 0  # draws that are not wanted
        inbox["places"][:count] = np.arange(len(fed) - 1, span)
        inbox["positions"][:count] = np.arange(position, position + count)
        inbox["grammar"][:] = self.grammar
        inbox["config"][:count] = [place.config, *(guess.config for guess in guesses)]
        inbox["min_bytes"][:] = 0
        inbox["min_bytes"][0] = place.min_bytes
        self.draws.feed(span, greedy=self.output.sampling.greedy)

    def settle(self, num_right: int, num_guesses: int) -> None:
        """Note how many of the guesses of a pass were right."""
        self.num_right += num_right
        self.num_wrong += num_guesses - num_right
        if self._is_alone:
            self.gain += WEIGHT * (num_right - self.gain)

    def _least(self) -> int:
        """How many tokens must be the same."""
        return SIZES[0] if self._is_alone and self.gain < ENOUGH else SIZES[-1]


def is_drawn(step: Step) -> bool:
    """Whether the device finds by itself what may be drawn after `step`, limits apart."""
    return not step.is_done and step.later is None and step.place is not None and step.place.is_exact


def _kernel(control: Control) -> Kernel | None:
    """What the control steps with; None where only it knows."""
    if isinstance(control, ThinkingControl):
        return None if control.answer is None else _kernel(control.answer)
    if isinstance(control, LimitedControl):
        return control.planner.planner.kernel
    return control.planner.kernel if isinstance(control, PlannedControl) else None
