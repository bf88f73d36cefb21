"""`Gate`: whether a constraint compiles, and in time, found out in a process that can be killed.

A thread that compiles cannot be stopped, and holds Python's lock for half of the time. So what a request asks for is
compiled first where that hurts nobody: in one of a few processes with nothing but the grammar compiler in them. What is
not ready after `seconds` is refused, and its process is ended and another takes its place. Whatever passes compiles in
about as much time in the server and in the engine.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import OrderedDict
from dataclasses import asdict
from queue import Empty, SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from threading import Lock

from stcon.errors import RequestError, StconError
from stcon.integrations.vllm.compiling import CompilingTooLong, prepared
from stcon.integrations.vllm.requests import Constraint, Settings

NUM_PROCESSES = 2
START_SECONDS = 120.0
MAX_KNOWN = 1_024


class Refused(RequestError):
    """A constraint that does not compile; the message is the compiler's."""


class Gate:
    """Lets constraints pass that compile in time. Safe to use from any thread.

    Args:
        seconds: the longest that one takes, and the longest that it waits for others.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._passed: OrderedDict[Constraint, None] = OrderedDict()
        self._lock = Lock()
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for _ in range(NUM_PROCESSES):
            self._idle.put(_Process())

    def knows(self, constraint: Constraint) -> bool:
        """Whether `constraint` has passed before, and not long ago."""
        with self._lock:
            if constraint not in self._passed:
                return False
            self._passed.move_to_end(constraint)
            return True

    def check(self, constraint: Constraint) -> None:
        """Return if `constraint` compiles.

        Raises:
            Refused: it does not.
            CompilingTooLong: not in time, or others took all of it.
        """
        if self.knows(constraint):
            return
        try:
            process = self._idle.get(timeout=self.seconds)
        except Empty:
            raise CompilingTooLong(self.seconds) from None
        try:
            problem = process.ask(constraint, self.seconds)
        finally:
            self._idle.put(process)
        if problem is not None:
            raise Refused(problem)
        with self._lock:
            self._passed[constraint] = None
            if len(self._passed) > MAX_KNOWN:
                self._passed.popitem(last=False)

    def close(self) -> None:
        """End the processes that are idle."""
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().end()


class _Process:
    """One compiling process. Begun at once, so that it is ready when it is asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._is_started = False
        self._begin()

    def ask(self, constraint: Constraint, seconds: float) -> str | None:
        """Why `constraint` does not compile; None if it does. Raises `CompilingTooLong`."""
        process = self._begin()
        assert process.stdin is not None
        try:
            if not self._is_started:
                self._line(process, START_SECONDS)
                self._is_started = True
            print(json.dumps(asdict(constraint)), file=process.stdin, flush=True)
            problem: str | None = json.loads(self._line(process, seconds))
        except TimeoutError:
            self.end()
            raise CompilingTooLong(seconds) from None
        except (OSError, ValueError):  # it ended, by memory for one
            self.end()
            return "the grammar could not be compiled: its process ended; simplify it"
        return problem

    def end(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._is_started = False

    def _begin(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "stcon.integrations.vllm.gate"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._process

    @staticmethod
    def _line(process: subprocess.Popen[str], seconds: float) -> str:
        """The next line; "" where there is none any more. Raises TimeoutError. One line is all that is ever waiting."""
        assert process.stdout is not None
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError
        return process.stdout.readline()


def main() -> None:
    """Say that it goes on; then compile the constraints on the standard input, and write why one does not, or null."""
    from stcon.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], [256])
    prepared(Constraint("regex", "a", Settings()), vocabulary)  # loads what is needed
    print(flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        problem: str | None = None
        try:
            prepared(Constraint(**{**asked, "settings": Settings(**asked["settings"])}), vocabulary)
        except StconError as error:
            problem = str(error)
        print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    main()
