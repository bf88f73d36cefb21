"""The control machine: what a step means, what building keeps, against languages known otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import small_machines as small
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.automata.dfa import ByteDfa
from stcon.errors import TooLarge
from stcon.grammar import compile_json_schema
from stcon.grammar.machine import (
    ACTION,
    CONFIG_WORDS,
    COUNT,
    DEAD,
    RESET,
    STACK_CAP,
    UNBUILT,
    Configuration,
    Machine,
)

PLAN = settings(max_examples=200, deadline=None)


def accepts(machine: Machine, text: bytes) -> bool:
    end = machine.run(machine.initial(), text)
    return end is not None and machine.accepts(end)


# ------------------------------------------------------------------------------------------------- languages


def is_nested(text: str) -> bool:
    """V = x+ | y | ( V (, V)* ), by a recursive-descent reader, at most 64 deep."""

    def value(i: int, depth: int) -> int:
        if i < len(text) and text[i] == "y":
            return i + 1
        if i < len(text) and text[i] == "x":
            while i < len(text) and text[i] == "x":
                i += 1
            return i
        if i < len(text) and text[i] == "(" and depth < STACK_CAP:
            i = value(i + 1, depth + 1)
            while i >= 0 and i < len(text) and text[i] == ",":
                i = value(i + 1, depth + 1)
            return i + 1 if 0 <= i < len(text) and text[i] == ")" else -1
        return -1

    return value(0, 0) == len(text)


nested_texts = st.recursive(
    st.sampled_from(["x", "xx", "y"]), lambda v: st.lists(v, min_size=1, max_size=3).map(lambda vs: f"({','.join(vs)})")
)
any_texts = st.text(alphabet="xy(),", max_size=10)


@PLAN
@given(st.one_of(nested_texts, any_texts))
def test_nested_language(text: str) -> None:
    """Calls, lazy and eager returns read exactly the nested language."""
    assert accepts(small.nested(), text.encode()) is is_nested(text)


@PLAN
@given(nested_texts)
def test_every_prefix_of_an_accepted_text_is_alive(text: str) -> None:
    """The next byte of an accepted text is always among the live ones, and `run` in pieces is `run` whole."""
    machine = small.nested()
    config = machine.initial()
    for byte in text.encode():
        assert byte in machine.live(config)
        after = machine.step(config, byte)
        assert after is not None
        config = after
    assert config == machine.run(machine.initial(), text.encode())


@PLAN
@given(st.text(alphabet="(a)", max_size=12), st.integers(0, 3), st.integers(0, 4))
def test_counter_language(text: str, low: int, high: int) -> None:
    """RESET, COUNT and intervals bound each run by itself."""
    expected = re.fullmatch(rf"\(a{{0,{high}}}\)\(a{{0,{high}}}\)", text) is not None
    expected = expected and all(len(run) >= low for run in re.findall(r"\((a*)\)", text))
    assert accepts(small.counted(low, high), text.encode()) is expected


def test_labels_choose_where_the_caller_continues() -> None:
    """The same callee ends with different labels; the return symbol sends each elsewhere, or nowhere."""
    machine = Machine()
    start, callee = machine.new_state(), machine.new_state()
    ends = [machine.new_state(label=label, final=True) for label in range(3)]
    after = [machine.new_state(), machine.new_state()]
    symbol = machine.return_symbol([after[0], after[1], DEAD])
    machine.set_edges(callee, {ord("0"): ends[0], ord("1"): ends[1], ord("2"): ends[2]})
    machine.set_call_row(start, callee, symbol, {})
    for label in range(2):
        machine.set_edges(after[label], {ord("xy"[label]): ends[0]})
    assert machine.live(machine.initial()) == [ord("0"), ord("1")]
    assert [text for text in (b"0x", b"0y", b"1x", b"1y", b"2x", b"0", b"1") if accepts(machine, text)] == [
        b"0x",
        b"1y",
    ]


def test_own_bytes_win_over_a_lazy_return() -> None:
    """A byte that the state has itself is never the caller's."""
    machine = Machine()
    start, run = machine.new_state(), machine.new_state(label=0)
    end = machine.new_state(label=0, final=True)
    after = machine.new_state()
    machine.set_edges(run, {ord("1"): run})
    machine.set_edges(after, {ord("1"): end, ord("2"): end})
    machine.set_edges(start, {ord("1"): machine.action(run, [machine.return_symbol([after])])})
    assert machine.run(machine.initial(), b"11") == Configuration(run, (0,))
    assert accepts(machine, b"12")
    assert not accepts(machine, b"11")


def test_returns_pass_through_several_callers_in_one_byte() -> None:
    """Eager returns chain after a byte, lazy ones before it; the caller's entry test is made each time."""
    machine = Machine()
    start, lazy = machine.new_state(), machine.new_state(label=0)
    end = machine.new_state(label=0, final=True)
    bounded = machine.new_state(effect=COUNT, counter_hi=1)
    outer = machine.new_state(label=0)
    to_end, to_bounded, to_lazy = (machine.return_symbol([s]) for s in (end, bounded, lazy))
    machine.set_edges(start, {ord("a"): machine.action(end, [to_end, to_end, to_lazy])})
    machine.set_edges(lazy, {ord("z"): machine.action(end, [to_bounded, to_bounded])})
    machine.set_edges(bounded, {ord("b"): end})
    machine.set_edges(outer, {})
    assert machine.step(machine.initial(), ord("a")) == Configuration(lazy, (to_end, to_end))
    assert machine.step(Configuration(lazy, ()), ord("z")) == Configuration(bounded, (to_bounded,), 1)
    assert machine.run(Configuration(lazy, ()), b"zb") is None, "the second return counts to 2"
    assert machine.accepts(Configuration(lazy, (to_end, to_end)))
    assert machine.step(Configuration(outer, (to_lazy, to_bounded)), ord("b")) == Configuration(lazy, (), 1)


def test_stack_cap() -> None:
    """64 symbols fit, 65 do not, whether pushed one by one or together."""
    machine = small.nested()
    assert machine.run(machine.initial(), b"(" * 65) == Configuration(3, (0,) * 64)
    assert machine.run(machine.initial(), b"(" * 66) is None
    assert machine.run(machine.initial(), b"(" * 64 + b"y") is not None
    together = Machine()
    state = together.new_state()
    symbol = together.return_symbol([state])
    together.set_edges(
        state, {ord("a"): together.action(state, [symbol] * 64), ord("b"): together.action(state, [symbol] * 65)}
    )
    assert together.live(together.initial()) == [ord("a")]
    assert together.live(Configuration(state, (symbol,))) == []


def test_accepting_unwinds_the_stack_by_labels() -> None:
    """A configuration accepts iff returning by the labels empties the stack at an accepting state."""
    machine = Machine()
    yes, no = machine.new_state(label=1), machine.new_state()
    good, bad, dead = (machine.return_symbol([DEAD, s]) for s in (yes, no, DEAD))
    assert machine.accepts(Configuration(yes))
    assert machine.accepts(Configuration(yes, (good, good)))
    assert not machine.accepts(Configuration(no))
    assert not machine.accepts(Configuration(yes, (bad,)))
    assert not machine.accepts(Configuration(yes, (bad, good)))
    assert not machine.accepts(Configuration(yes, (good, dead)))


# ------------------------------------------------------------------------------------------------- building


@PLAN
@given(st.lists(st.dictionaries(st.integers(0, 255), st.integers(0, 4), max_size=6), min_size=1, max_size=12))
def test_rows_keep_their_meaning_while_classes_split(rows: list[dict[int, int]]) -> None:
    """Whatever rows are built later, by bytes or whole, an edge once set stays; all other bytes stay dead."""
    machine = Machine()
    states = [machine.new_state() for _ in range(max(5, len(rows)))]
    for state, row in zip(states, rows, strict=False):
        if len(row) % 2:
            whole = np.full(256, DEAD, np.int32)
            whole[list(row)] = list(row.values())
            machine.set_row(state, whole)
        else:
            machine.set_edges(state, row)
    for state, row in zip(states, rows, strict=False):
        assert [machine.edge(state, byte) for byte in range(256)] == [row.get(byte, DEAD) for byte in range(256)]
        assert machine.num_classes == len(np.unique(machine.byte_class)) <= 256
    for state in states[len(rows) :]:
        assert not machine.is_built(state)
        assert (machine.tables().delta[state] == UNBUILT).all()


@PLAN
@given(
    st.lists(st.dictionaries(st.sampled_from(small.ALPHABET), st.integers(0, 3)), min_size=4, max_size=4),
    st.sets(st.integers(0, 3)),
)
def test_add_dfa_reads_the_same_language(rows: list[dict[int, int]], accepting: set[int]) -> None:
    """A DFA appended to a machine with other classes accepts what it accepted; dead ends that accept are final."""
    byte_class = np.zeros(256, np.uint8)
    delta = np.full((4, len(small.ALPHABET) + 1), -1, np.int32)
    for k, byte in enumerate(small.ALPHABET, 1):
        byte_class[byte] = k
    for state, row in enumerate(rows):
        for byte, to in row.items():
            delta[state, byte_class[byte]] = to
    labels = np.array([0 if state in accepting else -1 for state in range(4)], np.int32)
    machine = Machine()
    machine.set_edges(machine.new_state(), {ord("z"): 0, 0x80: 0})
    base = machine.add_dfa(ByteDfa(byte_class, delta, labels, 0, np.ones(4, np.bool_)))
    for distance, config in small.explore(machine, Configuration(base), depth=4):
        assert distance <= 4
        state = config.state - base
        assert machine.label(config.state) == labels[state]
        assert machine.is_final(config.state) is (not rows[state] and state in accepting)
        assert machine.live(config) == sorted(rows[state])
        for byte, to in rows[state].items():
            assert machine.edge(config.state, byte) == base + to


def test_add_dfa_redirects_targets() -> None:
    """`targets` puts an existing state in the place of a DFA state."""
    machine = Machine()
    mine = machine.new_state(label=0, final=True)
    byte_class = np.zeros(256, np.uint8)
    byte_class[ord("a")] = 1
    dfa = ByteDfa(
        byte_class, np.array([[-1, 1], [-1, -1]], np.int32), np.array([-1, 0], np.int32), 0, np.ones(2, np.bool_)
    )
    base = machine.add_dfa(dfa, effects=np.array([RESET, 0], np.uint8), targets={1: mine})
    assert machine.edge(base, ord("a")) == mine
    assert machine.bounds(base)[0] == RESET


def test_call_row_pushes_below_what_the_callee_pushes() -> None:
    """A call of a state that itself calls pushes both symbols, the outer one first; own bytes stay own."""
    machine = Machine()
    inner, middle, outer, own = (machine.new_state() for _ in range(4))
    first, second = machine.return_symbol([inner]), machine.return_symbol([middle])
    machine.set_edges(inner, {ord("a"): inner, ord("b"): own})
    machine.set_call_row(middle, inner, first, {})
    machine.set_call_row(outer, middle, second, {ord("b"): own})
    assert machine.decode(machine.edge(outer, ord("a"))) == (inner, (second, first))
    assert machine.edge(outer, ord("b")) == own
    assert machine.edge(outer, ord("c")) == DEAD


def test_actions_and_symbols_are_hash_consed() -> None:
    """Equal actions and equal return symbols are one; an action without symbols is the state itself."""
    machine = Machine()
    state = machine.new_state()
    symbols = [machine.return_symbol([state]), machine.return_symbol([state, DEAD]), machine.return_symbol([state])]
    assert symbols == [0, 1, 0]
    assert machine.action(state, []) == state
    assert machine.action(state, [0, 1]) == machine.action(state, (0, 1)) == ACTION
    assert machine.action(state, [1, 0]) == ACTION - 1
    assert machine.decode(ACTION) == (state, (0, 1))
    assert [machine.resume_targets(s) for s in range(2)] == [(state,), (state, DEAD)]


@pytest.mark.parametrize(("grow", "fitting"), [(lambda m: m.new_state(), 25), (lambda m: m.add_dfa(TEN_STATES), 2)])
def test_state_budget(grow: Callable[[Machine], int], fitting: int) -> None:
    """One state more than allowed is an error with both numbers, and the machine stays as it was."""
    machine = Machine(max_states=25)
    for _ in range(fitting):
        grow(machine)
    with pytest.raises(TooLarge) as caught:
        grow(machine)
    assert caught.value.limit == 25
    assert caught.value.given > 25
    assert machine.num_states == {25: 25, 2: 20}[fitting]


TEN_STATES = ByteDfa(
    np.zeros(256, np.uint8), np.full((10, 1), -1, np.int32), np.full(10, -1, np.int32), 0, np.ones(10, np.bool_)
)


def test_rows_are_built_once_when_first_needed() -> None:
    """The builder is called for a state only when a step meets it, once; `build_all` builds the rest."""
    built: list[int] = []

    def build(state: int) -> None:
        built.append(state)
        machine.set_edges(state, {0x61: state + 1} if state < 99 else {})

    machine = Machine(row_builder=build)
    for _ in range(100):
        machine.new_state()
    assert machine.run(machine.initial(), b"aaa") == Configuration(3)
    assert machine.run(machine.initial(), b"aaaa") == Configuration(4)
    assert built == [0, 1, 2, 3]
    machine.build_all()
    assert sorted(built) == list(range(100))


def test_tables_are_stable_until_they_grow() -> None:
    """The same tuple while storage stays; a new one, and old rows in it, after anything was reallocated."""
    machine = Machine()
    first = machine.new_state()
    machine.set_edges(first, {0x61: first})
    before = machine.tables()
    assert machine.tables() is before
    machine.set_edges(machine.new_state(), {0x61: first})
    assert machine.tables() is before
    assert before.delta[1, before.byte_class[0x61]] == first
    for _ in range(100):
        machine.return_symbol([machine.new_state()])
    after = machine.tables()
    assert after is not before
    assert after.delta[first, after.byte_class[0x61]] == first
    assert after.resume[after.resume_start[99]] == machine.num_states - 1


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**31 - 1), max_size=STACK_CAP), st.integers(0, 2**31 - 1))
def test_configuration_packs(state: int, stack: list[int], counter: int) -> None:
    """`unpack` inverts `pack`, also into used memory."""
    config = Configuration(state, tuple(stack), counter)
    words = config.pack(np.full(CONFIG_WORDS, -1, np.int32))
    assert Configuration.unpack(words) == config
    np.testing.assert_array_equal(words, config.pack())


def test_export_holds_the_same_machine_in_fewer_bytes() -> None:
    """Every edge, label and return of the exported arrays is the machine's own."""
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"type": "object", "properties": {"k": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}},
    }
    machine = compile_json_schema(schema).build().machine
    exported, tables = machine.export(), machine.tables()
    n, k = machine.num_states, machine.num_classes
    assert (exported.delta == tables.delta[:n, :k]).all()
    assert (exported.label == tables.label[:n]).all()
    assert (exported.flags == tables.flags[:n]).all()
    for name in ("action_target", "action_start", "action_symbols", "resume_start", "resume"):
        values = getattr(exported, name)
        assert (values == getattr(tables, name)[: len(values)]).all()
    assert exported.delta.dtype == np.int16
    assert machine.nbytes == sum(array.nbytes for array in exported)


def test_a_schema_of_a_hundred_states_takes_less_than_20_kilobytes() -> None:
    """The paper's person record: its machine takes what the paper says of its own (0.05 MB), several times less."""
    properties = {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string"},
        "status": {"enum": ["pending", "approved", "rejected"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    grammar = compile_json_schema({"type": "object", "properties": properties, "required": list(properties)}).build()
    assert grammar.num_states >= 90
    assert grammar.nbytes < 200 * grammar.num_states
    assert grammar.nbytes < 20_000
