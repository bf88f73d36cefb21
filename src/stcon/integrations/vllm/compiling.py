"""`Compiler`: grammars compiled once and in bounded time, and the sessions under them.

A `Compiler` works in threads of its own, so that whoever waits for it can stop waiting: a schema that takes longer than
`seconds` is refused. Its thread goes on until the compiler's own limits end it, and is one of few, so that hostile
schemas wait for each other and not the engine for them.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING

from stcon.errors import GrammarError, RequestError
from stcon.integrations.vllm.requests import PREFIX

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.integrations.vllm.requests import Constraint
    from stcon.integrations.vllm.session import Session, Stops
    from stcon.kernels.cpu import CpuKernel
    from stcon.vocab.vocabulary import Vocabulary

SECONDS_VARIABLE = "STCON_VLLM_COMPILE_SECONDS"
DEFAULT_SECONDS = 15.0
MAX_KEPT = 32
_THREADS = 2


class CompilingTooLong(RequestError):
    """A grammar was not ready after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"the grammar was not compiled within {seconds:g} s; simplify it, ask again later, or start the server "
            f"with {SECONDS_VARIABLE} set to more"
        )


class Compiler:
    """Compiles constraints for one vocabulary; the `most` used last are kept. Safe to use from any thread.

    Args:
        vocabulary: the model's.
        seconds: the longest that `session` waits; None: `SECONDS_VARIABLE`, or `DEFAULT_SECONDS`.
        most: grammars kept, with their masks.
    """

    def __init__(self, vocabulary: Vocabulary, seconds: float | None = None, most: int = MAX_KEPT) -> None:
        self.vocabulary = vocabulary
        self.seconds = float(os.environ.get(SECONDS_VARIABLE, DEFAULT_SECONDS)) if seconds is None else seconds
        self._most = most
        self._ready: OrderedDict[Constraint, Future[tuple[Grammar, CpuKernel]]] = OrderedDict()
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stcon-compile")

    def session(self, constraint: Constraint, stops: Stops, limit: int | None, max_rollback: int = 256) -> Session:
        """A new session.

        Args:
            constraint: what the output must be.
            stops: the engine's end tokens.
            limit: tokens the output may have; not looked at where the settings ask for no budget.
            max_rollback: see `Session`.

        Raises:
            GrammarError, LimitTooSmall, DecodingError: see `Constraint.compile` and `Session`.
            CompilingTooLong: it is not ready in time.
        """
        from stcon.integrations.vllm.session import Session

        grammar, _ = self.prepare(constraint)
        settings = constraint.settings
        return Session(
            grammar,
            self.vocabulary,
            stops,
            mode=settings.mode,
            limit=limit if settings.budget else None,
            max_rollback=max_rollback,
        )

    def prepare(self, constraint: Constraint) -> tuple[Grammar, CpuKernel]:
        """Compile `constraint`, if that is not done; the grammar and what its sessions share.

        Raises:
            GrammarError, DecodingError, CompilingTooLong: see `session`.
        """
        future = self._future(constraint)
        try:
            return future.result(self.seconds)
        except TimeoutError:
            raise CompilingTooLong(self.seconds) from None

    def _future(self, constraint: Constraint) -> Future[tuple[Grammar, CpuKernel]]:
        with self._lock:
            future = self._ready.get(constraint)
            if future is None or (future.done() and future.exception() is not None):
                future = self._ready[constraint] = self._threads.submit(prepared, constraint, self.vocabulary)
            self._ready.move_to_end(constraint)
            while len(self._ready) > self._most:
                self._ready.popitem(last=False)
        return future


def prepared(constraint: Constraint, vocabulary: Vocabulary) -> tuple[Grammar, CpuKernel]:
    """The grammar of `constraint`, with the tables that its sessions share and the first mask.

    Raises:
        GrammarError: it does not compile, or is too large for limits to be kept.
        DecodingError: no tokens spell a text of it.
    """
    from stcon.constraint.budget import budget_for
    from stcon.constraint.forced import Planner
    from stcon.constraint.sharing import kernel_for, machine_of

    grammar = constraint.compile()
    kernel = kernel_for(machine_of(grammar), vocabulary)
    if constraint.settings.budget:
        try:
            budget_for(kernel)
        except GrammarError as error:
            error.advice = f"set {PREFIX}budget to false, and the output may be cut where max_tokens is reached"
            raise error.at(error.pointer, error.keyword) from None
    Planner(vocabulary, kernel).start()
    return grammar, kernel


_compilers: weakref.WeakKeyDictionary[Vocabulary, Compiler] = weakref.WeakKeyDictionary()
_lock = Lock()


def compiler_for(vocabulary: Vocabulary) -> Compiler:
    """The compiler that all of a process share for `vocabulary`."""
    with _lock:
        return _compilers.setdefault(vocabulary, Compiler(vocabulary))
