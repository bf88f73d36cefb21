"""Where stcon keeps what it fetches or compiles."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """``$STCON_CACHE``, or the platform's cache directory for stcon. Not created here."""
    if chosen := os.environ.get("STCON_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "stcon"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "stcon" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stcon"
