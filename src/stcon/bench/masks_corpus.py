"""What `stcon bench masks` reads: schemas with instances to accept and to reject, one JSON object a line.

Two forms of a line, told apart by their keys:

* ``{"id", "schema", "tests": [{"description", "valid", "data"}]}`` (MaskBench, the official test suite): each instance
  is written as ``json.dumps(data, ensure_ascii=False)``;
* ``{"id", "schema", "accept": [text], "reject": [text]}``: the texts are fed as they are, so that every JSON spelling
  of a character is asked for (``escapes="any"``).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from stcon.errors import RequestError

Format = Literal["assert", "annotation"]
Escapes = Literal["minimal", "any"]

SUITE_BASE = "http://localhost:1234/"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Instance:
    """A JSON text, and whether the schema allows it."""

    description: str
    valid: bool
    text: str


@dataclass(frozen=True)
class Case:
    """A schema with its instances.

    Attributes:
        schema: JSON text, so that every engine parses it within its own time.
        format: whether known formats are asserted.
        escapes: which spellings of characters its texts may use.
    """

    id: str
    schema: str
    instances: tuple[Instance, ...]
    format: Format = "assert"
    escapes: Escapes = "minimal"


def read_cases(path: str, *, suite: bool = False, every: int = 1, limit: int | None = None) -> list[Case]:
    """The cases of a file: every `every`-th, then at most `limit`.

    Args:
        path: JSON lines, gzip or plain.
        suite: the file is the official suite: in groups whose id begins with ``format``, `format` is an annotation.

    Raises:
        RequestError: no such file, or a line that is not a case; with the line's number.
    """
    lines = islice(_lines(path), 0, None, every)
    return [_case(line, f"{path}, line {number}", suite) for number, line in islice(lines, limit)]


def read_documents(path: str) -> dict[str, Any]:
    """URI → document, for references to other documents. A name without a scheme is taken below `SUITE_BASE`.

    Raises:
        RequestError: no such file, or not a JSON object.
    """
    try:
        documents = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}; check the path") from None
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}") from None
    if not isinstance(documents, dict):
        raise RequestError(f"{path}: expected a JSON object of URI and document, got {type(documents).__name__}")
    return {name if ":" in name else SUITE_BASE + name: document for name, document in documents.items()}


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, numbered from 1."""
    try:
        with open(path, "rb") as probe:
            zipped = probe.read(2) == _GZIP
        with gzip.open(path) if zipped else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"{path}: {reason}; give a file of JSON lines, gzip or plain") from None


def _case(line: bytes, place: str, suite: bool) -> Case:
    try:
        row = json.loads(line)
        texts = "accept" in row or "reject" in row
        return Case(
            id=str(row["id"]),
            schema=json.dumps(row["schema"], ensure_ascii=False),
            instances=tuple(_texts(row) if texts else _dumped(row)),
            format="annotation" if suite and str(row["id"]).startswith("format") else "assert",
            escapes="any" if texts else "minimal",
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RequestError(f"{place}: not a case ({type(error).__name__}: {error}); see --help for the form") from None


def _texts(row: Mapping[str, Any]) -> Iterator[Instance]:
    for valid, key in ((True, "accept"), (False, "reject")):
        for number, text in enumerate(row.get(key, ())):
            if not isinstance(text, str):
                raise TypeError(f"{key} holds JSON texts as strings")
            yield Instance(f"{key} {number}", valid, text)


def _dumped(row: Mapping[str, Any]) -> Iterator[Instance]:
    for test in row["tests"]:
        yield Instance(
            str(test.get("description", "")), bool(test["valid"]), json.dumps(test["data"], ensure_ascii=False)
        )
