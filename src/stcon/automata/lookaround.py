"""Patterns with lookaround to complete DFAs: the subset construction with formulas in place of sets.

Variable p of a formula says "the rest of the text is accepted from position p on" (`stcon.automata.nfa`). What must
still hold after some text is one formula: an alternative of the pattern is a disjunction, a lookahead is a conjunction
with its own first positions, a negative one a negation. Reading a character of class k replaces each variable by what
it asks of the rest (`_Place.source`). So a lookahead may stand anywhere, below any operator.

A lookbehind looks at text already read. Its automaton, which may begin anywhere, runs along from the start of the text;
for each of its positions the state holds the formula under which it is reached. Without a lookahead inside that formula
is constant; with one, it is what that lookahead still asks.

Formulas are canonical, so states are equal iff their formulas are, and there are finitely many.

Source: A. Chandra, D. Kozen, L. Stockmeyer, Alternation (1981); J. Brzozowski, E. Leiss, On equations for regular
languages, finite automata, and sequential networks (1980).
"""

from __future__ import annotations

from functools import reduce

from stcon.automata.budget import Budget
from stcon.automata.determinize import Alphabet, to_dfa
from stcon.automata.dfa import CharDfa
from stcon.automata.formulas import FALSE, TRUE, Formula, Formulas
from stcon.automata.nfa import END_KIND, START_KIND, Expansion, Looks, Positions, bits

# Source → the formula under which a lookbehind's automaton is there, ascending. A source is a position, or
# `num_positions + r` for "root r has not begun".
Trackers = tuple[tuple[int, Formula], ...]


def determinize_lookaround(positions: Positions, budget: Budget) -> CharDfa:
    """The DFA of a pattern with lookarounds; not minimised.

    Raises:
        TooLarge: a budget is spent.

    Cost: for each state and class, a substitution in its formula, 10–100 times that of plain sets.
    """
    return _Construction(positions, budget).run()


class _Construction:
    def __init__(self, positions: Positions, budget: Budget) -> None:
        self.positions = positions
        self.budget = budget
        self.alphabet = Alphabet(positions)
        self.formulas = Formulas(budget)
        self.num_positions = len(positions.follow)
        self.behind = [i for i, look in enumerate(positions.looks) if look.behind]
        # every lookaround's automaton begins or ends with any text, which is split by kind: so each class has one
        self.class_kinds = [positions.kinds[next(bits(members))] for members in self.alphabet.members]
        self.root_of = [0] * self.num_positions + list(range(len(positions.roots)))
        for root, fragment in enumerate(positions.roots):
            for position in range(fragment.low, fragment.high):
                self.root_of[position] = root
        self._expansions: dict[tuple[int, int], Expansion] = {}
        self._places: dict[tuple[Trackers, int], _Place] = {}

    def run(self) -> CharDfa:
        begin: Trackers = tuple((self.num_positions + i + 1, TRUE) for i in self.behind)
        states = [(begin, self.formulas.variable(self.num_positions))]
        number = {states[0]: 0}
        delta: list[list[int]] = []
        labels: list[int] = []
        for trackers, formula in states:
            row = []
            for k in range(len(self.alphabet.members)):
                place = self.place(trackers, k)
                rest = place.after(formula)
                # once the rest of the text is settled, what lookbehinds saw does not matter
                key = ((), rest) if rest in (TRUE, FALSE) else (place.trackers_after(), rest)
                state = number.get(key)
                if state is None:
                    state = number[key] = len(states)
                    states.append(key)
                row.append(state)
            self.budget.check_states(len(states))
            self.budget.spend(100 * (2 + len(row)))
            delta.append(row)
            labels.append(0 if self.place(trackers, END_OF_TEXT).after(formula) == TRUE else -1)
        return to_dfa(self.alphabet, delta, labels)

    def place(self, trackers: Trackers, k: int) -> _Place:
        """The place where lookbehinds stand at `trackers` and class `k` comes next; one object for equal places."""
        found = self._places.get((trackers, k))
        if found is None:
            found = self._places[trackers, k] = _Place(self, trackers, k)
        return found

    def expansion(self, source: int) -> Expansion:
        """What can follow `source`."""
        if source >= self.num_positions:
            return self.root_expansion(source - self.num_positions, START_KIND)
        key = (source, -1)
        if key not in self._expansions:
            self._expansions[key] = self.positions.expand_position(source)
        return self._expansions[key]

    def root_expansion(self, root: int, left: int) -> Expansion:
        """What automaton `root` can begin with after a character of kind `left`."""
        key = (self.num_positions + root, left)
        if key not in self._expansions:
            self._expansions[key] = self.positions.expand_root(root, left)
        return self._expansions[key]

    def left_kind(self, source: int) -> int:
        """Kind of the character before the place where `source` stands."""
        return START_KIND if source >= self.num_positions else self.positions.kinds[source]


END_OF_TEXT = -1


class _Place:
    """A place between two characters: what lookbehinds saw, and the class that comes next or `END_OF_TEXT`."""

    def __init__(self, construction: _Construction, trackers: Trackers, k: int) -> None:
        self.all = construction
        self.formulas = construction.formulas
        self.trackers = trackers
        self.at_end = k == END_OF_TEXT
        self.members = 0 if self.at_end else construction.alphabet.members[k]
        self.right = 1 << (END_KIND if self.at_end else construction.class_kinds[k])
        self._substituted: dict[int, Formula] = {}
        self._sources: dict[int, Formula] = {}
        self._looks: dict[tuple[int, int], Formula] = {}
        self._trackers_after: Trackers | None = None

    def after(self, formula: Formula) -> Formula:
        """What `formula` asks of the text after the next character; at the end, whether it holds."""
        return self.formulas.substitute(formula, self.source, self._substituted)

    def source(self, source: int) -> Formula:
        """What "accepted from `source` on" asks of the text after the next character."""
        if source not in self._sources:
            self.all.budget.spend(20)
            expansion = self.all.expansion(source)
            self._sources[source] = self._begin(expansion, self.all.left_kind(source))
        return self._sources[source]

    def trackers_after(self) -> Trackers:
        """Where the lookbehinds' automata stand after the next character."""
        if self._trackers_after is None:
            reached: dict[int, Formula] = {}
            for source, condition_before in self.trackers:
                self.all.budget.spend(20)
                condition = self.after(condition_before)
                for looks, targets in self.all.expansion(source).edges.items():
                    inside = targets & self.members
                    if not inside:
                        continue
                    self.all.budget.spend(10 * inside.bit_count())
                    here = self._all_hold(looks, self.all.left_kind(source), condition)
                    for target in bits(inside):
                        reached[target] = self.formulas.disjunction(reached.get(target, FALSE), here)
            self._trackers_after = tuple(sorted(item for item in reached.items() if item[1] != FALSE))
        return self._trackers_after

    def _begin(self, expansion: Expansion, left: int) -> Formula:
        """What an automaton asks that can go on with `expansion` here."""
        result = FALSE
        if self.at_end:
            for right, looks in expansion.ends:
                if right & self.right:
                    result = self.formulas.disjunction(result, self._all_hold(looks, left, TRUE))
            return result
        for looks, targets in expansion.edges.items():
            inside = targets & self.members
            if inside:
                here = self._all_hold(looks, left, self._any_of(inside))
                result = self.formulas.disjunction(result, here)
        return result

    def _any_of(self, targets: int) -> Formula:
        if targets & self.all.positions.tail:
            return TRUE
        # from the last variable to the first each step adds one node on top
        variables = [self.formulas.variable(target) for target in bits(targets)]
        return reduce(self.formulas.disjunction, reversed(variables), FALSE)

    def _all_hold(self, looks: Looks, left: int, formula: Formula) -> Formula:
        """`formula` and every one of `looks`."""
        for look in looks:
            formula = self.formulas.conjunction(formula, self._look(look, left))
        return formula

    def _look(self, look: int, left: int) -> Formula:
        """What lookaround `look` asks, here after a character of kind `left`. Recursion: as deep as they nest."""
        found = self._looks.get((look, left))
        if found is None:
            node = self.all.positions.looks[look]
            if node.behind:
                found = self._ended_here(look + 1)
            else:
                found = self._begin(self.all.root_expansion(look + 1, left), left)
            found ^= node.negative
            self._looks[look, left] = found
        return found

    def _ended_here(self, root: int) -> Formula:
        """What it asks that the lookbehind automaton `root` ends here."""
        result = FALSE
        self.all.budget.spend(5 * len(self.trackers))
        for source, condition in self.trackers:
            if self.all.root_of[source] != root:
                continue
            for right, looks in self.all.expansion(source).ends:
                if right & self.right:
                    here = self._all_hold(looks, self.all.left_kind(source), self.after(condition))
                    result = self.formulas.disjunction(result, here)
        return result
