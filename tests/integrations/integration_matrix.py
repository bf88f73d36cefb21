"""The matrix's frame: what is asked, what an engine's adapter must offer, and where the model comes from.

An adapter is a class in a file of its own (`ADAPTERS`), which says with `missing` why it cannot run here. It is opened
once, answers the requests that `test_matrix.py` makes, and is closed.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import stcon
from stcon._cache import cache_dir
from stcon.bench.workloads import load_all
from stcon.bench.workloads.recursive import load_recursive

# engine → module and class of its adapter
ADAPTERS = {
    "transformers": ("adapter_transformers", "TransformersAdapter"),
    "transformers-forced": ("adapter_transformers", "ForcedTransformersAdapter"),
    "llama.cpp": ("adapter_llama_cpp", "LlamaCppAdapter"),
    "llama.cpp-forced": ("adapter_llama_cpp", "ForcedLlamaCppAdapter"),
    "vllm": ("adapter_vllm", "VllmAdapter"),
    "vllm-forced": ("adapter_vllm", "ForcedVllmAdapter"),
    "mlx": ("adapter_mlx", "MlxAdapter"),
    "mlx-forced": ("adapter_mlx", "ForcedMlxAdapter"),
}


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        prompt: a user message; `prompt_ids` are its ids by the model's chat template.
        schema, regex: what the output must be; neither: the request is free.
        max_tokens: limit, an end token included; outputs are complete within it.
    """

    prompt: str
    max_tokens: int
    schema: dict[str, Any] | None = field(default=None, hash=False)
    regex: str | None = None

    @property
    def grammar(self) -> stcon.Grammar | None:
        """The grammar, compiled once for each text."""
        if self.regex is not None:
            return stcon.compile_regex(self.regex)
        return None if self.schema is None else compiled(json.dumps(self.schema))

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt as the model takes it."""
        return oracle().prompt_ids(self.prompt)

    def is_valid(self, text: str) -> bool:
        """Whether `text` is an answer, judged by others than our machine where there is one: jsonschema."""
        grammar = self.grammar
        if grammar is None:
            return bool(text)
        if not grammar.accepts(text):
            return False
        if self.schema is None:
            return True
        from jsonschema import Draft202012Validator

        return bool(Draft202012Validator(self.schema).is_valid(json.loads(text)))


@dataclass(frozen=True)
class Answer:
    """What an engine made of a request.

    Attributes:
        text: the output, decoded, without end tokens.
        num_tokens: its tokens, an end token included; None where the engine does not say.
        passes: passes of the model; None where the engine does not say.
    """

    text: str
    num_tokens: int | None = None
    passes: int | None = None


class Adapter(ABC):
    """One engine with stcon in it.

    Attributes:
        mode: of our own engine whose text it should give (`stcon.engine.control.Mode`).
        same_arithmetic: it gives our engine's greedy text, to the token, for a single request; if not, it is only
            checked that outputs are valid and within the limit.
    """

    mode: ClassVar[str] = "mask"
    same_arithmetic: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Why it cannot run here, in one line for the test's report; None: it can."""

    @abstractmethod
    def open(self) -> None:
        """Load the default model (SmolLM2: `gguf_file`, or `model_directory` for engines that want a directory)."""

    @abstractmethod
    def answer(self, requests: Sequence[Asked]) -> list[Answer]:
        """Answer all requests, greedily, at the same time where the engine can. Budgets are kept."""

    def close(self) -> None:  # noqa: B027 (most have nothing to do)
        """Give back what `open` took."""

    def reference(self, request: Asked) -> str:
        """What our own engine writes; by the same network, where the adapter has it."""
        return own_text(request, self.mode)


def adapter_class(name: str) -> type[Adapter] | str:
    """The class of an engine's adapter, or why there is none."""
    module, attribute = ADAPTERS[name]
    if find_spec(module) is None:
        return f"no adapter for {name}"
    found: type[Adapter] = getattr(importlib.import_module(module), attribute)
    return found.missing() or found


def package_missing(*packages: str) -> str | None:
    """Why an adapter that needs these packages, and the default model, cannot run."""
    for package in packages:
        if find_spec(package.partition(".")[0]) is None or find_spec(package) is None:
            return f"{package} is not installed"
    from stcon.models.pull import default_model_file

    return None if default_model_file().is_file() else "the default model is not in the cache; run: stcon pull"


# ------------------------------------------------------------------------------------------------- what is asked


def extractions() -> dict[str, Asked]:
    """The six extractions of the paper."""
    return {work.name: Asked(work.prompt, 320, work.schema) for work in load_all()}


def recursive_task() -> Asked:
    """A tree whose depth the model chooses."""
    task = next(task for task in load_recursive() if task.name == "cats")
    return Asked(task.prompt, 160, task.schema)


def budgets() -> dict[str, Asked]:
    """A recursive task under three limits: the least possible, a few tokens more, and one that bends the end only."""
    task = recursive_task()
    least = stcon.Matcher(task.grammar, oracle().vocabulary, policy="none").need()
    assert least is not None
    return {
        name: Asked(task.prompt, limit, task.schema)
        for name, limit in (("least", least), ("least+7", least + 7), ("4 least", 4 * least))
    }


def mixed() -> list[Asked]:
    """Five requests of one batch: two schemas, a recursive one, a pattern, and one without a constraint."""
    works = {work.name: work for work in load_all()}
    return [
        Asked(works["person"].prompt, 120, works["person"].schema),
        Asked("What is the capital of France?", 12),
        Asked("Is the sky blue? Answer yes or no.", 8, regex="(yes|no)"),
        recursive_task(),
        Asked(works["classification"].prompt, 60, works["classification"].schema),
    ]


# ------------------------------------------------------------------------------------------------- the model


@cache
def gguf_file() -> Path:
    """SmolLM2-135M-Instruct as `stcon pull` keeps it."""
    from stcon.models.pull import default_model_file

    return default_model_file()


@cache
def model_directory() -> Path:
    """The same weights as a directory that transformers, vLLM and mlx-lm load: float32 safetensors and tokenizer."""
    target = cache_dir() / "tests" / "smollm2-directory"
    if not (target / "done").is_file():
        from transformers import AutoTokenizer

        target.mkdir(parents=True, exist_ok=True)
        gguf = gguf_file()
        network = stcon.load_model(gguf, device="cpu", dtype="float32", runner="transformers").network
        network.save_pretrained(target)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.chat_template = oracle().chat_template
        tokenizer.save_pretrained(target)
        (target / "done").touch()
    return target


@cache
def oracle() -> Any:
    """Our own engine on the default model, in float32 on the CPU."""
    return stcon.load_model(gguf_file(), device="cpu", dtype="float32", progress=False)


@cache
def compiled(schema: str) -> stcon.Grammar:
    """The grammar of a schema, shared so that its masks are."""
    return stcon.compile(schema)


@cache
def own_text(request: Asked, mode: str) -> str:
    """What our engine writes."""
    return own_text_of(oracle(), request, mode)


def own_text_of(model: Any, request: Asked, mode: str) -> str:
    """What our engine writes on `model`, greedily and complete within the limit."""
    output = model.generate(
        request.prompt, request.grammar, request.max_tokens, mode=mode if request.grammar is not None else None
    )
    text: str = output.text
    return text
