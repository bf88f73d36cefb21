"""The fail-closed compiler: from a machine expected to have few computation paths to one that checks it has.

Take any nondeterministic logspace machine with a clock and a budget for the number of computation paths to each of its
configurations. The compiled decider accepts an input iff the machine does *and* every budget holds there; where the
expectation fails it rejects, and says where. The compiled object may be any decider of RootBudget, so the language is
in each of their classes: with ``reachul`` it is a reach-unambiguous computation, with no promise on the machine at
all.

Source: Theorem 4, Appendix B.13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stcon.theory.budgets import RootBudget
from stcon.theory.certificates import Verdict
from stcon.theory.deciders import decide
from stcon.theory.program import Configuration, Program, configuration_graph

PathBudget = Callable[[Configuration, Sequence[int]], int]


@dataclass(frozen=True)
class FailClosed:
    """A compiled program: call it on a word.

    Args:
        program: M₀.
        budget: κ_x(c), of a configuration and the input; its sum over configurations should be polynomial.
        method: the RootBudget decider used.
    """

    program: Program
    budget: PathBudget
    method: str = "reachul"

    def instance(self, word: Sequence[int]) -> RootBudget:
        """The RootBudget instance of an input: configuration graph, initial configuration, budgets, accepting ones.

        Raises:
            TooMuchWork: the configuration graph is too large to be built here.
        """
        built = configuration_graph(self.program, word)
        budgets = tuple(self.budget(_configuration(name), word) for name in built.graph.names)
        return RootBudget(built.graph, built.start, budgets, built.accepting)

    def __call__(self, word: Sequence[int], *, max_steps: int | None = None) -> Verdict:
        """Whether every budget holds on this input and the program accepts it.

        Args:
            word: the input, of 0s and 1s.
            max_steps: refuse past so many steps of the decider; None: run to the end.

        Raises:
            TooMuchWork: the configuration graph is too large, or past `max_steps`.
        Source: Theorem 4.
        """
        return decide(self.instance(word), self.method, max_steps=max_steps)


def at_most(cap: int) -> PathBudget:
    """The same budget for every configuration."""
    return lambda configuration, word: cap


def _configuration(name: object) -> Configuration:
    assert isinstance(name, Configuration)
    return name
