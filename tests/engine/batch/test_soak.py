"""Many requests that come, are cancelled and run into limits: memory stays flat, outputs stay their own and valid."""

import gc
import json
import tracemalloc

import numpy as np
import pytest
from batch_cases import alone, batch, essence, fake, grammar, plan, request
from jsonschema import Draft202012Validator

import stcon
from stcon.engine.batch import Request
from stcon.engine.sampling import Sampling
from stcon.errors import LimitTooSmall, StconError

SCHEMAS = [
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "grey"]}, "maxItems": 3},
        },
        "required": ["name", "tags"],
    },
    {
        "$ref": "#/$defs/n",
        "$defs": {
            "n": {
                "type": "object",
                "properties": {"id": {"enum": [1, 2, 3]}, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                "required": ["id", "kids"],
            }
        },
    },
]


def soak(count, seed, *, is_async=False):
    """Run `count` requests with random joins, cancels and limits, told late if `is_async`; the checks are inside.

    Returns:
        outputs by how they ended; Python bytes held after each quarter.
    """
    random = np.random.default_rng(seed)
    compiled = [stcon.compile(schema) for schema in SCHEMAS]
    engine = batch(fake(context_length=512), num_rows=6, memory=plan(6, rows=6 * 64 * 120, cache=64 * 600), chunk=32)
    engine.model.is_async = is_async
    ends, held, live, checked = {}, [], {}, 0

    def wanted(number):
        kind = int(random.integers(0, 4))
        if kind < 2:
            sampling = Sampling(temperature=float(random.integers(0, 2)), seed=number)
            prompt = [40 + number % 5, *random.integers(41, 99, random.integers(1, 40)).tolist()]
            limit, n = int(random.integers(2, 60)), int(random.integers(1, 4))
            return Request(prompt, compiled[kind], max_tokens=limit, sampling=sampling, n=n)
        return request(int(random.integers(0, 60)), max_tokens=int(random.integers(1, 50)))

    def finish(number):
        nonlocal checked
        handle, asked = live.pop(number)
        for index, generation in enumerate(handle.result(0)):
            ends[generation.finish_reason] = ends.get(generation.finish_reason, 0) + 1
            whole = generation.finish_reason != "cancelled"
            if asked.grammar is not None and asked.budget and whole:
                assert generation.complete
            if asked.grammar in compiled and whole:
                schema = SCHEMAS[compiled.index(asked.grammar)]
                assert Draft202012Validator(schema).is_valid(json.loads(generation.text))
            if number % 9 == 0:
                checked += 1
                single = alone(fake(context_length=512), asked, index)
                assert generation.tokens == single.tokens[: len(generation.tokens)]
                if whole:
                    assert essence(generation) == essence(single)

    tracemalloc.start()
    for number in range(count):
        asked = wanted(number)
        try:
            live[number] = engine.submit(asked), asked
        except LimitTooSmall:
            ends["refused"] = ends.get("refused", 0) + 1
        for _ in range(int(random.integers(0, 12))):
            engine.step()
        if live and random.random() < 0.15:
            live[int(random.choice(list(live)))][0].cancel()
        for done in [n for n, (handle, _) in live.items() if handle.is_done]:
            finish(done)
        if (number + 1) % (count // 4) == 0:
            engine.model.model.passes.clear()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    engine.run()
    for number in list(live):
        finish(number)
    tracemalloc.stop()
    assert engine._used_rows == engine._used_bytes == engine.num_active == engine.num_waiting == 0
    assert len(engine.model._sessions) == engine.cache.num_parked
    assert engine.stats.num_finished == engine.stats.num_outputs
    assert checked > count // 20
    return ends, held


@pytest.mark.parametrize("is_async", [False, True])
def test_soak_small(is_async):
    """A hundred and sixty requests: every way to end occurs, nothing is left behind."""
    ends, _ = soak(160, 1, is_async=is_async)
    assert {"stop", "length", "cancelled", "refused"} <= set(ends)


@pytest.mark.long
def test_soak_two_thousand_requests():
    """Two thousand: the bytes held in the last quarter are those of the second, within a tenth."""
    ends, held = soak(2000, 2)
    assert sum(ends.values()) > 2000
    assert max(held[2:]) < 1.1 * held[1] + (1 << 20)


def test_soak_errors_are_ours():
    """Whatever a request asks for, `submit` raises one of our errors or takes it."""
    engine = batch(num_rows=2)
    for limit in (1, 2, 5, 5000):
        for prompt in ([], [1], [1] * 5000):
            for form in (None, grammar("person"), grammar("only")):
                try:
                    engine.submit(Request(prompt, form, max_tokens=limit))
                except StconError:
                    continue
    engine.run()
    assert engine._used_rows == 0
