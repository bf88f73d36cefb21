"""Machines as graphs: forced chains, the step graph (Proposition 1), and the runs between two places."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import small_machines as small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stcon.errors import TooLarge
from stcon.grammar.machine import Configuration, Machine
from stcon.grammar.regex import compile_regex
from stcon.grammar.structure import (
    forced_bytes,
    forced_chain,
    forced_chains,
    forced_readings,
    is_forced,
    run_graph,
    step_graph,
    steps_by_class,
)
from stcon.theory.branch_kernel import BranchKernel, branch_kernel
from stcon.theory.mangroves import is_out_tree
from stcon.theory.terminal import CyclicWalk
from stcon.theory.walks import count_walks, is_strongly_few

PLAN = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


# ------------------------------------------------------------------------------------------------- forced


@PLAN
@given(small.random_machines(bounds=True))
def test_forced_is_definition_7(machine: Machine) -> None:
    """Forced iff the text may not end here and `Machine.live` has one byte; the chain follows it, step by step."""
    for _, config in small.explore(machine, machine.initial(), depth=4, limit=30):
        live = machine.live(config)
        assert is_forced(machine, config) == (not machine.accepts(config) and len(live) == 1)
        found = {byte: after for members, after in steps_by_class(machine, config) for byte in members}
        assert found == {byte: machine.step(config, byte) for byte in live}
        at = config
        for reading in itertools.islice(forced_readings(machine, config), 5):
            assert machine.live(at) == [reading.byte]
            at = reading.config
        if len(chain := forced_chain(machine, config, 5)) < 5:
            end = machine.run(config, chain)
            assert end is not None
            assert not is_forced(machine, end)


@PLAN
@given(small.random_machines())
def test_forced_chains_begin_the_chains_of_configurations(machine: Machine) -> None:
    """What a state forces whatever is below it, every configuration with that state forces too."""
    chains, only = forced_chains(machine), forced_bytes(machine)
    for _, config in small.explore(machine, machine.initial(), depth=4, limit=30):
        alone = forced_chain(machine, Configuration(config.state), 8)
        if machine.label(config.state) < 0:  # random machines have dead ends: a return may lead nowhere
            assert forced_chain(machine, config, len(alone)) == alone or machine.run(config, alone) is None
        if len(alone) < 8:
            rows = forced_by_rows(machine, only, Configuration(config.state), alone)
            assert not rows or any(rows in chain for chain in chains)


def forced_by_rows(machine: Machine, only: NDArray[np.int64], config: Configuration | None, text: bytes) -> bytes:
    """The beginning of `text` up to where a byte is forced only because another leads to a dead end."""
    for length, byte in enumerate(text):
        if config is None or only[config.state] != byte:
            return text[:length]
        config = machine.step(config, byte)
    return text


# ------------------------------------------------------------------------------------------------- a decoding step


@PLAN
@given(small.random_machines(bounds=True), st.lists(st.binary(max_size=4), max_size=12))
def test_step_graph_is_a_mangrove(machine: Machine, more: list[bytes]) -> None:
    """Proposition 1: an out-tree, at most one walk between any two vertices; a vertex for each admissible token."""
    tokens = [None, b"", *(bytes(t) for n in (1, 2, 3) for t in itertools.product(small.ALPHABET, repeat=n)), *more]
    for _, config in small.explore(machine, machine.initial(), depth=3, limit=5):
        step = step_graph(machine, config, tokens)
        assert is_out_tree(step.graph, 0)
        assert is_strongly_few(step.graph, 1)
        for index, token in enumerate(tokens):
            after = machine.run(config, token) if token else None
            assert (index in step.tokens) == (after is not None)
            if after is not None:
                vertex = step.tokens[index]
                assert step.configurations[vertex] == after
                assert step.graph.names[vertex] == token


# ------------------------------------------------------------------------------------------------- runs


def kernel_of(pattern: str, limit: int = 1_000) -> tuple[Machine, BranchKernel, tuple[bytes, ...]]:
    """The kernel of all texts of a finite regular expression, with what its edges spell."""
    machine = compile_regex(pattern).machine
    runs = run_graph(machine, machine.initial(), None, limit=limit)
    kernel = branch_kernel(runs.graph, runs.source, runs.target)
    assert isinstance(kernel, BranchKernel)
    return machine, kernel, tuple(runs.text(chain) for chain in kernel.chains)


def test_kernel_edges_are_forced_chains() -> None:
    """After its first byte, an edge of the kernel spells the forced chain there, as far as the next meeting of ways."""
    machine, kernel, texts = kernel_of("(red|green|blue) (car|cart)s?")
    runs = run_graph(machine, machine.initial(), None, limit=1_000)
    for chain, text in zip(kernel.chains, texts, strict=True):
        config = runs.configurations[runs.graph.edges[chain[0]][1]]
        if config is not None:
            assert forced_chain(machine, config).startswith(text[1:])
    assert {b"red", b"green", b"blue", b" car"} <= set(texts)


@pytest.mark.parametrize(
    ("pattern", "values"),
    [("true|false", 2), ("a|ab|abc", 3), ("January|June|July|August", 4), ("[ab]{3}", 8), ("x", 1), ("(1|2)(3|4)?", 6)],
)
def test_a_field_of_r_values_has_at_most_r_minus_1_decisions(pattern: str, values: int) -> None:
    """Corollary 1: walks are texts, and the branch vertices, where alone a model is asked, are at most r − 1."""
    machine, kernel, _ = kernel_of(pattern)
    assert kernel.terminal.num_paths == values
    decisions = [
        config
        for config in run_graph(machine, machine.initial(), None, limit=99).configurations
        if config is not None and not is_forced(machine, config) and machine.live(config)
    ]
    assert len(kernel.branch_vertices) == len(decisions) <= kernel.terminal.cyclomatic_number <= values - 1


@PLAN
@given(small.random_machines(bounds=True))
def test_run_graph_counts_texts(machine: Machine) -> None:
    """Walks to the end are accepted texts: as many as brute force finds, of each length."""
    try:
        runs = run_graph(machine, machine.initial(), None, limit=200)
    except TooLarge:
        return
    found = branch_kernel(runs.graph, runs.source, runs.target)
    layer, total = {machine.initial(): 1}, 0
    for _ in range(8):
        total += sum(count for config, count in layer.items() if machine.accepts(config))
        following: dict[Configuration, int] = {}
        for config, count in layer.items():
            for byte in machine.live(config):
                after = machine.step(config, byte)
                assert after is not None
                following[after] = following.get(after, 0) + count
        layer = following
    if isinstance(found, BranchKernel) and runs.graph.order <= 8:
        assert found.terminal.num_paths == total
    elif isinstance(found, BranchKernel):
        assert found.terminal.num_paths >= total
    elif not isinstance(found, CyclicWalk):
        assert total == 0
    else:
        assert count_walks(runs.graph, runs.source, runs.target) == float("inf")


def test_run_graph_refuses_what_is_too_large() -> None:
    """A counted string of a thousand characters is past a limit of a hundred configurations."""
    machine = small.counted(0, 1_000)
    with pytest.raises(TooLarge, match="configurations between two places"):
        run_graph(machine, machine.initial(), None, limit=100)
