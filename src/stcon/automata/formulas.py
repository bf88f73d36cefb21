"""Boolean formulas in canonical form: reduced ordered binary decision diagrams with complement edges.

A formula is an integer, twice a node's number plus one if it is negated; equal formulas are equal integers. Nothing
here recurses, so formulas of any depth are safe.

Source: R. E. Bryant, Graph-based algorithms for Boolean function manipulation (1986); complement edges as in
K. Brace, R. Rudell, R. Bryant, Efficient implementation of a BDD package (1990).
"""

from __future__ import annotations

from collections.abc import Callable

from stcon.automata.budget import Budget

Formula = int
TRUE: Formula = 0
FALSE: Formula = 1


def negation(a: Formula) -> Formula:
    """not a."""
    return a ^ 1


class Formulas:
    """All formulas of one computation.

    Args:
        budget: pays for every step.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        # node 0 is the constant, of no variable; a high child is never negated
        self._variable: list[int] = [1 << 60]
        self._low: list[Formula] = [TRUE]
        self._high: list[Formula] = [TRUE]
        self._number: dict[tuple[int, Formula, Formula], int] = {}
        self._conjunctions: dict[tuple[Formula, Formula], Formula] = {}

    def variable(self, index: int) -> Formula:
        """The formula that is variable `index`."""
        return self._node(index, FALSE, TRUE)

    def disjunction(self, a: Formula, b: Formula) -> Formula:
        """a or b."""
        return self.conjunction(a ^ 1, b ^ 1) ^ 1

    def conjunction(self, a: Formula, b: Formula) -> Formula:
        """a and b. Cost: at most the product of the diagrams' sizes."""
        found = self._simple(a, b)
        if found is not None:
            return found
        goal = (a, b) if a < b else (b, a)
        stack = [goal]
        while stack:
            a, b = pair = stack[-1]
            if pair in self._conjunctions:
                stack.pop()
                continue
            variable = min(self._variable[a >> 1], self._variable[b >> 1])
            pending = []
            halves = []
            for side in (0, 1):
                c, d = self._cofactor(a, variable, side), self._cofactor(b, variable, side)
                half = self._simple(c, d)
                if half is None:
                    pending.append((c, d) if c < d else (d, c))
                else:
                    halves.append(half)
            if pending:
                stack.extend(pending)
                continue
            self.budget.spend(30)
            self._conjunctions[pair] = self._node(variable, *halves)
            stack.pop()
        return self._conjunctions[goal]

    def substitute(self, formula: Formula, replacement: Callable[[int], Formula], known: dict[int, Formula]) -> Formula:
        """`formula` with every variable v replaced by ``replacement(v)``.

        Args:
            known: node → its replacement; filled here, to be used again with the same `replacement`.
        """
        if formula >> 1 == 0:
            return formula
        todo = [formula >> 1]
        found: set[int] = set()
        while todo:
            node = todo.pop()
            if node and node not in known and node not in found:
                found.add(node)
                todo += [self._low[node] >> 1, self._high[node] >> 1]
        self.budget.spend(10 * len(found) + 1)
        # a node is made after its children, so ascending order has them first
        for node in sorted(found):
            low, high = self._low[node], self._high[node]
            low = known[low >> 1] ^ low & 1 if low >> 1 else low
            high = known[high >> 1] ^ high & 1 if high >> 1 else high
            condition = replacement(self._variable[node])
            yes = self.conjunction(condition, high)
            known[node] = self.disjunction(yes, self.conjunction(condition ^ 1, low))
        return known[formula >> 1] ^ formula & 1

    def _simple(self, a: Formula, b: Formula) -> Formula | None:
        """a and b, where that takes no work."""
        if FALSE in (a, b) or a == b ^ 1:
            return FALSE
        if a in (TRUE, b):
            return b
        if b == TRUE:
            return a
        return self._conjunctions.get((a, b) if a < b else (b, a))

    def _cofactor(self, a: Formula, variable: int, side: int) -> Formula:
        node = a >> 1
        if self._variable[node] != variable:
            return a
        return (self._high if side else self._low)[node] ^ a & 1

    def _node(self, variable: int, low: Formula, high: Formula) -> Formula:
        if low == high:
            return low
        sign = high & 1
        key = (variable, low ^ sign, high ^ sign)
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._variable)
            self._variable.append(variable)
            self._low.append(key[1])
            self._high.append(key[2])
            self.budget.spend(10)
        return number << 1 | sign
