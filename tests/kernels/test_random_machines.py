"""Random machines, vocabularies and configurations: kernel and reference agree wherever the tables can lead."""

from __future__ import annotations

import itertools

import kernel_cases as cases
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stcon.grammar.machine import COUNT, DEAD, RESET, STACK_CAP, UNBOUNDED, Configuration, Machine
from stcon.kernels import reference
from stcon.kernels.cpu import CpuKernel
from stcon.vocab.vocabulary import Vocabulary

ALPHABET = b"abc\xff"
MAX_STATES = 5
NUM_LABELS = 2

PLAN = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine of up to 5 states with any edges at all, some of its rows built when first met."""
    num_states = draw(st.integers(1, MAX_STATES))
    state = st.integers(0, num_states - 1)
    target = st.one_of(st.just(DEAD), state)
    symbols = draw(st.lists(st.tuples(target, target), min_size=1, max_size=3))
    pushes = st.lists(st.integers(0, len(symbols) - 1), max_size=3)
    rows: list[dict[int, tuple[int, list[int]]]] = []

    by_byte = draw(st.booleans())  # else bytes with equal edges share a class

    def build(number: int) -> None:
        edges = {byte: machine.action(to, pushed) for byte, (to, pushed) in rows[number].items()}
        if by_byte:
            machine.set_edges(number, edges)
        else:
            machine.set_row(number, np.array([edges.get(byte, DEAD) for byte in range(256)], np.int32))

    machine = Machine(row_builder=build)
    for _ in range(num_states):
        label = draw(st.integers(-1, NUM_LABELS - 1))
        final = label >= 0 and draw(st.booleans())
        effect = draw(st.sampled_from([0, 0, 0, RESET, COUNT, COUNT]))
        low, high = draw(st.sampled_from([(0, UNBOUNDED)] * 4 + [(0, 2), (1, 3), (2, UNBOUNDED)]))
        machine.new_state(label=label, final=final, effect=effect, counter_lo=low, counter_hi=high)
        edges = st.dictionaries(st.sampled_from(ALPHABET), st.tuples(state, pushes), max_size=4)
        rows.append({} if final else draw(edges))
    for targets in symbols:
        machine.return_symbol(targets)
    for number in range(num_states):
        if not machine.is_built(number) and draw(st.booleans()):
            build(number)
    return machine


@st.composite
def configurations(draw: st.DrawFn, machine: Machine) -> Configuration:
    """Any state, any stack, mostly shallow, sometimes near the cap."""
    symbol = st.integers(0, machine.num_symbols - 1)
    top = draw(st.lists(symbol, max_size=5))
    below = [draw(symbol)] * draw(st.sampled_from([0, 0, 0, STACK_CAP - 7, STACK_CAP - 5]))
    return Configuration(draw(st.integers(0, machine.num_states - 1)), (*below, *top), draw(st.integers(0, 4)))


texts = st.binary(max_size=6).map(lambda data: bytes(ALPHABET[b % len(ALPHABET)] for b in data))


@PLAN
@given(st.data())
def test_random_machines(data: st.DataObject) -> None:
    """Masks (cold and warm), advance, live bytes, forced chains and acceptance are the reference's."""
    machine = data.draw(machines())
    tokens: list[bytes | None] = [*data.draw(st.lists(texts.filter(bool), min_size=1, max_size=40)), None]
    vocabulary = Vocabulary.from_bytes(tokens, [len(tokens) - 1])
    kernel = CpuKernel(machine, vocabulary)
    configs = data.draw(st.lists(configurations(machine), min_size=1, max_size=8))
    out = np.empty(vocabulary.num_words, np.int32)
    for config in [*configs, *configs]:
        words = config.pack()
        kernel.mask(words, out)
        np.testing.assert_array_equal(out, reference.mask(machine, config, vocabulary))
        assert kernel.accepts(words) is machine.accepts(config)
        assert kernel.live_bytes(words).tolist() == reference.live_bytes(machine, config).tolist()
        assert kernel.forced(words, 70) == reference.forced(machine, config, 70)
        text = data.draw(texts)
        expected = reference.advance(machine, config, text)
        assert kernel.advance(words, text) is (expected is not None)
        np.testing.assert_array_equal(words, (expected or config).pack())


@st.composite
def string_machines(draw: st.DrawFn) -> Machine:
    """Chains of string bodies with random bounds at every state, so that the shortcut applies, or just fails to."""
    machine = Machine()
    bound = st.sampled_from([0, 1, 2, 3, 4, UNBOUNDED, UNBOUNDED])
    close = machine.new_state(label=0, final=True, counter_lo=draw(st.integers(0, 2)))
    bodies = []
    for _ in range(draw(st.integers(1, 3))):
        effect = draw(st.sampled_from([0, COUNT, COUNT, COUNT, RESET]))
        low = draw(st.sampled_from([0, 0, 0, 1]))
        bodies.append(machine.new_state(effect=effect, counter_lo=low, counter_hi=draw(bound)))
    for body, following in itertools.pairwise([*bodies, bodies[-1]]):
        edges = dict.fromkeys(cases.PLAIN_ASCII, following)
        if draw(st.integers(0, 9)) > 0:
            effect = draw(st.sampled_from([0, 0, 0, 0, COUNT, RESET]))
            edges |= cases.character_edges(machine, following, draw(bound), effect)
        if draw(st.integers(0, 5)) == 0:
            del edges[draw(st.sampled_from(sorted(edges)))]
        if draw(st.booleans()):
            edges[cases.QUOTE] = close
        machine.set_edges(body, edges)
    machine.return_symbol([draw(st.sampled_from(bodies))])
    return machine


@PLAN
@given(st.data())
def test_random_string_machines(data: st.DataObject) -> None:
    """The free-text shortcut never changes a mask, whatever the bounds on and inside characters."""
    machine = data.draw(string_machines())
    vocabulary = TEXT_VOCABULARY
    kernel = CpuKernel(machine, vocabulary)
    out = np.empty(vocabulary.num_words, np.int32)
    for _ in range(4):
        config = data.draw(configurations(machine))
        kernel.mask(config.pack(), out)
        np.testing.assert_array_equal(out, reference.mask(machine, config, vocabulary))


TEXT_VOCABULARY = cases.text_vocabulary()
