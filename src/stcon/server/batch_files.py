"""OpenAI's batch files: requests as JSON lines in, results as JSON lines out, each written when it is there.

**Resuming.** The output is appended to, a line at a time, and a line is there or it is not: what a kill leaves of a
line that was being written is cut off by the next run. A request whose ``custom_id`` has a line is not run again. So
after any number of kills every request has exactly one line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stcon.errors import RequestError

URLS = ("/v1/chat/completions", "/v1/completions")

_BEGINNING = b'{"id": "batch_req_'  # of every result


class Line(NamedTuple):
    """A request of the input file.

    Attributes:
        number: of the line, from 1.
        custom_id: the caller's name for it.
        url: one of `URLS`, or what stands there.
        body: the request.
    """

    number: int
    custom_id: str
    url: str
    body: Mapping[str, Any]


def read_lines(path: str) -> Iterator[Line]:
    """The requests of a batch file.

    Raises:
        RequestError: the file cannot be read, or a line is none of the format; names the line.
    """
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _parse(path, number, text)
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 ({error.reason})") from None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None


def check(path: str) -> list[str]:
    """The ``custom_id`` of every request.

    Raises:
        RequestError: as `read_lines`; two requests have the same one; or there is none.
    """
    seen: dict[str, int] = {}
    for line in read_lines(path):
        first = seen.setdefault(line.custom_id, line.number)
        if first != line.number:
            raise RequestError(f"{path}: lines {first} and {line.number} have the same custom_id {line.custom_id!r}")
    if not seen:
        raise RequestError(f"{path}: no request in it")
    return list(seen)


class Results:
    """The output file: what it has, and a way to add to it. One process at a time.

    Args:
        path: made if it is not there.

    Attributes:
        done: the ``custom_id`` of every line that it has.

    Raises:
        RequestError: it cannot be written, is none of ours, or another process writes to it.
    """

    def __init__(self, path: str) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise RequestError(f"{path}: {error.strerror or error}") from None
        try:
            _lock(self._file, path)
            self.done = _recover(self._file, path)
        except BaseException:
            os.close(self._file)
            raise

    def add(self, line: Line, status: int, body: Mapping[str, Any], request_id: str) -> None:
        """Write the result of `line`."""
        response = {"status_code": status, "request_id": request_id, "body": body}
        # a result begins as `_BEGINNING` says, so that what a kill leaves of one is known for one
        record = {"id": f"batch_req_{request_id}", "custom_id": line.custom_id, "response": response, "error": None}
        try:
            data = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        except UnicodeEncodeError:  # half a surrogate pair, from a custom_id
            data = json.dumps(record).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        self.done.add(line.custom_id)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync(self._file)
        os.close(self._file)


def _parse(path: str, number: int, text: str) -> Line:
    def refuse(what: str) -> RequestError:
        return RequestError(f"{path}: line {number}: {what}")

    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise refuse("expected an object with custom_id, url and body")
    if not isinstance(record.get("custom_id"), str):
        raise refuse("custom_id: expected a string")
    if record.get("method", "POST") != "POST":
        raise refuse(f"method: expected POST, got {record['method']!r}")
    if not isinstance(record.get("body"), dict):
        raise refuse("body: expected an object")
    if record.get("url") not in URLS:
        raise refuse(f"url: expected {' or '.join(URLS)}, got {record.get('url')!r}")
    return Line(number, record["custom_id"], record["url"], record["body"])


def _lock(file: int, path: str) -> None:
    try:
        import fcntl
    except ImportError:  # not a Unix: two runs at once are the caller's to avoid
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RequestError(f"{path}: another process is writing to it") from None


def _recover(file: int, path: str) -> set[str]:
    """The requests that the file has results of; the beginning of a result without its end is cut off.

    Nothing is cut off a file that is none of ours.
    """
    done = set()
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        end = 0
        for number, data in enumerate(reader, 1):
            is_whole = data.endswith(b"\n")
            name = _result_of(data) if is_whole else None
            if name is None and (is_whole or not (data.startswith(_BEGINNING) or _BEGINNING.startswith(data))):
                raise RequestError(f"{path}: line {number} is no result of a batch; give another file")
            if name is None:
                break
            done.add(name)
            end += len(data)
    if os.fstat(file).st_size > end:
        os.ftruncate(file, end)
    return done


def _result_of(data: bytes) -> str | None:
    """The ``custom_id`` that a line is the result of; None: it is no result."""
    try:
        record = json.loads(data)
        return str(record["custom_id"]) if "response" in record else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
