"""What a constraint costs a step: the same graph with walk, masked argmax and advance, and with a plain argmax."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from gpu_extract_models import Subject

import stcon
from stcon.bench.workloads import load
from stcon.engine.device_loop import DeviceEngine
from stcon.models.graphs import StepGraphs

BLOCKS = 9
REPLAYS = 40
PREFIX = 212
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "children"],
}
# what it is called: schema, text before
PLACES: dict[str, tuple[Any, bytes]] = {
    "free text": (load("person").schema, b'{"name":"Mar'),
    "structure": (load("event").schema, b'{"title":"x","date":"2027-03-18"'),
    "number": (load("product").schema, b'{"name":"x","price":24'),
    "recursive, free text": (TREE, b'{"name":"a","children":[{"name":"b","children":[{"name":"c'),
    "recursive, structure": (TREE, b'{"name":"a","children":[{"name":"b","children":['),
}


def measure(subject: Subject, engine: DeviceEngine) -> dict[str, Any]:
    """Milliseconds a step at each place, with the constraint and without, in alternating blocks."""
    graphs = engine.graphs(PREFIX + 64)
    bare = StepGraphs(subject.static, None, vocab_size=engine.vocab_size, capacity=graphs.capacity)
    prompt = [(7 + 31 * i) % 1000 for i in range(PREFIX)]
    for each in (graphs, bare):
        each.prefill(0, prompt)
        each.inbox.host["lengths"][0] = PREFIX
        each.inbox.host["tokens"][0, 0] = 11
    plain = captured(bare)
    found: dict[str, Any] = {}
    for name, (schema, text) in PLACES.items():
        machine = stcon.compile(schema).machine
        index = engine._index(machine)
        config = machine.run(machine.initial(), text)
        assert config is not None, name
        inbox = graphs.inbox.host
        inbox["grammar"][0], inbox["config"][0], inbox["min_bytes"][0] = index, config.pack(), 0
        inbox["is_restricted"][0] = 0
        masked = captured(graphs)
        times = [(time_ms(masked), time_ms(plain)) for _ in range(BLOCKS)]
        with_ms, without_ms = median(a for a, _ in times), median(b for _, b in times)
        found[name] = {"constrained_ms": with_ms, "free_ms": without_ms, "ratio": with_ms / without_ms}
    return found


def captured(graphs: StepGraphs) -> Callable[[], None]:
    """The step of one token, captured, every row of the machine built."""
    for _ in range(2000):
        graphs.feed(1)
        token = int(graphs.read()[0])
        if token >= 0 or graphs.walker is None or not graphs.walker.build_missing():
            break
    graphs.feed(1)
    graphs.drain()
    return graphs._steps["feed", 1, True, False]


def time_ms(step: Callable[[], None]) -> float:
    """Milliseconds a replay, back to back."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    step()
    start.record()
    for _ in range(REPLAYS):
        step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / REPLAYS


def table(found: dict[str, Any]) -> list[str]:
    """One line a place."""
    return [
        f"step in {name:<22}{row['constrained_ms']:>8.4f} ms constrained, {row['free_ms']:.4f} free: "
        f"{row['ratio'] - 1:+.1%}"
        for name, row in found.items()
    ]
