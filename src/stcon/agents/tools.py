"""The agent's tools as the model is shown them, and what a call of one does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stcon.agents.sandbox import Sandbox, ToolFailure

FINISH = "finish"
RUN_PYTHON = "run_python"
_PATH = {"type": "string", "minLength": 1, "maxLength": 100, "description": "Path from the working folder on."}


def _tool(name: str, description: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    _tool(
        "write_file",
        "Write a text file; what was in it is replaced.",
        path=_PATH,
        content={"type": "string", "maxLength": 4000, "description": "All of the file's text."},
    ),
    _tool("read_file", "Read a text file.", path=_PATH),
    _tool(
        RUN_PYTHON,
        "Run a Python program in the working folder and see what it prints. Standard library only.",
        code={"type": "string", "maxLength": 4000, "description": "The program."},
    ),
    _tool(
        FINISH,
        "Say that the task is done.",
        summary={"type": "string", "maxLength": 300, "description": "What was done, or the answer, in a sentence."},
    ),
)


def offered(*, python: bool, finish: bool) -> list[dict[str, Any]]:
    """The tools of an agent.

    Args:
        python: whether it may run programs.
        finish: whether it says by a call that it is done (where each reply must be one).
    """
    left_out = {name for name, is_in in ((RUN_PYTHON, python), (FINISH, finish)) if not is_in}
    return [tool for tool in TOOLS if tool["function"]["name"] not in left_out]


def is_typed(name: str, arguments: str) -> bool:
    """Whether a call's arguments are JSON that its tool's schema takes, by a validator that knows no grammars."""
    import jsonschema

    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    try:
        return name in schemas and jsonschema.Draft202012Validator(schemas[name]).is_valid(json.loads(arguments))
    except (ValueError, RecursionError):
        return False


def call(sandbox: Sandbox, name: str, arguments: Mapping[str, Any]) -> str:
    """Do what a call asks for; what the model is told of it.

    Raises:
        Unconfined: programs cannot be run on this machine.
    """
    try:
        if name == "write_file":
            return sandbox.write_file(arguments["path"], arguments["content"])
        if name == "read_file":
            return sandbox.read_file(arguments["path"])
        if name == RUN_PYTHON:
            ran = sandbox.run_python(arguments["code"])
            notes = [ran.output.rstrip("\n")] if ran.output else []
            return "\n".join([*notes, ran.why or (f"exit code {ran.code}" if ran.code or not notes else "")]).rstrip(
                "\n"
            )
    except ToolFailure as failure:
        return f"error: {failure}"
    return f"error: there is no tool {name!r}"
