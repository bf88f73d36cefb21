"""Machines small enough to explore by brute force, hand-made and random, and the explorers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hypothesis import strategies as st

from stcon.grammar.machine import COUNT, DEAD, RESET, UNBOUNDED, Configuration, Machine

ALPHABET = b"abc"


def nested() -> Machine:
    """V = x+ | y | ( V (, V)* ): x+ returns lazily, y and the closing bracket eagerly."""
    m = Machine()
    value, run, end = m.new_state(), m.new_state(label=0), m.new_state(label=0, final=True)
    opened, after = m.new_state(), m.new_state()
    symbol = m.return_symbol([after])
    m.set_edges(run, {ord("x"): run})
    m.set_edges(value, {ord("x"): run, ord("y"): end, ord("("): opened})
    m.set_call_row(opened, value, symbol, {})
    m.set_edges(after, {ord(","): opened, ord(")"): end})
    return m


def spelled(text: bytes) -> Machine:
    """Exactly `text`."""
    m = Machine()
    states = [m.new_state() for _ in text]
    states.append(m.new_state(label=0, final=True))
    for i, byte in enumerate(text):
        m.set_edges(states[i], {byte: states[i + 1]})
    return m


def counted(low: int, high: int) -> Machine:
    """( a{low,high} ) twice, by the counter."""
    m = Machine()
    start, opened, body = m.new_state(), m.new_state(effect=RESET), m.new_state(effect=COUNT, counter_hi=high)
    close = m.new_state(counter_lo=low)
    again, body2 = m.new_state(effect=RESET), m.new_state(effect=COUNT, counter_hi=high)
    end = m.new_state(label=0, final=True, counter_lo=low)
    m.set_edges(start, {ord("("): opened})
    m.set_edges(opened, {ord("a"): body, ord(")"): close})
    m.set_edges(body, {ord("a"): body, ord(")"): close})
    m.set_edges(close, {ord("("): again})
    m.set_edges(again, {ord("a"): body2, ord(")"): end})
    m.set_edges(body2, {ord("a"): body2, ord(")"): end})
    return m


@st.composite
def random_machines(draw: st.DrawFn, *, bounds: bool = False) -> Machine:
    """Up to 5 states, 2 labels, 2 symbols, any edges."""
    m = Machine()
    num_states = draw(st.integers(1, 5))
    state = st.integers(0, num_states - 1)
    for _ in range(num_states):
        label = draw(st.sampled_from([-1, -1, 0, 1]))
        options = {"label": label, "final": label >= 0 and draw(st.booleans())}
        if bounds:
            options["effect"] = draw(st.sampled_from([0, 0, RESET, COUNT]))
            low, high = draw(st.sampled_from([(0, UNBOUNDED)] * 3 + [(0, 2), (3, UNBOUNDED)]))
            options |= {"counter_lo": low, "counter_hi": high}
        m.new_state(**options)
    for _ in range(draw(st.integers(1, 2))):
        m.return_symbol(draw(st.tuples(state, st.one_of(state, st.just(DEAD)))))
    pushes = st.one_of(st.just([]), st.lists(st.integers(0, m.num_symbols - 1), max_size=2))
    edges = st.dictionaries(st.sampled_from(ALPHABET), st.tuples(state, pushes), max_size=3)
    for s in range(num_states):
        if not m.is_final(s):
            m.set_edges(s, {byte: m.action(to, symbols) for byte, (to, symbols) in draw(edges).items()})
    return m


def explore(m: Machine, start: Configuration, *, depth: int, limit: int = 2_000) -> Iterator[tuple[int, Configuration]]:
    """Every configuration within `depth` bytes of `start`, breadth first with its distance; at most `limit` of them."""
    seen = {start}
    queue = deque([(0, start)])
    while queue:
        distance, config = queue.popleft()
        yield distance, config
        if distance == depth:
            continue
        for byte in ALPHABET:
            after = m.step(config, byte)
            if after is not None and after not in seen and len(seen) < limit:
                seen.add(after)
                queue.append((distance + 1, after))


def distance_to_acceptance(m: Machine, start: Configuration, *, depth: int) -> int | None:
    """Fewest bytes from `start` to acceptance, if at most `depth` (and few configurations are in the way)."""
    return next((distance for distance, config in explore(m, start, depth=depth) if m.accepts(config)), None)
