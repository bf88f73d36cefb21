"""One stream on a device, from its prompt to its end: what is launched when, and what is made of what was drawn.

See `stcon.engine.device_loop` for the plan; this is the order of things within a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from stcon.engine.guesses import Guess, Guesser
from stcon.engine.sampling import Float32
from stcon.errors import DecodingError
from stcon.models.graphs import MAX_SPAN, StepGraphs
from stcon.models.static import Tensor

if TYPE_CHECKING:
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
        length: tokens in the cache, without those of a step that ran ahead and without guesses.
        chained: a step that ran ahead is under way.
        guesses: those of the pass that is under way.
    """

    def __init__(
        self, graphs: StepGraphs, output: Output, grammar: int, ahead: Ahead, draws: SpanDraws | None = None
    ) -> None:
        self.graphs = graphs
        self.output = output
        self.grammar = grammar
        self.ahead = ahead
        self.length = 0
        self.chained = False
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
        output = self.output
        self._prompt()
        while output.finish is None:
            if self.guesses:
                self._settle()
                if output.finish is None:
                    self._feed()
                continue
            self._run_ahead(None)
            token = self._read()
            if token is not None and not self._expects(token):
                self._run_ahead(token)
            self._take(token, partial(_on_host, self.graphs.logits[0]))
            if output.finish is None:
                self._go_on(token)

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

    def _feed(self) -> None:
        """Feed what is pending, `MAX_SPAN` tokens a pass, then guesses if there are any, and draw after the last."""
        output = self.output
        while len(output.pending) > MAX_SPAN:
            self._push()
        if self._feed_guesses():
            return
        later, span = output.step.later, self._hand_over()
        self._place()
        if later is None:
            self.graphs.feed(span, greedy=self.greedy)
            return
        self.graphs.push(span)
        self.graphs.restrict(0, later())  # found while the model runs
        self.graphs.draw(greedy=self.greedy)
        self.graphs.read()

    def _push(self) -> None:
        """Feed the first `MAX_SPAN` pending tokens and draw nothing."""
        self.graphs.push(self._hand_over())
        self.graphs.drain()  # the inbox is written again

    def _hand_over(self) -> int:
        """Write pending tokens to the inbox, as many as a pass may have; how many."""
        output, inbox = self.output, self.graphs.inbox.host
        part = output.pending[:MAX_SPAN]
        del output.pending[:MAX_SPAN]
        inbox["tokens"][0, : len(part)] = part
        inbox["lengths"][0] = self.length
        self.length += len(part)
        output.passes += 1
        return len(part)

    def _draw_again(self) -> None:
        """Draw from the logits at hand, under the mask of the output's last step."""
        later = self.output.step.later
        self._place()
        if later is not None:
            self.graphs.restrict(0, later())
        self.graphs.draw(greedy=self.greedy)

    def _place(self) -> None:
        """Write to the inbox where the walk begins, and hand over what the host adds to it."""
        inbox, step = self.graphs.inbox.host, self.output.step
        place = step.place
        inbox["positions"][0] = len(self.output.tokens)
        inbox["grammar"][0] = -1 if place is None else self.grammar
        inbox["config"][0] = 0 if place is None else place.config
        inbox["min_bytes"][0] = 0 if place is None else place.min_bytes
        is_whole = step.later is None and (step.mask is None or (place is not None and place.is_exact))
        inbox["is_restricted"][0] = not is_whole
        if not is_whole and step.mask is not None:
            self.graphs.restrict(0, step.mask)

    # ------------------------------------------------------------------------------------------------- running ahead

    def _may_chain(self, token: int | None) -> bool:
        """Whether to launch the next step before `token` (None: it is not read yet) was planned for."""
        output, step = self.output, self.output.step
        if self.ahead == "never" or output.needs_logits or step.limit is not None or step.later is not None:
            return False
        if step.mask is not None and (step.place is None or not step.place.is_exact or step.place.min_bytes):
            return False
        if self.length + 2 > self.graphs.capacity or len(output.tokens) + 1 >= output.limit:
            return False
        return self.ahead == "always" or output.is_quiet(token)

    def _run_ahead(self, token: int | None) -> None:
        """Launch the next step, if it is not yet and if that is likely to pay."""
        if self.chained or not self._may_chain(token):
            return
        constrained = self.output.step.mask is not None
        # before the token is read it may be none (a row was missing); and healing may take it back
        careful = constrained and (token is None or self.graphs.cache.recurrent)
        self.graphs.chain(greedy=self.greedy, careful=careful)
        self.chained = True

    def _go_on(self, token: int | None) -> None:
        """Launch the next step, unless the one that ran ahead is it."""
        output = self.output
        if not self.chained:
            self._feed()
            return
        self.chained = False
        output.passes += 1
        if output.pending[:1] != [token]:  # healed: the token was fed in vain
            self._undo()
            self._feed()
            return
        del output.pending[0]
        self.length += 1
        place = output.step.place
        if output.pending:
            self.graphs.drain()
            self._feed()
        elif place is not None and (place.min_bytes or not place.is_exact):
            self.graphs.drain()
            self._draw_again()

    def _undo(self) -> None:
        """Forget the step that ran ahead."""
        self.graphs.drain()
        self.graphs.cache.restore()
        self.chained = False

    # ------------------------------------------------------------------------------------------------- guesses

    def _expects(self, token: int) -> bool:
        """Whether the step after `token` may have guesses, so that it is not to be launched before it is planned."""
        return self.guesser is not None and not self.chained and self.guesser.expects(token)

    def _feed_guesses(self) -> bool:
        """Feed what is pending with guesses behind it, and draw after each; False, and nothing done, without any."""
        output = self.output
        if self.guesser is None:
            return False
        room = min(MAX_SPAN, self.graphs.capacity - self.length) - len(output.pending)
        guesses = self.guesser.chain(room)
        if not guesses:
            return False
        self.guesser.launch(output.pending, self.length, guesses)
        self._fed, self.guesses = output.pending[:], guesses
        self.length += len(output.pending)
        output.pending.clear()
        output.passes += 1
        return True

    def _settle(self) -> None:
        """Take what was drawn after the guesses, up to the first that was wrong; what it implies stays pending."""
        assert self.guesser is not None, "guesses were made"
        output, guesses = self.output, self.guesses
        drawn, self.guesses = self.guesser.draws.read().tolist(), []
        num_right = 0
        while True:
            token = drawn[num_right]
            if token < 0:
                token = self._draw_missing(self.guesser.draws.logits[num_right])
            self._take(token, partial(_on_host, self.guesser.draws.logits[num_right]))
            if num_right == len(guesses) or output.finish is not None:
                break
            guess = guesses[num_right]
            if token != guess.token or output.pending != list(guess.step.tokens):
                break
            self._fed += output.pending
            self.length += len(output.pending)
            output.pending.clear()
            num_right += 1
        self.guesser.settle(num_right, len(guesses))
        if num_right < len(guesses) and self.graphs.cache.recurrent:
            self.graphs.cache.restore()  # to before the pass: what it was right to feed is fed again
            self.length -= len(self._fed)
            output.pending[:0] = self._fed

    def _draw_missing(self, logits: Tensor) -> int | None:
        """Draw from `logits` (float32[V]) again where a row of the machine was missing; None where the host must."""
        assert self.graphs.walker is not None, "a guess has a grammar"
        if not self.graphs.walker.build_missing():
            return None
        self.graphs.logits[0].copy_(logits)
        self._draw_again()
        return self._read()

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

    def _take(self, token: int | None, logits: Callable[[], Float32]) -> None:
        """Emit the token drawn, or draw from `logits` on the host."""
        if token is None or not self.output.take_greedy(token):
            self.output.take(logits())


def _on_host(logits: Tensor) -> Float32:
    """float32[V], a copy."""
    return np.array(logits.cpu().numpy())
