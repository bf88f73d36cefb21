"""Resident memory of a process, as the system counts it; None where it does not say (only Linux and macOS do)."""

from __future__ import annotations

import os
import sys
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
    """Let `peak_bytes` of this process begin anew, where the system can (Linux: proc(5), clear_refs)."""
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
