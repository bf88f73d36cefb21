"""The six extractions of the paper's Section 5, one JSON file each: schema, source text and gold facts.

The paper gives the six kinds, the fields counted as facts (Appendix H) and two outputs (Figures 4 and 13); schemas and
texts are ours. A fact names a place in the answer and what must be there, in one of three ways:

=======================  ==============================================================================
``"equals": [v, …]``      the value at ``path`` is one of these
``"has": v``              some item of the list at ``path`` is v (an object: has these members)
``"length": n``           the list at ``path`` has n items
=======================  ==============================================================================

Strings are compared after trimming and lower-casing, numbers numerically, and a boolean is never a number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

NAMES = ("person", "tool_call", "product", "event", "classification", "contact_card")

MISSING = object()


@dataclass(frozen=True)
class Workload:
    """One extraction.

    Attributes:
        name: one of `NAMES`.
        text: the source text.
        schema: the JSON Schema of the answer.
        gold: facts as in the module's docstring; empty where no single answer is right.
    """

    name: str
    text: str
    schema: dict[str, Any]
    gold: tuple[dict[str, Any], ...]

    @property
    def prompt(self) -> str:
        """The user message: what to do, the keys and options, the source text. The same for every mode."""
        fields = outline(self.schema)
        return f"Extract the facts of the text as compact JSON with these fields: {fields}\n\nText: {self.text}"

    def correct(self, answer: object) -> int:
        """How many gold facts `answer` (a parsed JSON value) reproduces."""
        return sum(holds(fact, answer) for fact in self.gold)


@cache
def load(name: str) -> Workload:
    """The workload `name`. Raises `KeyError` for a name not in `NAMES`."""
    if name not in NAMES:
        raise KeyError(name)
    data = json.loads(resources.files(__name__).joinpath(f"{name}.json").read_text("utf-8"))
    return Workload(data["name"], data["text"], data["schema"], tuple(data["gold"]))


def load_all() -> tuple[Workload, ...]:
    """All six, in the paper's order."""
    return tuple(load(name) for name in NAMES)


def outline(schema: dict[str, Any]) -> str:
    """The keys and options of an object schema as one line: ``name, status (pending or approved), place {city}``."""
    return ", ".join(key + _options(value) for key, value in schema["properties"].items())


def _options(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " (" + " or ".join(str(value) for value in schema["enum"]) + ")"
    if schema["type"] == "object":
        return " {" + outline(schema) + "}"
    if schema["type"] == "array":
        return " [" + _options(schema["items"]).strip() + "]"
    return ""


def holds(fact: dict[str, Any], answer: object) -> bool:
    """Whether one gold fact holds of a parsed answer."""
    value = at(answer, fact["path"])
    if "equals" in fact:
        return any(same(value, wanted) for wanted in fact["equals"])
    if not isinstance(value, list):
        return False
    if "length" in fact:
        return bool(len(value) == fact["length"])
    return any(_matches(item, fact["has"]) for item in value)


def at(value: object, pointer: str) -> object:
    """The value at a JSON pointer (RFC 6901), or `MISSING`."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def same(value: object, wanted: object) -> bool:
    """Equality of leaves as Appendix H compares them."""
    if isinstance(value, str) and isinstance(wanted, str):
        return value.strip().lower() == wanted.strip().lower()
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return value == wanted
    return value is None and wanted is None


def leaves(value: object, pointer: str = "") -> dict[str, object]:
    """JSON pointer → leaf value, for counting values that two answers share."""
    items: list[tuple[str, object]]
    if isinstance(value, dict):
        items = [(str(key).replace("~", "~0").replace("/", "~1"), member) for key, member in value.items()]
    elif isinstance(value, list):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {pointer: value}
    found: dict[str, object] = {}
    for key, member in items:
        found |= leaves(member, f"{pointer}/{key}")
    return found


def _matches(item: object, wanted: object) -> bool:
    if isinstance(wanted, dict):
        return isinstance(item, dict) and all(same(item.get(key, MISSING), member) for key, member in wanted.items())
    return same(item, wanted)
