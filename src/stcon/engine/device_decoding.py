"""One stream on a device, from its prompt to its end: what is launched when, and what is made of what was drawn.

See `stcon.engine.device_loop` for the plan; this is the order of things within a stream.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from stcon.engine.guesses import Guess, Guesser
from stcon.errors import DecodingError
from stcon.models.graphs import MAX_SPAN, StepGraphs
from stcon.models.static import Tensor

if TYPE_CHECKING:
    from stcon.engine.control import Place
    from stcon.engine.output import Output
    from stcon.models.span_draws import SpanDraws

Ahead: TypeAlias = Literal["quiet", "always", "never"]

MAX_REPEATS = 100_000


class Decoding:
    """One stream under way.

    Args:
        graphs: of one row.
        output: begun.
        grammar: its number on the device; -1: none.
        ahead: see `stcon.engine.device_loop`.
        draws: checks guesses; None: none are made.

    Attributes:
        pending: tokens decided on and not fed.
        position: tokens decided on; of the output, the next one's place.
        length: tokens in the cache, without those of a step that ran ahead and without guesses.
        chained: a step that ran ahead is under way.
        in_step: the device can go on by itself: it holds the row's length, its machine's state and the token drawn, and
            nothing that the host added to the mask of that draw.
        guesses: those of the pass that is under way.
    """

    def __init__(
        self, graphs: StepGraphs, output: Output, grammar: int, ahead: Ahead, draws: SpanDraws | None = None
    ) -> None:
        self.graphs = graphs
        self.output = output
        self.grammar = grammar
        self.ahead = ahead
        self.pending: list[int] = []
        self.position = len(output.tokens)
        self.length = 0
        self.chained = False
        self.in_step = False
        self.guesses: list[Guess] = []
        self.guesser: Guesser | None = None
        self._draws = draws
        self._fed: list[int] = []
        self.greedy = output.sampling.greedy
        options: Any = output.sampling
        if not self.greedy:
            graphs.sampling.set_row(0, options)

    def run(self) -> None:
        """Decode to the end."""
        self._prompt()
        while self.output.finish is None:
            if self.guesses:
                self._settle()
            else:
                self._run_ahead()
                self._decide(self._read(), self.graphs.logits[0])
            if not self._is_over():
                self._go_on()
            self._emit()  # while the next step runs

    # ------------------------------------------------------------------------------------------------- launches

    def _prompt(self) -> None:
        """Feed the prompt with the forced beginning, and draw."""
        started = perf_counter()
        output = self.output
        self.graphs.prefill(0, output.pending)
        if self._draws is not None and self.grammar >= 0 and not output.needs_logits:
            self.guesser = Guesser(output, self._draws, self.grammar)  # reads the prompt while the model does
        self.length = len(output.pending)
        output.pending.clear()
        output.passes = 1
        self._draw_again()
        self.graphs.wait()
        output.prefill_s = perf_counter() - started

    def _go_on(self) -> None:
        """Launch the next step, unless the one that ran ahead is it."""
        if self.chained:
            self._catch_up()
        elif self.ahead != "never" and len(self.pending) == 1 and self._is_known() and not self._has_guesses():
            self.graphs.chain(greedy=self.greedy)
            self._count_pass(self.pending)
            self.pending.clear()
        else:
            self._feed()

    def _is_known(self) -> bool:
        """Whether the device knows by itself what the step after the token it drew last is."""
        step, place = self.output.step, self._walked()
        is_drawn = self.in_step and not self.output.needs_logits and step.later is None and not step.healed
        if step.mask is None:
            return is_drawn
        return is_drawn and place is not None and place.is_exact and not place.min_bytes

    def _walked(self) -> Place | None:
        """Where the device's walk begins; None where the host has to say what may be drawn."""
        return self.output.step.place if self.grammar >= 0 else None

    def _feed(self) -> None:
        """Feed what is pending, `MAX_SPAN` tokens a pass, then guesses if there are any, and draw after the last."""
        while len(self.pending) > MAX_SPAN:
            self.graphs.push(self._hand_over())
            self.graphs.drain()  # the inbox is written again
        if self.guesses or self._has_guesses():
            self._feed_guesses()
            return
        later, span = self.output.step.later, self._hand_over()
        self._place()
        if later is None:
            self.graphs.feed(span, greedy=self.greedy)
            return
        self.graphs.push(span)
        self.graphs.restrict(0, later())  # found while the model runs
        self.graphs.draw(greedy=self.greedy)
        self.graphs.read()

    def _hand_over(self) -> int:
        """Write pending tokens to the inbox, as many as a pass may have; how many."""
        inbox, part = self.graphs.inbox.host, self.pending[:MAX_SPAN]
        inbox["tokens"][0, : len(part)] = part
        inbox["lengths"][0] = self.length
        del self.pending[:MAX_SPAN]
        self._count_pass(part)
        return len(part)

    def _count_pass(self, tokens: list[int]) -> None:
        self.length += len(tokens)
        self.output.passes += 1

    def _draw_again(self) -> None:
        """Draw from the logits at hand, under the mask of the output's last step."""
        later = self.output.step.later
        self._place()
        if later is not None:
            self.graphs.restrict(0, later())
        self.graphs.draw(greedy=self.greedy)

    def _place(self) -> None:
        """Write to the inbox where the walk begins, and hand over what the host adds to it."""
        inbox, step, place = self.graphs.inbox.host, self.output.step, self._walked()
        if place is not None and self.graphs.walker is not None:
            self.graphs.walker.include(self.grammar, place.config)
        inbox["positions"][0] = self.position
        inbox["grammar"][0] = -1 if place is None else self.grammar
        inbox["config"][0] = 0 if place is None else place.config
        inbox["min_bytes"][0] = 0 if place is None else place.min_bytes
        is_whole = step.later is None and (step.mask is None or (place is not None and place.is_exact))
        inbox["is_restricted"][0] = not is_whole
        self.in_step = is_whole and (place is None or not place.min_bytes)
        if not is_whole and step.mask is not None:
            self.graphs.restrict(0, step.mask)

    # ------------------------------------------------------------------------------------------------- running ahead

    def _run_ahead(self) -> None:
        """Launch the next step before the token that it feeds is read, if that is likely to pay."""
        output, step = self.output, self.output.step
        if self.chained or self.ahead == "never" or step.limit is not None or not self._is_known():
            return
        if self.length + 2 > self.graphs.capacity or self.position + 1 >= output.limit:
            return
        if self.ahead == "always" or output.is_quiet(None):
            # the token may be none (a row was missing), and healing may take it back
            self.graphs.chain(greedy=self.greedy, careful=step.mask is not None)
            self.chained = True

    def _catch_up(self) -> None:
        """Make of the step that ran ahead what can be made of it, now that it is known what follows the token."""
        self.chained = False
        first, *rest = self.output.step.tokens
        if self.output.step.healed:  # the token was fed in vain
            self._undo()
            self._feed()
            return
        self._count_pass([first])
        self.pending[:] = rest
        if rest:
            self.graphs.drain()
            self._feed()
        elif not self._is_known():
            self.graphs.drain()
            self._draw_again()

    def _undo(self) -> None:
        """Forget the step that ran ahead."""
        self.graphs.drain()
        self.graphs.cache.restore()
        self.chained = False

    # ------------------------------------------------------------------------------------------------- guesses

    def _has_guesses(self) -> bool:
        """Make guesses for the next pass; whether there are any."""
        if self.guesser is None:
            return False
        num_fed = len(self.pending)
        room = min(MAX_SPAN - num_fed, self.graphs.capacity - self.length - num_fed, self.output.limit - self.position)
        self.guesses = self.guesser.chain(num_fed, room)
        return bool(self.guesses)

    def _feed_guesses(self) -> None:
        """Feed what is pending with the guesses behind it, and draw after each."""
        assert self.guesser is not None, "someone made them"
        self.guesser.launch(self.pending, self.length, self.position, self.guesses)
        self._fed = self.pending[:]
        self._count_pass(self.pending)
        self.pending.clear()
        self.in_step = False

    def _settle(self) -> None:
        """Take what was drawn after the guesses, up to the first that was wrong; what it implies stays pending."""
        assert self.guesser is not None, "someone made them"
        guesses, self.guesses = self.guesses, []
        drawn, logits = self.guesser.draws.read().tolist(), self.guesser.draws.logits
        num_right = 0
        while True:
            token = drawn[num_right] if drawn[num_right] >= 0 else self._draw_missing(logits[num_right])
            self._decide(token, logits[num_right])
            if num_right == len(guesses) or self._is_over():
                break
            if token != guesses[num_right].token or not guesses[num_right].is_as_taken(self.output.step):
                break
            self._fed += self.pending
            self.length += len(self.pending)
            self.pending.clear()
            num_right += 1
        self.guesser.settle(num_right, len(guesses))
        if num_right < len(guesses) and self.graphs.cache.recurrent:
            self.graphs.cache.restore()  # to before the pass: what it was right to feed is fed again
            self.length -= len(self._fed)
            self.pending[:0] = self._fed

    def _draw_missing(self, logits: Tensor) -> int | None:
        """Draw from `logits` (float32[V]) again where a row of the machine was missing; None where the host must."""
        assert self.graphs.walker is not None, "a guess has a grammar"
        if not self.graphs.walker.build_missing():
            return None
        self.graphs.logits[0].copy_(logits)
        self._draw_again()
        token, self.in_step = self._read(), False
        return token

    # ------------------------------------------------------------------------------------------------- drawing

    def _read(self) -> int | None:
        """The token drawn by the oldest launch; None where the host must draw from the logits.

        Where a row of the machine was missing on the device, it is built and the draw repeated.
        """
        token = int(self.graphs.read()[0])
        if self.output.needs_logits:
            return None
        for _ in range(MAX_REPEATS):
            if token >= 0:
                return token
            if self.chained:
                if self.output.step.mask is None:  # without a constraint only the model can be at fault
                    raise DecodingError("the model's logits are not finite numbers (NaN or infinity)")
                self._undo()
            assert self.graphs.walker is not None
            if not self.graphs.walker.build_missing():
                return None
            self._draw_again()
            token = int(self.graphs.read()[0])
        raise DecodingError("a row of the grammar's machine stays unbuilt on the device")

    def _decide(self, token: int | None, logits: Tensor) -> None:
        """Find out what the token drawn implies; None, or one that a limit forbids: draw from `logits` on the host."""
        output = self.output
        if token is None or not output.decide(token):
            self._emit()
            output.take(np.array(logits.cpu().numpy()))
            output.pending.clear()
            self.in_step = False
        elif output.text.stop:
            self._emit()  # it may end here
        tokens = output.step.tokens
        self.pending += tokens
        self.position += len(tokens)
        if self.guesser is not None:
            self.guesser.extend(tokens)

    def _is_over(self) -> bool:
        """Whether no step follows the one decided on last."""
        output = self.output
        return output.finish is not None or output.step.is_done or self.position >= output.limit

    def _emit(self) -> None:
        """Emit what was decided on."""
        self.output.emit_decided()
        self.output.pending.clear()
