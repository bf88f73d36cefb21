"""`Matcher`: one output under one grammar. Give it each token; ask it which may come next.

::

    matcher = Matcher(grammar, vocabulary)
    while not matcher.is_finished:
        for token in matcher.forced():              # no model pass needed
            matcher.accept(token)
        token = sample(logits, matcher.bitmask())
        matcher.accept(token)

**Threads.** A matcher belongs to one thread at a time. Matchers of the same grammar and vocabulary share one kernel,
which locks itself, so different matchers may be used from different threads at once.

**Memory.** The text and its tokens (8 bytes each), and for `rollback` a packed configuration (12 bytes and 4 for each
open value) for each of at most `max_rollback` accepts.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.forced import TRIM_PENDING, UNKNOWN_TOKEN, Plan, Planner, Policy, Tail
from stcon.constraint.sharing import kernel_for, machine_of
from stcon.errors import DecodingError, InvalidOption
from stcon.grammar.history import EMPTY, History

if TYPE_CHECKING:
    from stcon.constraint.limited import Limiter
    from stcon.grammar.grammar import Grammar
    from stcon.grammar.machine import Machine
    from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]

MAX_ROLLBACK = 8_192
MAX_FORCED_BYTES = 65_536


class _Moment(NamedTuple):
    """What `rollback` restores."""

    config: bytes
    history: History
    num_bytes: int
    num_tokens: int
    tail_byte: int
    tail_token: int
    is_finished: bool


class Matcher:
    """The control of one output: a configuration, the text so far, and a way back.

    Args:
        grammar: a `Grammar` or a `Machine`.
        vocabulary: the model's.
        policy: which forced text `forced` and `plan` commit (`stcon.constraint.forced.Planner`).
        max_rollback: how many accepts `rollback` can take back.

    Raises:
        InvalidOption: `grammar` is neither, no such policy, or `max_rollback` is negative.
    """

    def __init__(
        self,
        grammar: Grammar | Machine,
        vocabulary: Vocabulary,
        *,
        policy: Policy = "canonical",
        max_rollback: int = MAX_ROLLBACK,
    ) -> None:
        if max_rollback < 0:
            raise InvalidOption(f"max_rollback is 0 or more, not {max_rollback}")
        self.grammar = grammar
        self.vocabulary = vocabulary
        self._policy = policy
        self._take_machine(machine_of(grammar))
        self._config = self._kernel.machine.initial().pack()
        self._history = EMPTY
        self._text = bytearray()
        self._tokens = array("i")
        self._sizes = array("i")
        self._tail_byte = 0
        self._tail_token = 0
        self._is_finished = False
        self._past: deque[_Moment] = deque(maxlen=max_rollback)

    # ------------------------------------------------------------------------------------------------- state

    @property
    def text(self) -> bytes:
        """The bytes accepted so far."""
        return bytes(self._text)

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is one that the grammar accepts."""
        return self._kernel.accepts(self._config)

    @property
    def is_finished(self) -> bool:
        """Whether an end token was accepted; nothing follows it."""
        return self._is_finished

    @property
    def can_continue(self) -> bool:
        """Whether some byte may follow."""
        return not self._is_finished and self._histories.can_continue(self._config, self._history)

    @property
    def config(self) -> Int32:
        """int32[67]: a copy of the configuration, packed as `Configuration.pack` does."""
        return self._config.copy()

    @property
    def history(self) -> History:
        """What is remembered of open collections."""
        return self._history

    # ------------------------------------------------------------------------------------------------- next

    def bitmask(self, out: Int32 | None = None, *, min_bytes: int = 0, remaining: int | None = None) -> Int32:
        """The tokens that may come next: bit ``t % 32`` of word ``t // 32`` for token t.

        Args:
            out: int32[W] to write to; None: a new array.
            min_bytes: leave out shorter tokens (a plan's cover); end tokens stay.
            remaining: tokens that may still be accepted, this one counted; leave out those after which no completion
                fits (``docs/budgets.md``). All are left out if ``need()`` is more than that, or if the text must go on
                to items or names that may not repeat, and no completion was found that fits.

        Returns:
            `out`; all zero once finished.

        Raises:
            InvalidOption: `out` has another type or size.
        """
        if out is None:
            out = np.empty(self.vocabulary.num_words, np.int32)
        self._check_mask(out)
        if self._is_finished:
            out[:] = 0
            return out
        self._histories.mask(self._config, self._history, out)
        if remaining is not None:
            self._limiter().restrict(self._config, self._history, remaining, out)
        if min_bytes > 1:
            out &= self._planner.segmenter.at_least(min_bytes)
        return out

    def need(self) -> int | None:
        """Fewest tokens that complete the text, an end token not counted; None if no tokens do.

        Where items or names may not repeat, it may be too small by what it takes to make them differ.

        Raises:
            TooLarge: the grammar is too large for this to be known.
        """
        return 0 if self._is_finished else self._limiter().budget.need(self._config)

    def forced_bytes(self, limit: int = MAX_FORCED_BYTES) -> bytes:
        """The bytes that must follow (at most `limit`), while only one may and the text is not complete."""
        return b"" if self._is_finished else self._histories.forced(self._config, self._history, max(0, limit))

    def forced(self) -> list[int]:
        """The tokens that the policy commits now without asking the model; [] if there are none.

        They are not accepted yet. After accepting them all, `forced` is empty, and `bitmask` with ``min_bytes`` of
        `plan`'s cover admits at least two tokens, or only an end token.
        """
        return [] if self._is_finished else self.plan().tokens

    def plan(self) -> Plan:
        """The plan from here: the forced tokens, and mask, cover and configuration after them. Accepts nothing.

        The last token accepted is taken for fed to the model, and is never replaced; a loop that wants healing keeps
        a `Planner` itself.

        Raises:
            DecodingError: finished already, or no token is admissible.
        """
        if self._is_finished:
            raise DecodingError("the output is finished: an end token was accepted")
        return self._planner.plan(self._config, self._tail(), history=self._history)

    # ------------------------------------------------------------------------------------------------- moves

    def accept(self, token_id: int) -> bool:
        """Take `token_id` as the next token.

        Returns:
            False, and nothing is changed, if it is not admissible here: other bytes than may follow, an item or name
            that repeats an earlier one where none may, an end token before the text is complete, a token without
            bytes, no token at all, or after the end.
        """
        if self._is_finished or not 0 <= token_id < self.vocabulary.size:
            return False
        moment = self._moment()
        if token_id in self.vocabulary.end_ids:
            if not self.is_complete:
                return False
            self._is_finished = True
        else:
            data = self.vocabulary.token_bytes(token_id)
            after = None if data is None else self._histories.advance(self._config, self._history, data)
            if data is None or after is None:
                return False
            self._history = after
            self._append(token_id, data)
        self._past.append(moment)
        return True

    def accept_bytes(self, data: bytes) -> bool:
        """Take `data` as the next text, its split into tokens unknown; one step for `rollback`.

        Returns:
            False, and nothing is changed, if it may not follow.
        """
        if self._is_finished:
            return False
        moment = self._moment()
        after = self._histories.advance(self._config, self._history, data)
        if after is None:
            return False
        self._history = after
        if data:
            self._append(UNKNOWN_TOKEN, data)
        self._past.append(moment)
        return True

    def rollback(self, n: int = 1) -> None:
        """Take the last `n` accepts back (tokens, end tokens and calls of `accept_bytes` alike).

        Raises:
            InvalidOption: fewer can be taken back; nothing is changed.
        """
        if not 0 <= n <= len(self._past):
            raise InvalidOption(f"cannot take back {n} accepts: {len(self._past)} are kept")
        if n == 0:
            return
        for _ in range(n):
            moment = self._past.pop()
        self._config[:] = 0
        used = np.frombuffer(moment.config, np.int32)
        self._config[: len(used)] = used
        self._history = moment.history
        self._forget(moment.num_bytes, moment.num_tokens, moment.tail_byte, moment.tail_token)
        self._is_finished = moment.is_finished

    def reset(self) -> None:
        """Back to the beginning; the way back is forgotten."""
        machine = machine_of(self.grammar)
        if machine is not self._kernel.machine:  # the old one had grown large (`Grammar.machine`)
            self._take_machine(machine)
        self._config = self._kernel.machine.initial().pack()
        self._history = EMPTY
        self._forget(0, 0, 0, 0)
        self._is_finished = False
        self._past.clear()

    def fork(self) -> Matcher:
        """An independent matcher in the same place, with the same way back.

        Cost: a copy of the configuration, the text and the list of moments (which are shared); no kernel work.
        """
        other = object.__new__(Matcher)
        other.__dict__.update(self.__dict__)
        other._config = self._config.copy()
        other._text = self._text.copy()
        other._tokens = self._tokens[:]
        other._sizes = self._sizes[:]
        other._past = self._past.copy()
        return other

    # ------------------------------------------------------------------------------------------------- inside

    def _take_machine(self, machine: Machine) -> None:
        self._kernel = kernel_for(machine, self.vocabulary)
        self._planner = Planner(self.vocabulary, self._kernel, policy=self._policy, heal=False)
        self._histories = self._planner.histories
        self._limits: Limiter | None = None

    def _limiter(self) -> Limiter:
        """What keeps limits; made when first asked for."""
        if self._limits is None:
            from stcon.constraint.limited import Limiter, budget_for

            self._limits = Limiter(budget_for(self._kernel), self._histories)
        return self._limits

    def _moment(self) -> _Moment:
        used = self._config[: 3 + int(self._config[1])].tobytes()
        places = (len(self._text), len(self._tokens), self._tail_byte, self._tail_token)
        return _Moment(used, self._history, *places, self._is_finished)

    def _tail(self) -> Tail:
        first = self._tail_token
        return Tail(bytes(self._text[self._tail_byte :]), tuple(self._tokens[first:]), tuple(self._sizes[first:]))

    def _append(self, token: int, data: bytes) -> None:
        self._text += data
        self._tokens.append(token)
        self._sizes.append(len(data))
        if len(self._text) - self._tail_byte > TRIM_PENDING:
            tail = self._planner.trimmed(self._tail())
            self._tail_byte = len(self._text) - len(tail.data)
            self._tail_token = len(self._tokens) - len(tail.tokens)

    def _forget(self, num_bytes: int, num_tokens: int, tail_byte: int, tail_token: int) -> None:
        """Cut the text back to `num_bytes` and `num_tokens`, its tail beginning where it did then."""
        del self._text[num_bytes:]
        del self._tokens[num_tokens:]
        del self._sizes[num_tokens:]
        self._tail_byte = tail_byte
        self._tail_token = tail_token

    def _check_mask(self, out: Int32) -> None:
        shape = (self.vocabulary.num_words,)
        if out.dtype != np.int32 or out.shape != shape or not out.flags.c_contiguous or not out.flags.writeable:
            raise InvalidOption(
                f"a mask is a writable, contiguous int32 array of shape {shape}, not {out.dtype} of shape {out.shape}"
            )
