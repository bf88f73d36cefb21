"""Thinking before an answer: free text up to a mark, in at most so many tokens, then the answer.

::

    OUTPUT = TEXT "</think>" GAP ANSWER          (TEXT does not contain the mark)

The prompt ends where TEXT begins. The answer's own control starts at a token boundary behind the gap, so an answer is
decoded the same with and without thinking, whatever its grammar. The mark is read however it is spelled: as one added
token, with bytes or without (a special token), or as text over several.

**In time.** The mark is forced, from wherever the text stands (inside a character, or inside the mark), when the
thinking has its tokens, or when, with a limit kept, one more could leave too few for the mark and a shortest answer.

Source: the paper's Definition 8 and Theorem 21, for the two parts one after another.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from stcon.constraint.budget import bits
from stcon.engine.control import POLICY, Control, LimitedControl, Mode, Step, control_for
from stcon.errors import InvalidOption, LimitTooSmall
from stcon.grammar.machine import Machine

if TYPE_CHECKING:
    from stcon.constraint.forced import Plan, Planner
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class Thinking:
    """How an output thinks.

    Args:
        close: the mark that ends it.
        gap: what stands between the mark and the answer; may be empty.
        max_tokens: of its text, the mark and the gap not counted; None: all that leave room for the answer.
        close_id: a token without bytes that stands for the mark, or None.

    Raises:
        InvalidOption: no mark, or `max_tokens` is negative.
    """

    close: str = "</think>"
    gap: str = "\n\n"
    max_tokens: int | None = None
    close_id: int | None = None

    def __post_init__(self) -> None:
        if not self.close:
            raise InvalidOption("thinking: the mark that ends it must not be empty")
        most = self.max_tokens
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise InvalidOption(f"thinking: max_tokens: expected an integer from 0, got {most!r}")


class ThinkingControl:
    """The control of an output that thinks first.

    Args:
        thinking: how.
        grammar: of the answer; None: free text.
        vocabulary: the model's.
        mode: how the answer is decoded, and the gap with it.
        limit: tokens of the whole output, within which the answer is complete; None: it may be cut.

    Attributes:
        num_tokens: of the thinking, mark and gap included; None while it goes on.
        is_cut: the mark was forced for the limit's sake.
        least: fewest tokens of the whole output; None where no limit is kept.
    """

    def __init__(
        self, thinking: Thinking, grammar: Grammar | None, vocabulary: Vocabulary, mode: Mode, limit: int | None
    ) -> None:
        self.thinking = thinking
        self.num_tokens: int | None = None
        self.is_cut = False
        self.least: int | None = None
        self._mode: Mode = mode
        self._limit = limit if grammar is not None and mode != "free" else None
        self._answer: Callable[[int | None], Control] = lambda left: control_for(grammar, vocabulary, mode, left)
        self._closings = _closings(thinking.close, thinking.gap, thinking.close_id, vocabulary)
        self._planner = self._closings.planner("canonical" if mode == "free" else mode)
        self._plan: Plan | None = None
        self._inner: Control | None = None
        self._least_answer = 0
        self._used = 0
        self._vocabulary = vocabulary

    def __copy__(self) -> ThinkingControl:
        """One that goes on by itself: the answer's control is copied too."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _inner=copy.copy(self._inner))
        return other

    @property
    def mode(self) -> Mode:
        """How the answer is decoded."""
        return self._mode if self._inner is None else self._inner.mode

    @property
    def answer(self) -> Control | None:
        """The control of the answer; None while it thinks."""
        return self._inner

    def begin(self) -> Step:
        """Nothing, or the mark and the answer's beginning where there is no room to think.

        Raises:
            LimitTooSmall: the mark and a shortest answer do not fit the limit.
        """
        plan = self._plan = self._planner.start()
        closing = self._closings.tokens(int(plan.config[0]))
        if self._limit is not None:
            fewest = self._closings.fewest(int(plan.config[0]))
            self._least_answer = self._answer_needs(self._limit, len(fewest))
            self.least = len(fewest) + self._least_answer
            if len(closing) + self._least_answer > self._limit:  # the tokenizer's split of the mark does not fit
                closing = fewest
        if self._must_close():
            return self._close((), closing, healed=False)
        return self._thought((), plan)

    def choose(self, token: int) -> Step:
        """The token and what follows it: of the thinking, or of the answer behind it."""
        if self._inner is not None:
            return self._inner.choose(token)
        assert self._plan is not None, "begin comes first"
        if token == self.thinking.close_id:
            self._used += 1
            return self._close((token,), self._closings.gap, healed=False)
        before = self._plan
        plan = self._planner.step(before, token)
        tokens = tuple(plan.tokens) if plan.replace_last else (token, *plan.tokens)
        if self._overruns(len(tokens), plan):  # the tokenizer's split of the gap is longer than it need be
            plan, tokens = self._closings.plain.step(before, token), (token,)
        self._plan = plan
        self._used += len(tokens)
        if plan.is_done:
            return self._close(tokens, (), healed=plan.replace_last)
        if self._must_close():
            return self._close(tokens, self._closings.tokens(int(plan.config[0])), healed=plan.replace_last)
        return self._thought(tokens, plan)

    def need(self) -> int | None:
        """Fewest tokens that complete the output from here; None where no limit is kept."""
        if self._inner is not None:
            return self._inner.need()
        if self._limit is None or self._plan is None:
            return None
        return len(self._closings.fewest(int(self._plan.config[0]))) + self._least_answer

    def is_quiet(self, token: int | None) -> bool:
        """See `Control.is_quiet`; while it thinks, not known."""
        return self._inner is not None and self._inner.is_quiet(token)

    # ------------------------------------------------------------------------------------------------- inside

    def _answer_needs(self, limit: int, closing: int) -> int:
        """Fewest tokens of the answer, if they fit `limit` behind `closing` ones."""
        answer = self._answer(limit)
        assert isinstance(answer, LimitedControl), "a limit is kept"
        try:
            needed = answer.planner.least(limit)
        except LimitTooSmall as error:
            needed = error.needed if error.needed is not None else limit
        if needed + closing > limit:
            raise LimitTooSmall(limit, needed + closing)
        return needed

    def _must_close(self) -> bool:
        """Whether not one more token may be thought."""
        most = self.thinking.max_tokens
        if most is not None and self._used >= most:
            return True
        if self._limit is None:
            return False
        self.is_cut = self._used + 1 + self._closings.most + self._least_answer > self._limit
        return self.is_cut

    def _overruns(self, count: int, plan: Plan) -> bool:
        """Whether `count` more tokens, planned, leave too few for the rest."""
        if self._limit is None:
            return False
        rest = 0 if plan.is_done else len(self._closings.tokens(int(plan.config[0])))
        return self._used + count + rest + self._least_answer > self._limit

    def _thought(self, tokens: tuple[int, ...], plan: Plan) -> Step:
        """The thinking goes on."""
        mask, close_id = plan.mask, self.thinking.close_id
        if close_id is not None and self._closings.is_open(int(plan.config[0])):
            mask = mask | bits(self._vocabulary.num_words, (close_id,))
        return Step(tokens, plan.replace_last, mask)

    def _close(self, tokens: tuple[int, ...], closing: tuple[int, ...], *, healed: bool) -> Step:
        """The thinking ends with `tokens`, which are counted, and `closing`."""
        self._used += len(closing)
        self.num_tokens = self._used
        self._inner = self._answer(None if self._limit is None else self._limit - self._used)
        step = self._inner.begin()
        return step._replace(tokens=(*tokens, *closing, *step.tokens), healed=healed)


def fewest_tokens(control: Control) -> int | None:
    """Fewest tokens of a whole output as far as the machine tells; None where no limit is kept."""
    if isinstance(control, ThinkingControl):
        return control.least
    return control.planner.budget.start if isinstance(control, LimitedControl) else None


class _Closings:
    """The texts of thinking, mark and gap included, as a machine; and the tokens that end one from each state."""

    def __init__(self, close: str, gap: str, close_id: int | None, vocabulary: Vocabulary) -> None:
        from stcon.constraint.sharing import kernel_for

        self.machine = thinking_machine(close, gap)
        self._kernel = kernel_for(self.machine, vocabulary)
        self._vocabulary = vocabulary
        self._mark = (close + gap).encode()
        self._num_gap = len(gap.encode())
        self._endings = _endings(self.machine)
        self.gap = tuple(vocabulary.encode(gap))
        self._close_id = close_id
        self._fewest: dict[int, tuple[int, ...]] = {}
        texts = [ending for ending in self._endings.values() if ending]
        self._pieces = [
            token
            for token in range(vocabulary.size)
            if token == close_id or ((piece := vocabulary.token_bytes(token)) and any(piece in text for text in texts))
        ]
        self._marks = (close_id,) if close_id is not None else _spelled(vocabulary, close)
        self.plain = self.planner("mask")
        states = [state for state, ending in self._endings.items() if ending]
        self.most = max(len(self.tokens(state)) for state in states)

    def planner(self, mode: Mode) -> Planner:
        """Plans of the thinking."""
        from stcon.constraint.forced import Planner

        return Planner(self._vocabulary, self._kernel, policy=POLICY[mode])

    def is_open(self, state: int) -> bool:
        """Whether the text is whole characters, and the mark has not been written."""
        ending = self._endings[state]
        return len(ending) > self._num_gap and not 0x80 <= ending[0] < 0xC0

    def tokens(self, state: int) -> tuple[int, ...]:
        """The tokens that end the thinking from `state`: the rest of a character, of the mark, and the gap."""
        ending = self._endings[state]
        rest = len(ending) - len(self._mark)
        if rest >= 0:
            return (*self._split(ending[:rest]), *self._marks, *self.gap)
        return tuple(self._split(ending))

    def fewest(self, state: int) -> tuple[int, ...]:
        """The fewest tokens that end the thinking from `state`, however they split the text."""
        found = self._fewest.get(state)
        if found is None:
            found = self._fewest[state] = self._shortest_split(self._endings[state])
        return found

    def _shortest_split(self, data: bytes) -> tuple[int, ...]:
        """A shortest path over the places in `data`, from its end."""
        best: list[tuple[int, ...] | None] = [None] * len(data) + [()]
        mark = self._mark[: len(self._mark) - self._num_gap]
        for start in reversed(range(len(data))):
            for token in self._pieces:
                piece = mark if token == self._close_id else self._vocabulary.token_bytes(token)
                rest = best[start + len(piece)] if piece and data.startswith(piece, start) else None
                if rest is not None and (best[start] is None or len(rest) + 1 < len(best[start] or ())):
                    best[start] = (token, *rest)
        found = best[0]
        if found is None:
            raise InvalidOption("thinking: no tokens of the vocabulary spell the mark that ends it")
        return found

    def _split(self, data: bytes) -> list[int]:
        from stcon.constraint.segments import segmenter_for

        tokens = segmenter_for(self._vocabulary).greedy(data)
        if not self._vocabulary.spells(tokens, data):
            raise InvalidOption("thinking: no tokens of the vocabulary spell the mark that ends it")
        return tokens


@lru_cache(maxsize=8)
def _closings(close: str, gap: str, close_id: int | None, vocabulary: Vocabulary) -> _Closings:
    return _Closings(close, gap, close_id, vocabulary)


def _spelled(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    """The token whose bytes are `text`, or the tokenizer's split."""
    data = text.encode()
    if (tokens := vocabulary.encode(text)) and vocabulary.spells(tokens[:1], data):
        return tuple(tokens[:1])
    whole = (token for token in range(vocabulary.size) if vocabulary.token_bytes(token) == data)
    return next(((token,) for token in whole), tuple(tokens))


def thinking_machine(close: str, gap: str) -> Machine:
    """The texts that have `close` once, before `gap` at their end."""
    from stcon.grammar.cfg.triggers import free_text

    machine = Machine()
    end = machine.new_state(label=0, final=True)
    behind = machine.add_chain(gap.encode(), end) if gap else end
    dfa = free_text((close,), stops=True)
    closed = {state: behind for state in range(dfa.num_states) if dfa.labels[state] >= 0}
    machine.start = machine.add_dfa(dfa, targets=closed) + dfa.start
    return machine


def _endings(machine: Machine) -> dict[int, bytes]:
    """Shortest text from each state to the end; of several, the first in byte order. Cost: O(states · classes)."""
    edges = [(state, byte, target) for state in range(machine.num_states) for byte, target in _edges(machine, state)]
    into: dict[int, list[tuple[int, int]]] = {}
    for state, byte, target in edges:
        into.setdefault(target, []).append((state, byte))
    found = {state: b"" for state in range(machine.num_states) if machine.is_final(state)}
    todo = deque(found)
    while todo:
        target = todo.popleft()
        for state, byte in sorted(into.get(target, ()), key=lambda edge: edge[1]):
            if state not in found:
                found[state] = bytes((byte,)) + found[target]
                todo.append(state)
    return found


def _edges(machine: Machine, state: int) -> list[tuple[int, int]]:
    row = machine.row(state)[machine.byte_class].tolist()
    return [(byte, target) for byte, target in enumerate(row) if target >= 0]
