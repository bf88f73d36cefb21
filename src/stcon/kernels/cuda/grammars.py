"""`CudaGrammars`: the machines that rows of a batch may follow, as a table of pointers on the device.

Adding or removing a grammar writes one entry, so nothing else is rebuilt, and a captured graph sees it at its next
replay. A machine whose rows are built as they are met is uploaded again when one was missing (`build`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption, TooLarge
from stcon.grammar.cfg.stacks import require_deterministic
from stcon.grammar.locks import lock_of
from stcon.grammar.machine import DEAD, Machine
from stcon.kernels.cuda.tables import STRUCT_WORDS, DeviceTables, TableBuilder

if TYPE_CHECKING:
    import torch

DEFAULT_CAPACITY = 256
DEFAULT_AHEAD = 256


class _Entry:
    """One grammar on the device."""

    def __init__(self, machine: Machine, need: NDArray[np.int32] | None) -> None:
        self.machine = machine
        self.builder = TableBuilder(machine, need)
        self.data: torch.Tensor | None = None
        self.nbytes = 0
        self.num_states = self.num_symbols = 0  # in the tables on the device

    def build(self) -> DeviceTables:
        """The tables as they are now. Hold the machine's lock."""
        self.num_states, self.num_symbols = self.machine.num_states, self.machine.num_symbols
        return self.builder.build()


class CudaGrammars:
    """Grammars by number.

    Args:
        device: torch device.
        capacity: the most at a time.
        ahead: rows built beyond those that are asked for, nearest first, whenever some are.

    Attributes:
        table: int64[capacity, STRUCT_WORDS], the pointer table.

    Not safe to use from several threads at once.
    """

    def __init__(
        self, device: torch.device | str = "cuda", *, capacity: int = DEFAULT_CAPACITY, ahead: int = DEFAULT_AHEAD
    ) -> None:
        import torch

        self.ahead = ahead
        self.table = torch.zeros((capacity, STRUCT_WORDS), dtype=torch.int64, device=device)
        self.device = self.table.device  # with its number
        self._entries: dict[int, _Entry] = {}
        self._free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, machine: Machine, *, need: NDArray[np.int32] | None = None) -> int:
        """Put `machine` on the device, its first rows built; returns its number.

        Args:
            machine: kept until `remove`.
            need: int32[Q], see `TableBuilder`.

        Raises:
            TooLarge: `capacity` grammars are there already.
            Unsupported: a grammar that is not deterministic; the conflict is named.
            GrammarError: whatever building a row raises.
        """
        require_deterministic(machine)
        if not self._free:
            raise TooLarge("grammars on a device", given=len(self._entries) + 1, limit=len(self.table))
        entry = _Entry(machine, need)
        with lock_of(machine):
            self._build_ahead(machine, [machine.start])
            tables = entry.build()
        index = self._free.pop()
        self._entries[index] = entry
        self._upload(index, tables)
        return index

    def remove(self, index: int) -> None:
        """Forget grammar `index`. No row may follow it any more."""
        self._entry(index)
        del self._entries[index]
        self.table[index].zero_()
        self._free.append(index)

    def build(self, index: int, states: Iterable[int]) -> None:
        """Build the rows of `states`, and some ahead, and upload the tables again."""
        entry = self._entry(index)
        with lock_of(entry.machine):
            self._build_ahead(entry.machine, states)
            tables = entry.build()
        self._upload(index, tables)

    def include(self, index: int, config: NDArray[np.int32]) -> None:
        """Upload the tables again if `config`, which the host computed, has a state or symbol that they are older than.

        Kernels take it for granted that a row's configuration is one of their tables'. What they compute themselves is.

        Args:
            index: the grammar's number.
            config: int32[CONFIG_WORDS].

        Cost: a microsecond, mostly; else that of `build`.
        """
        entry, depth = self._entry(index), int(config[1])
        is_known = int(config[0]) < entry.num_states
        if not is_known or (depth and int(config[3 : 3 + depth].max()) >= entry.num_symbols):
            self.build(index, [int(config[0])])

    def machine(self, index: int) -> Machine:
        """The machine of grammar `index`."""
        return self._entry(index).machine

    def nbytes(self, index: int) -> int:
        """Bytes that grammar `index` takes on the device, its entry in the table included."""
        return self._entry(index).nbytes + 8 * STRUCT_WORDS

    def _entry(self, index: int) -> _Entry:
        if index not in self._entries:
            raise InvalidOption(f"there is no grammar number {index} on the device")
        return self._entries[index]

    def _build_ahead(self, machine: Machine, states: Iterable[int]) -> None:
        """Build `states`, then breadth first what their edges and returns lead to, `ahead` rows at most."""
        queue = deque(dict.fromkeys(states))
        for state in queue:
            machine.build(state)
        seen, left = set(queue), self.ahead
        while queue and left > 0:
            state = queue.popleft()
            if not machine.is_built(state):
                machine.build(state)
                left -= 1
            for edge in np.unique(machine.row(state)).tolist():
                if edge == DEAD:
                    continue
                target, symbols = machine.decode(edge)
                following = [target]
                for symbol in symbols:
                    following += [after for after in machine.resume_targets(symbol) if after != DEAD]
                queue.extend(after for after in following if after not in seen)
                seen.update(following)

    def _upload(self, index: int, tables: DeviceTables) -> None:
        """Copy the tables, in place where they fit, and write the entry."""
        import torch

        entry = self._entries[index]
        size = len(tables.data)
        if entry.data is None or len(entry.data) < size:
            # room to grow where more rows may come, so that most uploads keep their place
            room = size if entry.data is None else 2 * size
            entry.data = torch.zeros(room, dtype=torch.uint8, device=self.device)
        entry.nbytes = size
        entry.data[:size].copy_(torch.from_numpy(tables.data))
        self.table[index].copy_(torch.from_numpy(tables.struct(entry.data.data_ptr())))
