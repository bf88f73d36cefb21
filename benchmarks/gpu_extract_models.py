"""The models of the extraction benchmark: SmolLM2-135M with its weights, and two shapes with random ones.

Random weights write nothing sensible, and an answer that never ends measures nothing. So their logits get a push, on
the device and in every mode alike, towards the tokens of a fixed answer (`Scripted`): what is measured is the time of
steps, masks and plans over realistic text, not the quality of the answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stcon.bench.workloads import Workload
from stcon.models.base import Model
from stcon.models.static import StaticModel
from stcon.models.text import PromptText
from stcon.vocab.vocabulary import Vocabulary

ANSWERS = Path(__file__).parent / "gpu_extract_answers.json"
PUSH = 1e4
SCRIPT_TOKENS = 2048


@dataclass
class Subject:
    """A model to be measured.

    Attributes:
        name: for the table.
        model: vocabulary and prompts.
        static: what the loop runs.
        stock: makes the transformers network, or None.
        prepare: called before each answer with its workload and prompt; sets the script.
        script: see `Scripted`.
    """

    name: str
    model: Model
    static: StaticModel
    stock: Callable[[], Any] | None = None
    prepare: Callable[[Workload, Sequence[int]], None] = lambda task, prompt: None
    script: torch.Tensor | None = None


class Scripted:
    """A `StaticModel` whose logits are pushed towards ``script[p]`` for the token at position p; below 0: none."""

    def __init__(self, inner: StaticModel) -> None:
        self.inner = inner
        self.vocab_size, self.device, self.dtype = inner.vocab_size, inner.device, inner.dtype
        self.context_length = min(inner.context_length, SCRIPT_TOKENS - 32)
        self.script = torch.full((SCRIPT_TOKENS,), -1, dtype=torch.int64, device=inner.device)

    def new_cache(self, rows: int, capacity: int) -> Any:
        """The inner model's."""
        return self.inner.new_cache(rows, capacity)

    def forward(self, tokens: Any, lengths: Any, cache: Any, counts: Any = None, all_positions: bool = False) -> Any:
        """The inner model's logits with the push, for one row."""
        with torch.inference_mode():
            logits = self.inner.forward(tokens, lengths, cache, counts, all_positions)
            span = tokens.shape[1]
            first = 1 if all_positions else span
            wanted = self.script[lengths.long() + torch.arange(first, span + 1, device=self.device)]
            rows = logits.view(-1, logits.shape[-1])
            pushed = rows.scatter_add(1, wanted.clamp(min=0)[:, None], (wanted >= 0).to(rows.dtype)[:, None] * PUSH)
            return pushed.view(logits.shape)

    def write(self, start: int, tokens: Sequence[int]) -> None:
        """Let `tokens` be the script from position `start` on."""
        self.script.fill_(-1)
        self.script[start : start + len(tokens)] = torch.tensor(tokens, device=self.device)


def smollm2(path: Path, runner: str, dtype: torch.dtype, device: str = "cuda") -> Subject:
    """SmolLM2-135M-Instruct from its GGUF file, on `runner` (``"lean"`` or ``"transformers"``)."""
    from stcon.models import text
    from stcon.models.gguf_weights import load_llama
    from stcon.models.transformers import TransformersModel

    vocabulary, prompts = Vocabulary.from_gguf(path), text.from_gguf(path)

    def stock() -> Any:
        network = load_llama(path, dtype)
        assert network is not None
        return network.to(device).eval()

    if runner == "transformers":
        from stcon.models.static_transformers import StaticTransformers

        network = stock()
        model: Model = TransformersModel(network, vocabulary, prompts, name="SmolLM2-135M")
        return Subject("SmolLM2-135M", model, StaticTransformers(network), lambda: network)
    from stcon.models.lean.load import from_gguf
    from stcon.models.lean.model import LeanModel

    lean = from_gguf(path, device, dtype)
    assert lean is not None, "the lean runner knows this file"
    return Subject("SmolLM2-135M", LeanModel(lean, vocabulary, prompts, name="SmolLM2-135M"), lean, stock)


def smollm2_shape(path: Path, runner: str) -> Subject:
    """SmolLM2-135M's shape, random bfloat16 weights, scripted answers; `path` gives the vocabulary."""
    from models_shapes import SMOLLM2_135M

    from stcon.models import text
    from stcon.models.lean.model import LeanModel

    vocabulary, prompts = Vocabulary.from_gguf(path), text.from_gguf(path)
    lean, static, stock = _random("SmolLM2-135M", "llama", SMOLLM2_135M, runner)
    model = LeanModel(lean, vocabulary, prompts, name="SmolLM2-135M shape")
    return _scripted(model, static, stock)


def qwen_shape(runner: str) -> Subject:
    """Qwen3.5-2B's shape, random bfloat16 weights, its vocabulary of 248,077 tokens, scripted answers."""
    from models_shapes import QWEN3_5_2B

    from stcon.models.lean.model import LeanModel
    from stcon.vocab.qwen import qwen35_vocabulary

    vocabulary = qwen35_vocabulary()
    lean, static, stock = _random("Qwen3.5-2B", "qwen3_5_text", QWEN3_5_2B, runner)
    encode = vocabulary.encode
    model = LeanModel(lean, vocabulary, PromptText(encode, encode), name="Qwen3.5-2B shape")
    return _scripted(model, static, stock)


def _random(name: str, family: str, shape: Mapping[str, Any], runner: str) -> tuple[Any, Scripted, Callable[[], Any]]:
    """A lean network of random weights, what `runner` runs, and what makes the library's network of that shape."""
    from models_shapes import random_network

    def stock() -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        options = {key: value for key, value in shape.items() if key not in {"architectures", "model_type"}}
        with torch.device("cuda"):
            config = AutoConfig.for_model(family, **options, dtype="bfloat16")
            return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

    lean = random_network(name, "cuda", torch.bfloat16)
    inner: StaticModel = lean
    if runner == "transformers":
        from stcon.models.static_transformers import StaticTransformers

        inner = StaticTransformers(stock())
    return lean, Scripted(inner), stock


def _scripted(model: Model, static: Scripted, stock: Callable[[], Any]) -> Subject:
    """`static` writes the fixed answers."""
    answers, vocabulary = json.loads(ANSWERS.read_text("utf-8")), model.vocabulary

    def prepare(task: Workload, prompt: Sequence[int]) -> None:
        static.write(len(prompt), [*vocabulary.encode(answers[task.name]), vocabulary.end_ids[0]])

    return Subject(model.name, model, static, stock, prepare, static.script)
