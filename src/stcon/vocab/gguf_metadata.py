"""The metadata of a GGUF file, read without the ``gguf`` package.

That package maps every string of a vocabulary to an array view of its own, seconds for what a walk over the bytes does
in a tenth of one; and a broken file must end in one clear line, at whatever byte it breaks.

Source: the GGUF specification, version 3 (ggml, docs/gguf.md); little-endian files of version 2 and 3.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from stcon.errors import ModelUnavailable

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DEPTH = 4


def read_metadata(path: Path) -> dict[str, Any]:
    """Every key of the file with its value: numbers, booleans, strings, lists of these.

    Raises:
        ModelUnavailable: not a GGUF file, cut short, or of a version not read here.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).metadata()
    except OSError as error:
        raise ModelUnavailable(f"cannot read {path}: {error.strerror or error}") from error
    except (struct.error, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise ModelUnavailable(f"{path} is not a complete GGUF file ({error}); fetch it again") from error


class _Reader:
    """A cursor over the bytes of a GGUF file. Lengths are checked against the file before anything is allocated."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def metadata(self) -> dict[str, Any]:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self.position = 4
        if (version := self.scalar("I")) not in (2, 3):
            raise ValueError(f"version {version}")
        _num_tensors, num_keys = self.scalar("Q"), self.scalar("Q")
        return {self.string(): self.value(self.scalar("I")) for _ in range(num_keys)}

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self._take(struct.calcsize("<" + code)))
        return value

    def string(self) -> str:
        begin = self._take(self.scalar("Q"))
        return self.data[begin : self.position].decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(depth + 1)
        return self.scalar(_SCALARS[kind])

    def array(self, depth: int) -> list[Any]:
        if depth > _MAX_DEPTH:
            raise ValueError("arrays nested too deeply")
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind not in _SCALARS:
            return [self.value(kind, depth) for _ in range(count)]
        code = _SCALARS[kind]
        begin = self._take(count * struct.calcsize("<" + code))
        return list(struct.unpack_from(f"<{count}{code}", self.data, begin))

    def _take(self, size: int) -> int:
        """Move past `size` bytes; returns where they begin."""
        begin = self.position
        if size > len(self.data) - begin:
            raise ValueError(f"it ends inside a value at byte {begin:,}")
        self.position = begin + size
        return begin
