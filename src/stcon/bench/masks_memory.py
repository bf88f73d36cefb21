"""Resident memory of a process, as the system counts it; None where it does not say (only Linux and macOS do)."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_KIB = 1024


def resident_bytes(pid: int | None = None) -> int | None:
    """Of a process (this one if None), now."""
    return _status("VmRSS", pid)


def peak_bytes(pid: int | None = None) -> int | None:
    """The most it ever was, or since `reset_peak`."""
    found = _status("VmHWM", pid)
    if found is None and pid is None and sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found


def reset_peak() -> None:
    """Give freed memory back, so that using it again counts, and let `peak_bytes` of this process begin anew.

    Both where the system can: glibc's ``malloc_trim``; proc(5), ``clear_refs``.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status(field: str, pid: int | None) -> int | None:
    try:
        lines = Path(f"/proc/{os.getpid() if pid is None else pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{field}:"))
    return next((int(words[1]) * _KIB for words in found), None)
