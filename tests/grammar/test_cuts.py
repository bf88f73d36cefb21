"""Cut states: what every accepted text visits exactly once, against brute force and on schemas."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import small_machines as small
from hypothesis import HealthCheck, assume, given, settings

import stcon
from stcon.errors import TooLarge, Unsatisfiable
from stcon.grammar.analysis import check
from stcon.grammar.completion import Completions
from stcon.grammar.cuts import CutStates, Segment, choices, cut_states
from stcon.grammar.machine import DEAD, STACK_CAP, Configuration, Machine
from stcon.grammar.structure import forced_chain, run_graph, steps_by_class
from stcon.theory.blocks import BlockProduct, Crossings, block_product, crossings

PLAN = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))

Place = tuple[int, tuple[int, ...]]


def place(config: Configuration) -> Place:
    return config.state, config.stack


def accepted(machine: Machine, start: Configuration, length: int) -> Iterator[tuple[bytes, list[Configuration]]]:
    """Accepted texts of at most `length` bytes with the configurations visited."""
    pending: list[tuple[bytes, list[Configuration]]] = [(b"", [start])]
    for text, visited in pending:
        if machine.accepts(visited[-1]):
            yield text, visited
        for byte in small.ALPHABET if len(text) < length else b"":
            after = machine.step(visited[-1], byte)
            if after is not None and len(pending) < 600:
                pending.append((text + bytes([byte]), [*visited, after]))


def all_cuts(start: Configuration, machine: Machine, found: CutStates) -> list[Place]:
    """Every cut configuration that the segments speak of: their ends, and all along forced ones."""
    cuts = [place(start)] if start in found.configurations else []
    for segment in found.segments:
        config: Configuration | None = segment.start
        for byte in segment.text if segment.is_forced and segment.end is not None else b"":
            assert config is not None
            config = machine.step(config, byte)
            assert config is not None
            cuts.append(place(config))
        if segment.end is not None and not segment.is_forced:
            cuts.append(place(segment.end))
    return cuts


# ------------------------------------------------------------------------------------------------- brute force


@PLAN
@given(small.random_machines(bounds=True))
def test_cut_states_are_visited_exactly_once_in_order(machine: Machine) -> None:
    """Every accepted text visits every cut exactly once, in order; segments' forced text is in every one of them."""
    try:
        found = cut_states(machine)
    except Unsatisfiable:
        assert not list(accepted(machine, machine.initial(), 5))
        return
    cuts = all_cuts(machine.initial(), machine, found)
    assert set(map(place, found.configurations)) <= set(cuts)
    for text, visited in accepted(machine, machine.initial(), 6):
        path = [place(config) for config in visited]
        assert [here for here in path if here in set(cuts)] == cuts
        for segment in found.segments:
            at = path.index(place(segment.start))
            assert text[at:].startswith(segment.text)


@PLAN
@given(small.random_machines(bounds=True))
def test_language_is_the_product_of_its_segments(machine: Machine) -> None:
    """Lemma 12: what one accepted text has between two cuts can stand between them in any other."""
    try:
        found = cut_states(machine)
    except Unsatisfiable:
        return
    texts = list(itertools.islice(accepted(machine, machine.initial(), 6), 12))
    for config in found.configurations:
        halves = []
        for text, visited in texts:
            at = [place(c) for c in visited].index(place(config))
            halves.append((text[:at], text[at:]))
            end = machine.run(config, text[at:])
            assert end is not None
            assert machine.accepts(end)
        for (first, _), (_, second) in itertools.product(halves, halves):
            end = machine.run(machine.initial(), first + second)
            assert end is not None
            assert machine.accepts(end)


@PLAN
@given(small.random_machines())
def test_no_cut_state_is_missed(machine: Machine) -> None:
    """Where a trim, unambiguous machine without bounds has finitely many configurations: exactly the crossings of the
    graph that spells them all out."""
    assume(not check(machine))
    try:
        runs = run_graph(machine, machine.initial(), None, limit=120)
    except TooLarge:
        return
    assume(all(config is None or len(config.stack) < STACK_CAP - 3 for config in runs.configurations))
    wanted = crossings(runs.graph, runs.source, runs.target)
    assert isinstance(wanted, Crossings)
    expected = [place(config) for v in wanted.vertices if (config := runs.configurations[v]) is not None]
    assert all_cuts(machine.initial(), machine, cut_states(machine)) == expected


def test_cut_states_inside_a_callee_that_runs_twice() -> None:
    """Two calls that return to the same place share their configurations: none inside is visited exactly once."""
    machine = Machine()
    start, after, end = machine.new_state(), machine.new_state(), machine.new_state(label=0, final=True)
    first, second, inside = machine.new_state(), machine.new_state(), machine.new_state()
    symbol = machine.return_symbol([after])
    machine.set_edges(start, {ord("a"): machine.action(first, (symbol,))})
    machine.set_edges(first, {ord("x"): inside, ord("y"): inside})
    machine.set_edges(second, {ord("z"): inside})
    machine.set_edges(inside, {ord("i"): end})
    machine.set_edges(after, {ord("b"): machine.action(second, (symbol,)), ord("e"): end})
    found = cut_states(machine)
    assert [(s.text, s.is_forced) for s in found.segments] == [(b"a", True), (b"", False)]
    assert all(config.state != inside for config in found.configurations)


def test_cut_states_of_a_machine_that_accepts_nothing() -> None:
    """No text, no cut: an error."""
    machine = Machine()
    state = machine.new_state()
    machine.set_edges(state, {ord("a"): state})
    with pytest.raises(Unsatisfiable):
        cut_states(machine)


def test_cut_states_of_doubling_calls_stay_small() -> None:
    """2^40 forced bytes: callees are opened only while the graph is small; what is left closed is one segment."""
    machine = Machine()
    end = machine.new_state(label=0, final=True)
    callee = machine.new_state()
    machine.set_edges(callee, {ord("a"): end, ord("b"): end})
    for _ in range(40):
        caller, middle = machine.new_state(), machine.new_state()
        first, second = machine.return_symbol([middle]), machine.return_symbol([end])
        machine.set_call_row(middle, callee, second, {})
        machine.set_call_row(caller, callee, first, {})
        callee = caller
    machine.start = callee
    found = cut_states(machine, max_vertices=500)
    assert 2 <= len(found.segments) <= 500


# ------------------------------------------------------------------------------------------------- random schemas


def random_schema(rng: random.Random, depth: int = 0) -> Any:
    """A schema of the shapes that are cut: objects, tuples, arrays, choices, bounded and unbounded strings."""
    simple = [
        {"type": "string"},
        {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 5)},
        {"type": "integer"},
        {"type": "boolean"},
        {"enum": rng.sample(["a", "ab", "b", 1, 10, 12, None, True, "xyz"], rng.randint(1, 4))},
        {"const": rng.choice(["k", [1, 2], {"q": 1}, 5])},
    ]
    kind = rng.randrange(11 if depth < 3 else 6)
    if kind < 6:
        return simple[kind]
    parts = [random_schema(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    if kind < 8:
        names = rng.sample(["a", "ab", "b", "name", "c"], len(parts))
        required = [name for name in names if rng.random() < 0.8]
        schema = {"type": "object", "properties": dict(zip(names, parts, strict=True)), "required": required}
        return schema | ({"additionalProperties": {"type": "integer"}} if rng.random() < 0.15 else {})
    if kind == 8:
        count = len(parts)
        return {"type": "array", "prefixItems": parts, "minItems": count, "maxItems": count + rng.choice([0, 0, 1])}
    if kind == 9:
        bounds = {"minItems": rng.randint(0, 2), **({"maxItems": 3} if rng.random() < 0.5 else {})}
        return {"type": "array", "items": parts[0] if parts else True, **bounds, "uniqueItems": rng.random() < 0.2}
    return {"anyOf": [*parts, {"$ref": "#/$defs/r"}]}


def random_run(
    completions: Completions, start: Configuration, rng: random.Random, patience: int = 60
) -> tuple[bytes, list[Configuration]] | None:
    """A random accepted text with the configurations visited; the shortest way to the end after `patience` bytes."""
    machine, text, visited = completions.machine, bytearray(), [start]
    while len(text) < 2_000:
        steps = list(steps_by_class(machine, visited[-1]))
        if machine.accepts(visited[-1]) and (not steps or len(text) > patience or rng.random() < 0.3):
            return bytes(text), visited
        if not steps:
            return None
        if len(text) > patience:
            members, after = min(steps, key=lambda step: (completions.needed(step[1]) or 0, step[0]))
        else:
            members, after = rng.choice(steps)
        text.append(rng.choice(members))
        visited.append(after)
    return None


def check_random_schema(seed: int) -> int:
    """Runs visit every cut once and in order; pieces of different runs fit together. Returns the number of segments."""
    rng = random.Random(seed)
    schema = random_schema(rng) | {"$defs": {"r": random_schema(rng, 2)}}
    spacing = rng.choice(["compact", "json", "pretty", "flexible"])
    try:
        machine = stcon.compile(
            schema, whitespace=spacing, key_order=rng.choice(["schema", "schema", "any"]), closed=rng.random() < 0.7
        ).machine
        completions = Completions(machine)
    except stcon.GrammarError:
        return 0
    start = machine.initial()
    if rng.random() < 0.4 and (run := random_run(completions, start, rng)) is not None:
        start = rng.choice(run[1])
    found = cut_states(machine, start, completions=completions)
    cuts = all_cuts(start, machine, found)
    runs = [run for _ in range(5) if (run := random_run(completions, start, rng, rng.randrange(80))) is not None]
    paths = [[place(config) for config in visited] for _, visited in runs]
    for (text, _), path in zip(runs, paths, strict=True):
        assert [here for here in path if here in set(cuts)] == cuts
        assert all(text[path.index(place(s.start)) :].startswith(s.text) for s in found.segments)
    for config in found.configurations:
        ends = [path.index(place(config)) for path in paths]
        halves = [(text[:at], text[at:]) for (text, _), at in zip(runs, ends, strict=True)]
        for (first, _), (_, second) in itertools.product(halves, halves):
            for begin, rest in ((start, first + second), (config, second)):
                end = machine.run(begin, rest)
                assert end is not None
                assert machine.accepts(end)
    return len(found.segments)


def test_random_schemas_are_the_products_of_their_segments() -> None:
    """On random schemas, spacings and starting places: Lemma 12, by random accepted texts."""
    assert sum(map(check_random_schema, range(30))) > 40


@pytest.mark.long
def test_many_random_schemas_are_the_products_of_their_segments() -> None:
    """The same on a thousand."""
    assert sum(map(check_random_schema, range(1_000, 2_000))) > 1_500


# ------------------------------------------------------------------------------------------------- schemas


PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "kind": {"enum": ["home", "work"]}},
            "required": ["street", "kind"],
        },
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "address", "active"],
}


def shown(schema: Any, **options: Any) -> str:
    """The segments of a schema, what is to choose as an ellipsis."""
    return "".join(map(show, cut_states(stcon.compile(schema, **options).machine).segments))


def show(segment: Segment) -> str:
    return segment.text.decode() + ("" if segment.is_forced else "…")


def test_cut_states_after_keys_as_two_renderings_find_them() -> None:
    """Section D.5 renders two documents and compares the states after keys; the machine's own cut states are the same,
    nested objects included."""
    machine = stcon.compile(PERSON).build().machine
    cuts = set(all_cuts(machine.initial(), machine, cut_states(machine)))
    one = {"name": "a", "age": 1, "address": {"street": "x y", "kind": "home"}, "active": True}
    two = {"name": 'q"', "age": -20, "address": {"street": "", "kind": "work"}, "active": False}
    for key in ("name", "age", "address", "street", "kind", "active"):
        ends = set()
        for document in (one, two):
            text = json.dumps(document, separators=(",", ":"))
            head = text[: text.index(f'"{key}":') + len(key) + 3]
            config = machine.run(machine.initial(), head.encode())
            assert config is not None
            ends.add(place(config))
        assert len(ends) == 1
        assert ends <= cuts


@pytest.mark.parametrize("spacing", ["compact", "json", "pretty"])
def test_fields_of_a_flat_object_are_its_values(spacing: str) -> None:
    """One free segment a value that is not forced, and its forced text begins after the key."""
    machine = stcon.compile(PERSON, whitespace=spacing).build().machine
    found = cut_states(machine)
    assert len(found.fields) == 5
    assert found.segments[-1].end is not None
    assert machine.accepts(found.segments[-1].end)
    before = [segment.text for segment in found.segments if segment.is_forced]
    for key in ("name", "age", "street", "kind", "active"):
        assert any(f'"{key}":'.encode() in text for text in before) or any(
            f'{key}":'.encode() in segment.text for segment in found.segments
        )
    for one, two in itertools.pairwise(found.segments):
        assert one.end == two.start


def test_optional_keys_and_arrays_are_single_segments() -> None:
    """What may be left out, or repeated, is not cut up; required fields on both sides still are."""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "boolean"},
            "note": {"type": "string"},
            "tags": {"type": "array", "items": PERSON},
            "ok": {"type": "boolean"},
        },
        "required": ["id", "tags", "ok"],
    }
    text = shown(schema)
    assert text.startswith('{"id":…')
    assert ',"ok":' in text
    assert text.endswith("…}")
    assert "street" not in text
    found = cut_states(stcon.compile(schema).machine)
    assert len(found.fields) == 4  # id, then note or not, the array, ok


def test_a_tuple_is_cut_between_its_items() -> None:
    """Exactly two items, each a segment of its own."""
    schema = {"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": [10, 20]}], "minItems": 2, "maxItems": 2}
    found = cut_states(stcon.compile(schema).machine)
    assert len(found.fields) == 2
    assert not any(segment.remembers for segment in found.segments)


def test_segments_of_distinct_items_remember() -> None:
    """Two items that must differ are two segments, but not independent ones; another array beside them is."""
    pair = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    schema = {"type": "object", "properties": {"a": pair, "b": {"type": "boolean"}}, "required": ["a", "b"]}
    found = cut_states(stcon.compile(schema).machine)
    assert [segment.remembers for segment in found.fields] == [True, True, False]


def test_cut_states_after_a_discriminator() -> None:
    """A choice of objects is one segment from its discriminator on; asked again after it, it is cut up."""
    kinds = [
        {"type": "object", "properties": {"kind": {"const": kind}, "v": PERSON}, "required": ["kind", "v"]}
        for kind in ("x", "y")
    ]
    kinds[1]["properties"] = {"kind": {"const": "y"}, "w": {"type": "integer"}, "z": {"type": "boolean"}}
    kinds[1]["required"] = ["kind", "w", "z"]
    machine = stcon.compile({"anyOf": kinds}).machine
    found = cut_states(machine)
    assert len(found.fields) == 1
    for head, fields in ((b'{"kind":"x', 5), (b'{"kind":"y', 2)):
        config = machine.run(machine.initial(), head)
        assert config is not None
        assert len(cut_states(machine, config).fields) == fields


def test_cut_states_of_a_recursive_schema() -> None:
    """A node's own required fields are cut; its children are one segment. Inside a child nothing is cut until its
    siblings are over, as each of them passes the same configurations."""
    node = {
        "type": "object",
        "properties": {"name": {"type": "boolean"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name", "children"],
    }
    machine = stcon.compile({"$ref": "#/$defs/node", "$defs": {"node": node}}).machine
    found = cut_states(machine)
    assert len(found.fields) == 2
    inside = machine.run(machine.initial(), b'{"name":true,"children":[{')
    assert inside is not None
    rest = cut_states(machine, inside)
    assert rest.segments[0].text.startswith(b'"name":')
    assert len(rest.fields) == 1
    assert rest.segments[-1].text == b"}"


def test_a_forced_text_is_one_segment() -> None:
    """A constant needs no model at all: its only segment is forced and ends the text."""
    found = cut_states(stcon.compile({"const": {"a": [1, "x"]}}).machine)
    assert [(s.text, s.is_forced) for s in found.segments] == [(b'{"a":[1,"x"]}', True)]


def test_forced_text_is_followed_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit what is left is one segment, which ends where the text does."""
    monkeypatch.setattr("stcon.grammar.cuts.MAX_TEXT_BYTES", 20)
    found = cut_states(stcon.compile({"const": ["x" * 30, 1]}).machine)
    assert [(s.text, s.is_forced) for s in found.segments] == [(b'["' + b"x" * 18, True), (b"", False)]
    assert found.segments[-1].end is not None


def test_a_text_without_cuts_is_one_segment() -> None:
    """An integer may end anywhere: one free segment to the end of the text."""
    found = cut_states(stcon.compile({"type": "integer"}).machine)
    assert [(s.text, s.end, s.is_forced) for s in found.segments] == [(b"", None, False)]


def test_cut_states_are_the_block_boundaries_of_a_finite_schema() -> None:
    """Where there are finitely many texts, Theorem 12 itself: the cut configurations are the boundaries of the blocks
    of all runs, the numbers of texts multiply, and ⌊log₂ r⌋ blocks at most have something to choose."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"enum": ["x", "yy", "yz"]},
            "in": {"type": "object", "properties": {"b": {"type": "boolean"}, "c": {"const": 1}}, "required": ["b"]},
            "d": {"enum": [1, 2]},
        },
        "required": ["a", "in", "d"],
    }
    machine = stcon.compile(schema).machine
    runs = run_graph(machine, machine.initial(), None, limit=1_000)
    product = block_product(runs.graph, runs.source, runs.target)
    assert isinstance(product, BlockProduct)
    boundaries = [place(config) for v in product.boundaries if (config := runs.configurations[v]) is not None]
    found = cut_states(machine)
    assert all_cuts(machine.initial(), machine, found) == boundaries
    kernels = [choices(machine, segment, limit=100) for segment in found.segments]
    counts = [kernel.terminal.num_paths for kernel in kernels if kernel is not None]
    assert len(counts) == len(found.segments)
    assert math.prod(counts) == product.terminal.num_paths == 3 * 2 * 2 * 2
    assert len(found.fields) <= math.log2(product.terminal.num_paths)


def test_segments_continue_the_forced_text_of_their_start() -> None:
    """A segment's text is what the engine's own definition forces from there, no more and no less."""
    machine = stcon.compile(PERSON).machine
    for segment in cut_states(machine).segments:
        chain = forced_chain(machine, segment.start)
        assert chain.startswith(segment.text)
        if not segment.is_forced:
            assert chain == segment.text


def test_cut_states_at_bounds_know_the_counter() -> None:
    """Where a length is counted, a cut is reported only with the counter that the run has there."""
    machine = small.counted(2, 3)
    found = cut_states(machine)
    for config in found.configurations:
        for text in (b"(aa)(aaa)", b"(aaa)(aa)"):
            visited = [machine.initial()]
            for byte in text:
                after = machine.step(visited[-1], byte)
                assert after is not None
                visited.append(after)
            here = next(c for c in visited if place(c) == place(config))
            assert machine.bounds(here.state)[0] == 0 or here.counter == config.counter
    assert len(found.segments) >= 3
    assert DEAD not in {config.state for config in found.configurations}


def test_choices_are_the_texts_of_a_segment() -> None:
    """The kernel of an enumeration's segment has one path a value, and fewer decisions than values (Corollary 1); an
    endless string has none."""
    values = ["red", "green", "grey", "blue"]
    schema = {"type": "object", "properties": {"c": {"enum": values}, "s": {"type": "string"}}, "required": ["c", "s"]}
    machine = stcon.compile(schema).machine
    colour, string = cut_states(machine).fields
    kernel = choices(machine, colour, limit=100)
    assert kernel is not None
    assert kernel.terminal.num_paths == len(values)
    assert len(kernel.branch_vertices) <= len(values) - 1
    assert choices(machine, string, limit=100) is None
    assert choices(machine, colour, limit=3) is None
