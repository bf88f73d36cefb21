"""Shortest texts, trimness, ambiguity, forced chains and the graph, against brute force on small machines."""

from __future__ import annotations

import itertools

import pytest
import small_machines as small
from hypothesis import HealthCheck, assume, given, settings

from stcon.errors import TooLarge, Unsatisfiable
from stcon.grammar.analysis import Violation, check, forced_chains, shortest, sizes, to_dot
from stcon.grammar.completion import Completions
from stcon.grammar.dot import byte_ranges
from stcon.grammar.machine import COUNT, DEAD, RESET, STACK_CAP, Configuration, Machine

PLAN = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
DEPTH = 7


def accepts(machine: Machine, text: bytes) -> bool:
    end = machine.run(machine.initial(), text)
    return end is not None and machine.accepts(end)


# ------------------------------------------------------------------------------------------------- shortest


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (small.nested(), [b"x", b"y"]),
        (small.spelled(b"hello"), [b"hello"]),
        (small.counted(0, 4), [b"()()"]),
        (small.counted(3, 4), [b"(aaa)(aaa)"]),
        (small.counted(40, 1000), [b"(" + b"a" * 40 + b")(" + b"a" * 40 + b")"]),
    ],
)
def test_shortest_of_hand_made_machines(machine: Machine, expected: list[bytes]) -> None:
    """The text is accepted and as short as can be, also where the counter demands more than the states do."""
    assert shortest(machine) in expected


@PLAN
@given(small.random_machines(bounds=True))
def test_shortest_of_random_machines(machine: Machine) -> None:
    """Breadth-first search finds no shorter text, and one of the same length; no text means an error."""
    found = small.distance_to_acceptance(machine, machine.initial(), depth=DEPTH)
    try:
        text = shortest(machine, max_configurations=500)
    except (Unsatisfiable, TooLarge):
        assert found is None
        return
    assert accepts(machine, text)
    assert len(text) == found if found is not None else len(text) > DEPTH


def test_shortest_prefers_readable_bytes() -> None:
    """Where any byte will do, the text is made of letters."""
    machine = Machine()
    start, end = machine.new_state(), machine.new_state(label=0, final=True)
    machine.set_edges(start, dict.fromkeys(range(256), end))
    assert shortest(machine) == b"a"


def test_shortest_respects_the_stack_cap() -> None:
    """A text that would need more than 64 levels is no text."""
    machine = Machine()
    states = [machine.new_state() for _ in range(STACK_CAP + 2)]
    end = machine.new_state(label=0, final=True)
    symbol = machine.return_symbol([end])
    for state, following in itertools.pairwise(states):
        machine.set_edges(state, {ord("a"): machine.action(following, (symbol,))})
    machine.set_edges(states[-1], {ord("b"): end})
    with pytest.raises(Unsatisfiable, match="stack cap"):
        shortest(machine)


def test_shortest_of_the_empty_language() -> None:
    """No accepted text is an error that says so."""
    machine = Machine()
    state = machine.new_state()
    machine.set_edges(state, {ord("a"): state})
    with pytest.raises(Unsatisfiable):
        shortest(machine)


def test_shortest_of_doubling_calls_is_refused() -> None:
    """A shortest text of 2^40 bytes is an error, not an out-of-memory."""
    machine = Machine()
    end = machine.new_state(label=0, final=True)
    callee = machine.new_state()
    machine.set_edges(callee, {ord("a"): end})
    for _ in range(40):
        caller, middle = machine.new_state(), machine.new_state()
        first, second = machine.return_symbol([middle]), machine.return_symbol([end])
        machine.set_call_row(middle, callee, second, {})
        machine.set_call_row(caller, callee, first, {})
        callee = caller
    machine.start = callee
    with pytest.raises(TooLarge):
        shortest(machine)


@PLAN
@given(small.random_machines())
def test_needed_is_the_distance_to_acceptance(machine: Machine) -> None:
    """Proposition 2: without bounds and ambiguity, the fixpoint plus the stack is the exact distance."""
    assume(not any(v.kind == "ambiguous" for v in check(machine)))
    completions = Completions(machine)
    for _, config in small.explore(machine, machine.initial(), depth=3, limit=12):
        found = small.distance_to_acceptance(machine, config, depth=DEPTH)
        needed = completions.needed(config)
        if needed is not None and needed <= 4:
            assert found == needed
        elif found is not None:
            assert needed == found


# ------------------------------------------------------------------------------------------------- check


def test_check_passes_trim_machines() -> None:
    """Machines that are trim and unambiguous have no violations."""
    for machine in (small.nested(), small.spelled(b"ab"), small.counted(1, 2)):
        assert check(machine) == []


def test_check_finds_a_dead_end() -> None:
    """A reachable state from which nothing is accepted is named with a text that leads there."""
    machine = Machine()
    start, trap, end = machine.new_state(), machine.new_state(), machine.new_state(label=0, final=True)
    machine.set_edges(start, {ord("a"): end, ord("b"): trap})
    machine.set_edges(trap, {ord("c"): trap})
    assert check(machine) == [Violation("unproductive", trap, -1, b"b")]


def test_check_finds_an_outcome_the_caller_refuses() -> None:
    """A callee that can only end with a label that its caller does not take is a dead end inside the call."""
    machine = Machine()
    start, inside, after = machine.new_state(), machine.new_state(), machine.new_state()
    good, bad = machine.new_state(label=0, final=True), machine.new_state(label=1, final=True)
    only_bad = machine.new_state()
    symbol = machine.return_symbol([after, DEAD])
    machine.set_edges(start, {ord("x"): machine.action(inside, (symbol,))})
    machine.set_edges(inside, {ord("a"): good, ord("b"): only_bad})
    machine.set_edges(only_bad, {ord("c"): bad})
    machine.set_edges(after, {ord("d"): good})
    assert check(machine) == [Violation("unproductive", only_bad, symbol, b"xb")]


def test_check_finds_a_label_without_a_target() -> None:
    """A callee that ends with a label past the end of its caller's list would read another caller's: it is named."""
    machine = Machine()
    start, inside = machine.new_state(), machine.new_state()
    good, other = machine.new_state(label=0, final=True), machine.new_state(label=1, final=True)
    symbol = machine.return_symbol([good])
    machine.set_edges(start, {ord("x"): machine.action(inside, (symbol,))})
    machine.set_edges(inside, {ord("a"): good, ord("b"): other})
    assert check(machine) == [Violation("label", inside, symbol, b"xb")]


def test_check_finds_ambiguity_through_two_returns() -> None:
    """A byte that is the state's own and also follows two lazy returns further up is named."""
    machine = Machine()
    start, number = machine.new_state(), machine.new_state(label=0)
    middle, outer, end = machine.new_state(label=0), machine.new_state(), machine.new_state(label=0, final=True)
    low, high = machine.return_symbol([outer]), machine.return_symbol([middle])
    machine.set_edges(start, {ord("a"): machine.action(number, (low, high))})
    machine.set_edges(number, {ord("1"): number})
    machine.set_edges(middle, {ord("m"): middle})
    machine.set_edges(outer, {ord("1"): end, ord("2"): end})
    assert check(machine) == [Violation("ambiguous", number, high, b"a", ord("1"))]


@PLAN
@given(small.random_machines())
def test_check_against_exploration(machine: Machine) -> None:
    """No violation: acceptance is near every configuration. A dead end: its text leads there, and nowhere else."""
    violations = check(machine)
    if not violations:
        completions = Completions(machine)
        for _, config in small.explore(machine, machine.initial(), depth=4, limit=30):
            needed = completions.needed(config)
            assert needed is not None
            if needed <= 4:
                assert small.distance_to_acceptance(machine, config, depth=4) == needed
    if any(v.kind != "unproductive" for v in violations):
        return
    for violation in violations:
        config = machine.run(machine.initial(), violation.witness)
        if config is None:  # deeper than the cap
            assert len(violation.witness) > STACK_CAP // 2
            continue
        assert config.state == violation.state
        assert (config.stack[-1] if config.stack else -1) == violation.symbol
        assert small.distance_to_acceptance(machine, config, depth=DEPTH) is None


@PLAN
@given(small.random_machines())
def test_check_ambiguity_loses_texts(machine: Machine) -> None:
    """Where a byte is called ambiguous, the state takes it itself and would also have returned on it or above."""
    for violation in check(machine):
        if violation.kind != "ambiguous":
            continue
        assert machine.label(violation.state) >= 0
        assert machine.edge(violation.state, violation.byte) != DEAD
        targets = machine.resume_targets(violation.symbol)
        assert targets[machine.label(violation.state)] != DEAD


# ------------------------------------------------------------------------------------------------- forced text, sizes


def test_forced_chains_of_hand_made_machines() -> None:
    """Chains are whole: they start where a choice was made and go through calls and returns of their own."""
    assert forced_chains(small.spelled(b"hello")) == [b"hello"]
    assert forced_chains(small.nested()) == []
    machine = Machine()
    start, middle, end = machine.new_state(), machine.new_state(), machine.new_state(label=0, final=True)
    callee = machine.new_state()
    symbol = machine.return_symbol([middle])
    machine.set_edges(callee, {ord("c"): end})
    machine.set_edges(start, {ord("a"): machine.action(callee, (symbol,)), ord("b"): middle})
    machine.set_edges(middle, {ord("d"): machine.action(callee, (symbol,)), ord("e"): end})
    assert forced_chains(machine) == [b"c"]
    machine = Machine()
    start, middle, last = machine.new_state(), machine.new_state(), machine.new_state()
    callee, end = machine.new_state(), machine.new_state(label=0, final=True)
    symbols = machine.return_symbol([last]), machine.return_symbol([middle])
    machine.set_edges(start, {ord("a"): machine.action(callee, symbols)})
    machine.set_edges(callee, {ord("b"): end})
    machine.set_edges(middle, {ord("c"): end})
    machine.set_edges(last, {ord("d"): end})
    assert forced_chains(machine) == [b"abcd"]


@PLAN
@given(small.random_machines())
def test_forced_chains_are_forced(machine: Machine) -> None:
    """From some state, each byte of a chain is the only live one; every forced state's text ends some chain."""
    chains = forced_chains(machine)
    assert len(chains) == len(set(chains))
    texts = {text for state in range(machine.num_states) if (text := chain_from(machine, state))}
    if all(len(text) < 50 for text in texts):
        assert set(chains) <= texts
        assert all(any(chain.endswith(text) or text in chain for chain in chains) for text in texts) or cyclic(machine)


def chain_from(machine: Machine, state: int) -> bytes:
    """The chain from `state` with nothing known below it, at most 50 bytes, step by step."""
    text, stack = bytearray(), []
    while len(text) < 50 and state != DEAD and machine.label(state) < 0:
        live = [byte for byte in range(256) if machine.edge(state, byte) != DEAD]
        if len(live) != 1:
            break
        text.append(live[0])
        state, pushed = machine.decode(machine.edge(state, live[0]))
        stack.extend(pushed)
        while stack and machine.is_final(state):
            state = machine.resume_targets(stack.pop())[machine.label(state)]
            if state == DEAD:
                break
    return bytes(text)


def cyclic(machine: Machine) -> bool:
    """Whether some state's chain, by itself, comes back to it or never ends."""
    return any(len(chain_from(machine, state)) >= machine.num_states for state in range(machine.num_states))


def test_sizes() -> None:
    """Counts are exact and the bytes are those a device needs."""
    machine = small.nested()
    found = sizes(machine)
    assert found[:6] == (5, 0, machine.num_classes, 1, 3, 1)
    assert found.nbytes == machine.nbytes == 256 + 5 * (2 * machine.num_classes + 3) + 2 * (3 + 4 + 3 + 1 + 1)
    assert found.token_table_nbytes(1000) == 15_000
    assert sizes(small.spelled(b"abc")).forced == 3


# ------------------------------------------------------------------------------------------------- the graph


def test_to_dot_shows_calls_returns_and_counters() -> None:
    """Calls are dashed, returns dotted, accepting states doubled; counters and ranges are spelled out."""
    graph = to_dot(small.nested())
    assert graph.startswith("digraph machine {")
    assert graph.endswith("}\n")
    assert '"0" -> "1" [label="x"];' in graph
    assert '"3" -> "1" [label="x ↓ r0", style=dashed];' in graph
    assert '"r0" -> "4" [label="0", style=dotted];' in graph
    assert '"1" [label="1\\nlabel 0", shape=doublecircle];' in graph
    graph = to_dot(small.counted(2, 3))
    for text in ("n := 0", "n + 1", "2 ≤ n", "0 ≤ n ≤ 3"):
        assert text in graph


def test_to_dot_is_cut_at_a_number_of_states() -> None:
    """A large machine is drawn near its start, and says how much is left out."""
    graph = to_dot(small.spelled(b"abcdefgh"), max_states=4)
    assert '"3"' in graph
    assert '"4"' not in graph
    assert "5 more states" in graph


def test_byte_ranges() -> None:
    """Neighbouring bytes are joined; what Graphviz or a reader could trip over is escaped."""
    assert byte_ranges([0x22, 0x5C, *range(0x61, 0x7B), 0x20, 0x80, 0x81]) == '\\" \\\\ a–z 0x20 0x80–0x81'
    assert byte_ranges([]) == ""


def test_configuration_of_bounded_states_is_noted_by_effect() -> None:
    """`bounds` gives back what `new_state` was given."""
    machine = small.counted(2, 3)
    assert machine.bounds(1)[0] == RESET
    assert machine.bounds(2) == (COUNT, 0, 3)
    assert machine.bounds(3)[1] == 2
    assert machine.initial() == Configuration(0)
