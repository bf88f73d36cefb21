"""Explicit nondeterministic machines, and the check that one is reach-unambiguous on an input.

A machine on a fixed input is a graph of configurations, generated from its start. It is reach-unambiguous on that input
iff every reachable configuration has one path from the start, that is iff the generated graph is a tree.

Source: Appendix B.5.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from stcon.theory.meters import TooMuchWork

C = TypeVar("C", bound=Hashable)


class Machine(Protocol[C]):
    """A nondeterministic machine on a fixed input."""

    def start(self) -> C:
        """The start configuration."""
        ...

    def successors(self, configuration: C) -> list[C]:
        """Where one step can lead, one entry a choice; none: the path halts here."""
        ...

    def progress(self, configuration: C) -> Any:
        """A comparable part of the configuration that no step lowers; it says which configurations can be forgotten."""
        ...

    def verdict(self, configuration: C) -> bool | None:
        """True or False for an accepting or rejecting end of a whole computation; None for any other configuration."""
        ...


@dataclass(frozen=True)
class Report(Generic[C]):
    """What the generated configuration graph shows.

    Args:
        ambiguous: a configuration with two paths from the start, where the search stopped; None: there is none.
        num_configurations: configurations generated, each once.
        num_dead: of them, those without successors that are no verdict.
        verdicts: the verdict of each path that has one, in the order found.
        most_kept: the most configurations in memory at a time.
    """

    ambiguous: C | None
    num_configurations: int
    num_dead: int
    verdicts: tuple[bool, ...]
    most_kept: int


def check_unambiguous(machine: Machine[C], *, max_configurations: int | None = None) -> Report[C]:
    """Generate the configuration graph and look for a configuration reached twice.

    Configurations are taken in the order of `progress`, which the search verifies never falls; two of different
    progress are different, so what lies behind can be forgotten without missing a meeting.

    Args:
        machine: the machine with its input.
        max_configurations: refuse past so many; None: never.

    Raises:
        TooMuchWork: past `max_configurations`.
        AssertionError: a step lowered `progress`; the machine is at fault.
    Cost: one `successors` call for each configuration.
    """
    search = _Search(machine, max_configurations)
    for _ in search.run():
        pass
    return Report(search.ambiguous, search.generated, search.dead, tuple(search.verdicts), search.most_kept)


class _Search(Generic[C]):
    """Breadth within one value of progress, then the next value."""

    def __init__(self, machine: Machine[C], limit: int | None) -> None:
        self.machine = machine
        self.limit = limit
        self.waiting: dict[Any, set[C]] = {}
        self.order: list[Any] = []
        self.ambiguous: C | None = None
        self.generated = self.dead = self.most_kept = 0
        self.verdicts: list[bool] = []

    def run(self) -> Iterator[None]:
        self._meet(self.machine.start())
        while self.order and self.ambiguous is None:
            now = heappop(self.order)
            seen = self.waiting.pop(now)
            stack = list(seen)
            while stack and self.ambiguous is None:
                self._expand(stack.pop(), now, seen, stack)
            self.most_kept = max(self.most_kept, len(seen) + sum(map(len, self.waiting.values())))
            yield

    def _expand(self, configuration: C, now: Any, seen: set[C], stack: list[C]) -> None:
        following = self.machine.successors(configuration)
        if not following:
            verdict = self.machine.verdict(configuration)
            if verdict is None:
                self.dead += 1
            else:
                self.verdicts.append(verdict)
        for successor in following:
            then = self.machine.progress(successor)
            assert then >= now, f"progress falls from {now} to {then}"
            if then > now:
                self._meet(successor)
            elif successor in seen:
                self.ambiguous = successor
            else:
                self._count()
                seen.add(successor)
                stack.append(successor)

    def _meet(self, configuration: C) -> None:
        """Put off a configuration of later progress."""
        key = self.machine.progress(configuration)
        if key not in self.waiting:
            self.waiting[key] = set()
            heappush(self.order, key)
        if configuration in self.waiting[key]:
            self.ambiguous = configuration
        self._count()
        self.waiting[key].add(configuration)

    def _count(self) -> None:
        self.generated += 1
        if self.limit is not None and self.generated > self.limit:
            raise TooMuchWork(self.limit)
