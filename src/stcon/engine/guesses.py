"""Guesses of the next tokens of one stream, and the pass that checks them.

A guess is a token that stood after the same text before (`stcon.engine.lookup`), with what the control says follows it:
a chain of steps, each from where the one before leads. They are fed behind the tokens that have to be fed anyway, and a
token is drawn after each (`stcon.models.span_draws`). Draws count as long as they are the tokens that were guessed, and
the first that is not counts too. So every pass gives at least the token it would have given, and each right guess saves
one.

**When.** A pass of several tokens costs more than one of one (on an H200 1.25 times, by the lean runner; 1.7 for a
model so small that launches are all it does). So guesses ride free where forced text is fed; else they are made after
two equal tokens while they have been right often enough, after three when they have not.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stcon.engine.control import Step
from stcon.engine.lookup import SIZES, Lookup
from stcon.errors import StconError

if TYPE_CHECKING:
    from stcon.engine.control import Control
    from stcon.engine.output import Output
    from stcon.models.span_draws import SpanDraws

ENOUGH = 0.5
WEIGHT = 0.2


class Guess(NamedTuple):
    """One of a chain.

    Attributes:
        token: that may be drawn after the step before.
        step: what follows if it is.
    """

    token: int
    step: Step


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
            room: most tokens of the guesses with their steps.
        """
        step = self.output.step
        self._is_alone = num_fed == 1
        place = self._lookup.find(least=self._least()) if _is_drawn(step) else None
        if place is None:
            return []
        control, guesses = copy.copy(self.output.control), list[Guess]()
        for token in self._lookup.following(place, self.draws.num_draws - 1):
            following = _chosen(control, step, token)
            if following is None or not _is_drawn(following) or len(following.tokens) > room:
                break
            guesses.append(Guess(token, following))
            room -= len(following.tokens)
            step = following
            if following.tokens != (token,):
                break  # forced text follows: what stood there before is another place's
        return guesses

    def launch(self, fed: Sequence[int], length: int, position: int, guesses: Sequence[Guess]) -> None:
        """Feed `fed`, which ends with the output's last step, and the guesses.

        Args:
            fed: at least one token.
            length: tokens in the cache.
            position: of the next token in the output.
            guesses: from `chain`.
        """
        inbox = self.draws.inbox.host
        span = [*fed, *(token for guess in guesses for token in guess.step.tokens)]
        inbox["tokens"][0, : len(span)] = span
        inbox["lengths"][0] = length
        inbox["config"][:, 0], inbox["places"][:] = -1, 0  # draws that are not wanted
        inbox["grammar"][:] = self.grammar
        at = len(fed)
        for draw, step in enumerate([self.output.step, *(guess.step for guess in guesses)]):
            if draw:
                at, position = at + len(step.tokens), position + len(step.tokens)
            place = step.place
            assert place is not None, "a chain ends where the device cannot draw"
            inbox["places"][draw], inbox["positions"][draw] = at - 1, position
            inbox["config"][draw], inbox["min_bytes"][draw] = place.config, place.min_bytes
        self.draws.feed(len(span), greedy=self.output.sampling.greedy)

    def settle(self, num_right: int, num_guesses: int) -> None:
        """Note how many of the guesses of a pass were right."""
        self.num_right += num_right
        self.num_wrong += num_guesses - num_right
        if self._is_alone:
            self.gain += WEIGHT * (num_right - self.gain)

    def _least(self) -> int:
        """How many tokens must be the same."""
        return SIZES[0] if self._is_alone and self.gain < ENOUGH else SIZES[-1]


def _is_drawn(step: Step) -> bool:
    """Whether the device finds by itself what may be drawn after `step`, whatever else is said of it."""
    is_open = not step.is_done and step.limit is None and step.later is None
    return is_open and step.place is not None and step.place.is_exact


def _chosen(control: Control, step: Step, token: int) -> Step | None:
    """What follows `token` after `step`; None where it may not come, and where that is not known."""
    if step.mask is None or not int(step.mask[token >> 5]) >> (token & 31) & 1:
        return None
    try:
        return control.choose(token)
    except StconError:
        return None
