"""The metadata of a GGUF file: what a model's weights do not say, such as its chat template.

Read here rather than with the ``gguf`` package because that takes seconds for a vocabulary (one array view a string)
where a walk over the bytes takes a tenth of one, and because a broken file must end in one clear line.

Source: the GGUF specification, version 3 (ggml, docs/gguf.md); little-endian files of version 2 and 3.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stcon.errors import ModelUnavailable

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ITEMS = 1 << 26

CONTROL, USER_DEFINED = 3, 4


def read_metadata(path: Path) -> dict[str, Any]:
    """Every key of the file with its value: numbers, booleans, strings, lists of these.

    Raises:
        ModelUnavailable: not a GGUF file, cut short, or of a version not read here.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).metadata()
    except (struct.error, ValueError, KeyError, IndexError, OverflowError) as error:
        raise ModelUnavailable(f"{path} is not a complete GGUF file ({error}); fetch it again") from error
    except OSError as error:
        raise ModelUnavailable(f"cannot read {path}: {error.strerror or error}") from error


def special_texts(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The text of the tokens that a prompt's text means as one token, with their ids: control and user-defined ones."""
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    types = metadata.get("tokenizer.ggml.token_type", [])
    return {
        text: number
        for number, (text, kind) in enumerate(zip(tokens, types, strict=False))
        if kind in (CONTROL, USER_DEFINED) and text
    }


def named_specials(metadata: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token``, ``eos_token`` and the like with their text, as chat templates name them."""
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    found = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    return {
        name: tokens[number] for name, number in found.items() if isinstance(number, int) and 0 <= number < len(tokens)
    }


class _Reader:
    """A cursor over the bytes of a GGUF file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def metadata(self) -> dict[str, Any]:
        """The header and all key-value pairs."""
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self.position = 4
        version = self.scalar("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        _tensors, count = self.scalar("Q"), self.scalar("Q")
        if count > _MAX_ITEMS:
            raise ValueError(f"{count} keys")
        return {self.string(): self.value(self.scalar("I")) for _ in range(count)}

    def scalar(self, code: str) -> Any:
        """One number."""
        (value,) = struct.unpack_from("<" + code, self.data, self.position)
        self.position += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        """A length and that many bytes."""
        length = self.scalar("Q")
        end = self.position + length
        if end > len(self.data):
            raise ValueError("a string runs past its end")
        text = self.data[self.position : end].decode("utf-8", "replace")
        self.position = end
        return text

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of the given type."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            if depth > 4:
                raise ValueError("arrays nested too deeply")
            return self.array(depth)
        return self.scalar(_SCALARS[kind])

    def array(self, depth: int) -> list[Any]:
        """An array, its type and length first."""
        kind, count = self.scalar("I"), self.scalar("Q")
        if count > _MAX_ITEMS:
            raise ValueError(f"an array of {count} items")
        if kind not in _SCALARS:
            return [self.value(kind, depth + 1) for _ in range(count)]
        layout = f"<{count}{_SCALARS[kind]}"
        values = list(struct.unpack_from(layout, self.data, self.position))
        self.position += struct.calcsize(layout)
        return values
