"""Seven recursive tasks, one JSON file each: a prompt and the schema of the answer.

The paper names the tasks (its Section 5); schemas and prompts are ours.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from stcon.bench.workloads import load_all

NAMES = ("solar", "expression", "thread", "fs", "cats", "org", "menu")


class Task(NamedTuple):
    """What a model is asked, and the format of its answer."""

    name: str
    prompt: str
    schema: dict[str, Any]
    is_recursive: bool


@cache
def load_recursive() -> tuple[Task, ...]:
    """All seven."""
    files = (resources.files(__name__).joinpath(f"{name}.json").read_text("utf-8") for name in NAMES)
    return tuple(Task(**json.loads(text), is_recursive=True) for text in files)


def load_tasks() -> tuple[Task, ...]:
    """The six extractions, then the seven recursive tasks."""
    return (*(Task(work.name, work.prompt, work.schema, False) for work in load_all()), *load_recursive())
