"""Masks on mlx arrays equal the reference bit for bit: by plain operations, and by the kernels' text run on the CPU."""

from __future__ import annotations

import re
from typing import Any

import kernel_cases as cases
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_random_machines import ALPHABET, configurations, machines, string_machines

import stcon
from stcon.bench.workloads import load_all
from stcon.constraint.sharing import machine_of
from stcon.engine.sampling import apply_bitmask
from stcon.grammar.machine import Configuration, Machine
from stcon.kernels import reference
from stcon.vocab.vocabulary import Vocabulary

pytest.importorskip("mlx.core", reason="mlx is not installed (the extra mlx)")

import mlx.core as mx
from mlx_on_cpu import TYPES, HostKernels

from stcon.kernels.mlx import DeviceKernels, MlxGrammars, MlxWalker, kernels_for_device
from stcon.kernels.mlx.kernels import BODIES, body, header

ROWS = 16
KINDS = ("plain", "metal", "cuda")
PLAN = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RECURSIVE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "sub": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v"],
            "additionalProperties": False,
        }
    },
}
TOOLS = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name, arguments in (
            ("get_weather", {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}}),
            ("add", {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}),
        )
    ]
}


def walker_for(machine: Machine, vocabulary: Vocabulary, kind: str) -> MlxWalker:
    """Rows that follow `machine`, by plain operations or by the kernels of a dialect."""
    grammars = MlxGrammars()
    index = grammars.add(machine)
    kernels: Any = None if kind == "plain" else HostKernels(kind)  # type: ignore[arg-type]
    walker = MlxWalker(vocabulary, grammars, ROWS, kernels=kernels)
    for row in range(ROWS):
        walker.set_row(row, index)
    return walker


def assert_masks_equal(machine: Machine, vocabulary: Vocabulary, configs: list[Configuration], kind: str) -> None:
    walker = walker_for(machine, vocabulary, kind)
    for begin in range(0, len(configs), ROWS):
        part = configs[begin : begin + ROWS]
        for row, config in enumerate(part):
            walker.set_row(row, 0, config)
        words = np.array(walker.bitmask(len(part)))
        for config, mask in zip(part, words.tolist(), strict=True):
            assert mask == reference.mask(machine, config, vocabulary).tolist(), config


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", cases.SMALL)
def test_bitmask_of_small_machines(name: str, kind: str) -> None:
    """Every state with stacks up to 2 symbols, and nearly full ones."""
    machine = cases.SMALL[name]()
    configs = [*cases.configurations(machine, depth=2, counters=(0, 3)), *cases.near_the_cap(machine, seed=1, count=8)]
    assert_masks_equal(machine, cases.vocabulary(65, seed=1), configs, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["from_2_to_5", "refused_inside", "two_by_states_at_most_4"])
def test_bitmask_of_text(name: str, kind: str) -> None:
    """Strings bounded in several ways, at every state."""
    machine = cases.TEXTS[name]()
    configs = list(cases.configurations(machine, depth=1, counters=(0, 2, 4)))
    assert_masks_equal(machine, cases.text_vocabulary(), configs, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 31, 32, 33])
def test_bitmask_at_word_boundaries(size: int, kind: str) -> None:
    """Vocabularies that end just before, at and after a word, and one token alone; a free row has all of them."""
    machine, vocabulary = cases.json_values(), cases.text_vocabulary(size)
    assert_masks_equal(machine, vocabulary, list(cases.configurations(machine, depth=1))[:ROWS], kind)
    walker = walker_for(machine, vocabulary, kind)
    walker.set_row(0, -1)
    expected = np.packbits(np.arange(32 * vocabulary.num_words) < size, bitorder="little").view(np.int32)
    assert np.array(walker.bitmask(1))[0].tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["metal", "cuda"])
@PLAN
@given(st.data())
def test_bitmask_of_random_machines(kind: str, data: st.DataObject) -> None:
    """Any edges, effects, bounds and labels, some rows built when first met, any stack."""
    machine = data.draw(machines())
    texts = st.binary(min_size=1, max_size=6).map(lambda text: bytes(ALPHABET[b % len(ALPHABET)] for b in text))
    tokens: list[bytes | None] = [*data.draw(st.lists(texts, min_size=1, max_size=40)), None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    configs = data.draw(st.lists(configurations(machine), min_size=1, max_size=8))
    assert_masks_equal(machine, vocabulary, configs, kind)
    assert_masks_equal(machine, vocabulary, configs[:2], "plain")


@PLAN
@given(st.data())
def test_bitmask_of_random_string_machines(data: st.DataObject) -> None:
    """Whatever the bounds on and inside characters."""
    machine = data.draw(string_machines())
    configs = data.draw(st.lists(configurations(machine), min_size=1, max_size=4))
    assert_masks_equal(machine, cases.text_vocabulary(), configs, "metal")
    assert_masks_equal(machine, cases.text_vocabulary(), configs[:1], "plain")


@pytest.mark.parametrize("kind", KINDS)
@PLAN
@given(st.data())
def test_advance_of_random_machines(kind: str, data: st.DataObject) -> None:
    """Tokens move the row where the reference goes, or one is named as refused and the row stays."""
    machine = data.draw(machines())
    texts = st.binary(min_size=1, max_size=6).map(lambda text: bytes(ALPHABET[b % len(ALPHABET)] for b in text))
    tokens: list[bytes | None] = [*data.draw(st.lists(texts, min_size=1, max_size=12)), None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    config = data.draw(configurations(machine))
    chosen = data.draw(st.lists(st.integers(-1, len(tokens) - 1), min_size=1, max_size=3))
    walker = walker_for(machine, vocabulary, kind)
    walker.set_row(0, 0, config)
    walker.advance(mx.array([chosen]))
    after, refused = expected_after(machine, config, tokens, chosen)
    assert walker.configuration(0) == after
    assert int(walker.refused[0].item()) == refused


def expected_after(
    machine: Machine, config: Configuration, tokens: list[bytes | None], chosen: list[int]
) -> tuple[Configuration | None, int]:
    """By the reference: where the row stands (None: finished) and the token that was not read."""
    at: Configuration | None = config
    for token in (token for token in chosen if token >= 0):
        text = tokens[token]
        if text is None:
            if at is not None and not machine.accepts(at):
                return config, token
            at = None
            continue
        after = machine.run(at, text) if at is not None else None
        if after is None:
            return config, token
        at = after
    return at, -1


def grammars() -> dict[str, stcon.Grammar]:
    found = {work.name: stcon.compile(work.schema) for work in load_all()}
    return found | {"tools": stcon.compile(TOOLS), "recursive": stcon.compile(RECURSIVE)}


@pytest.mark.parametrize("kind", ["metal", "plain"])
@pytest.mark.parametrize("name", [*(work.name for work in load_all()), "tools", "recursive"])
def test_bitmask_of_real_grammars(name: str, kind: str) -> None:
    """The six extractions, a typed tool grammar and a recursive one: every state (of `plain`, a part of them)."""
    grammar = grammars()[name]
    machine = machine_of(grammar)
    machine.build_all()
    vocabulary = cases.text_vocabulary()
    symbols = range(machine.num_symbols)
    stack = (symbols[-1],) if machine.num_symbols else ()
    states = range(0, machine.num_states, 1 if kind == "metal" else max(1, machine.num_states // 32))
    configs = [Configuration(state, held) for state in states for held in {(), stack}]
    assert_masks_equal(machine, vocabulary, configs, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_choices_and_the_end(kind: str) -> None:
    """argmax and masked logits are the host's on the same mask; after its end a row admits end tokens alone."""
    machine, vocabulary = cases.json_values(), cases.text_vocabulary()
    walker = walker_for(machine, vocabulary, kind)
    for row in range(8):
        walker.set_row(row, 0, Configuration(row % machine.num_states))
    walker.set_row(7, -1)
    logits = np.random.default_rng(1).normal(size=(8, vocabulary.size + 40)).astype(np.float32)
    logits[:, 5] = logits[:, 6] = 9.0  # a tie
    words = np.array(walker.bitmask(8))
    masked = [apply_bitmask(row[: vocabulary.size].copy(), w) for row, w in zip(logits, words, strict=True)]
    found = np.array(walker.mask_logits(mx.array(logits)))
    np.testing.assert_array_equal(found[:, : vocabulary.size], np.stack(masked))
    assert (found[:, vocabulary.size :] == -np.inf).all()
    best = [int(np.argmax(row)) if np.isfinite(row.max()) else -1 for row in masked]
    assert walker.argmax(mx.array(logits)).tolist() == best
    end = vocabulary.end_ids[0]
    text = [vocabulary.encode("1")[0], end]
    walker.set_row(0, 0)
    walker.advance(mx.array([text]))
    assert walker.configuration(0) is None
    allowed = np.array(walker.allowed(1))[0]
    assert np.flatnonzero(allowed).tolist() == sorted(vocabulary.end_ids)
    walker.advance(mx.array([[end]]))
    assert walker.configuration(0) is None


def test_rows_of_different_grammars_and_numbers_given_again() -> None:
    """Rows follow their own grammars in one call; a number is used again after `remove`."""
    vocabulary = cases.vocabulary(33, seed=3)
    for kind in KINDS:
        chosen = [cases.brackets(), cases.counters(), cases.built_on_the_way()]
        walker = walker_for(chosen[0], vocabulary, kind)
        numbers = [0, *(walker.grammars.add(machine) for machine in chosen[1:])]
        walker.grammars.remove(numbers[1])
        chosen[1] = cases.two_labels()
        assert walker.grammars.add(chosen[1]) == numbers[1]
        for row in range(6):
            walker.set_row(row, numbers[row % 3])
        for row, words in enumerate(np.array(walker.bitmask(6)).tolist()):
            machine = chosen[row % 3]
            assert words == reference.mask(machine, machine.initial(), vocabulary).tolist()


def test_metal_kernels_are_made_and_say_that_there_is_no_gpu() -> None:
    """On a machine without Metal their creation succeeds and a call raises; the device's kernels are None."""
    if mx.is_available(mx.gpu):
        pytest.skip("there is a GPU")
    assert kernels_for_device() is None
    kernels = DeviceKernels("metal")
    walker = MlxWalker(cases.vocabulary(33, seed=3), MlxGrammars(), 1, kernels=kernels)
    with pytest.raises((ValueError, RuntimeError)):
        mx.eval(walker.bitmask(1))


def test_every_reference_of_the_text_is_devices_or_a_threads() -> None:
    """Metal asks for a space at every pointer and reference, also where C++ has a default."""
    declared = re.compile(r"([A-Za-z_0-9 ]*\b(?:[A-Z]\w+|int|u8|u64|void|short))[*&] ?\w+\s*[,;)=]")
    kinds = [found.group(1) for line in header().splitlines() for found in declared.finditer(line.split("//")[0])]
    assert len(kinds) > 40
    assert [kind for kind in kinds if "DEVICE" not in kind and "THREAD" not in kind] == []


def test_every_pointer_of_the_text_names_its_address_space() -> None:
    """Clang, told that `device` is a space of its own, objects to nothing but copies of structs, which Metal allows."""
    cindex = pytest.importorskip("clang.cindex", reason="libclang is not installed")
    unit = cindex.Index.create().parse(
        "kernels.cpp", args=["-std=c++17"], unsaved_files=[("kernels.cpp", metal_with_address_spaces())]
    )
    found = sorted(diagnostic.spelling for diagnostic in unit.diagnostics)
    assert found == ["no matching constructor for initialization of 'Bounds'", "no viable overloaded '='"]


def metal_with_address_spaces() -> str:
    """Metal's text for a C++ compiler that checks spaces and has no headers."""
    shim = """
typedef unsigned uint;
struct uint3 { uint x, y, z; };
template <class T> T max(T a, T b) { return a > b ? a : b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
int popcount(unsigned long);
#define __METAL_VERSION__ 320
#define device __attribute__((address_space(1)))
#define thread
#define constant
"""
    parts = [shim, header()]
    for name, (inputs, outputs, _, _) in BODIES.items():
        given = [f"const device {TYPES.get(one, 'int')}* {one}, const int* {one}_shape" for one in inputs]
        written = [f"device int* {one}" for one in outputs]
        place = "uint3 thread_position_in_grid"
        parts.append(f"void {name}({', '.join([*given, *written, place])}) {{ {body(name, 'metal')} }}")
    return "\n".join(parts)
