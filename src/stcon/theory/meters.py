"""Meters: named counts of the work a construction does, and the refusal to do more than allowed."""

from __future__ import annotations

from stcon.theory.graph import GraphError


class TooMuchWork(GraphError):
    """The construction is polynomial, but takes more than the steps allowed here.

    Args:
        limit: the steps allowed.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"more than {limit:,} steps; allow more, or make the graph smaller ('counts' needs the fewest)"
        )
        self.limit = limit


class Meters:
    """Named counts.

    Args:
        max_steps: `spend` refuses past this total; None: never.
    """

    def __init__(self, max_steps: int | None = None) -> None:
        self.values: dict[str, int] = {}
        self.limit = max_steps

    @property
    def allowed(self) -> int | None:
        """The steps still allowed; None: any number."""
        return None if self.limit is None else self.limit - self.values.get("steps", 0)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a sum."""
        self.values[name] = self.values.get(name, 0) + amount

    def peak(self, name: str, value: int) -> None:
        """Raise a maximum."""
        self.values[name] = max(self.values.get(name, 0), value)

    def spend(self, steps: int) -> None:
        """Add to ``steps``.

        Raises:
            TooMuchWork: they are more than allowed.
        """
        self.add("steps", steps)
        if self.limit is not None and self.values["steps"] > self.limit:
            raise TooMuchWork(self.limit)


def bits(largest: int) -> int:
    """The bits of a field that holds 0 … largest."""
    return max(largest, 1).bit_length()
