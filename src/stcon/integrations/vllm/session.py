"""`Session`: one output under one grammar, for an engine that keeps the loop and drafts, verifies and takes back.

The engine asks for masks and says which tokens it took. A session answers with the plans of our own engine
(`stcon.constraint.forced`, `stcon.constraint.limited`), one token at a time:

- **forced tokens**: while a plan's forced tokens last, the mask has the next of them alone. So the output is the same
  whether they are drafted (`Session.drafts`) or drawn one by one, and a drafted one is accepted at any temperature.
- **draws**: the plan's mask, without the tokens after which no completion is known within the limit.
- **ends**: the engine stops at tokens of its own (`Stops`). They may come exactly where the text is complete; other
  end tokens of the vocabulary never. Where nothing else may follow, the first of them is certain too.

Taking back is exact and free: a session keeps the last places it was in, and each knows the one that was reached from
it last, so that what was computed for a draft is not computed again when the draft is accepted.

Source: the paper's Sections C.3 to C.5; Theorems 19 and 21. Healing is left out, as engines show tokens at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import thread_time
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.budget import bits, budget_for
from stcon.constraint.forced import Plan, Planner
from stcon.constraint.limited import MAX_VERIFIED, LimitedPlan, LimitedPlanner
from stcon.constraint.sharing import kernel_for, machine_of
from stcon.errors import DecodingError, InvalidOption, StconError

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

Int32 = NDArray[np.int32]
SessionMode: TypeAlias = Literal["mask", "any", "canonical"]

_POLICY: dict[str, Literal["none", "any", "canonical"]] = {"mask": "none", "any": "any", "canonical": "canonical"}
MAX_SECONDS = 30.0


class Stops:
    """The tokens at which the engine ends an output.

    Args:
        vocabulary: the model's.
        ids: all of them, the model's own end token first.

    Raises:
        InvalidOption: there are none, one is no token, or one stands for text, so that it would cut outputs short.
    """

    def __init__(self, vocabulary: Vocabulary, ids: Iterable[int]) -> None:
        self.ids = tuple(dict.fromkeys(ids))
        if not self.ids:
            raise InvalidOption("the model has no end token; name one in its generation_config.json (eos_token_id)")
        for token in self.ids:
            if not 0 <= token < vocabulary.size:
                raise InvalidOption(f"stop_token_ids: {token} is no token of the model")
            if (data := vocabulary.token_bytes(token)) is not None:
                raise InvalidOption(
                    f"stop_token_ids: token {token} is the text {data!r}, which would end an output before it is "
                    "complete; leave it out, constrained outputs end by themselves"
                )
        self.words = bits(vocabulary.num_words, self.ids)
        self.first = bits(vocabulary.num_words, self.ids[:1])
        self.not_text = self.words | bits(vocabulary.num_words, vocabulary.end_ids)


@dataclass(eq=False)
class _Place:
    """Where an output stands: `index` of the plan's forced tokens have come."""

    plan: Plan
    forced: tuple[int, ...]
    limited: LimitedPlan | None
    index: int = 0
    is_finished: bool = False
    mask: Int32 | None = None
    after: tuple[int, _Place] | None = field(default=None, repr=False)

    @property
    def next_forced(self) -> int | None:
        """The forced token that comes next."""
        return self.forced[self.index] if self.index < len(self.forced) else None


class Session:
    """One output. Belongs to one thread at a time.

    Args:
        grammar: what the output must be.
        vocabulary: the model's.
        stops: the engine's end tokens.
        mode: ``"mask"``: the model is asked for every token; ``"any"``, ``"canonical"``: forced text is written, in
            longest tokens or as the tokenizer splits it.
        limit: tokens the output may have, its end token counted; it is complete within them. None: it may be cut.
        max_rollback: accepts that can be taken back.
        max_seconds: of a processor's work on masks and plans, after which the output ends with an error.

    Attributes:
        error: why the last token was refused, where it was not just another than may come.
        limit: as given, or as `restart` changed it.
        num_accepted: tokens accepted and not taken back.

    Raises:
        LimitTooSmall: no text of the grammar fits `limit`.
        TooLarge: the grammar is too large for a limit to be kept.
        DecodingError: no tokens spell a text of the grammar.
    """

    def __init__(
        self,
        grammar: Grammar,
        vocabulary: Vocabulary,
        stops: Stops,
        *,
        mode: SessionMode = "canonical",
        limit: int | None = None,
        max_rollback: int = 256,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self.vocabulary = vocabulary
        self.stops = stops
        self.error: StconError | None = None
        self._kernel = kernel_for(machine_of(grammar), vocabulary)
        self._planner = Planner(vocabulary, self._kernel, policy=_POLICY[mode], heal=False)
        self._seconds_left = max_seconds
        self._places: deque[_Place] = deque(maxlen=max_rollback + 1)
        self._limits: LimitedPlanner | None = None
        self.restart(limit)

    # ------------------------------------------------------------------------------------------------- state

    @property
    def is_finished(self) -> bool:
        """Whether an end token was accepted."""
        return self._places[-1].is_finished

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is one of the grammar's."""
        return self._is_complete(self._places[-1])

    def restart(self, limit: int | None) -> None:
        """Back to the beginning, under another limit; raises what the constructor does, and changes nothing then."""
        if limit is None:
            plan = self._planner.start()
            place = _Place(plan, tuple(plan.tokens), None)
        else:
            if self._limits is None:
                self._limits = LimitedPlanner(self._planner, budget_for(self._kernel))
            limited = self._limits.start(limit)
            place = _Place(limited.plan, limited.tokens, limited)
        self._places.clear()
        self._places.append(place)
        self.limit = limit
        self.num_accepted = 0

    # ------------------------------------------------------------------------------------------------- next

    def fill(self, out: Int32) -> None:
        """Write the tokens that may come next to `out` (int32, at least W words; those past W become zero).

        Where nothing may come (an error, or nothing is left of the limit), it has the end tokens, which `accept` then
        refuses unless the text is complete: no engine is given a mask without a token.
        """
        words = self.vocabulary.num_words
        try:
            out[:words] = self._mask(self._places[-1])
        except StconError:  # told when the token comes
            out[:words] = self.stops.words
        out[words:] = 0

    def drafts(self, count: int) -> list[int]:
        """At most `count` tokens of text that are certain to come next.

        An end that is certain is not among them: the step that verifies the rest draws it anyway.
        """
        found: list[int] = []
        place: _Place | None = self._places[-1]
        try:
            while place is not None and len(found) < count:
                token = place.next_forced
                if token is None:
                    token = _only(self._mask(place))
                if token is None or token in self.stops.ids:
                    break
                found.append(token)
                place = self._after(place, token)
        except StconError:  # met again, and told, when the output gets there
            pass
        return found

    def validate(self, tokens: Sequence[int]) -> list[int]:
        """The longest prefix of `tokens` that may come next. Accepts nothing."""
        place = self._places[-1]
        for count, token in enumerate(tokens):
            try:
                after = self._after(place, token)
            except StconError:
                after = None
            if after is None:
                return list(tokens[:count])
            place = after
        return list(tokens)

    # ------------------------------------------------------------------------------------------------- moves

    def accept(self, token: int) -> bool:
        """Take `token` as the next; False, and nothing is changed, if it may not come (`error` may say why)."""
        self.error = None
        try:
            after = self._after(self._places[-1], token)
        except StconError as error:
            self.error = error
            return False
        if after is None:
            return False
        self._places.append(after)
        self.num_accepted += 1
        return True

    def rollback(self, count: int) -> None:
        """Take the last `count` accepts back.

        Raises:
            InvalidOption: fewer are kept; nothing is changed.
        """
        if not 0 <= count < len(self._places):
            raise InvalidOption(f"cannot take back {count} tokens: {len(self._places) - 1} are kept")
        for _ in range(count):
            self._places.pop()
        self.num_accepted -= count

    # ------------------------------------------------------------------------------------------------- inside

    def _after(self, place: _Place, token: int) -> _Place | None:
        """The place after `token`, or None if it may not come."""
        if place.is_finished:
            return None
        if place.after is None or place.after[0] != token:
            after = self._step(place, token)
            if after is None:
                return None
            place.after = token, after
        return place.after[1]

    def _step(self, place: _Place, token: int) -> _Place | None:
        plan, forced, limited = place.plan, place.forced, place.limited
        if place.next_forced is not None:
            return _Place(plan, forced, limited, place.index + 1) if token == place.next_forced else None
        mask = self._mask(place)
        if token in self.stops.ids:
            return _Place(plan, forced, limited, place.index, is_finished=True) if self._is_complete(place) else None
        if not 0 <= token < self.vocabulary.size or not mask[token >> 5] >> (token & 31) & 1:
            return None
        started = thread_time()
        try:
            if limited is None or self._limits is None:
                plan = self._planner.step(plan, token)
                return _Place(plan, tuple(plan.tokens), None)
            limited = self._limits.step(limited, token)
            return _Place(limited.plan, limited.tokens[1:], limited)
        finally:
            self._seconds_left -= thread_time() - started

    def _is_complete(self, place: _Place) -> bool:
        return place.next_forced is None and self._kernel.accepts(place.plan.config)

    def _mask(self, place: _Place) -> Int32:
        """int32[W]: the tokens that may come at `place`; at least one."""
        if place.mask is None:
            if self._seconds_left < 0:
                raise DecodingError(
                    "the grammar's masks took too long for a server that others use; simplify it (fewer alternatives "
                    "and optional names, key_order='schema')"
                )
            started = thread_time()
            place.mask = self._draws(place)
            self._seconds_left -= thread_time() - started
        return place.mask

    def _draws(self, place: _Place) -> Int32:
        forced = place.next_forced
        if forced is not None:
            return _single(self.vocabulary.num_words, forced)
        text = self._within(place) & ~self.stops.not_text
        if self._is_complete(place):
            return text | self.stops.words if text.any() else self.stops.first
        if not text.any():
            raise DecodingError(
                "no token is admissible: what the grammar allows here has no token, or is nested too deeply"
            )
        return text

    def _within(self, place: _Place) -> Int32:
        """The plan's mask without the tokens after which no completion within the limit is known."""
        limited = place.limited
        if limited is None or limited.within is None or self._limits is None:
            return place.plan.mask
        if limited.witness is None:
            return limited.within
        tokens = np.flatnonzero(np.unpackbits(limited.within.view(np.uint8), bitorder="little"))
        stride = -(-len(tokens) // MAX_VERIFIED) or 1
        kept = [token for token in tokens[::stride].tolist() if self._limits.admits(limited, token)]
        return bits(self.vocabulary.num_words, [*kept, *limited.witness[:1]])


def _single(num_words: int, token: int) -> Int32:
    """int32[W]: a mask of one token."""
    words = np.zeros(num_words, np.uint32)
    words[token >> 5] = 1 << (token & 31)
    return words.view(np.int32)


def _only(mask: Int32) -> int | None:
    """The token of a mask that has just one."""
    words = np.flatnonzero(mask)
    if len(words) != 1:
        return None
    word = int(mask[words[0]]) & 0xFFFFFFFF
    return None if word & (word - 1) else 32 * int(words[0]) + word.bit_length() - 1
