"""One lock a machine: rows are built while texts are read, by whoever reads them first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from stcon.grammar.machine import Machine

_locks: WeakKeyDictionary[Machine, threading.RLock] = WeakKeyDictionary()


def lock_of(machine: Machine) -> threading.RLock:
    """The lock that everyone shares who reads `machine`: hold it to build rows, or to read them while others may.

    A machine that is whole (`Machine.is_whole`) changes no more, and is read without it.
    """
    return _locks.setdefault(machine, threading.RLock())
