"""A control machine as graphs that the theory speaks about: forced chains, step graphs, the runs between two places.

**Forced.** `forced_chain` is the definition for the project: what a decoder writes without asking the model is the
`stcon.theory.branch_kernel.forced_walk` of the configurations. In the graph of the runs between two cut states it
follows the edges of the branch kernel (`RunGraph`), going on where ways meet again.

**A decoding step.** `step_graph` lists, for a configuration, all beginnings of tokens with the configurations that they
lead to: an out-tree, because the token fixes the bytes and the machine is deterministic. Hence a mangrove
(Proposition 1), which is why each token can be judged by itself.

The machine's marks (history constraints) are not looked at: they only refuse more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.errors import TooLarge
from stcon.grammar.machine import DEAD, STACK_CAP, Configuration, Machine
from stcon.theory.branch_kernel import forced_walk
from stcon.theory.graph import Digraph

MAX_CHAIN_BYTES = 1 << 16
MAX_CHAINED_BYTES = 1 << 17
SHORT_CHAIN_BYTES = 64
MAX_VERTICES = 1 << 20


class Reading(NamedTuple):
    """A byte, and the configuration after it."""

    byte: int
    config: Configuration


# ------------------------------------------------------------------------------------------------- forced chains


def is_forced(machine: Machine, config: Configuration) -> bool:
    """Whether the text cannot end in `config` and exactly one byte may follow. Source: Definition 7."""
    return forced_step(machine, config) is not None


def forced_step(machine: Machine, config: Configuration) -> Reading | None:
    """The one byte that must follow `config`; None where the text may end, or not exactly one byte may follow.

    Cost: one or two steps a live byte class.
    """
    if machine.accepts(config):
        return None
    steps = list(islice(steps_by_class(machine, config), 2))
    if len(steps) != 1 or len(steps[0][0]) != 1:
        return None
    (byte,), after = steps[0]
    return Reading(byte, after)


def forced_chain(machine: Machine, config: Configuration, limit: int = MAX_CHAIN_BYTES) -> bytes:
    """chain(c): what follows `config` by force, at most `limit` bytes. Source: Definition 7."""
    return bytes(reading.byte for reading in islice(forced_readings(machine, config), limit))


def forced_readings(machine: Machine, config: Configuration) -> Iterator[Reading]:
    """The bytes of chain(c), each with the configuration after it."""
    return forced_walk(Reading(-1, config), lambda reading: forced_step(machine, reading.config))


def steps_by_class(machine: Machine, config: Configuration) -> Iterator[tuple[list[int], Configuration]]:
    """The steps from `config`: the bytes of each live class, and the configuration after them."""
    may_return = machine.label(config.state) >= 0
    for state in _looked_at(machine, config):
        machine.build(state)  # no class splits from here on
    row, byte_class = machine.row(config.state), machine.byte_class
    for k in range(machine.num_classes) if may_return else np.flatnonzero(row != DEAD).tolist():
        members = np.flatnonzero(byte_class == k).tolist()
        after = machine.step(config, members[0])
        if after is not None:
            yield members, after


def _looked_at(machine: Machine, config: Configuration) -> Iterator[int]:
    """The states whose rows the next byte is looked up in."""
    state, stack = config.state, list(config.stack)
    while state != DEAD:
        yield state
        if machine.label(state) < 0 or not stack:
            return
        state = machine.resume_targets(stack.pop())[machine.label(state)]


# ------------------------------------------------------------------------------------------------- whatever is below


class _Place(NamedTuple):
    """A state, and what is known of the stack: its top."""

    state: int
    stack: tuple[int, ...] = ()


class _Hop(NamedTuple):
    """Forced text from a state, up to where the stack is as it was; ``landing`` is None where it does not get there."""

    text: bytes
    landing: int | None


def forced_chains(machine: Machine) -> list[bytes]:
    """The texts that `machine` forces in every context, whatever is below on the stack.

    A chain that is the rest of a longer one is left out. A chain goes through the calls that it makes itself; where it
    returns to whoever called it, it is cut, as that differs from caller to caller. Bounds are ignored. From every
    configuration with its state, a chain is the beginning of chain(c), unless a bound leaves no way on.

    Returns:
        distinct texts, longest first, each at most `MAX_CHAIN_BYTES` long; `SHORT_CHAIN_BYTES` inside calls once
        `MAX_CHAINED_BYTES` were followed in all.

    Cost: O(states · classes), plus the length of all chains.
    """
    machine.build_all()
    only = forced_bytes(machine)
    hops: dict[int, _Hop] = {}
    entered: set[int] = set()
    followed = 0
    for state in np.flatnonzero(only >= 0).tolist():
        limit = MAX_CHAIN_BYTES if followed < MAX_CHAINED_BYTES else SHORT_CHAIN_BYTES
        hops[state] = _hop(machine, only, state, entered, limit)
        followed += len(hops[state].text)
    chains = {_joined(hops, state) for state in hops if state not in entered}
    return sorted(chains, key=lambda chain: (-len(chain), chain))


def forced_bytes(machine: Machine) -> NDArray[np.int64]:
    """int64[Q]: the only live byte of each state that does not accept, or -1; every row is built."""
    byte_class = machine.byte_class
    size = np.bincount(byte_class, minlength=machine.num_classes)
    member = np.zeros(machine.num_classes, np.int64)
    member[byte_class] = np.arange(256)
    only = np.full(machine.num_states, -1, np.int64)
    for state in range(machine.num_states):
        live = np.flatnonzero(machine.row(state) != DEAD)
        if machine.label(state) < 0 and len(live) == 1 and size[live[0]] == 1:
            only[state] = member[live[0]]
    return only


def _hop(machine: Machine, only: NDArray[np.int64], state: int, entered: set[int], limit: int) -> _Hop:
    """From `state` until the stack is as it was, at most `limit` bytes; the states on the way go to `entered`."""

    def only_way_on(place: _Place) -> _Place | None:
        return _after_only_byte(machine, only, place) if only[place.state] >= 0 else None

    text = bytearray((int(only[state]),))
    for place in islice(forced_walk(_Place(state), only_way_on), limit):
        if place.state != DEAD:
            entered.add(place.state)
        if place.state == DEAD or not place.stack:
            return _Hop(bytes(text), None if place.state == DEAD else place.state)
        if only[place.state] >= 0:
            text.append(int(only[place.state]))
    return _Hop(bytes(text), None)


def _after_only_byte(machine: Machine, only: NDArray[np.int64], place: _Place) -> _Place | None:
    state, symbols = machine.decode(machine.edge(place.state, int(only[place.state])))
    stack = [*place.stack, *symbols]
    while stack and state != DEAD and machine.is_final(state):
        state = machine.resume_targets(stack.pop())[machine.label(state)]
    return _Place(state, tuple(stack)) if len(stack) <= STACK_CAP else None


def _joined(hops: dict[int, _Hop], state: int) -> bytes:
    def landing(at: int) -> int | None:
        return hops[at].landing if at in hops else None

    text = bytearray(hops[state].text)
    seen = {state}
    for at in forced_walk(state, landing):
        if at not in hops or at in seen or len(text) >= MAX_CHAIN_BYTES:
            break
        seen.add(at)
        text += hops[at].text
    return bytes(text[:MAX_CHAIN_BYTES])


# ------------------------------------------------------------------------------------------------- graphs


@dataclass(frozen=True)
class StepGraph:
    """P_c: what one token may spell from a configuration.

    Attributes:
        graph: an out-tree from vertex 0; a vertex is named by the beginning of a token that leads there.
        configurations: [vertex] the configuration after that beginning.
        tokens: index of a token that may follow → its vertex.
    """

    graph: Digraph
    configurations: tuple[Configuration, ...]
    tokens: dict[int, int]


def step_graph(machine: Machine, config: Configuration, tokens: Iterable[bytes | None]) -> StepGraph:
    """The step graph of `config` over a vocabulary.

    Args:
        tokens: the bytes of each token; None and b"" for those without bytes.

    Raises:
        TooLarge: past `MAX_VERTICES`.

    Cost: a step a vertex, and a look-up a byte of the tokens.

    Source: Definition 6 and Proposition 1.
    """
    vertices = {b"": 0}
    configurations = [config]
    edges: list[tuple[int, int]] = []
    admitted: dict[int, int] = {}
    for index, token in enumerate(tokens):
        vertex = 0
        for length, byte in enumerate(token or b"", 1):
            known = vertices.get((token or b"")[:length])
            if known is None:
                after = machine.step(configurations[vertex], byte)
                if after is None:
                    break
                known = vertices[(token or b"")[:length]] = len(configurations)
                edges.append((vertex, known))
                configurations.append(after)
                if known > MAX_VERTICES:
                    raise TooLarge("vertices of the step graph", given=known, limit=MAX_VERTICES)
            vertex = known
        else:
            if token:
                admitted[index] = vertex
    return StepGraph(Digraph(len(configurations), edges, list(vertices)), tuple(configurations), admitted)


@dataclass(frozen=True)
class RunGraph:
    """The runs from one configuration to another, or to the end of the text.

    Attributes:
        graph: one edge a byte, so that walks from `source` to `target` are the texts between the two.
        spelled: [edge] the byte read; -1 for "the text ends here".
        configurations: [vertex] None for the vertex that stands for the end of the text.
        source, target: vertices.
    """

    graph: Digraph
    spelled: tuple[int, ...]
    configurations: tuple[Configuration | None, ...]
    source: int
    target: int

    def text(self, walk: Iterable[int]) -> bytes:
        """What the edges of a walk spell."""
        return bytes(self.spelled[edge] for edge in walk if self.spelled[edge] >= 0)


def run_graph(machine: Machine, start: Configuration, end: Configuration | None, *, limit: int) -> RunGraph:
    """All runs from `start` up to the first time that `end`'s state and stack are reached (None: that the text ends).

    Args:
        limit: configurations; one more is `TooLarge`.

    Raises:
        TooLarge: more configurations than `limit`, as in an endless string whose length is counted.

    Cost: a step a byte class of each configuration.
    """
    vertices: dict[Configuration | None, int] = {start: 0}
    edges: list[tuple[int, int]] = []
    spelled: list[int] = []
    queue = deque([start])
    while queue:
        config = queue.popleft()
        if end is None and machine.accepts(config):
            edges.append((vertices[config], vertices.setdefault(None, len(vertices))))
            spelled.append(-1)
        for members, reached in steps_by_class(machine, config):
            after = end if end is not None and _same_place(reached, end) else reached
            if after not in vertices:
                vertices[after] = len(vertices)
                if after is not end:
                    queue.append(reached)
            if len(vertices) > limit:
                raise TooLarge("configurations between two places", given=len(vertices), limit=limit)
            edges += [(vertices[config], vertices[after])] * len(members)
            spelled += members
    target = vertices.setdefault(end, len(vertices))
    return RunGraph(Digraph(len(vertices), edges), tuple(spelled), tuple(vertices), 0, target)


def _same_place(one: Configuration, other: Configuration) -> bool:
    return one.state == other.state and one.stack == other.stack
