"""One kernel for each machine and vocabulary, shared by all their matchers, so that mask rows are computed once."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from stcon.errors import InvalidOption
from stcon.grammar.machine import Machine

if TYPE_CHECKING:
    from stcon.kernels.cpu import CpuKernel
    from stcon.vocab import Vocabulary

NUM_KEPT_WARM = 8

# a kernel keeps its machine and vocabulary alive, so an id found here is never one that was given away again
_kernels: WeakValueDictionary[tuple[int, int], CpuKernel] = WeakValueDictionary()
_warm: deque[CpuKernel] = deque(maxlen=NUM_KEPT_WARM)
_lock = Lock()


def kernel_for(machine: Machine, vocabulary: Vocabulary) -> CpuKernel:
    """The kernel of the two: the one that someone keeps, or that is among the `NUM_KEPT_WARM` newest; else a new one.

    Safe to call from any thread, and the kernel locks itself.
    """
    from stcon.kernels.cpu import CpuKernel

    with _lock:
        key = (id(machine), id(vocabulary))
        kernel = _kernels.get(key)
        if kernel is None:
            kernel = _kernels[key] = CpuKernel(machine, vocabulary)
        if not any(kernel is warm for warm in _warm):  # one request after another finds its rows again
            _warm.append(kernel)
        return kernel


def machine_of(grammar: object) -> Machine:
    """The machine of a `Grammar`, or `grammar` itself if it is one. Raises InvalidOption if it is neither."""
    machine = getattr(grammar, "machine", grammar)
    if not isinstance(machine, Machine):
        raise InvalidOption(f"a matcher needs a Grammar or a Machine, not {type(grammar).__name__}; compile it first")
    return machine
