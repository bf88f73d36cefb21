"""One output in the making, without the model: what to feed next, and what the logits after it mean.

The one step that both loops share, of a single stream (`stcon.engine.loop`) and of many (`stcon.engine.batch`)::

    output.begin()                            # the grammar's forced beginning, φ(c0)
    while output.finish is None:
        logits = model(output.pending)        # the prompt at first; then what `take` emitted
        output.pending.clear()
        output.take(logits)                   # draw one token, emit it and what it implies

``max_tokens`` counts every token that is emitted, sampled or forced, an end token included. With a grammar the output
is complete when the limit is reached (``docs/budgets.md``): a token drawn as without a limit is taken if a completion
fits behind it, else another is drawn from those of which that is true.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from stcon.engine.adjust import Adjustment
from stcon.engine.control import Control, Limit, Mode, Step, control_for
from stcon.engine.sampling import Float32, Sampling, apply_bitmask, count_bits
from stcon.engine.stream import Kind, TextStream, Token
from stcon.engine.thinking import Thinking, ThinkingControl, fewest_tokens
from stcon.errors import InvalidOption, PromptTooLong

if TYPE_CHECKING:
    from stcon.engine.parallel.report import Report
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model
    from stcon.vocab.vocabulary import Vocabulary

Finish: TypeAlias = Literal["stop", "length", "guard", "cancelled"]

MAX_REDRAWS = 16


class Logprobs(NamedTuple):
    """How likely a token was to the model, before mask, penalties and temperature.

    Attributes:
        logprob: natural logarithm of the token's probability.
        top: the most likely tokens with theirs, most likely first.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


class Option(NamedTuple):
    """A text that a field could have been (in JSON, its value), and the logarithm of its probability."""

    text: str
    logprob: float


class Decision(NamedTuple):
    """A field that was decided as a whole (`stcon.engine.parallel.regions`).

    Attributes:
        at: tokens of the output before it.
        options: all texts it could have been, the most probable first: that one was taken.
    """

    at: int
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Generation:
    """An output and what it took.

    Attributes:
        text: the output; never contains a stop string.
        value: the parsed output if the grammar is one of JSON and the output is complete, else None.
        tokens: every emitted token in order, an end token included.
        finish_reason: ``"stop"``: an end token, a stop string, or nothing can follow; ``"length"``: the limit was
            reached, or another token than the one drawn had to be taken for its sake; in a batch also ``"guard"``: cut
            by a loop guard, and ``"cancelled"``.
        complete: the whole text belongs to the grammar (False without one).
        mode: how it was decoded.
        seed: reproduces it (with the same options); 0 for greedy.
        prompt_tokens: tokens of the prompt.
        passes: calls of the model, the prompt's included.
        sampled: tokens drawn from logits; those that healing replaced count here.
        forced: tokens written without asking the model; ``sampled + forced == len(tokens)``.
        prefill_s, decode_s, mask_s: seconds in the prompt pass; in everything else; and, as part of the total, in
            the constraint (plans and masks).
        parallel: how it came about, if fields were decoded in parallel (`stcon.engine.parallel`).
        decisions: with ``decide="sequence"``, the fields that were decided as wholes.
        logprobs: if asked for, one entry a token; None for a forced token, which was not drawn from logits.
        thinking: the text before the answer, without its mark; None where the output did not think. `text`, `value` and
            `complete` are the answer's.
        thinking_tokens: how many of `tokens` are the thinking, its mark and the gap behind it.
        need: fewest tokens that the whole output could have taken (where items or names may not repeat, not more than
            that); None where no limit was kept.
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
    logprobs: tuple[Logprobs | None, ...] | None = None
    parallel: Report | None = None
    decisions: tuple[Decision, ...] | None = None
    thinking: str | None = None
    thinking_tokens: int = 0
    need: int | None = None

    @property
    def forced_share(self) -> float:
        """Forced tokens among the emitted."""
        return self.forced / max(len(self.tokens), 1)

    @property
    def passes_per_token(self) -> float:
        """Passes an emitted token."""
        return self.passes / max(len(self.tokens), 1)


class Output:
    """The output of one stream.

    Args:
        model: gives vocabulary and context length; is not asked for anything.
        prompt_ids: the prompt.
        grammar: what the output must be; None decodes freely.
        max_tokens: most tokens to emit, at least 1; less where the context ends before.
        mode: see `stcon.engine.control.Mode`.
        sampling: how tokens are drawn; None is greedy.
        stop: strings that end the output where they appear.
        budget: with a grammar, the output is complete when the limit is reached.
        on_token: called with each emitted token, before the text it completes.
        stream: called with each piece of text; never inside a character.
        logprobs: how many alternatives to report with each drawn token (0: the token's own); None: none.
        adjustment: added to the logits.
        control: decides instead of `grammar` and `mode` (another engine's, to be compared with).
        thinking: the output thinks first, and `grammar`, `stop` and `text` are the answer's alone.
        on_thought: called with each piece of the thinking's text.

    Attributes:
        pending: emitted (or prompt) tokens that were not fed yet; whoever feeds them takes them out.
        finish: why it ended; None while it goes on.
        tokens: everything emitted.
        parallel, decisions: what a loop over several rows says of how it came about (see `Generation`).

    Raises:
        PromptTooLong: prompt and one token do not fit the context.
        InvalidOption: an option is out of its range.
        TooLarge: with `budget`, the grammar is too large for a limit to be kept.
    """

    def __init__(
        self,
        model: Model,
        prompt_ids: Sequence[int],
        grammar: Grammar | None = None,
        *,
        max_tokens: int = 256,
        mode: Mode = "canonical",
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        budget: bool = False,
        on_token: Callable[[Token], None] | None = None,
        stream: Callable[[str], None] | None = None,
        logprobs: int | None = None,
        adjustment: Adjustment | None = None,
        control: Control | None = None,
        thinking: Thinking | None = None,
        on_thought: Callable[[str], None] | None = None,
    ) -> None:
        check_limit(max_tokens)
        room = model.context_length - len(prompt_ids)
        if room < 1:
            raise PromptTooLong(len(prompt_ids), model.context_length - 1)
        self.vocabulary: Vocabulary = model.vocabulary
        self.grammar = grammar
        self.limit = min(max_tokens, room)
        self.num_prompt = len(prompt_ids)
        self.pending = list(prompt_ids)
        self.sampling = (sampling or Sampling()).seeded()
        self.text = TextStream(stop)
        self.tokens: list[Token] = []
        self.finish: Finish | None = None
        self.passes = self.sampled = 0
        self.prefill_s = self.mask_s = 0.0
        self.logprobs: list[Logprobs | None] | None = None if logprobs is None else []
        self.parallel: Report | None = None
        self.decisions: tuple[Decision, ...] | None = None
        self._num_alternatives = logprobs or 0
        self._adjustment = adjustment or Adjustment()
        self._emitted: Counter[int] = Counter()
        self._on_token = on_token
        self._stream = stream
        self._shaped = False
        self._step = Step(())
        self._decided: list[tuple[Step, int]] = []
        self._thoughts: TextStream | None = None
        self._close_id = None if thinking is None else thinking.close_id
        self._on_thought = on_thought
        self._least: int | None = None
        most = self.limit if budget else None
        if thinking is not None:
            self._thoughts = TextStream((thinking.close,))
            self._control: Control = ThinkingControl(thinking, grammar, self.vocabulary, mode, most)
        else:
            self._control = control or control_for(grammar, self.vocabulary, mode, most)

    def begin(self) -> None:
        """Emit the grammar's forced beginning.

        Raises:
            LimitTooSmall: with a budget, no output fits the limit.
        """
        started = perf_counter()
        self._step = self._control.begin()
        self._least = fewest_tokens(self._control)
        self.mask_s += perf_counter() - started
        self._emit(self._step, "forced", 0)

    def take(self, logits: Float32) -> None:
        """Draw a token from `logits` and emit it with what it implies.

        Args:
            logits: float32[V], after everything emitted so far; written to.

        Raises:
            DecodingError: the constraint admits no token, or the logits are not numbers.
        """
        step = self._step
        if step.later is not None:  # a loop that can find it while the model runs does not come here
            self._step = step._replace(mask=step.later(), later=None)
        self._implied(*self._draw(logits))

    def can_take_greedily(self) -> bool:
        """Whether the next token is the argmax of the masked logits and nothing else of them is needed."""
        return self.sampling.greedy and not self._adjustment and self.logprobs is None

    def take_greedy(self, token: int) -> bool:
        """Take `token`, the argmax of the logits under `mask`, drawn elsewhere (`can_take_greedily`).

        Returns:
            False if a limit forbids it: the logits are needed after all (`take`).
        """
        if not self.decide(token):
            return False
        self.emit_decided()
        return True

    def decide(self, token: int) -> bool:
        """The first half of `take_greedy`: `step` becomes what `token` implies, which is emitted later.

        So a loop need not keep its device waiting: it may launch the next step before `emit_decided`.
        """
        limit = self._step.limit
        if limit is not None and not limit.admits(token):
            return False
        self.sampled += 1
        admissible = self._num_admissible()
        self._step = self._following(token)
        self._decided.append((self._step, admissible))
        return True

    def emit_decided(self) -> None:
        """The second half of `take_greedy`: emit what was decided, in its order, up to where the output ends."""
        decided, self._decided = self._decided, []
        for step, admissible in decided:
            if self.finish is None:
                self._emit(step, "healed" if step.healed else "sampled", admissible)

    @property
    def needs_logits(self) -> bool:
        """Whether a token alone is not enough, however it was drawn: `take` is called with every pass's logits."""
        return bool(self._adjustment) or self.logprobs is not None

    @property
    def control(self) -> Control:
        """Decides what follows; whoever wants to look ahead takes a copy."""
        return self._control

    @property
    def step(self) -> Step:
        """What was emitted last, and what may be drawn next."""
        return self._step

    def is_quiet(self, token: int | None) -> bool:
        """Whether the output will likely go on with `token` and nothing else (`Control.is_quiet`)."""
        if token in self.vocabulary.end_ids or len(self.tokens) + 1 >= self.limit:
            return False
        return self._control.is_quiet(token)

    @property
    def mask(self) -> np.ndarray[Any, np.dtype[np.int32]] | None:
        """int32[W]: the tokens that may be drawn next; None for all."""
        return self._step.mask

    @property
    def num_thinking(self) -> int | None:
        """Tokens of the thinking, its mark and the gap included; None while it goes on."""
        return self._control.num_tokens if isinstance(self._control, ThinkingControl) else 0

    def need(self) -> int | None:
        """Fewest tokens that complete the output from here; None where that is not known (no limit is kept)."""
        return None if self.finish is not None else self._control.need()

    def cut(self, why: Finish) -> None:
        """End the output here, for `why`."""
        if self.finish is None:
            self.finish = why
            self.close()

    def close(self) -> None:
        """Release the text held back for a stop string or a character; after the last token."""
        if self._thoughts is not None and self.num_thinking is None:
            self._think(b"", final=True)
        self._push(b"", final=True)

    def result(self, total_s: float) -> Generation:
        """The finished output; `total_s`: seconds since its start."""
        grammar, text = self.grammar, self.text.text
        num_thinking = len(self.tokens) if self.num_thinking is None else min(self.num_thinking, len(self.tokens))
        data = b"".join(token.data for token in self.tokens[num_thinking:])
        # by the machine's own definition, not by the kernel that decoded it
        complete = grammar is not None and not self.text.stopped and grammar.accepts(data)
        complete &= self.num_thinking is not None
        return Generation(
            text=text,
            value=_parse(text) if complete and grammar is not None and grammar.kind == "json" else None,
            tokens=tuple(self.tokens),
            finish_reason=self.finish or "stop",
            complete=complete,
            mode=self._control.mode,
            seed=self.sampling.seed or 0,
            prompt_tokens=self.num_prompt,
            passes=self.passes,
            sampled=self.sampled,
            forced=len(self.tokens) - self.sampled,
            prefill_s=self.prefill_s,
            decode_s=max(0.0, total_s - self.prefill_s),
            mask_s=self.mask_s,
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            thinking=None if self._thoughts is None else self._thoughts.text,
            thinking_tokens=num_thinking,
            need=self._least,
            parallel=self.parallel,
            decisions=self.decisions,
        )

    # ------------------------------------------------------------------------------------------------- drawing

    def _draw(self, logits: Float32) -> tuple[int, int]:
        """The next token, and how many were admissible."""
        step, model_logits = self._step, logits.copy() if self.logprobs is not None else logits
        if self._adjustment:
            self._adjustment.apply(logits, self._emitted)
        admissible = self.vocabulary.size
        raw = logits if step.limit is None else logits.copy()
        if step.mask is not None:
            started = perf_counter()
            apply_bitmask(logits, step.mask)
            admissible = self._num_admissible()
            self.mask_s += perf_counter() - started
        self.sampled += 1
        token = self.sampling.draw(logits, len(self.tokens))
        if step.limit is not None and not step.limit.admits(token):
            token, admissible = self._draw_within(raw, step.limit)
        if self.logprobs is not None:
            self.logprobs.append(logprobs_of(model_logits, token, self._num_alternatives))
        return token, admissible

    def _num_admissible(self) -> int:
        """Tokens that may be drawn now."""
        step = self._step
        if step.mask is None:
            return self.vocabulary.size
        counted = None if step.place is None else step.place.num_admissible
        return count_bits(step.mask) if counted is None else counted

    def _draw_within(self, raw: Float32, limit: Limit) -> tuple[int, int]:
        """A token that `limit` admits, and how many it may be: the one drawn without it is none."""
        self._shaped = True
        admissible = count_bits(limit.mask)
        apply_bitmask(raw, limit.mask)
        for _ in range(MAX_REDRAWS):
            token = self.sampling.draw(raw, len(self.tokens))
            if limit.admits(token):
                return token, admissible
            raw[token] = -np.inf
        apply_bitmask(raw, limit.certain)
        return self.sampling.draw(raw, len(self.tokens)), admissible

    # ------------------------------------------------------------------------------------------------- emitting

    def _implied(self, token: int, admissible: int) -> None:
        """Emit the drawn `token`, or what takes its place, and what follows."""
        self._step = self._following(token)
        self._emit(self._step, "healed" if self._step.healed else "sampled", admissible)

    def _following(self, token: int) -> Step:
        """What the drawn `token` implies."""
        if token in self.vocabulary.end_ids:
            return Step((token,), is_done=True)
        started = perf_counter()
        step = self._control.choose(token)
        self.mask_s += perf_counter() - started
        return step

    def _emit(self, step: Step, first: Kind, admissible: int) -> None:
        """Emit the tokens of `step`, the first of them as `first`, up to the limit or a stop string."""
        for number, token in enumerate(step.tokens):
            if len(self.tokens) == self.limit:
                self.finish = "length"
                break
            data = self.vocabulary.token_bytes(token) or b""
            self._write(Token(token, data, "forced" if number else first, 0 if number else admissible))
            if self.text.stopped:
                self.finish = "stop"
                break
        else:
            if step.is_done:
                self.finish = "length" if self._is_shaped else "stop"
            elif len(self.tokens) == self.limit:
                self.finish = "length"
        if self.finish is not None:
            self.close()

    def _write(self, token: Token) -> None:
        self.tokens.append(token)
        self.pending.append(token.id)
        if self._adjustment:
            self._emitted[token.id] += 1
        if self.logprobs is not None and len(self.logprobs) < len(self.tokens):
            self.logprobs.append(None)
        if self._on_token is not None:
            self._on_token(token)
        if self._thoughts is not None and not self._answers(len(self.tokens)):
            is_mark = token.id == self._close_id
            self._think(token.data, final=is_mark or len(self.tokens) == self.num_thinking)
            self._thoughts.stopped |= is_mark
        else:
            self._push(token.data)

    def _answers(self, number: int) -> bool:
        """Whether the token of this number, from 1, is the answer's."""
        return self.num_thinking is not None and number > self.num_thinking

    @property
    def _is_shaped(self) -> bool:
        """Whether the limit made the output another one than it would have been."""
        return self._shaped or (isinstance(self._control, ThinkingControl) and self._control.is_cut)

    def _think(self, data: bytes, *, final: bool = False) -> None:
        """Pass `data` on as text of the thinking."""
        assert self._thoughts is not None, "only an output that thinks"
        piece = self._thoughts.push(data, final=final)
        if piece and self._on_thought is not None:
            self._on_thought(piece)

    def _push(self, data: bytes, *, final: bool = False) -> None:
        """Pass `data` on as text."""
        piece = self.text.push(data, final=final)
        if piece and self._stream is not None:
            self._stream(piece)


def logprobs_of(logits: Float32, token: int, num_alternatives: int) -> Logprobs:
    """The log-probability of `token` under ``softmax(logits)``, and the most likely tokens'.

    Args:
        logits: float32[V].

    Cost: O(V).
    """
    wide = logits.astype(np.float64)
    top = float(wide.max())
    total = top + float(np.log(np.exp(wide - top).sum()))
    best = np.argpartition(wide, -num_alternatives)[-num_alternatives:] if num_alternatives else np.empty(0, np.int64)
    ranked = sorted(best.tolist(), key=lambda i: (-wide[i], i))
    return Logprobs(float(wide[token]) - total, tuple((i, float(wide[i]) - total) for i in ranked))


def check_limit(max_tokens: object) -> None:
    """Raise `InvalidOption` unless `max_tokens` is an integer from 1."""
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise InvalidOption(f"max_tokens: expected an integer from 1, got {max_tokens!r}")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # JSON, yet past what Python reads: an integer of more than 4,300 digits
        return None
