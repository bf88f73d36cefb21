"""What decides, between two passes of the model, which tokens follow by themselves and which may be drawn next.

Four modes, from no constraint to the full policy:

- ``"free"``: none; the model writes what it likes.
- ``"mask"``: inadmissible tokens are masked; the model is asked for every token.
- ``"any"``: text that the grammar forces is written without asking the model, split into longest tokens.
- ``"canonical"``: the same, split as the tokenizer itself would split the whole text (the paper's policy φ).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, get_args

from stcon.engine.sampling import Int32
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.constraint.forced import Plan, Planner
    from stcon.constraint.limited import LimitedPlan, LimitedPlanner
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

Mode: TypeAlias = Literal["free", "mask", "any", "canonical"]

POLICY: dict[str, Literal["none", "any", "canonical"]] = {"mask": "none", "any": "any", "canonical": "canonical"}


class Limit(NamedTuple):
    """Which tokens leave a completion within a limit.

    Attributes:
        mask: int32[W], all of them, and maybe others.
        admits: says of a token whether it does. May take a search.
        certain: int32[W], some of which that is known.
    """

    mask: Int32
    admits: Callable[[int], bool]
    certain: Int32


class Place(NamedTuple):
    """Where a walk on a device must begin to find `Step.mask` again.

    Attributes:
        config: int32[67], the configuration after the step's tokens.
        min_bytes: shorter tokens are left out, end tokens are not; 0: none is.
        is_exact: the walk's mask is `Step.mask`; if not, it has more tokens (a history forbids them).
        num_admissible: tokens in `Step.mask`; None: not counted.
    """

    config: Int32
    min_bytes: int
    is_exact: bool
    num_admissible: int | None = None


class Step(NamedTuple):
    """What follows the last drawn token.

    Attributes:
        tokens: to emit and feed; begins with the drawn token, or with what takes its place.
        healed: something took its place.
        mask: int32[W], the tokens that may be drawn after `tokens`; None for all.
        is_done: nothing can follow.
        limit: what a limit of tokens takes from `mask`; None for nothing.
        place: where a device finds `mask` by itself; None where only the host can.
        later: gives the mask, where that takes long and the model can run meanwhile; `mask` is None then.
    """

    tokens: tuple[int, ...]
    healed: bool = False
    mask: Int32 | None = None
    is_done: bool = False
    limit: Limit | None = None
    place: Place | None = None
    later: Callable[[], Int32] | None = None


class Control(Protocol):
    """The constraint of one stream, as the loop sees it. Stateful."""

    @property
    def mode(self) -> Mode:
        """How it decodes."""
        ...

    def begin(self) -> Step:
        """What the output begins with, φ(c0)."""
        ...

    def choose(self, token: int) -> Step:
        """What follows after drawing `token`, which is admissible and no end token."""
        ...

    def need(self) -> int | None:
        """Fewest tokens that complete the output from here; None where no limit is kept."""
        ...

    def is_quiet(self, token: int | None) -> bool:
        """Whether `choose` will likely give `token` alone and go on (None: whatever the token, an end token apart).

        A guess for loops that run ahead, cheaper than `choose`; a wrong one costs them time.
        """
        ...


class FreeControl:
    """No constraint."""

    mode: Mode = "free"

    def begin(self) -> Step:
        """Nothing is forced."""
        return Step(())

    def choose(self, token: int) -> Step:
        """The token itself."""
        return Step((token,))

    def need(self) -> None:
        """Not known: nothing says what is complete."""

    def is_quiet(self, token: int | None) -> bool:
        """Always."""
        return True


class PlannedControl:
    """A grammar under one of the planner's policies.

    Args:
        planner: of the grammar's machine and the model's vocabulary.
        mode: the name of its policy.
        plan: where it stands, if `begin` is not called.
    """

    def __init__(self, planner: Planner, mode: Mode, plan: Plan | None = None) -> None:
        self.planner = planner
        self.mode: Mode = mode
        self._plan = plan

    def begin(self) -> Step:
        """The grammar's forced beginning."""
        plan = self._plan = self.planner.start()
        return Step(tuple(plan.tokens), mask=plan.mask, is_done=plan.is_done, place=_place(self.planner, plan))

    def choose(self, token: int) -> Step:
        """The token, healed if need be, and the forced text after it."""
        assert self._plan is not None, "begin comes first"
        plan = self._plan = self.planner.step(self._plan, token)
        kept = () if plan.replace_last else (token,)
        place = _place(self.planner, plan)
        return Step((*kept, *plan.tokens), plan.replace_last, plan.mask, plan.is_done, place=place)

    def need(self) -> None:
        """Not known: that takes the tables of a budget."""

    def is_quiet(self, token: int | None) -> bool:
        """See `Control.is_quiet`."""
        return _is_quiet(self.planner, self._plan, token)


class LimitedControl:
    """A grammar under one of the planner's policies, complete within a limit of tokens.

    Args:
        planner: keeps the limit.
        mode: the name of its policy.
        limit: tokens to emit.
    """

    def __init__(self, planner: LimitedPlanner, mode: Mode, limit: int) -> None:
        self.planner = planner
        self.mode: Mode = mode
        self.limit = limit
        self._plan: LimitedPlan | None = None

    def begin(self) -> Step:
        """The grammar's forced beginning. Raises `LimitTooSmall` where no output fits the limit."""
        return self._step(self.planner.start(self.limit))

    def choose(self, token: int) -> Step:
        """The token, healed if need be, and the forced text after it, as far as the limit allows."""
        assert self._plan is not None, "begin comes first"
        return self._step(self.planner.step(self._plan, token))

    def need(self) -> int | None:
        """Fewest tokens that complete the output from here (`stcon.constraint.budget.Budget.need`)."""
        return None if self._plan is None else self.planner.budget.need(self._plan.plan.config)

    def is_quiet(self, token: int | None) -> bool:
        """See `Control.is_quiet`."""
        return self._plan is not None and _is_quiet(self.planner.planner, self._plan.plan, token)

    def _step(self, plan: LimitedPlan) -> Step:
        self._plan = plan
        limit = None
        if plan.within is not None:
            limit = Limit(plan.within, partial(self.planner.admits, plan), self.planner.certain(plan))
        place = _place(self.planner.planner, plan.plan)
        return Step(plan.tokens, plan.healed, plan.plan.mask, plan.plan.is_done, limit, place)


def _place(planner: Planner, plan: Plan) -> Place:
    return Place(plan.config, plan.cover, plan.is_kernels, plan.num_admissible)


def _is_quiet(planner: Planner, plan: Plan | None, token: int | None) -> bool:
    """Whether nothing is forced after `token`; what a history takes from the mask is not looked at."""
    if plan is None:
        return False
    if planner.policy == "none" or token is None:
        return planner.policy == "none"
    data, config = planner.vocabulary.token_bytes(token), plan.config.copy()
    if data is None or not planner.kernel.advance(config, data) or planner.kernel.forced(config, 1):
        return False
    return not planner.kernel.accepts(config)  # mostly the end of the text


def control_for(grammar: Grammar | None, vocabulary: Vocabulary, mode: Mode, limit: int | None = None) -> Control:
    """The control of a new stream.

    Args:
        grammar: None for no constraint, whatever the mode.
        vocabulary: the model's.
        mode: as above.
        limit: the output is complete within so many tokens; None: it may be cut.

    Raises:
        InvalidOption: no such mode, or no grammar.
        TooLarge: the grammar is too large for a limit to be kept.
    """
    if mode not in get_args(Mode):
        raise InvalidOption(f"mode: expected one of {', '.join(get_args(Mode))}, got {mode!r}")
    if grammar is None or mode == "free":
        return FreeControl()
    from stcon.constraint.forced import Planner
    from stcon.constraint.sharing import kernel_for, machine_of

    kernel = kernel_for(machine_of(grammar), vocabulary)
    planner = Planner(vocabulary, kernel, policy=POLICY[mode])
    if limit is None:
        return PlannedControl(planner, mode)
    from stcon.constraint.budget import budget_for
    from stcon.constraint.limited import LimitedPlanner

    return LimitedControl(LimitedPlanner(planner, budget_for(kernel)), mode, limit)
