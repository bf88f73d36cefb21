"""How much of the vocabulary is alive: trie nodes by depth in bytes, and those that a grammar keeps alive.

A walk for all places at once (the pass that builds a table of tokens) may drop a node only when every place has dropped
it. Next to that, the nodes that one place keeps alive, on average: what a walk made for one mask visits.

Source: the paper's Figure 9 and Algorithm 4. We depart in counting places, configurations with their stacks, where the
paper's machine has states alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stcon.grammar.machine import Configuration, Machine
    from stcon.vocab.vocabulary import Vocabulary

_MOST_PLACES = 400
_AT_A_TIME = 8


@dataclass(frozen=True)
class Level:
    """One depth of the trie.

    Attributes:
        depth: in bytes, from 1.
        nodes: trie nodes there.
        alive: of these, alive from some place.
        mean_alive: alive from one place, averaged over the places.
    """

    depth: int
    nodes: int
    alive: int
    mean_alive: float


def places(machine: Machine, most: int = _MOST_PLACES) -> list[Configuration]:
    """Configurations that texts lead to, breadth first, one for each state and stack (counters as first met)."""
    start = machine.initial()
    queue, seen = deque([start]), {(start.state, start.stack): start}
    while queue and len(seen) < most:
        here = queue.popleft()
        for byte in range(256):
            after = machine.step(here, byte)
            if after is not None and (after.state, after.stack) not in seen:
                seen[after.state, after.stack] = after
                queue.append(after)
    return list(seen.values())[:most]


def measure(machine: Machine, vocabulary: Vocabulary) -> list[Level]:
    """The levels of `vocabulary` under `machine`, whose rows it builds.

    Cost: one walk a place, some milliseconds each.
    """
    import torch

    from stcon.kernels.torch import Readers, TorchTables, level_trie

    machine.build_all()
    found = places(machine)
    device = torch.device("cpu")
    trie, tables = level_trie(vocabulary.trie, device), TorchTables(machine, device)
    depth = np.bincount(vocabulary.trie.depth)[1:]
    alive = torch.zeros(len(trie.byte), dtype=torch.bool)
    total = np.zeros(len(depth))
    for first in range(0, len(found), _AT_A_TIME):
        part = found[first : first + _AT_A_TIME]
        readers = Readers.at(torch.from_numpy(np.stack([config.pack() for config in part])).long())
        node = torch.arange(trie.num_roots)
        which, node = torch.repeat_interleave(readers.row, len(node)), node.repeat(len(part))
        readers = readers.select(which)
        level = 0
        while len(node):
            live = readers.read(tables, trie.byte[node])
            readers, node = readers.select(live), node[live]
            alive[node] = True
            total[level] += len(node)
            count = trie.num_children[node]
            starts = torch.repeat_interleave(trie.child[node] - (count.cumsum(0) - count), count)
            node, readers = starts + torch.arange(int(count.sum())), readers.select(torch.repeat_interleave(count))
            level += 1
    by_level = np.split(alive.numpy(), np.cumsum(depth)[:-1])
    return [
        Level(i + 1, int(depth[i]), int(by_level[i].sum()), float(total[i] / len(found))) for i in range(len(depth))
    ]


def as_json(levels: list[Level], machine: Machine, about: Mapping[str, Any]) -> dict[str, Any]:
    """The measurement as data."""
    return {**about, "places": len(places(machine)), "levels": [asdict(level) for level in levels]}
