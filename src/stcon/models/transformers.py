"""Any causal language model that the transformers library loads: a directory, a hub id, a GGUF file.

The generic backend: no fused kernels. Greedy output equals ``model.generate`` of transformers. On a GPU a stream runs
in captured graphs instead (`TransformersModel.static`, `stcon.engine.device_loop`). A pass computes logits for the
needed positions only; a prompt is fed in chunks, which bounds the memory of attention.

**Recurrent layers.** In some versions of the library, some families (Mamba among them) forget their state when several
tokens are appended to it at once, without an error. A model with such layers is tested before it is first used, and fed
one token a call after the first call if it fails.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.errors import ModelUnavailable
from stcon.models.base import Float32, Model, Session, check_append, check_truncate

if TYPE_CHECKING:
    from stcon.models.static import StaticModel
    from stcon.models.text import PromptText
    from stcon.vocab.vocabulary import Vocabulary

DEFAULT_CHUNK = 512
UNKNOWN_CONTEXT = 1 << 20

_ATTENTION = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer"})
_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2, "float16": 1e-2}


class TransformersModel(Model):
    """A loaded ``PreTrainedModel`` with its vocabulary; `stcon.models.load_model` makes one from a name.

    Args:
        network: the causal LM, in eval mode, on its device.
        vocabulary: its tokens.
        text: how its prompts are written.
        name: for people.
        chunk: most tokens of one forward call.

    Raises:
        ModelUnavailable: the network has no cache that can be handed in.
    """

    def __init__(
        self, network: Any, vocabulary: Vocabulary, text: PromptText, *, name: str, chunk: int = DEFAULT_CHUNK
    ) -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.text = text
        self.name = name
        self.chunk = chunk
        self.context_length = context_length(network.config)
        parameters = inspect.signature(network.forward).parameters
        # the library has renamed both over time
        known = [name for name in ("cache", "past_key_values", "cache_params") if name in parameters]
        if not known:
            raise ModelUnavailable(
                f"{name}: a {type(network).__name__} takes no cache, so it cannot be run token by token"
            )
        self._cache_name = known[0]
        names = ("logits_to_keep", "num_logits_to_keep")
        self._keep_name = next((name for name in names if name in parameters), None)

    @property
    def device(self) -> str:
        """Where the weights are."""
        return str(self.network.device)

    @cached_property
    def static(self) -> StaticModel | None:
        """On a GPU: the network on caches of fixed size, if it runs on them (`stcon.models.static_transformers`)."""
        if not self.device.startswith("cuda"):
            return None  # there is no launch to save
        from stcon.models.static_transformers import StaticTransformers

        try:
            return StaticTransformers(self.network)
        except ModelUnavailable:
            return None

    @property
    def chat_template(self) -> str | None:
        """The template of the tokenizer or of the GGUF file."""
        return self.text.chat_template

    def special_names(self) -> Mapping[str, str]:
        """See `Model.special_names`."""
        return self.text.special_names

    def encode_prompt(self, text: str) -> list[int]:
        """See `Model.encode_prompt`."""
        return self.text.encode(text)

    def raw_prompt_ids(self, text: str) -> list[int]:
        """See `Model.raw_prompt_ids`."""
        return self.text.encode_raw(text)

    def session(self) -> TransformersSession:
        """A new, empty session."""
        return TransformersSession(self, self._new_cache())

    @cached_property
    def appends_spans(self) -> bool:
        """Whether several tokens appended to a cache at once give what they give one by one."""
        cache = self._new_cache()
        if all(type(layer).__name__ in _ATTENTION for layer in cache.layers):
            return True
        tokens = [(7 + 31 * i) % self.vocabulary.size for i in range(16)]
        whole, _ = self.forward(tokens, self._new_cache(), 0)
        _, cache = self.forward(tokens[:10], cache, 1)
        rows, _ = self.forward(tokens[10:], cache, 0)
        known = np.isfinite(rows) & np.isfinite(whole[10:])
        difference = np.abs(np.where(known, rows, 0) - np.where(known, whole[10:], 0)).max()
        tolerance = _TOLERANCE.get(str(self.network.dtype).removeprefix("torch."), 1e-3)
        return bool(difference <= tolerance * np.abs(whole[np.isfinite(whole)]).max())

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.network.config)

    def forward(self, tokens: Sequence[int], cache: Any, keep: int) -> tuple[Float32, Any]:
        """One forward call.

        Args:
            tokens: S ids.
            cache: what the calls before left; changed in place where the library does so.
            keep: logits of the last `keep` positions are wanted; 0 for all.

        Returns:
            float32[keep or S, V] and the cache to go on with.
        """
        import torch

        options: dict[str, Any] = {self._cache_name: cache, "use_cache": True}
        if self._keep_name is not None:
            options[self._keep_name] = keep
        ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.network.device)
        with torch.inference_mode():
            output = self.network(input_ids=ids, **options)
            rows = output.logits[0, -keep:].to(device="cpu", dtype=torch.float32)
        after = getattr(output, self._cache_name, None)
        return self._fit(rows.numpy()), cache if after is None else after

    def _fit(self, rows: Float32) -> Float32:
        """`rows` cut or padded to the vocabulary: embeddings are often rounded up past the last token."""
        wanted = self.vocabulary.size
        if rows.shape[1] >= wanted:
            return np.array(rows[:, :wanted])  # a copy: the caller may write, and an inference tensor may not be shared
        fitted = np.full((len(rows), wanted), -np.inf, np.float32)
        fitted[:, : rows.shape[1]] = rows
        return fitted


class TransformersSession(Session):
    """A stream's key-value cache (and recurrent states, for the families that have them)."""

    def __init__(self, model: TransformersModel, cache: Any, length: int = 0) -> None:
        self.model = model
        self.cache = cache
        self._length = length

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._length

    def append(self, tokens: Sequence[int], *, all_positions: bool = False) -> Float32:
        """See `Session.append`. Cost: ceil(S / chunk) forward calls; S for some recurrent networks (see the module)."""
        check_append(self, tokens, self.model.context_length)
        parts = []
        size = self.model.chunk
        if not self.model.appends_spans:
            size = 1 if self._length else len(tokens)
        for start in range(0, len(tokens), size):
            part = tokens[start : start + size]
            rows, self.cache = self.model.forward(part, self.cache, 0 if all_positions else 1)
            self._length += len(part)
            parts.append(rows)
        return np.concatenate(parts) if all_positions else parts[-1][-1]

    @property
    def can_truncate(self) -> bool:
        """Whether every layer keeps all of its past: plain attention does."""
        layers = getattr(self.cache, "layers", None)
        return bool(layers) and all(_keeps_past(layer) for layer in layers or ())

    def truncate(self, length: int) -> None:
        """See `Session.truncate`."""
        import torch

        if length == self._length:
            return
        check_truncate(self, length)
        with torch.inference_mode():
            self.cache.crop(length - self._length)  # negative: tokens to remove, in every version of the library
        self._length = length

    def copy(self) -> TransformersSession:
        """See `Session.copy`. Cost: the cache's bytes."""
        import torch

        with torch.inference_mode():
            return TransformersSession(self.model, copy.deepcopy(self.cache), self._length)


def context_length(config: Any) -> int:
    """Positions a model was made for, from its configuration; `UNKNOWN_CONTEXT` where it does not say."""
    inner = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"):
        value = getattr(inner, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return UNKNOWN_CONTEXT


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' warnings and its progress bars off the terminal while a model is loaded."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _keeps_past(layer: Any) -> bool:
    """Whether `layer` holds keys for every token so far."""
    return type(layer).__name__ == "DynamicLayer"
