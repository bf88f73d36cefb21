"""Quick plans: where nothing is forced after a token, which is most of the time, and where a plan was made before.

`Planner.step` asks here first. What it gets is what `Planner.plan` would give, or None:

* **Quiet places.** Whether a configuration forces any text, and whether its mask is the kernel's own with two tokens
  or more, are facts of the configuration and of a history that holds no elements; they are found out once and kept
  (`QuietPlaces`). A token that leads to a quiet place needs no forced text, no split and no cover.
* **Plans made before.** Streams of one grammar meet the same choices after the same text (`true` or `false`, a member
  of an enumeration): plans that bring forced text are kept by all that they depend on (`Remembered`).

Both belong to a kernel and are shared by its planners, from any thread: entries are never changed, and losing a race
costs one computation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.history import History

if TYPE_CHECKING:
    from stcon.constraint.forced import Plan
    from stcon.constraint.history_masks import HistoryMasks
    from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]

MAX_PLACES = 32_768
MAX_PLANS = 512


class Quiet(NamedTuple):
    """A place where nothing is forced.

    Attributes:
        config: int32[67].
        history: after the same text.
        mask: int32[W], the kernel's own; two tokens at least.
        num_admissible: tokens in it.
    """

    config: Int32
    history: History
    mask: Int32
    num_admissible: int


class QuietPlaces:
    """Where nothing is forced, for one kernel.

    Args:
        vocabulary: the kernel's.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._places: dict[tuple[bytes, History], int] = {}  # tokens in the mask; 0: not quiet
        ends = np.zeros(vocabulary.num_words * 32, np.uint8)
        ends[list(vocabulary.end_ids)] = 1
        self._spelled: Int32 = ~np.packbits(ends, bitorder="little").view(np.int32)

    def after(self, histories: HistoryMasks, plan: Plan, token: int) -> Quiet | None:
        """Where `token` leads from `plan`, if that is a quiet place; None if not, or not known.

        Cost: two calls of the kernel; where the place was not met before, a mask and a step of forced text more.
        """
        kernel, history = histories.kernel, plan.history
        data = self._vocabulary.token_bytes(token) if 0 <= token < self._vocabulary.size else None
        if data is None or not _holds_nothing(history):
            return None
        config = plan.config.copy()
        if kernel.machine.marks:
            events = kernel.trace(config, data)
            after = None if events is None else history.after(data, events, int(config[1]))
            if after is None or not _holds_nothing(after):
                return None
            history = after
        elif not kernel.advance(config, data) or kernel.machine.marks:  # none was built on the way either
            return None
        place = (config[: 3 + int(config[1])].tobytes(), history)
        count = self._places.get(place)
        if count is None:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            count = self._places[place] = self._count(histories, config, history)
        if not count:
            return None
        mask = np.empty(self._vocabulary.num_words, np.int32)
        kernel.mask(config, mask)
        return Quiet(config, history, mask, count)

    def _count(self, histories: HistoryMasks, config: Int32, history: History) -> int:
        """Tokens in the mask of a quiet place; 0 for another."""
        if not histories.is_alive(config, history) or histories.forced(config, history, 1):
            return 0
        mask = np.empty(self._vocabulary.num_words, np.int32)
        if not histories.mask(config, history, mask):
            return 0
        return _count_bits(mask) if _count_bits(mask & self._spelled) >= 2 else 0


def _count_bits(words: Int32) -> int:
    return int(np.bitwise_count(words.view(np.uint32)).sum())


def _holds_nothing(history: History) -> bool:
    """Whether no open collection holds an element, ended or begun: what is kept of it is that it is open."""
    return all(not scope.elements and scope.text is None for scope in history.scopes)


class Remembered:
    """The plans used last, by what they depend on."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable) -> Plan | None:
        """The plan of `key`."""
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            return plan

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Remember `plan`; the one used longest ago is forgotten. Its arrays are not to be written to any more."""
        plan.config.flags.writeable = plan.mask.flags.writeable = False
        with self._lock:
            self._plans[key] = plan
            if len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)


class Shared:
    """What all planners of one kernel share."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.places = QuietPlaces(vocabulary)
        self.plans = Remembered()


_shared: WeakKeyDictionary[object, Shared] = WeakKeyDictionary()
_lock = Lock()


def shared_by(kernel: object, vocabulary: Vocabulary) -> Shared:
    """That of `kernel`, made when first asked for."""
    with _lock:
        found = _shared.get(kernel)
        if found is None:
            found = _shared[kernel] = Shared(vocabulary)
        return found
