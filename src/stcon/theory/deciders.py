"""One entry to the deciders: an instance, a method by name, a verdict.

======================  =========================================  ===========================================
method                  construction                               decides
======================  =========================================  ===========================================
``counts``              exact counts (the default)                 STCON_sf, RootBudget, PairBudget, binary k
``logdcfl``             capped stack traversal (Theorems 8, 17)    STCON_sf, RootBudget, PairBudget
``reachul``             certified lift (Theorem 9)                 STCON_sf, RootBudget, PairBudget
``oracle-free``         Algorithm 2                                STCON_sf
``c=l``                 zero test (Theorem 10)                     STCON_sf, RootBudget, PairBudget
``nl``                  averaged fingerprints (Theorem 6(i))       STCON_sf, RootBudget, PairBudget
``terminal-width``      choice frames (Theorem 16)                 STCON_sf
``blocks``              cycle spaces (Theorem 16)                  STCON_sf; exponential in the blocks' cycle rank
======================  =========================================  ===========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from stcon.theory import counting, fingerprints, lift, oracle_free, pushdown, signed, tractable
from stcon.theory.budgets import Instance, PairBudget, RootBudget, StronglyFew
from stcon.theory.certificates import Verdict
from stcon.theory.graph import GraphError

I_contra = TypeVar("I_contra", contravariant=True)


class Decider(Protocol[I_contra]):
    """A decider of one problem."""

    def __call__(self, instance: I_contra, /, *, max_steps: int | None = None) -> Verdict: ...


_MODULES = (counting, pushdown, lift, oracle_free, signed, fingerprints)

# for each problem, its deciders by method
STRONGLY_FEW: Mapping[str, Decider[StronglyFew]] = {module.METHOD: module.decide_strongly_few for module in _MODULES}
PAIR: Mapping[str, Decider[PairBudget]] = {
    module.METHOD: module.decide_pair for module in (counting, pushdown, lift, signed, fingerprints)
}
ROOT: Mapping[str, Decider[RootBudget]] = {
    module.METHOD: module.decide_root for module in (counting, pushdown, lift, signed, fingerprints)
}

METHODS = tuple(STRONGLY_FEW)

# little space in their regimes only
REGIMES: Mapping[str, Decider[StronglyFew]] = {
    "terminal-width": tractable.decide_by_terminal_width,
    "blocks": tractable.decide_by_blocks,
}


def decide(instance: Instance, method: str = counting.METHOD, *, max_steps: int | None = None) -> Verdict:
    """Decide any of the three problems.

    Args:
        instance: `StronglyFew`, `PairBudget` or `RootBudget`.
        method: one of `METHODS`, or of `REGIMES`.
        max_steps: refuse past so many of the method's steps; None: run to the end. All but ``blocks`` are polynomial
            in n and k (the counts in n and log k), but the exponents differ.

    Raises:
        GraphError: there is no such method for this problem.
        TooMuchWork: past `max_steps`.
    """
    few = {**STRONGLY_FEW, **REGIMES}
    if method not in few:
        raise GraphError(f"no method {method!r}; there are {', '.join(few)}")
    if isinstance(instance, StronglyFew):
        return few[method](instance, max_steps=max_steps)
    if method not in ROOT:
        raise GraphError(f"the method {method!r} decides STCON_sf only")
    if isinstance(instance, PairBudget):
        return PAIR[method](instance, max_steps=max_steps)
    return ROOT[method](instance, max_steps=max_steps)
