"""One stream: passes of the model, a constraint, and what was emitted.

**The step.** One pass feeds the token sampled last together with the forced text that follows it (the prompt pass feeds
the prompt with the forced beginning, φ(c0)); its last logits are masked and one token is drawn; the control says what
that token implies (`stcon.engine.output`). With ``drip`` the same tokens are fed one a pass: the reference decoder R_φ
of Definition 8, which must emit the same tokens (Theorem 19(i)).

**Counts.** A pass is made only where a token will be drawn from its logits, so with N drawn tokens there are exactly N
passes, the prompt's included: ``passes == sampled``, the least any decoder without speculation can do (Theorem 19(iii),
whose condition, two admissible tokens at every draw, the planner keeps). An output that nothing but its end can follow
ends without a pass.

**On a GPU** the same output comes from `stcon.engine.device_loop`, which runs ahead where that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from stcon.engine.control import Mode
from stcon.engine.output import Finish, Generation, Output
from stcon.engine.sampling import Float32, Sampling
from stcon.engine.stream import Token
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model, Session

__all__ = ["Finish", "Generation", "decode", "generate"]


def generate(
    model: Model,
    prompt_ids: Sequence[int],
    grammar: Grammar | None = None,
    *,
    max_tokens: int = 256,
    mode: Mode = "canonical",
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    stream: Callable[[str], None] | None = None,
    on_token: Callable[[Token], None] | None = None,
    drip: bool = False,
    budget: bool = False,
) -> Generation:
    """Decode one output.

    Args:
        model: gives logits.
        prompt_ids: the prompt; at least one token, or a grammar with forced text at its start.
        grammar: what the output must be; None decodes freely.
        max_tokens: most tokens to emit, at least 1; less where the context ends before.
        mode: see `stcon.engine.control.Mode`; without a grammar it is always ``"free"``.
        sampling: how tokens are drawn; None is greedy.
        stop: strings that end the output where they appear.
        stream: called with each piece of text; never inside a character.
        on_token: called with each emitted token.
        drip: feed the tokens of a step one a pass (for tests: same output, more passes).
        budget: with a grammar, the output is complete when the limit is reached.

    Raises:
        PromptTooLong: prompt and one token do not fit the context.
        InvalidOption: an option is out of its range.
        LimitTooSmall: with `budget`, no output fits the limit; nothing was asked of the model.
        TooLarge: with `budget`, the grammar is too large for a limit to be kept.
        DecodingError: the constraint admits no token, or the logits are not numbers.
    """
    started = perf_counter()
    output = Output(
        model,
        prompt_ids,
        grammar,
        max_tokens=max_tokens,
        mode=mode,
        sampling=sampling,
        stop=stop,
        budget=budget,
        on_token=on_token,
        stream=stream,
    )
    if not drip and model.static is not None:
        from stcon.engine.device_loop import engine_for

        engine = engine_for(model)
        if engine is not None and engine.takes(output):
            return engine.decode(output)
    return decode(output, model.session(), drip=drip, started=started)


def decode(output: Output, session: Session, *, drip: bool = False, started: float | None = None) -> Generation:
    """Decode an output that has not begun: the loop itself, for controls other than a grammar's.

    Args:
        output: what to decode.
        session: of its model, empty.
        drip: as in `generate`.
        started: when the clock began (`time.perf_counter`); None: now.
    """
    started = perf_counter() if started is None else started
    output.begin()
    while output.finish is None:
        output.take(_pass(output, session, drip))
    return output.result(perf_counter() - started)


def _pass(output: Output, session: Session, drip: bool) -> Float32:
    """The logits after everything emitted so far (float32[V])."""
    if not output.pending:
        raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")
    started = perf_counter()
    # the reference decoder too feeds the forced beginning with the prompt
    parts = [[token] for token in output.pending] if drip and output.passes else [output.pending[:]]
    for part in parts:
        logits = session.append(part)
    if not output.passes:
        output.prefill_s = perf_counter() - started
    output.passes += len(parts)
    output.pending.clear()
    return logits
