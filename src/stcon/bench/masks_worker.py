"""One engine in a process of its own, watched from here.

Native code cannot be interrupted, and it can crash; so each engine works in a child process that is killed when a case
takes too long or too much memory, and started again. What the child reported until then is kept. It also makes peak
memory a fact of one engine.

The child settles before the first case: the engine is set up and warmed up on `WARM_UP` (compiled code is loaded), and
what was allocated so far is hidden from Python's garbage collector, as long-running servers do (`gc.freeze`). This is
the same for every engine.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from stcon.bench.masks_corpus import Case, Instance
from stcon.bench.masks_engines import Engine, Settings, build_engine, load_vocabulary
from stcon.bench.masks_measure import Compiled, Event, Refusal, Tokens, measure
from stcon.bench.masks_memory import peak_bytes, reset_peak, resident_bytes
from stcon.errors import ModelUnavailable, StconError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from stcon.vocab.vocabulary import Vocabulary

Encode: TypeAlias = Callable[[str], list[int]]
Build: TypeAlias = Callable[[str, Settings], tuple[Engine, Encode]]

SETUP_LIMIT_S = 600.0
GOODBYE_S = 5.0
_LOOK_EVERY_S = 0.25

WARM_UP = (
    Case(
        "warm-up object",
        '{"type": "object", "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 40},'
        ' "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$"}, "age": {"type": "integer", "minimum": 0},'
        ' "ratio": {"type": "number"}, "kind": {"enum": ["a", "bc", 3, null]}, "on": {"type": "boolean"},'
        ' "when": {"type": "string", "format": "date"}}, "required": ["name"]}',
        (
            Instance(
                "",
                True,
                '{"name": "Zoë\\n \\"x\\"", "code": "AB-12", "age": 7, "ratio": -1.5e3, "kind": null, "on": true,'
                ' "when": "2024-02-29"}',
            ),
            Instance("", False, '{"name": 1}'),
        ),
    ),
    Case(
        "warm-up array",
        '{"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1, "$defs": {"node": {"type": "object",'
        ' "properties": {"next": {"$ref": "#/$defs/node"}, "tags": {"type": "array", "items": {"type": "string"}}}}}}',
        (Instance("", True, '[{"next": {"next": {"tags": ["a", "b"]}}, "more": [1, {}, "x"]}]'),),
    ),
    Case(  # long enough that everything an engine does once in a while has been done
        "warm-up text",
        '{"type": "object", "patternProperties": {"^x-": {"type": "string"}}}',
        (Instance("", True, '{"x-text": "' + "Lorem ipsum, dolor sit amet. " * 50 + '", "more": [1.5]}'),),
    ),
    Case(
        "warm-up unique",
        '{"type": "array", "items": {"type": "string"}, "uniqueItems": true}',
        (Instance("", True, '["a", "b"]'), Instance("", False, '["a", "a"]')),
    ),
)


@dataclass(frozen=True)
class Ready:
    """The child is set up, at `resident` bytes."""

    options: Mapping[str, Any]
    resident: int | None


@dataclass(frozen=True)
class Done:
    """The child has finished a case; the most memory it held so far was `peak` bytes."""

    peak: int | None


@dataclass(frozen=True)
class Failed:
    """The child cannot be set up."""

    message: str


def build(name: str, settings: Settings) -> tuple[Engine, Encode]:
    """The engine of `name` and its vocabulary's encoder, in the child."""
    vocabulary: Vocabulary = load_vocabulary(settings.tokenizer)
    return build_engine(name, vocabulary, settings), vocabulary.encode


class Worker:
    """An engine in a child process, started on first use and again after it was killed.

    Args:
        name: the engine's.
        settings: sent to the child.
        limit_s: for one case, from schema to last instance.
        memory_limit: resident bytes of the child.
        build: what sets the engine up there (importable by name); for tests.

    Attributes:
        options: of the engine, once started.
        setup_bytes: resident memory after set-up.
        peak_over_bytes: the most that memory grew past that.
        num_kills: how often the child had to be started again.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        limit_s: float,
        memory_limit: int,
        build: Build = build,
    ) -> None:
        self.name = name
        self.options: Mapping[str, Any] = {}
        self.setup_bytes: int | None = None
        self.peak_over_bytes: int | None = None
        self.num_kills = 0
        self._settings = settings
        self._limit_s = limit_s
        self._memory_limit = memory_limit
        self._build = build
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_ready = False

    def start(self) -> None:
        """Start the child without waiting for it."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self._build, self.name, self._settings), name=f"stcon-{self.name}", daemon=True
        )
        self._process.start()
        theirs.close()
        self._connection = ours

    def wait_until_ready(self) -> None:
        """Start the child if there is none, and wait until it is set up.

        Raises:
            ModelUnavailable: it cannot be set up: a package is not installed, or as the message says.
        """
        self.start()
        if self._is_ready:
            return
        message = self._receive(SETUP_LIMIT_S, SETUP_LIMIT_S)
        if not isinstance(message, Ready):
            self._kill()
            raise ModelUnavailable(f"engine {self.name} cannot be set up: {message.message}")
        self._is_ready = True
        self.options = message.options
        self.setup_bytes = message.resident

    def ask(self, case: Case, spelled: Sequence[Tokens | None]) -> Iterator[Event]:
        """`measure` in the child. Ends with a `Refusal` where it ran into a limit or died."""
        self.wait_until_ready()
        assert self._connection is not None
        with suppress(OSError):  # it died between two cases: reading says so
            self._connection.send((case, spelled))
        deadline = monotonic() + self._limit_s
        late = False
        while True:
            message = self._receive(deadline - monotonic(), self._limit_s)
            if isinstance(message, Done):
                self._note_peak(message.peak)
                return
            if isinstance(message, Refusal) and self._process is None:  # ours, not the engine's
                yield replace(message, late=late)
                return
            late = late or isinstance(message, Compiled)
            yield message

    def close(self) -> None:
        """Let the child end, or kill it."""
        if self._process is None or self._connection is None:
            return
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(GOODBYE_S)
        self._kill()

    def _receive(self, seconds: float, limit_s: float) -> Any:
        """The next message within `seconds` (of `limit_s`); a `Refusal` once a late, large or dead child is ended."""
        assert self._connection is not None
        assert self._process is not None
        deadline = monotonic() + seconds
        while True:
            remaining = deadline - monotonic()
            try:
                if self._connection.poll(max(0.0, min(_LOOK_EVERY_S, remaining))):
                    return self._connection.recv()
            except (EOFError, OSError):
                self._process.join(GOODBYE_S)
                code = self._process.exitcode
                self._kill()
                return Refusal("crash", f"the process ended with {_exit_text(code)}")
            if remaining <= 0:
                self._kill()
                return Refusal("time limit", f"more than {limit_s:g} s")
            if (resident_bytes(self._process.pid) or 0) > self._memory_limit:
                self._kill()
                return Refusal("memory limit", f"more than {self._memory_limit / 2**30:.1f} GiB")

    def _note_peak(self, peak: int | None) -> None:
        if peak is not None and self.setup_bytes is not None:
            self.peak_over_bytes = max(self.peak_over_bytes or 0, peak - self.setup_bytes)

    def _kill(self) -> None:
        """End the child, and forget it."""
        process, connection = self._process, self._connection
        if process is None or connection is None:
            return
        self._process = self._connection = None
        self._is_ready = False
        if process.is_alive():
            self._note_peak(peak_bytes(process.pid))
            self.num_kills += 1
            process.kill()
            process.join()
        connection.close()
        process.close()


def _exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


# --------------------------------------------------------------------------------------------------- in the child


def _serve(connection: Connection, build: Build, name: str, settings: Settings) -> None:
    """Answer cases until None comes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _silence()
    try:
        engine, encode = build(name, settings)
        for case in WARM_UP:
            list(measure(engine, case, [encode(instance.text) for instance in case.instances]))
    except StconError as error:
        connection.send(Failed(str(error)))
        return
    except Exception as error:
        connection.send(Failed(f"{type(error).__name__}: {error}"))
        return
    gc.collect()
    gc.freeze()
    reset_peak()
    connection.send(Ready(dict(engine.options), resident_bytes()))
    try:
        while (task := connection.recv()) is not None:
            for event in measure(engine, *task):
                connection.send(event)
            connection.send(Done(peak_bytes()))
    except (EOFError, BrokenPipeError):
        return


def _silence() -> None:
    """Send what native code prints to nowhere; errors come through the connection."""
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
