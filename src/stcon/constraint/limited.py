"""`LimitedPlanner`: plans under a limit of tokens, so that the output is complete when the limit is reached.

While more tokens remain than `Budget.worst` asks for, plans are the planner's own. Below that

* the tokens after which no completion fits are masked (`LimitedPlan.within`);
* a plan whose forced text in the tokenizer's split would cost so much that nothing fits behind it gives way to the
  longest tokens (policy ``"any"``), and if that is still too much, to asking the model token by token under the mask
  (policy ``"none"``): covers, healing and the canonical split end there, not the guarantee.

**Invariant**: before every draw, ``need(configuration) ≤ remaining``. It holds at the start or the request is refused;
each admitted token keeps it, and a plan is taken only if it does. So when nothing remains the text is complete.

Where items or names may not repeat, ``need`` is a lower bound; then a completion is searched for (`Witnesses`), a token
is taken only if one was found for it, and the first token of the one before is always admitted.

Source: the paper's Theorem 21 (ii) and (iii).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.budget import Budget, bits, budget_for
from stcon.constraint.forced import Plan, Planner
from stcon.constraint.history_masks import HistoryMasks
from stcon.constraint.witness import Witnesses
from stcon.errors import DecodingError, LimitTooSmall
from stcon.grammar.history import EMPTY, History

Int32 = NDArray[np.int32]

RESERVE = 16
MAX_VERIFIED = 128

__all__ = ["LimitedPlan", "LimitedPlanner", "Limiter", "budget_for"]


@dataclass(frozen=True, eq=False)
class LimitedPlan:
    """What to emit, and what may be drawn then.

    Attributes:
        plan: the plan taken.
        tokens: to emit: the token drawn, or what heals it, and the forced tokens.
        healed: something took the place of the token drawn.
        remaining: tokens left after `tokens`.
        within: int32[W], the tokens that leave a completion in `remaining`, as far as the machine knows; None if all of
            ``plan.mask`` do.
        witness: a completion, where one had to be searched for.
    """

    plan: Plan
    tokens: tuple[int, ...]
    healed: bool
    remaining: int
    within: Int32 | None
    witness: tuple[int, ...] | None


class LimitedPlanner:
    """A planner that keeps a limit. Keeps no state of a stream.

    Args:
        planner: makes the plans.
        budget: of the planner's machine and vocabulary.
    """

    def __init__(self, planner: Planner, budget: Budget) -> None:
        self.planner = planner
        self.budget = budget
        self.witnesses = Witnesses(budget, planner.histories)
        vocabulary, kernel = planner.vocabulary, planner.kernel
        policies = {"canonical": ("any", "none"), "any": ("none",), "none": ()}[planner.policy]
        self._others = [Planner(vocabulary, kernel, policy=policy, heal=False) for policy in policies]  # type: ignore[arg-type]
        self._is_remembering = self.witnesses.are_needed

    def start(self, limit: int) -> LimitedPlan:
        """The plan at the prompt's end with `limit` tokens to emit.

        Raises:
            LimitTooSmall: no text of the grammar takes so few.
            DecodingError: no tokens spell a text of the grammar.
        """
        config = self.planner.kernel.machine.initial().pack()
        needed = self.budget.need(config)
        if needed is None:
            raise DecodingError("no output can be written: the vocabulary's tokens spell no text of the grammar")
        if needed > limit:
            raise LimitTooSmall(limit, needed)
        plan = self.planner.start()
        limited = self._fitted(plan, plan.tokens, healed=False, remaining=limit)
        for other in self._others:
            if limited is None:
                plan = other.start()
                limited = self._fitted(plan, plan.tokens, healed=False, remaining=limit)
        if limited is None:
            found = self.witnesses.find(config, EMPTY, limit + RESERVE + self.budget.worst(config))
            raise LimitTooSmall(limit, len(found) if found and len(found) > limit else None)
        return limited

    def least(self, limit: int) -> int:
        """Tokens that are enough for a whole text: the fewest, or, where something is remembered, those of one found.

        Raises:
            LimitTooSmall: they are more than `limit`.
        """
        config = self.planner.kernel.machine.initial().pack()
        if self._is_remembering:
            found = self.witnesses.find(config, EMPTY, limit + RESERVE + self.budget.worst(config))
            needed = None if found is None else len(found)
        else:
            needed = self.budget.need(config)
        if needed is None or needed > limit:
            raise LimitTooSmall(limit, needed)
        return needed

    def step(self, limited: LimitedPlan, token: int) -> LimitedPlan:
        """The plan after drawing `token`, which is admissible and `admits` takes."""
        last, remaining = limited.plan, limited.remaining
        plan = self.planner.step(last, token)
        tokens = plan.tokens if plan.replace_last else [token, *plan.tokens]
        taken = self._fitted(plan, tokens, healed=plan.replace_last, remaining=remaining)
        for other in self._others:
            if taken is None:
                plan = other.plan(last.config, last.tail, token, last.history)
                taken = self._fitted(plan, [token, *plan.tokens], healed=False, remaining=remaining)
        if taken is None:
            assert self._is_remembering, "a token is admitted only if a completion fits behind it"
            tokens = plan.tokens if plan.replace_last else [token, *plan.tokens]
            return self._unproven(plan, tokens, remaining)
        return taken

    def admits(self, limited: LimitedPlan, token: int) -> bool:
        """Whether `token` may be drawn: a completion behind it is known.

        That is so if ``limited.within`` has it, or if healing puts so few tokens in its place that one fits.
        """
        within, witness = limited.within, limited.witness
        if within is None:
            return True
        if not within[token >> 5] >> (token & 31) & 1:
            return self._heals(limited, token)
        if witness is None or witness[:1] == (token,) or token in self.planner.vocabulary.end_ids:
            return True
        return self.witnesses.follows(limited.plan.config, limited.plan.history, token, limited.remaining - 1)

    def certain(self, limited: LimitedPlan) -> Int32:
        """int32[W]: tokens that `admits` takes without a search."""
        if limited.witness:
            return bits(self.planner.vocabulary.num_words, limited.witness[:1])
        return self.budget.end_words if limited.witness is not None or limited.within is None else limited.within

    def _heals(self, limited: LimitedPlan, token: int) -> bool:
        mask = limited.plan.mask
        if (
            not self.planner.heal
            or token in self.planner.vocabulary.end_ids
            or not mask[token >> 5] >> (token & 31) & 1
        ):
            return False
        plan = self.planner.step(limited.plan, token)
        if not plan.replace_last:
            return False
        return self._fitted(plan, plan.tokens, healed=True, remaining=limited.remaining) is not None

    def _fitted(self, plan: Plan, tokens: Sequence[int], *, healed: bool, remaining: int) -> LimitedPlan | None:
        """`plan` with its mask restricted, or None if nothing fits behind its tokens."""
        remaining -= len(tokens)
        if remaining < 0:
            return None
        if remaining >= 2 * self.budget.most(int(plan.config[1])) + RESERVE:  # far from the limit, quickly known
            return LimitedPlan(plan, tuple(tokens), healed, remaining, None, None)
        worst = self.budget.worst(plan.config)
        if self._is_remembering and remaining < 2 * worst + RESERVE:
            witness = self.witnesses.find(plan.config, plan.history, remaining)
            if witness is None:
                return None
            mask = self._within(plan, remaining)
            within = (plan.mask if mask is None else mask) | bits(self.planner.vocabulary.num_words, witness[:1])
            return LimitedPlan(plan, tuple(tokens), healed, remaining, within, tuple(witness))
        if remaining < worst:
            needed = self.budget.need(plan.config)
            if needed is None or needed > remaining:
                return None
        return LimitedPlan(plan, tuple(tokens), healed, remaining, self._within(plan, remaining), None)

    def _unproven(self, plan: Plan, tokens: Sequence[int], remaining: int) -> LimitedPlan:
        """Where the reserve was reached and no completion was found: as if nothing were remembered."""
        remaining -= len(tokens)
        within = self._within(plan, remaining)
        return LimitedPlan(plan, tuple(tokens), plan.replace_last, remaining, within, None)

    def _within(self, plan: Plan, remaining: int) -> Int32 | None:
        """The mask of `plan` restricted, without its cover if nothing is left under it; None if it is as it was."""
        mask = plan.mask.copy()
        if not self.budget.restrict(plan.config, remaining, mask):
            return None
        if plan.cover > 1 and remaining > 0 and not (mask & ~self.budget.end_words).any():
            self.planner.histories.mask(plan.config, plan.history, mask)
            self.budget.restrict(plan.config, remaining, mask)
        return mask


class Limiter:
    """Restricts masks to what can be completed, for loops that keep no plans (`stcon.constraint.matcher.Matcher`).

    Args:
        budget: of the machine and vocabulary.
        histories: steps under a history.
    """

    def __init__(self, budget: Budget, histories: HistoryMasks) -> None:
        self.budget = budget
        self.witnesses = Witnesses(budget, histories)
        self._is_remembering = self.witnesses.are_needed

    def restrict(self, config: Int32, history: History, remaining: int, out: Int32) -> None:
        """Take from a mask (int32[W]) the tokens after which no completion within `remaining` is known.

        Where items or names may not repeat, a completion is searched for behind each token, of at most `MAX_VERIFIED`
        of them near the limit: the others are taken as well.
        """
        self.budget.restrict(config, remaining, out)
        if not self._is_remembering or remaining >= 2 * self.budget.worst(config) + RESERVE:
            return
        witness = self.witnesses.find(config, history, remaining)
        if witness is None:
            return
        ends = out & self.budget.end_words
        tokens = np.flatnonzero(np.unpackbits((out & ~ends).view(np.uint8), bitorder="little"))
        step = -(-len(tokens) // MAX_VERIFIED) or 1
        kept = [t for t in tokens[::step].tolist() if self.witnesses.follows(config, history, t, remaining - 1)]
        out[:] = bits(len(out), [*kept, *witness[:1]]) | ends
