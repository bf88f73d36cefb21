"""`Sandbox`: a temporary folder with the three tools of an agent: write_file, read_file, run_python.

**Files** are reached from the folder on, a component at a time, never through a symbolic link, so that no path and no
link that a program left behind leads out of it. **Programs** run in a process of their own that can read the
interpreter's files and its folder, write to its folder, and nothing else (`stcon.agents.confine`): no network, no other
process, no signal to one. Processor time, wall time, memory, open files, the size of each file and of the folder are
limited; what is over its limit is ended.

Linux 5.13 or newer (Landlock) on x86-64 or AArch64; elsewhere `Unconfined` says why. Nothing is run unconfined.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stcon.agents.seccomp import architectures, seccomp_filter
from stcon.errors import RequestError, StconError

UNCONFINED = 97  # the exit code of confine.py where it cannot confine; it is a program of its own, not imported here
_POLL_S = 0.02
_at_once = threading.BoundedSemaphore(max(2, os.cpu_count() or 2))  # programs, of all sandboxes: their memory adds up
_MAX_DEPTH = 16  # of a path that a tool is given
_SHARED_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_TIME_ZONES = ("/usr/share/zoneinfo", "/etc/localtime")


class Unconfined(RequestError):
    """Programs cannot be confined on this machine, so they are not run."""


class ToolFailure(StconError):
    """What a tool was asked for cannot be done; the message is for the model."""


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes:
        cpu_s: seconds of processor time, of all threads.
        wall_s: seconds until it is killed.
        memory: bytes of address space.
        file: bytes of a file that it writes, and of what it prints.
        folder: bytes of the folder, and of all that a program writes, looked at every 20 ms; more ends it.
        entries: files and folders in the folder.
        open_files: at a time.
        shown: characters of its output that the model is shown.
        read: bytes of a file that read_file gives.
    """

    cpu_s: int = 5
    wall_s: float = 10.0
    memory: int = 512 << 20
    file: int = 4 << 20
    folder: int = 32 << 20
    entries: int = 1000
    open_files: int = 64
    shown: int = 2000
    read: int = 16 << 10


@dataclass(frozen=True)
class Ran:
    """How a program ended.

    Attributes:
        code: exit code; negative: the signal that ended it.
        output: what it printed, cut to what is shown.
        why: which limit ended it, or "".
    """

    code: int
    output: str
    why: str = ""


class Sandbox:
    """One agent's folder; removed by `close`, or on leaving a ``with``.

    Args:
        limits: see `Limits`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.folder = Path(tempfile.mkdtemp(prefix="stcon-agent-")).resolve()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder, however deep it is."""
        if (remove := shutil.which("rm")) is not None:
            subprocess.run([remove, "-rf", "--", self.folder], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------- tools

    def write_file(self, path: str, content: str) -> str:
        """Write a file, making the folders on the way.

        Returns:
            A line for the model.

        Raises:
            ToolFailure: the path leads out of the folder or is no place for a file, or a limit is met.
        """
        data = content.encode("utf-8", "surrogatepass")
        used, entries = self._usage()
        if len(data) > self.limits.file or used + len(data) > self.limits.folder or entries >= self.limits.entries:
            raise ToolFailure(f"{path}: there is no room for {len(data):,} bytes")
        with self._opened(path, os.O_WRONLY | os.O_CREAT, make=True) as file:
            os.ftruncate(file, 0)  # only now is it known to be a file of its own
            while data:
                data = data[os.write(file, data) :]
        return f"wrote {path}"

    def read_file(self, path: str) -> str:
        """The text of a file; a long one is cut, with a note.

        Raises:
            ToolFailure: there is no such file in the folder.
        """
        with self._opened(path, os.O_RDONLY) as file:
            data, size = _read(file, self.limits.read), os.fstat(file).st_size
        text = data.decode("utf-8", "replace")
        return text if size <= len(data) else f"{text}\n[{size - len(data):,} more bytes]"

    def run_python(self, source: str) -> Ran:
        """Run a program in the folder, confined and limited; as many at a time as there are processors.

        Raises:
            Unconfined: this machine cannot confine it.
        """
        machine = platform.machine()
        if sys.platform != "linux" or machine not in architectures():
            raise Unconfined(f"programs are run on Linux alone (x86-64, AArch64), not on {sys.platform} {machine}")
        with _at_once, tempfile.TemporaryFile() as output:
            process = self._start(source, output.fileno(), machine)
            why = self._watch(process)
            text = os.pread(output.fileno(), 4 * self.limits.shown, 0).decode("utf-8", "replace")
        if process.returncode == UNCONFINED and text.startswith("cannot confine"):
            raise Unconfined(text.strip())
        shown = text if len(text) <= self.limits.shown else text[: self.limits.shown] + "\n[cut]"
        return Ran(process.returncode, shown, why)

    # ------------------------------------------------------------------------------------------------- inside

    def _start(self, source: str, output: int, machine: str) -> subprocess.Popen[bytes]:
        limits = self.limits
        specification = {
            "folder": str(self.folder),
            "read": _interpreter_files(),
            "limits": {
                "CPU": limits.cpu_s,
                "AS": limits.memory,
                "FSIZE": limits.file,
                "NOFILE": limits.open_files,
                "CORE": 0,
            },
            "filter": seccomp_filter(machine),
        }
        launcher = Path(__file__).with_name("confine.py")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(launcher), json.dumps(specification)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=self.folder,
            env={"HOME": str(self.folder), "TMPDIR": str(self.folder), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        assert process.stdin is not None, "asked for"
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(source.encode("utf-8", "replace"))
        return process

    def _watch(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the end, or bring it about; which limit it was."""
        deadline = time.monotonic() + self.limits.wall_s
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    return f"stopped after {self.limits.wall_s:g} s"
                if why := self._too_much(process.pid):
                    return why
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
            return self._too_much() or ("out of processor time" if process.returncode in {-9, -24} else "")
        finally:
            process.kill()
            process.wait()

    def _too_much(self, pid: int | None = None) -> str:
        used, entries = self._usage()
        if max(used, _written(pid)) > self.limits.folder:
            return f"stopped: more than {self.limits.folder:,} bytes were written"
        return f"stopped: more than {self.limits.entries:,} files" if entries > self.limits.entries else ""

    def _usage(self) -> tuple[int, int]:
        """Bytes on disk and entries of the folder. What cannot be counted is too much."""
        used = entries = 0
        waiting = [self.folder]
        while waiting and entries <= self.limits.entries:
            try:
                with os.scandir(waiting.pop()) as found:
                    for entry in found:
                        entries += 1
                        about = entry.stat(follow_symlinks=False)
                        used += about.st_blocks * 512
                        if stat.S_ISDIR(about.st_mode):
                            waiting.append(Path(entry.path))
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError:  # nested too deep to be named, or closed to us
                return used, self.limits.entries + 1
        return used, entries

    def _opened(self, path: str, flags: int, *, make: bool = False) -> _Descriptor:
        """A file of the folder, by a path from it.

        Raises:
            ToolFailure: see the message.
        """
        parts = _parts(path)
        try:
            place = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for part in parts[:-1]:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=place)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
                os.close(place)
                place = inner
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for
            file = _Descriptor(os.open(parts[-1], flags, 0o644, dir_fd=place))
        except OSError as error:
            reason = "a link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0).lower()
            raise ToolFailure(f"{path}: {reason}") from None
        finally:
            with suppress(OSError, UnboundLocalError):
                os.close(place)
        if not stat.S_ISREG(os.fstat(file.number).st_mode):
            file.close()
            raise ToolFailure(f"{path}: not a file")
        return file


class _Descriptor:
    """An open file's number, closed on leaving a ``with``."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        os.close(self.number)


def _parts(path: Any) -> list[str]:
    if not isinstance(path, str) or not path or "\0" in path or "\\" in path:
        raise ToolFailure("a path is a text of names with / between them")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or not parts or path.endswith("/"):
        raise ToolFailure(f"{path}: paths are those of files, from the working folder on, without ..")
    if len(parts) > _MAX_DEPTH or any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        raise ToolFailure("the path is too long")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ToolFailure("a path is a text of names with / between them") from None
    return parts


def _read(number: int, most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (part := os.read(number, most - len(data))):
        data += part
    return bytes(data)


def _written(pid: int | None) -> int:
    """Bytes that a process has written so far, to files that have no name any more too; 0 where that is not known."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    counts = dict(line.split(": ") for line in lines)
    return max(int(counts["wchar"]), int(counts["write_bytes"]))


def _interpreter_files() -> list[str]:
    """The standard library and what its extensions link to."""
    own = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("LIBDIR"))
    wanted = [*own, *_SHARED_LIBRARIES, *_TIME_ZONES]
    return sorted({os.path.realpath(place) for place in wanted if place and os.path.exists(place)})
