"""The oracle: every question a kernel answers, answered from `Machine.step` and nothing else.

Slow on purpose. Every other backend must equal it bit for bit.

Source: the paper's Definition 5 (mask) and Definition 7 (forced chain).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon.grammar.machine import Configuration, Machine
from stcon.grammar.structure import forced_chain

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary


def mask(machine: Machine, config: Configuration, vocabulary: Vocabulary) -> NDArray[np.int32]:
    """The tokens that may follow `config`: A(c) of Definition 5.

    Returns:
        int32[W]: bit ``t % 32`` of word ``t // 32`` is set iff `Machine.run` is defined on the bytes of token t, or t
        is an end token and `config` accepts. A token without bytes that ends nothing is never set.

    Cost: one `Machine.step` for every byte of the vocabulary.
    """
    words = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    for token in range(vocabulary.size):
        if token in vocabulary.end_ids:
            allowed = machine.accepts(config)
        else:
            data = vocabulary.token_bytes(token)
            allowed = bool(data) and machine.run(config, data or b"") is not None
        if allowed:
            words[token // 32] |= np.uint32(1 << token % 32)
    return words.view(np.int32)


def advance(machine: Machine, config: Configuration, data: bytes) -> Configuration | None:
    """The configuration after `data`, or None where a step is undefined."""
    return machine.run(config, data)


def live_bytes(machine: Machine, config: Configuration) -> NDArray[np.uint8]:
    """uint8[256]: 1 for the bytes on which `Machine.step` is defined."""
    live = np.zeros(256, np.uint8)
    live[machine.live(config)] = 1
    return live


def forced(machine: Machine, config: Configuration, limit: int) -> bytes:
    """At most `limit` bytes of chain(c): `stcon.grammar.structure.forced_chain`, by the project's one definition."""
    return forced_chain(machine, config, limit)
