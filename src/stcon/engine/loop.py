"""One stream: passes of the model, a constraint, and what was emitted.

**The step.** One pass feeds the token sampled last together with the forced text that follows it (the prompt pass feeds
the prompt with the forced beginning, φ(c0)); its last logits are masked and one token is drawn; the control says what
that token implies. With ``drip`` the same tokens are fed one a pass: the reference decoder R_φ of Definition 8, which
must emit the same tokens (Theorem 19(i)).

**Counts.** A pass is made only where a token will be drawn from its logits, so with N drawn tokens there are exactly N
passes, the prompt's included: ``passes == sampled``, the least any decoder without speculation can do (Theorem 19(iii),
whose condition, two admissible tokens at every draw, the planner keeps). An output that nothing but its end can follow
ends without a pass.

``max_tokens`` counts every token that is emitted, sampled or forced, an end token included. With a grammar the output
is complete when the limit is reached (``docs/budgets.md``): a token drawn as without a limit is taken if a completion
fits behind it, else another is drawn from those of which that is true.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from stcon.engine.control import Limit, Mode, Step, control_for
from stcon.engine.sampling import Float32, Sampling, apply_bitmask, count_bits
from stcon.engine.stream import Kind, TextStream, Token
from stcon.errors import InvalidOption, PromptTooLong

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

Finish: TypeAlias = Literal["stop", "length"]

MAX_REDRAWS = 16


@dataclass(frozen=True)
class Generation:
    """An output and what it took.

    Attributes:
        text: the output; never contains a stop string.
        value: the parsed output if the grammar is one of JSON and the output is complete, else None.
        tokens: every emitted token in order, an end token included.
        finish_reason: ``"stop"``: an end token, a stop string, or nothing can follow; ``"length"``: the limit was
            reached, or another token than the one drawn had to be taken for its sake.
        complete: the whole text belongs to the grammar (False without one).
        mode: how it was decoded.
        seed: reproduces it (with the same options); 0 for greedy.
        prompt_tokens: tokens of the prompt.
        passes: calls of the model, the prompt's included.
        sampled: tokens drawn from logits; those that healing replaced count here.
        forced: tokens written without asking the model; ``sampled + forced == len(tokens)``.
        prefill_s, decode_s, mask_s: seconds in the prompt pass; in everything else; and, as part of the total, in
            the constraint (plans and masks).
    """

    text: str
    value: Any
    tokens: tuple[Token, ...]
    finish_reason: Finish
    complete: bool
    mode: Mode
    seed: int
    prompt_tokens: int
    passes: int
    sampled: int
    forced: int
    prefill_s: float
    decode_s: float
    mask_s: float

    @property
    def forced_share(self) -> float:
        """Forced tokens among the emitted."""
        return self.forced / max(len(self.tokens), 1)

    @property
    def passes_per_token(self) -> float:
        """Passes an emitted token."""
        return self.passes / max(len(self.tokens), 1)


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
    _check_limit(max_tokens)
    room = model.context_length - len(prompt_ids)
    if room < 1:
        raise PromptTooLong(len(prompt_ids), model.context_length - 1)
    run = _Run(
        model,
        prompt_ids,
        limit=min(max_tokens, room),
        sampling=(sampling or Sampling()).seeded(),
        text=TextStream(stop),
        stream=stream,
        on_token=on_token,
        drip=drip,
        budget=budget,
    )
    return run.decode(grammar, mode)


class _Run:
    """The state of one `generate`."""

    def __init__(
        self,
        model: Model,
        prompt_ids: Sequence[int],
        *,
        limit: int,
        sampling: Sampling,
        text: TextStream,
        stream: Callable[[str], None] | None,
        on_token: Callable[[Token], None] | None,
        drip: bool,
        budget: bool,
    ) -> None:
        self.vocabulary = model.vocabulary
        self.session = model.session()
        self.num_prompt = len(prompt_ids)
        self.pending = list(prompt_ids)
        self.limit = limit
        self.sampling = sampling
        self.text = text
        self.stream = stream
        self.on_token = on_token
        self.drip = drip
        self.budget = budget
        self.shaped = False
        self.tokens: list[Token] = []
        self.finish: Finish | None = None
        self.passes = self.sampled = 0
        self.prefill_s = self.mask_s = 0.0

    def decode(self, grammar: Grammar | None, mode: Mode) -> Generation:
        """The whole output."""
        started = perf_counter()
        control = control_for(grammar, self.vocabulary, mode, self.limit if self.budget else None)
        step = control.begin()
        self.mask_s = perf_counter() - started
        self._emit(step, "forced", 0)
        while self.finish is None:
            token, admissible = self._draw(self._pass(), step)
            if token in self.vocabulary.end_ids:
                step = Step((token,), is_done=True)
            else:
                planning = perf_counter()
                step = control.choose(token)
                self.mask_s += perf_counter() - planning
            self._emit(step, "healed" if step.healed else "sampled", admissible)
        self._push(b"", final=True)
        return self._result(grammar, control.mode, perf_counter() - started)

    def _pass(self) -> Float32:
        """The logits after everything emitted so far (float32[V])."""
        if not self.pending:
            raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")
        started = perf_counter()
        # the reference decoder too feeds the forced beginning with the prompt
        parts = [[token] for token in self.pending] if self.drip and self.passes else [self.pending]
        for part in parts:
            logits = self.session.append(part)
        if not self.passes:
            self.prefill_s = perf_counter() - started
        self.passes += len(parts)
        self.pending = []
        return logits

    def _draw(self, logits: Float32, step: Step) -> tuple[int, int]:
        """The next token, and how many were admissible."""
        admissible = self.vocabulary.size
        raw = logits if step.limit is None else logits.copy()
        if step.mask is not None:
            started = perf_counter()
            apply_bitmask(logits, step.mask)
            admissible = count_bits(step.mask)
            self.mask_s += perf_counter() - started
        self.sampled += 1
        if step.limit is None:
            return self.sampling.draw(logits, len(self.tokens)), admissible
        return self._draw_within(raw, logits, step.limit, admissible)

    def _draw_within(self, raw: Float32, masked: Float32, limit: Limit, admissible: int) -> tuple[int, int]:
        """The token drawn as without a limit if it is `limit.admits` it, else one of those that are."""
        token = self.sampling.draw(masked, len(self.tokens))
        if limit.admits(token):
            return token, admissible
        self.shaped = True
        admissible = count_bits(limit.mask)
        apply_bitmask(raw, limit.mask)
        for _ in range(MAX_REDRAWS):
            token = self.sampling.draw(raw, len(self.tokens))
            if limit.admits(token):
                return token, admissible
            raw[token] = -np.inf
        apply_bitmask(raw, limit.certain)
        return self.sampling.draw(raw, len(self.tokens)), admissible

    def _emit(self, step: Step, first: Kind, admissible: int) -> None:
        """Emit the tokens of `step`, the first of them as `first`, up to the limit or a stop string."""
        for number, token in enumerate(step.tokens):
            if len(self.tokens) == self.limit:
                self.finish = "length"
                return
            data = self.vocabulary.token_bytes(token) or b""
            emitted = Token(token, data, "forced" if number else first, 0 if number else admissible)
            self.tokens.append(emitted)
            self.pending.append(token)
            if self.on_token is not None:
                self.on_token(emitted)
            self._push(data)
            if self.text.stopped:
                self.finish = "stop"
                return
        if step.is_done:
            self.finish = "length" if self.shaped else "stop"
        elif len(self.tokens) == self.limit:
            self.finish = "length"

    def _push(self, data: bytes, *, final: bool = False) -> None:
        """Pass `data` on as text."""
        piece = self.text.push(data, final=final)
        if piece and self.stream is not None:
            self.stream(piece)

    def _data(self) -> bytes:
        return b"".join(token.data for token in self.tokens)

    def _result(self, grammar: Grammar | None, mode: Mode, total_s: float) -> Generation:
        # by the machine's own definition, not by the kernel that decoded it
        complete = grammar is not None and not self.text.stopped and grammar.accepts(self._data())
        return Generation(
            text=self.text.text,
            value=_parse(self.text.text) if complete and grammar is not None and grammar.kind == "json" else None,
            tokens=tuple(self.tokens),
            finish_reason=self.finish or "stop",
            complete=complete,
            mode=mode,
            seed=self.sampling.seed or 0,
            prompt_tokens=self.num_prompt,
            passes=self.passes,
            sampled=self.sampled,
            forced=len(self.tokens) - self.sampled,
            prefill_s=self.prefill_s,
            decode_s=max(0.0, total_s - self.prefill_s),
            mask_s=self.mask_s,
        )


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # JSON, yet past what Python reads: an integer of more than 4,300 digits
        return None


def _check_limit(max_tokens: int) -> None:
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise InvalidOption(f"max_tokens: expected an integer from 1, got {max_tokens!r}")
