"""Tasks, and suites of them: files of JSON lines.

A line is an object with ``name``; ``prompt``; ``files``, a map from paths to texts that are there at the start; and
``check``, a Python program that is run in the folder afterwards, confined as the agent's own programs are. It passes if
it runs to its end; it has ``read(path)`` and ``answer``, what the agent said at last. ``max_turns`` is optional.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stcon.agents.sandbox import Sandbox, ToolFailure
from stcon.errors import RequestError

SUITES = Path(__file__).parent / "suites"
DEFAULT_TURNS = 8
MAX_TURNS = 100

_CHECK = """
def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
answer = {answer!r}
{check}
print({proof!r})
"""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: in reports.
        prompt: what the agent is told.
        check: see the module.
        files: what is in the folder at the start.
        max_turns: replies that the agent may give.
    """

    name: str
    prompt: str
    check: str
    files: Mapping[str, str] = field(default_factory=dict)
    max_turns: int = DEFAULT_TURNS

    def prepare(self, sandbox: Sandbox) -> None:
        """Put the files into the folder."""
        for path, content in self.files.items():
            sandbox.write_file(path, content)

    def passes(self, sandbox: Sandbox, answer: str) -> bool:
        """Whether the folder, or the answer, is as it should be.

        What the agent wrote may be imported by the check and end it early; so a check passes by what it prints last.
        """
        proof = secrets.token_hex(16)
        ran = sandbox.run_python(_CHECK.format(answer=answer, check=self.check, proof=proof))
        return ran.code == 0 and ran.output.rstrip().endswith(proof)


def suite_names() -> list[str]:
    """The suites that come with the package."""
    return sorted(path.stem for path in SUITES.glob("*.jsonl"))


def load_suite(name: str) -> list[Task]:
    """A suite by its name or its file.

    Raises:
        RequestError: no such suite, or a line that is no task; names file and line.
    """
    path = SUITES / f"{name}.jsonl" if name in suite_names() else Path(name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(suite_names())
        raise RequestError(f"{name}: no such suite ({known}) and no readable file of JSON lines: {error}") from None
    tasks = [_task(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not tasks:
        raise RequestError(f"{path} has no tasks")
    return tasks


def _task(line: str, place: str) -> Task:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        raise RequestError(f"{place}: not JSON") from None
    if not isinstance(given, dict):
        raise RequestError(f"{place}: a task is an object")
    return Task(
        _text(given, "name", place),
        _text(given, "prompt", place),
        _text(given, "check", place),
        _files(given.get("files", {}), place),
        _turns(given.get("max_turns", DEFAULT_TURNS), place),
    )


def _text(given: Mapping[str, Any], name: str, place: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise RequestError(f"{place}: {name} is a text")
    return value


def _files(given: Any, place: str) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise RequestError(f"{place}: files is an object of texts")
    try:
        with Sandbox() as sandbox:
            for path, text in given.items():
                sandbox.write_file(path, text)
    except ToolFailure as failure:
        raise RequestError(f"{place}: files: {failure}") from None
    return given


def _turns(given: Any, place: str) -> int:
    if type(given) is not int or not 1 <= given <= MAX_TURNS:
        raise RequestError(f"{place}: max_turns is an integer from 1 to {MAX_TURNS}")
    return given
