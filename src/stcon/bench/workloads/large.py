"""Schemas made to size: forms of many fields, and a choice of many tools with typed parameters.

The paper names both (its Tables 9 and 26 to 29); their fields are ours.
"""

from __future__ import annotations

import random
from typing import Any

WORDS = (
    *("city", "start", "end", "user", "amount", "note", "title", "query", "email", "count", "path", "unit", "limit"),
    *("status", "owner", "place", "price", "label", "reason", "color"),
)
TYPES: tuple[dict[str, Any], ...] = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "string", "format": "date"},
    {"enum": ["low", "medium", "high"]},
    {"type": "array", "items": {"type": "string"}, "maxItems": 4},
    {"type": "string", "minLength": 1, "maxLength": 80},
)
VERBS = ("get", "set", "list", "find", "send", "book", "drop", "move", "plan", "rate")


def form(count: int = 96) -> dict[str, Any]:
    """One object of `count` required fields, of all `TYPES` in turn."""
    properties = {f"{WORDS[i % len(WORDS)]}_{i}": TYPES[i % len(TYPES)] for i in range(count)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def typed_tools(num_tools: int = 20) -> dict[str, Any]:
    """A call of one of `num_tools` tools, each with parameters of its own types."""
    calls = []
    for number in range(num_tools):
        rng = random.Random(number)
        names = rng.sample(WORDS, 4 + number % 3)
        parameters = {name: TYPES[rng.randrange(len(TYPES))] for name in names}
        arguments = {"type": "object", "properties": parameters, "required": names[:3]}
        tool = f"{VERBS[number % len(VERBS)]}_{WORDS[number]}"
        properties = {"name": {"const": tool}, "arguments": arguments}
        calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"]})
    return {"anyOf": calls}
