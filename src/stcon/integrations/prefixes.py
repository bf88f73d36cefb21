"""Constraints for loops that show their outputs so far and want masks: rows are found again by their tokens.

Such a loop (transformers, llama-cpp-python) hands every row's tokens to a *processor* before each draw. It does not say
which row became which: beam search reorders and copies rows, assisted generation takes tokens back. `Prefixes` keeps a
`Matcher` for each row of the last call, and finds for each new row the one that shares its longest prefix; the common
case, one token more, costs one `Matcher.accept`.

A row can be **over**: its output has ended (loops pad such rows until the last is done), or it holds a token that the
grammar does not admit there, as a beam of probability zero or a draft that is about to be refused does. The mask of
such a row has the end tokens alone, so that no loop meets a row without any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.budget import bits, budget_for
from stcon.constraint.matcher import Matcher
from stcon.constraint.sharing import kernel_for, machine_of
from stcon.errors import DecodingError, InvalidOption
from stcon.grammar.cfg.stacks import StackSetMachine
from stcon.grammar.machine import SCOPE

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.grammar.machine import Machine
    from stcon.vocab.vocabulary import Vocabulary

Int32 = NDArray[np.int32]


class Row:
    """One output: its tokens, and a matcher that took the first `num_taken` of them.

    Attributes:
        tokens: all of them.
        matcher: stands after the first `num_taken`; None: the row is not constrained.
    """

    def __init__(self, matcher: Matcher | None) -> None:
        self.tokens: list[int] = []
        self.matcher = matcher
        self.num_taken = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing but an end can follow: it has ended, or holds what the grammar does not admit."""
        return self.matcher is not None and (self.matcher.is_finished or self.num_taken < len(self.tokens))

    def fork(self) -> Row:
        """An independent row with the same tokens."""
        other = Row(None if self.matcher is None else self.matcher.fork())
        other.tokens, other.num_taken = self.tokens, self.num_taken
        return other

    def become(self, tokens: Sequence[int]) -> None:
        """Go to `tokens`: back to the longest common prefix, then on. Cost: one accept a token that is new."""
        matcher, kept = self.matcher, min(num_common(self.tokens, tokens), self.num_taken)
        self.tokens = list(tokens)
        if matcher is None:
            return
        if kept < self.num_taken:
            kept = _back(matcher, self.num_taken - kept, kept)
        while kept < len(tokens) and matcher.accept(tokens[kept]):
            kept += 1
        self.num_taken = kept


class Prefixes:
    """The rows of one loop.

    Args:
        grammars: one for each prompt (None: not constrained); row r of a call with R rows is one of prompt
            ``r * len(grammars) // R``, as loops expand prompts into beams or several sequences.
        vocabulary: the model's.
        limit: tokens an output may have; outputs are complete when it is reached. None: no limit is kept.
        end_ids: the tokens at which the loop stops; None: the vocabulary's.

    Raises:
        LimitTooSmall: no text of a grammar fits the limit.
        TooLarge: a grammar is too large for a limit to be kept.
        InvalidOption: no grammar is given, the limit is not a positive number, or the loop ends at a token of text.
    """

    def __init__(
        self,
        grammars: Sequence[Grammar | None],
        vocabulary: Vocabulary,
        limit: int | None = None,
        end_ids: Sequence[int] | None = None,
    ) -> None:
        if not grammars:
            raise InvalidOption("give a grammar")
        self.grammars = tuple(grammars)
        self.vocabulary = vocabulary
        self.limit = limit
        if limit is not None:
            for grammar in dict.fromkeys(self.grammars):
                check_limit(grammar, vocabulary, limit)
        check_ends(end_ids or (), vocabulary)
        ends = [token for token in end_ids or () if token in vocabulary.end_ids] or vocabulary.end_ids
        self._ends = bits(vocabulary.num_words, ends)
        self._other_ends = bits(vocabulary.num_words, vocabulary.end_ids) & ~self._ends
        self._rows: list[list[Row]] = [[] for _ in self.grammars]

    def reset(self) -> None:
        """Forget all rows: other prompts follow."""
        self._rows = [[] for _ in self.grammars]

    def follow(self, outputs: Sequence[Sequence[int]]) -> list[Row]:
        """The rows of this call, each with its output.

        Args:
            outputs: the tokens after the prompt, a multiple of ``len(grammars)`` of them.

        Raises:
            InvalidOption: another number of outputs.
        """
        count, rest = divmod(len(outputs), len(self.grammars))
        if rest or not count:
            raise InvalidOption(
                f"{len(outputs)} rows where there are {len(self.grammars)} grammars; give one, or one for each prompt"
            )
        found: list[Row] = []
        for prompt in range(len(self.grammars)):
            group = outputs[prompt * count : (prompt + 1) * count]
            self._rows[prompt] = self._follow(prompt, group)
            found += self._rows[prompt]
        return found

    def mask(self, row: Row) -> Int32:
        """The tokens that may follow `row` (int32[W]).

        Raises:
            DecodingError: the limit is passed, and the output is not complete.
        """
        if row.matcher is None:
            return np.full(self.vocabulary.num_words, -1, np.int32)
        if row.is_over:
            return self._ends
        remaining = None if self.limit is None else self.limit - len(row.tokens)
        if remaining is not None and remaining <= 0:
            if not row.matcher.is_complete:
                raise DecodingError(f"the output went past the limit of {self.limit:,} tokens that it was planned for")
            return self._ends
        out = row.matcher.bitmask(remaining=remaining)
        out &= ~self._other_ends
        if not out.any():
            raise DecodingError(f"no token is admissible after {row.matcher.text[-40:]!r}")
        return out

    def place(self, row: Row) -> tuple[Machine, Int32] | None:
        """Machine and configuration of `row` if its mask is the machine's own there, so that a device can walk it.

        That is not so where the row is over, a limit may bind, names or items may not repeat (or that is not known, as
        some of the machine is not built), the loop stops at some of the end tokens only, or the machine is a set of
        stacks.
        """
        matcher = row.matcher
        if matcher is None or row.is_over or self._other_ends.any():
            return None
        machine, config = machine_of(matcher.grammar), matcher.config
        if isinstance(machine, StackSetMachine) or not _has_no_elements(machine):
            return None
        if self.limit is not None:
            budget = budget_for(kernel_for(machine, self.vocabulary))
            if self.limit - len(row.tokens) < budget.worst(config):
                return None
        return machine, config

    def _follow(self, prompt: int, outputs: Sequence[Sequence[int]]) -> list[Row]:
        before = self._rows[prompt]
        by_tokens = {tuple(row.tokens): row for row in before}
        sources = [by_tokens.get(tuple(tokens[:-1])) or self._nearest(prompt, tokens) for tokens in outputs]
        uses = Counter(map(id, sources))
        rows = []
        for source, tokens in zip(sources, outputs, strict=True):
            uses[id(source)] -= 1
            row = source.fork() if uses[id(source)] else source
            row.become(tokens)
            rows.append(row)
        return rows

    def _nearest(self, prompt: int, tokens: Sequence[int]) -> Row:
        """The row of the last call that shares most with `tokens`; a new one if there was none."""
        before = self._rows[prompt]
        if before:
            return max(before, key=lambda row: min(num_common(row.tokens, tokens), row.num_taken))
        grammar = self.grammars[prompt]
        return Row(None if grammar is None else Matcher(grammar, self.vocabulary, policy="none"))


def check_limit(grammar: Grammar | None, vocabulary: Vocabulary, limit: int) -> None:
    """Raise `LimitTooSmall` if no text of `grammar` fits `limit` tokens (`InvalidOption` if that is no limit)."""
    from stcon.engine.control import control_for
    from stcon.engine.output import check_limit as check_number

    check_number(limit)
    if grammar is not None:
        control_for(grammar, vocabulary, "mask", limit).begin()


def num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens that both begin with."""
    count = min(len(first), len(second))
    if first[:count] == second[:count]:
        return count
    return next(i for i in range(count) if first[i] != second[i])


def _back(matcher: Matcher, count: int, kept: int) -> int:
    """Take `count` accepts back; the number that are left: `kept`, or 0 where so many are not kept."""
    try:
        matcher.rollback(count)
    except InvalidOption:
        matcher.reset()
        return 0
    return kept


def check_ends(end_ids: Sequence[int], vocabulary: Vocabulary) -> None:
    """Raise `InvalidOption` if a loop that stops at `end_ids` would stop at text, and cut outputs there."""
    for token in end_ids:
        if 0 <= token < vocabulary.size and (text := vocabulary.token_bytes(token)) is not None:
            raise InvalidOption(
                f"token {token} ends the output for the loop, and is the text {text!r} to the vocabulary; "
                "build that with end_ids"
            )


def _has_no_elements(machine: Machine) -> bool:
    """Whether no history can take tokens from the machine's masks: nothing in it is an element of a collection."""
    return all(mark == SCOPE for mark in machine.marks.values()) and machine.is_whole
