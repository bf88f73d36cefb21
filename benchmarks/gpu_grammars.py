"""The grammars of the GPU measurements, and the places in them where a reading can stand."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import stcon
from stcon.bench.workloads import load_all
from stcon.bench.workloads.recursive import load_recursive
from stcon.grammar.machine import Configuration, Machine

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


def fields(count: int = 96) -> dict[str, Any]:
    """One object of `count` fields of all types."""
    properties = {f"{WORDS[i % len(WORDS)]}_{i}": TYPES[i % len(TYPES)] for i in range(count)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def machines() -> dict[str, Machine]:
    """Every grammar by name, rows built throughout."""
    schemas = {work.name: work.schema for work in load_all()}
    schemas |= {"typed_tools": typed_tools(), "96_fields": fields()}
    schemas |= {
        f"recursive_{task.name}": task.schema for task in load_recursive() if task.name in ("org", "expression")
    }
    compiled = {name: stcon.compile(schema).machine for name, schema in schemas.items()}
    for machine in compiled.values():
        machine.build_all()
    return compiled


def places(machine: Machine, limit: int, seed: int = 0) -> list[Configuration]:
    """Configurations that a text leads to, breadth first over bytes: every state under every stack, near its top.

    Of what repeats these, a sample goes on, so that counters and stacks grow. Of too many, a random choice.
    """
    rng = random.Random(seed)
    start = machine.initial()
    queue, seen, kinds = deque([start]), {start}, {kind(start)}
    while queue and len(kinds) < 4 * limit:
        here = queue.popleft()
        for after in {step for byte in range(256) if (step := machine.step(here, byte)) is not None} - seen:
            seen.add(after)
            if kind(after) not in kinds or rng.random() < 0.02:
                kinds.add(kind(after))
                queue.append(after)
    found = sorted(seen)
    return found if len(found) <= limit else rng.sample(found, limit)


def kind(config: Configuration) -> tuple[int, tuple[int, ...], int]:
    """State, the top of the stack, and its depth up to 5: what tells places apart, counters aside."""
    return config.state, config.stack[-2:], min(len(config.stack), 5)
