"""The grammars of the GPU measurements, and the places in them where a reading can stand."""

from __future__ import annotations

import random
from collections import deque

import stcon
from stcon.bench.workloads import load_all
from stcon.bench.workloads.large import form, typed_tools
from stcon.bench.workloads.recursive import load_recursive
from stcon.grammar.machine import Configuration, Machine


def machines() -> dict[str, Machine]:
    """Every grammar by name, rows built throughout."""
    schemas = {work.name: work.schema for work in load_all()}
    schemas |= {"typed_tools": typed_tools(), "96_fields": form()}
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
