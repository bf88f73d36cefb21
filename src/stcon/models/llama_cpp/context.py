"""A llama.cpp context: sequences in one key-value memory, and a decode call over tokens of any of them.

Cells of the memory are shared: a copied sequence takes none of its own until it goes on (``kv_unified``). All methods
take turns through one lock, as a llama.cpp context must not be used by two threads at once.

**What a failed decode leaves** is what was there before, where sequences can be cut back; recurrent layers cannot, and
a sequence that failed there is lost.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stcon.errors import DecodingError, ModelUnavailable, NoRoom

if TYPE_CHECKING:
    from pathlib import Path

    from stcon.models.base import Float32

MAX_SEQUENCES = 256
BATCH_TOKENS = 512
FULL = 1  # the return value of llama_decode for a memory without enough free cells


class Part(NamedTuple):
    """Tokens for one sequence.

    Attributes:
        sequence: its number.
        start: tokens that it holds.
        tokens: to append.
        wanted: indices into `tokens`, ascending: logits are wanted after these.
    """

    sequence: int
    start: int
    tokens: Sequence[int]
    wanted: Sequence[int]


class LlamaWeights:
    """The weights of a GGUF file; shared by contexts.

    Args:
        path: the file.
        gpu_layers: layers to keep on a GPU; -1 for all, 0 for none.

    Raises:
        ModelUnavailable: llama-cpp-python is not installed, or cannot load the file.
    """

    def __init__(self, path: Path, gpu_layers: int) -> None:
        lib = self.lib = library()
        options = lib.llama_model_default_params()
        options.n_gpu_layers = gpu_layers if lib.llama_supports_gpu_offload() else 0
        self.pointer = lib.llama_model_load_from_file(str(path).encode(), options)
        if not self.pointer:
            raise ModelUnavailable(f"{path}: llama.cpp cannot load it as a model ({_reason()})")
        weakref.finalize(self, lib.llama_model_free, self.pointer)
        self.vocab = lib.llama_model_get_vocab(self.pointer)
        self.vocab_size = int(lib.llama_vocab_n_tokens(self.vocab))
        self.train_tokens = int(lib.llama_model_n_ctx_train(self.pointer))
        self.nbytes = int(lib.llama_model_size(self.pointer))
        # recurrent states only go forward
        self.is_recurrent = bool(lib.llama_model_is_recurrent(self.pointer) or lib.llama_model_is_hybrid(self.pointer))

    @property
    def token_bytes(self) -> int:
        """Bytes of a cached token: keys and values of all layers in float16, all layers taken as attention."""
        lib = self.lib
        heads = max(1, lib.llama_model_n_head(self.pointer))
        width = lib.llama_model_n_embd(self.pointer) * lib.llama_model_n_head_kv(self.pointer) // heads
        return int(2 * 2 * lib.llama_model_n_layer(self.pointer) * width)

    def end_ids(self) -> list[int]:
        """The tokens that llama.cpp takes for the end of a generation."""
        return [token for token in range(self.vocab_size) if self.lib.llama_vocab_is_eog(self.vocab, token)]

    def piece(self, token: int) -> bytes:
        """The text of a token as llama.cpp writes it, special tokens as nothing."""
        size = 64
        while True:
            room = ctypes.create_string_buffer(size)
            count = self.lib.llama_token_to_piece(self.vocab, token, room, size, 0, False)
            if count >= 0:
                return room.raw[:count]
            size = -count


class LlamaContext:
    """Sequences over `weights`.

    Args:
        weights: of the model.
        num_tokens: cells of the memory, shared by all sequences.
        num_sequences: most sequences at a time.
        num_threads: of a decode call; 0: llama.cpp's own choice.

    Raises:
        ModelUnavailable: there is no memory for it.
    """

    def __init__(self, weights: LlamaWeights, num_tokens: int, num_sequences: int, num_threads: int = 0) -> None:
        lib = self.lib = weights.lib
        self.weights = weights
        self.num_tokens = num_tokens
        options = lib.llama_context_default_params()
        options.n_ctx = num_tokens
        options.n_batch = options.n_ubatch = BATCH_TOKENS
        options.n_seq_max = num_sequences
        options.kv_unified = True
        options.swa_full = True  # windows that can be cut back
        if num_threads:
            options.n_threads = options.n_threads_batch = num_threads
        self._pointer = lib.llama_init_from_model(weights.pointer, options)
        if not self._pointer:
            raise ModelUnavailable(
                f"llama.cpp has no memory for {num_tokens:,} cached tokens ({_reason()}); ask for a smaller context"
            )
        self._batch = lib.llama_batch_init(BATCH_TOKENS, 0, 1)
        weakref.finalize(self, _free, lib, self._pointer, self._batch, weights)
        self._memory = lib.llama_get_memory(self._pointer)
        self._lock = threading.RLock()
        self._free = list(range(num_sequences - 1, -1, -1))
        self._released: deque[int] = deque()  # filled by finalizers, which may run anywhere and take no lock

    # ------------------------------------------------------------------------------------------------- sequences

    def take(self) -> int:
        """A new, empty sequence. Raises `NoRoom` if all are taken."""
        with self._lock:
            self._collect()
            if not self._free:
                raise NoRoom("sequences", 1, 0, "close other sessions, or load the model with more sequences")
            return self._free.pop()

    def release(self, sequence: int) -> None:
        """Give a sequence back; safe from any thread and from finalizers."""
        self._released.append(sequence)

    def copy(self, source: int, target: int) -> None:
        """Let the empty sequence `target` hold what `source` holds. Cost: none a token, for attention."""
        with self._lock:
            self.lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def cut(self, sequence: int, length: int) -> bool:
        """Forget what `sequence` holds past its first `length` tokens; False if that is not possible."""
        with self._lock:
            return bool(self.lib.llama_memory_seq_rm(self._memory, sequence, length, -1))

    # ------------------------------------------------------------------------------------------------- decoding

    def decode(self, parts: Sequence[Part]) -> list[Float32]:
        """Append the tokens of all parts, `BATCH_TOKENS` a call.

        Returns:
            float32[V] for each place wanted, in the order of the parts.

        Raises:
            NoRoom: the memory is full; sequences are as they were, if they can be cut back.
            DecodingError: llama.cpp failed.
        """
        entries = [
            (part.sequence, part.start + index, token, index in set(part.wanted))
            for part in parts
            for index, token in enumerate(part.tokens)
        ]
        rows: list[Float32] = []
        with self._lock:
            self._collect()
            for begin in range(0, len(entries), BATCH_TOKENS):
                status = self._decode(entries[begin : begin + BATCH_TOKENS], rows)
                if status:
                    for part in parts:
                        self.cut(part.sequence, part.start)
                    raise self._failure(status, len(entries))
        return rows

    def _decode(self, entries: Sequence[tuple[int, int, int, bool]], rows: list[Float32]) -> int:
        """One call of llama_decode; appends the wanted rows and returns its status."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for index, (sequence, position, token, is_wanted) in enumerate(entries):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = is_wanted
        status = int(self.lib.llama_decode(self._pointer, batch))
        if not status:
            rows += [self._row(index) for index, entry in enumerate(entries) if entry[3]]
        return status

    def _row(self, index: int) -> Float32:
        pointer = self.lib.llama_get_logits_ith(self._pointer, index)
        return np.ctypeslib.as_array(pointer, shape=(self.weights.vocab_size,)).copy()

    def _failure(self, status: int, count: int) -> Exception:
        if status == FULL:
            advice = "other sequences hold the rest; close them, or load a larger context"
            return NoRoom("cached tokens", count, self.num_tokens, advice)
        return DecodingError(f"llama.cpp failed to decode {count} tokens: status {status} ({_reason()})")

    def _collect(self) -> None:
        """Empty the sequences that were given back."""
        while self._released:
            sequence = self._released.popleft()
            self.lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            self._free.append(sequence)


def library() -> Any:
    """The module of llama.cpp's C functions.

    Its log goes where llama-cpp-python sends it if somebody has set the level of the logger ``llama-cpp-python``, as
    its own classes do; else errors are kept for our messages, and the rest is dropped.

    Raises:
        ModelUnavailable: llama-cpp-python is not installed, or its library does not load.
    """
    try:
        from llama_cpp import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelUnavailable(
            "running a model by llama.cpp needs llama-cpp-python, which is not installed or does not load "
            f"({type(error).__name__}); run: pip install 'stcon[llama-cpp]' (it is compiled: cmake and a C++ compiler)"
        ) from error
    if not _callbacks:
        _callbacks.append(_log_callback(llama_cpp))
        llama_cpp.llama_log_set(_callbacks[0], ctypes.c_void_p(0))
    return llama_cpp


_callbacks: list[Any] = []  # kept alive: C holds a pointer to it
_errors: deque[str] = deque(maxlen=4)
_ERROR = 4  # GGML_LOG_LEVEL_ERROR


def _log_callback(lib: Any) -> Any:
    from llama_cpp import _logger

    forward = _logger.llama_log_callback

    def log(level: int, text: bytes, user_data: Any) -> None:
        if level == _ERROR:
            _errors.append(text.decode("utf-8", "replace").strip())
        if logging.getLogger("llama-cpp-python").level != logging.NOTSET:
            forward(level, text, user_data)

    return lib.llama_log_callback(log)


def _reason() -> str:
    """What llama.cpp said last."""
    said = " / ".join(_errors) or "it gave no reason"
    _errors.clear()
    return said[:300]


def _free(lib: Any, pointer: Any, batch: Any, weights: LlamaWeights) -> None:
    """Free a context while its weights still live, which is why they are handed in."""
    lib.llama_batch_free(batch)
    lib.llama_free(pointer)
