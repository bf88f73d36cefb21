"""Products of the automata of atoms, labelled by which of several formulas holds.

All automata at once is the quickest where it fits. Else one after another, minimal in between: then a product of fifty
bounds has a few hundred states however many tuples there are. The order is that of the atoms' text, so a product over
some of the atoms is never larger than that over all of them: what has been found to fit keeps fitting.

Source: J. E. Hopcroft and J. D. Ullman, Introduction to Automata Theory (1979), section 3.2 (products).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stcon.automata import CharDfa, product
from stcon.errors import TooLarge

MAX_PRODUCT_STATES = 50_000
MAX_FOLDED_STATES = 60_000
MAX_FACTORS = 24

Label = Callable[[tuple[int, ...]], int]


def labelled_product(factors: Sequence[CharDfa], label: Label) -> CharDfa:
    """The minimal product of `factors`, labelled by ``label`` of the tuple of their labels.

    Raises:
        TooLarge: more than `MAX_PRODUCT_STATES` are reachable, and folding passes `MAX_FOLDED_STATES` in all.

    Cost: about 20 µs a state and 50 classes.
    """
    if len(factors) <= MAX_FACTORS:
        try:
            return product(factors, label, max_states=MAX_PRODUCT_STATES)
        except TooLarge:
            if len(factors) <= 2:
                raise
    return _folded(factors, label)


def _folded(factors: Sequence[CharDfa], label: Label) -> CharDfa:
    """One factor after another; a label in between is the number of a tuple of labels."""
    tuples: dict[tuple[int, ...], int] = {}
    members: list[tuple[int, ...]] = []

    def number(labels: tuple[int, ...]) -> int:
        key = (*members[labels[0]], *labels[1:])
        if key not in tuples:
            tuples[key] = len(members)
            members.append(key)
        return tuples[key]

    members.append(())
    result = product([factors[0]], lambda labels: number((0, *labels)), max_states=MAX_PRODUCT_STATES)
    spent = result.num_states
    for factor in factors[1:]:
        result = product([result, factor], number, max_states=MAX_PRODUCT_STATES)
        spent += result.num_states
        if spent > MAX_FOLDED_STATES:
            raise TooLarge("states of products of automata", given=spent, limit=MAX_FOLDED_STATES)
    return product([result], lambda labels: label(members[labels[0]]), max_states=MAX_PRODUCT_STATES)
