"""`CudaWalker`: the rows of a batch, their masks and their steps, on the device. See ``docs/gpu.md``.

Every method only starts kernels, at addresses that never change: all but `build_missing` can be captured in a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption
from stcon.grammar.machine import CONFIG_WORDS, UNBOUNDED, Configuration
from stcon.kernels.cuda.compiler import Kernels, kernels_for
from stcon.kernels.cuda.tokens import TokenTables

if TYPE_CHECKING:
    import torch

    from stcon.kernels.cuda.grammars import CudaGrammars
    from stcon.kernels.cuda.sampling import DeviceSampling
    from stcon.vocab.vocabulary import Vocabulary

THREADS = 256
MAX_ROWS = 1024
FINISHED = -1

# words of a chunk where so many rows or fewer are walked at once: enough blocks to fill the device, and not more
CHUNK_WORDS = ((4, 64), (16, 256), (MAX_ROWS, 512))


class _Lists(NamedTuple):
    """A vocabulary's lists of one size of chunk, on the device."""

    max_rows: int
    num_chunks: int
    struct: torch.Tensor


class CudaWalker:
    """State of up to `max_rows` rows, and the kernels over them.

    Args:
        vocabulary: the model's.
        grammars: that rows may follow; its device is used.
        max_rows: R, at most `MAX_ROWS`.
        max_banned: N, the most banned tokens of a row.
        kernels: compiled kernels; None: compiled for the device now.
        chunk_words: as `CHUNK_WORDS`; for measurements.

    Attributes: the tensors of ``docs/gpu.md``.

    Cost: for 248k tokens about 20 MB on the device, and 63 kB a row. One stream at a time: kernels share scratch.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        grammars: CudaGrammars,
        max_rows: int,
        *,
        max_banned: int = 64,
        kernels: Kernels | None = None,
        chunk_words: tuple[tuple[int, int], ...] = CHUNK_WORDS,
    ) -> None:
        import torch

        if len(vocabulary.end_ids) > THREADS:
            raise InvalidOption(f"a vocabulary of {len(vocabulary.end_ids)} end tokens, where {THREADS} are the most")
        if not 0 < max_rows <= MAX_ROWS:
            raise InvalidOption(f"max_rows: expected 1 to {MAX_ROWS}, got {max_rows}")
        self.vocabulary = vocabulary
        self.grammars = grammars
        self.max_rows = max_rows
        self.device = grammars.device
        self._kernels = kernels if kernels is not None else kernels_for(self.device.index or 0)

        def rows(value: int, *shape: int) -> torch.Tensor:
            return torch.full((max_rows, *shape), value, dtype=torch.int32, device=self.device)

        self.config = rows(0, CONFIG_WORDS)
        self.grammar = rows(-1)
        self.min_bytes = rows(0)
        self.remaining = rows(UNBOUNDED)
        self.is_restricted = rows(0)
        self.allowed = rows(0, vocabulary.num_words)
        self.num_banned = rows(0)
        self.banned = rows(0, max_banned)
        self.missing = rows(-1)
        self.refused = rows(-1)
        self._bests = torch.zeros(max_rows, dtype=torch.int64, device=self.device)
        self._tickets = rows(0)
        self._words = rows(0, vocabulary.num_words)
        self._keep: list[torch.Tensor] = []
        self._lists = self._upload(TokenTables(vocabulary), chunk_words)

    # ------------------------------------------------------------------------------------------------- rows

    def set_row(self, row: int, grammar: int, config: Configuration | None = None) -> None:
        """Let `row` follow grammar number `grammar` (-1: none) from `config` (None: its start), without limits."""
        import torch

        if config is None:
            config = self.grammars.machine(grammar).initial() if grammar >= 0 else Configuration(0)
        self.config[row].copy_(torch.from_numpy(config.pack()))
        self.grammar[row] = grammar
        self.remaining[row] = UNBOUNDED
        for tensor in (self.min_bytes, self.is_restricted, self.num_banned):
            tensor[row] = 0
        for tensor in (self.missing, self.refused):
            tensor[row] = -1

    def include(self, grammar: int, config: NDArray[np.int32]) -> None:
        """Before a row is put where the host's kernel got to: see `CudaGrammars.include`."""
        self.grammars.include(grammar, config)

    def configuration(self, row: int) -> Configuration | None:
        """Where `row` stands; None: finished. Waits for the device."""
        words = self.config[row].cpu().numpy()
        return None if words[0] == FINISHED else Configuration.unpack(words)

    def build_missing(self) -> bool:
        """Build the rows of edges that kernels met and were not built; True if there were any.

        What was asked of the rows with ``missing`` set has to be asked again. Waits for the device.
        """
        missing = self.missing.cpu().numpy()
        stalled = np.flatnonzero(missing >= 0)
        if not len(stalled):
            return False
        grammar = self.grammar.cpu().numpy()
        states: dict[int, set[int]] = {}
        for row in stalled.tolist():
            states.setdefault(int(grammar[row]), set()).add(int(missing[row]))
        for index, needed in states.items():
            self.grammars.build(index, sorted(needed))
        self.missing.fill_(-1)
        return True

    # ------------------------------------------------------------------------------------------------- kernels

    def bitmask(self, out: torch.Tensor) -> None:
        """Write the masks of the first ``len(out)`` rows: int32[B, W], bit ``t % 32`` of word ``t // 32`` for token t.

        Rows in the same place are walked once.
        """
        self._check(out, (None, self.vocabulary.num_words), "int32")
        self._walk("walk_bitmask", len(out), out.data_ptr(), out.stride(0))

    def mask_logits(self, logits: torch.Tensor) -> None:
        """Write -inf over the logits ([B, V or more], any of three types) of tokens that may not come, in place."""
        address, stride, dtype = self._logits(logits)
        self._walk("walk_mask_logits", len(logits), address, stride, logits.shape[1], dtype)

    def argmax(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        """Write each row's best admissible token (int32[B]); on a tie the lowest id.

        -1 where there is none, where its logit is not finite, and where a row of edges is missing.
        """
        self._check(out, (len(logits),), "int32")
        self._best(logits, out.data_ptr(), 0)

    def sample(self, logits: torch.Tensor, sampling: DeviceSampling, out: torch.Tensor) -> None:
        """Draw each row's token (int32[B]) as `Sampling.draw` does; -1 as in `argmax`."""
        self._check(out, (len(logits),), "int32")
        self._best(logits, 0, self._words.data_ptr())
        address, stride, dtype = self._logits(logits)
        options = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        tensors = (*options, sampling.seeds, sampling.positions, out)
        before = (self._words.data_ptr(), self.vocabulary.num_words, address, stride, dtype, self._bests.data_ptr())
        after = (tensor.data_ptr() for tensor in tensors)
        threads = self._kernels.draw_threads
        self._kernels.launch("draw_tokens", (len(logits), 1), threads, [*before, self.missing.data_ptr(), *after])

    def advance(self, tokens: torch.Tensor) -> None:
        """Read int32[B] or [B, S] tokens, row by row; -1 is read as nothing. All of a row's are read, or none."""
        self._check(tokens, (None,) if tokens.dim() == 1 else (None, None), "int32")
        stride, count = (1, 1) if tokens.dim() == 1 else (tokens.stride(0), tokens.shape[1])
        struct = self._lists[0].struct.data_ptr()
        arguments = [struct, self.grammars.table.data_ptr(), *self._rows(), tokens.data_ptr(), stride, count]
        self._kernels.launch("advance_rows", (len(tokens), 1), 32, arguments)

    # ------------------------------------------------------------------------------------------------- inside

    def _best(self, logits: torch.Tensor, out: int, words: int) -> None:
        scratch = (self._bests.data_ptr(), self._tickets.data_ptr())
        self._walk("walk_best", len(logits), *self._logits(logits), *scratch, out, words)

    def _walk(self, name: str, num_rows: int, *arguments: int) -> None:
        lists = next(lists for lists in self._lists if num_rows <= lists.max_rows)
        before = [lists.struct.data_ptr(), self.grammars.table.data_ptr(), *self._rows()]
        self._kernels.launch(name, (lists.num_chunks, num_rows), THREADS, [*before, *arguments])

    def _rows(self) -> list[int]:
        """``ROWS_PARAMS``."""
        return [
            self.config.data_ptr(),
            self.grammar.data_ptr(),
            self.min_bytes.data_ptr(),
            self.remaining.data_ptr(),
            self.is_restricted.data_ptr(),
            self.allowed.data_ptr(),
            self.num_banned.data_ptr(),
            self.banned.data_ptr(),
            self.banned.shape[1],
            self.missing.data_ptr(),
            self.refused.data_ptr(),
        ]

    def _logits(self, logits: torch.Tensor) -> tuple[int, int, int]:
        """Address, row stride and number of the type."""
        names = ("float32", "float16", "bfloat16")
        dtype = str(logits.dtype).removeprefix("torch.")
        if dtype not in names or logits.shape[1] < self.vocabulary.size:
            wanted = f"float32, float16 or bfloat16 of at least {self.vocabulary.size} columns"
            raise InvalidOption(f"logits: expected {wanted}, got {dtype} of {logits.shape[1]}")
        self._check(logits, (None, None), dtype)
        return logits.data_ptr(), logits.stride(0), names.index(dtype)

    def _check(self, tensor: torch.Tensor, shape: tuple[int | None, ...], dtype: str) -> None:
        """What a kernel takes for granted."""
        fits = len(tensor) <= self.max_rows and len(tensor.shape) == len(shape)
        fits = fits and all(size in (None, given) for size, given in zip(shape, tensor.shape, strict=True))
        if not fits or str(tensor.dtype) != f"torch.{dtype}" or tensor.stride(-1) != 1 or tensor.device != self.device:
            raise InvalidOption(
                f"expected {dtype} of shape {shape} on {self.device}, {self.max_rows} rows at most, each contiguous; "
                f"got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
            )

    def _upload(self, tables: TokenTables, chunk_words: tuple[tuple[int, int], ...]) -> list[_Lists]:
        """The vocabulary's arrays on the device, once for each size of chunk where they differ."""
        import torch

        def address(array: NDArray[Any]) -> int:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            tensor = torch.from_numpy(flat if len(flat) else np.zeros(16, np.uint8)).to(self.device, copy=True)
            self._keep.append(tensor)
            return int(tensor.data_ptr())

        vocabulary, packed = self.vocabulary, tables.packed
        spelled = [address(array) for array in (packed.words, packed.places, packed.lengths)]
        plain = [address(array) for array in (tables.plain_words, tables.row_of_run, tables.end_ids)]
        numbers = [len(tables.end_ids), tables.longest_plain, vocabulary.num_words, vocabulary.size]
        uploaded = []
        for max_rows, size in chunk_words:
            lists = tables.lists(size)
            fields = [address(lists.records), address(lists.starts), *spelled, *plain, *numbers, size]
            struct = torch.tensor(fields, dtype=torch.int64, device=self.device)
            uploaded.append(_Lists(max_rows, lists.num_chunks, struct))
            if max_rows >= self.max_rows:
                break
        return uploaded
