"""A short text under history constraints: a search over configurations with their histories.

Only needed where the machine's own shortest text repeats an element, as ``["",""]`` does under uniqueItems.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterator

from stcon.errors import TooLarge, Unsatisfiable
from stcon.grammar.completion import Completions
from stcon.grammar.history import EMPTY, History, observe
from stcon.grammar.liveness import candidates
from stcon.grammar.machine import Configuration, Machine

MAX_PLACES = 2_000

_READABLE = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")


def short_distinct(machine: Machine, *, max_places: int = MAX_PLACES) -> bytes:
    """A text of `machine` in which no collection has equal elements: a shortest one if the search finds it in time.

    Args:
        machine: built whole on the way.
        max_places: budget of configurations with their histories, first for A* and then for a greedy search.

    Raises:
        Unsatisfiable: there is none.
        TooLarge: both budgets, or the state budget, are spent.

    Cost: about 0.5 ms a place.
    """
    completions = Completions(machine)
    text = _search(completions, 1, max_places)
    if text is None:
        text = _search(completions, 0, max_places)
    if text is None:
        raise TooLarge("configurations searched for a short text", given=max_places + 1, limit=max_places)
    return text


def _search(completions: Completions, weight: int, max_places: int) -> bytes | None:
    """The first text found; the places with the fewest bytes left, and with `weight` those read, come first.

    With weight 1 that text is a shortest, because what is left is never overestimated, as long as `_following` tries
    enough. None if `max_places` are spent.
    """
    machine = completions.machine
    start = machine.initial()
    ticket = itertools.count()
    heap = [(completions.needed(start) or 0, 0, next(ticket), b"", start, EMPTY)]
    seen: set[Hashable] = set()
    while heap:
        _, _, _, text, config, history = heapq.heappop(heap)
        if machine.accepts(config):
            return text
        place = (config, tuple((scope.text, scope.elements.values()) for scope in history.scopes))
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > max_places:
            return None
        for byte, reached, after in _following(machine, config, history):
            needed = completions.needed(reached)
            if needed is not None:
                longer = text + bytes((byte,))
                # of equal promise the longest first, and of these the first tried
                promise = (weight * len(longer) + needed, -len(longer), next(ticket))
                heapq.heappush(heap, (*promise, longer, reached, after))
    raise Unsatisfiable("every text repeats an item or a name")


def _following(
    machine: Machine, config: Configuration, history: History
) -> Iterator[tuple[int, Configuration, History]]:
    """What one more byte can reach. Of bytes that lead to one configuration, one more is tried than there are elements
    to differ from."""
    tries = 1 + sum(len(scope.elements) for scope in history.scopes)
    tried: dict[Configuration, int] = {}
    for byte in sorted(candidates(machine, config), key=lambda byte: byte not in _READABLE):
        reached = observe(machine, config, history, (byte,))
        if reached is not None and tried.get(reached[0], 0) < tries:
            tried[reached[0]] = tried.get(reached[0], 0) + 1
            yield byte, *reached
