"""From a name to a model: the default one, a directory, a GGUF file, a hub id. Every failure is one clear line."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption, ModelUnavailable

if TYPE_CHECKING:
    from stcon.models.base import Model
    from stcon.models.lean.network import Network
    from stcon.models.text import PromptText
    from stcon.models.transformers import TransformersModel
    from stcon.vocab.vocabulary import Vocabulary

DTYPES = ("auto", "float32", "bfloat16", "float16")
RUNNERS = ("auto", "lean", "transformers", "llama.cpp", "mlx")
WEIGHTS = ("auto", "int4")
HUB_TIMEOUT_S = 10.0

# what a model of safetensors files consists of
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")

# owner/name, or a bare name as the hub's oldest models have; anything else is meant as a path
_HUB_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*")


def load_model(
    name: str | Path = "default",
    *,
    device: str = "auto",
    dtype: str = "auto",
    progress: bool = True,
    runner: str = "auto",
    weights: str = "auto",
) -> Model:
    """Load a model.

    Args:
        name: ``"default"`` (``$STCON_MODEL`` if set, else SmolLM2-135M-Instruct, fetched on first use), a directory, a
            ``.gguf`` file, or a hub id.
        device: ``"auto"`` (CUDA if there is one, else the CPU), or what torch calls a device.
        dtype: ``"auto"`` (float32 on the CPU, bfloat16 elsewhere), ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        progress: show a download's progress on stderr.
        runner: who computes: ``"lean"``, our own definitions of a few families (`stcon.models.lean`);
            ``"transformers"``, everything that library knows; ``"auto"``, the first where it can, else the second;
            ``"llama.cpp"``, a GGUF file as it is, quantised (`stcon.models.llama_cpp`); ``"mlx"``, mlx-lm's models on
            mlx's own device (`stcon.models.mlx`).
        weights: ``"int4"``: the layers' matrices in four bits a weight and the rest in bfloat16, by the lean runner:
            several times less to read a token, and other tokens now and then.

    Raises:
        ModelUnavailable: no such model, it cannot be fetched or read, or what it needs is not installed.
        InvalidOption: no such device, dtype or runner.
    """
    for option, value, known in (
        ("dtype", dtype, DTYPES),
        ("runner", runner, RUNNERS),
        ("weights", weights, WEIGHTS),
    ):
        if value not in known:
            raise InvalidOption(f"{option}: expected one of {', '.join(known)}, got {value!r}")
    if runner == "llama.cpp":
        return _by_llama_cpp(
            Path(_default(progress) if name == "default" else name).expanduser(), device, dtype, weights
        )
    if runner == "mlx":
        return _by_mlx(name, device, dtype, weights, progress)
    require_torch(runner)
    if name == "default":
        name = _default(progress)
    how = _How(_device(device), dtype, runner, weights).checked()
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(path, str(name), how)
    if path.is_file() or path.suffix == ".gguf":
        return _from_gguf(path, how)
    if isinstance(name, Path) or not _looks_like_hub_id(str(name)):
        raise ModelUnavailable(f"{name}: no such file or directory; check the path, or give a hub id like owner/name")
    return _from_hub(str(name), how)


@dataclass(frozen=True)
class _How:
    """How a model is to be loaded: `load_model`'s options."""

    device: str
    dtype: str
    runner: str
    weights: str = "auto"

    def checked(self) -> _How:
        """These options, what follows from ``weights="int4"`` filled in.

        Raises:
            InvalidOption: they contradict each other.
        """
        if self.weights != "int4":
            return self
        if self.dtype not in ("auto", "bfloat16") or self.runner == "transformers":
            raise InvalidOption("weights='int4' is for the lean runner, in bfloat16; leave the other options out")
        return _How(self.device, "bfloat16", "lean", "int4")

    def torch_dtype(self) -> Any:
        """The weights' type."""
        import torch

        name = self.dtype
        if name == "auto":
            name = "float32" if self.device.startswith("cpu") else "bfloat16"
        return getattr(torch, name)

    def lean(self, load: Callable[[Any, Any, bool], Network | None], name: str) -> Network | None:
        """What `load` makes of device and type, unless another runner is asked for.

        Raises:
            ModelUnavailable: the lean runner is asked for and does not know the model.
        """
        if self.runner == "transformers":
            return None
        network = load(self.device, self.torch_dtype(), self.weights == "int4")
        if network is None and self.runner == "lean":
            raise _not_lean(name)
        return network


def require_torch(runner: str = "transformers") -> None:
    """Raise `ModelUnavailable`, saying what to install, unless what `runner` needs is there.

    Installed is enough for transformers: importing it takes seconds, and the lean runner may do without.
    """
    for package in ("torch",) if runner == "lean" else ("torch", "transformers"):
        try:
            found = sys.modules[package] if package in sys.modules else importlib.util.find_spec(package)
        except (ImportError, ValueError):
            found = None
        if found is None:
            raise ModelUnavailable(
                f"running a model needs {package}, which is not installed; run: pip install 'stcon[torch]'"
            )


def _default(progress: bool) -> str | Path:
    """What ``"default"`` stands for."""
    from stcon.models.pull import default_model_path

    return os.environ.get("STCON_MODEL") or default_model_path(progress)


def _device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InvalidOption(f"device: {device!r} cannot be used here ({_first_line(error)})") from error
    return device


def _looks_like_hub_id(name: str) -> bool:
    return bool(_HUB_ID.fullmatch(name)) and not name.startswith((".", "~"))


def _from_gguf(path: Path, how: _How) -> Model:
    """A GGUF file, its weights dequantised."""
    if not path.is_file():
        raise ModelUnavailable(f"{path}: no such file; check the path")
    if path.suffix != ".gguf":
        raise ModelUnavailable(f"{path}: expected a model directory or a .gguf file")
    _require_gguf()
    from stcon.models import text
    from stcon.vocab.vocabulary import Vocabulary

    prompts = text.from_gguf(path)  # first, so that a broken file ends here and not after seconds of work
    vocabulary = Vocabulary.from_gguf(path)
    if (network := how.lean(partial(_lean_gguf, path), str(path))) is not None:
        return _lean_model(network, vocabulary, prompts, path.stem)
    from stcon.models.transformers import TransformersModel

    return TransformersModel(_load_gguf(path, how), vocabulary, prompts, name=path.stem)


def _by_llama_cpp(path: Path, device: str, dtype: str, weights: str) -> Model:
    """A GGUF file by llama.cpp; ``device="cpu"`` keeps it off a GPU, anything else leaves that to llama.cpp's build."""
    if dtype != "auto" or weights != "auto":
        raise InvalidOption("runner='llama.cpp' takes a GGUF file as it is: leave dtype and weights out")
    if not path.is_file() or path.suffix != ".gguf":
        raise ModelUnavailable(f"{path}: runner='llama.cpp' needs a .gguf file; there is none")
    _require_gguf()
    from stcon.models.llama_cpp import LlamaCppModel

    return LlamaCppModel(path, gpu_layers=0 if device == "cpu" else -1)


def _by_mlx(name: str | Path, device: str, dtype: str, weights: str, progress: bool) -> Model:
    """By mlx-lm, on mlx's default device (a GPU where it has one)."""
    if weights != "auto":
        raise InvalidOption("runner='mlx': quantise with mlx_lm.convert -q and load that folder; leave weights out")
    if device not in ("auto", "cpu", "gpu"):
        raise InvalidOption(f"device: mlx knows auto, cpu and gpu, not {device!r}")
    from stcon.models.mlx.load import load, use_device

    use_device(device)
    return load(_default(progress) if name == "default" else name, dtype=dtype, progress=progress)


def _load_gguf(path: Path, how: _How) -> Any:
    """The transformers network in a GGUF file: by the quick way if it is a plain Llama, else by the library."""
    from stcon.models.gguf_weights import load_llama
    from stcon.models.transformers import quiet

    try:
        with quiet():
            network = load_llama(path, how.torch_dtype())
    except (RuntimeError, ValueError) as error:
        raise _unloadable(str(path), error) from error
    if network is None:
        return _load_network(str(path.parent), str(path), how, gguf_file=path.name, local_files_only=True)
    return network.to(how.device).eval()


def _lean_gguf(path: Path, device: Any, dtype: Any, int4: bool) -> Network | None:
    from stcon.models.lean.load import from_gguf

    return from_gguf(path, device, dtype, int4)


def _lean_folder(folder: Path, device: Any, dtype: Any, int4: bool) -> Network | None:
    from stcon.models.lean.load import from_folder

    return from_folder(folder, device, dtype, int4)


def _lean_model(network: Network, vocabulary: Vocabulary, prompts: PromptText, name: str) -> Model:
    from stcon.models.lean.model import LeanModel

    return LeanModel(network, vocabulary, prompts, name=name)


def _from_folder(folder: Path, name: str, how: _How) -> Model:
    """A directory: by the lean runner if it can."""
    network = how.lean(partial(_lean_folder, folder), name)
    if network is None:
        return _from_pretrained(str(folder), name, how, local_only=True)
    from stcon.models import text
    from stcon.vocab.vocabulary import Vocabulary

    tokenizer = _load_tokenizer(str(folder), name, local_only=True)
    size = max(len(tokenizer), network.vocab_size)
    ends = _folder_end_ids(folder, size)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, size=size, end_ids=ends)
    return _lean_model(network, vocabulary, text.from_tokenizer(tokenizer), Path(name).name or name)


def _folder_end_ids(folder: Path, size: int) -> list[int]:
    """The end tokens that a folder's configuration files name."""
    found: list[Any] = []
    for file in ("generation_config.json", "config.json"):
        try:
            config = json.loads((folder / file).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        found += [config.get("eos_token_id"), (config.get("text_config") or {}).get("eos_token_id")]
    return _flat_ids(found, size)


def _flat_ids(values: list[Any], size: int) -> list[int]:
    """The ids in a list of ids, lists of ids and None, each once."""
    flat = [token for value in values for token in (value if isinstance(value, list) else [value])]
    return [token for token in dict.fromkeys(flat) if isinstance(token, int) and 0 <= token < size]


def _from_pretrained(source: str, name: str, how: _How, *, local_only: bool) -> TransformersModel:
    """A directory or a hub id, by transformers."""
    from stcon.models import text
    from stcon.models.transformers import TransformersModel
    from stcon.vocab.vocabulary import Vocabulary

    network = _load_network(source, name, how, local_files_only=local_only)
    tokenizer = _load_tokenizer(source, name, local_only=local_only)
    size = max(len(tokenizer), _num_logits(network))
    vocabulary = Vocabulary.from_tokenizer(tokenizer, size=size, end_ids=_end_ids(network, size))
    return TransformersModel(network, vocabulary, text.from_tokenizer(tokenizer), name=Path(name).name or name)


def _load_tokenizer(source: str, name: str, *, local_only: bool) -> Any:
    from transformers import AutoTokenizer

    from stcon.models.transformers import quiet

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(source, local_files_only=local_only)
    except Exception as error:
        raise ModelUnavailable(f"{name}: its tokenizer cannot be loaded ({_first_line(error)})") from error


def _load_network(source: str, name: str, how: _How, **options: Any) -> Any:
    """The causal LM, in eval mode, on its device. Any failure of the library becomes `ModelUnavailable`."""
    from transformers import AutoModelForCausalLM

    from stcon.models.transformers import quiet

    try:
        with quiet():
            network = AutoModelForCausalLM.from_pretrained(source, dtype=how.torch_dtype(), **options)
    except Exception as error:  # OSError, ValueError, KeyError, RuntimeError …: the library promises no set
        raise _unloadable(name, error) from error
    return network.to(how.device).eval()


def _num_logits(network: Any) -> int:
    """Logits a position has: more than the tokenizer has tokens where the embedding is padded."""
    head = network.get_output_embeddings()
    size = network.config.get_text_config().vocab_size if head is None else head.weight.shape[0]
    return int(size)


def _end_ids(network: Any, size: int) -> list[int]:
    """The end tokens that the model's own configuration names, besides those its tokenizer does."""
    configs = (network.generation_config, network.config)
    return _flat_ids([getattr(config, "eos_token_id", None) for config in configs], size)


def _from_hub(name: str, how: _How) -> Model:
    """A hub id: what is cached first, so that a cached model needs no network; then the hub."""
    try:
        return _from_hub_files(name, how, local_only=True)
    except ModelUnavailable:
        _check_hub(name)
    return _from_hub_files(name, how, local_only=False)


def _from_hub_files(name: str, how: _How, *, local_only: bool) -> Model:
    folder = None if how.runner == "transformers" else _hub_folder(name, local_only=local_only)
    if folder is not None:
        return _from_folder(folder, name, how)
    if how.runner == "lean":
        raise _not_lean(name)
    return _from_pretrained(name, name, how, local_only=local_only)


def _hub_folder(name: str, *, local_only: bool) -> Path | None:
    """The folder with a hub model's files, fetched if allowed; None: the lean runner does not know it, or not there."""
    from huggingface_hub import hf_hub_download, snapshot_download

    from stcon.models.lean.settings import from_config

    try:
        config = Path(hf_hub_download(name, "config.json", local_files_only=local_only)).read_text("utf-8")
        if from_config(json.loads(config)) is None:
            return None
        patterns = list(_HUB_FILES)
        return Path(
            snapshot_download(name, local_files_only=local_only, allow_patterns=patterns, ignore_patterns="*/*")
        )
    except Exception:  # the HTTP library's errors, a name that is no id, …: the generic loader says what is wrong
        return None


def _check_hub(name: str) -> None:
    """One request that says whether the hub can be reached and has `name`: the loader itself would retry for minutes.

    Raises:
        ModelUnavailable: it cannot, or has not.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
    except GatedRepoError as error:
        raise ModelUnavailable(f"{name}: the hub asks you to accept its terms and log in (hf auth login)") from error
    except RepositoryNotFoundError as error:
        raise ModelUnavailable(f"{name}: no such directory and no such model on the hub; check the name") from error
    except Exception as error:  # the HTTP library's errors, which differ between versions
        raise ModelUnavailable(
            f"{name}: no such directory, not in the hub's cache, and the hub cannot be reached "
            f"({type(error).__name__}); connect, or give a directory or a .gguf file"
        ) from error


def _require_gguf() -> None:
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise ModelUnavailable(
            "reading a GGUF file needs gguf, which is not installed; run: pip install 'stcon[torch]'"
        ) from error


def _not_lean(name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name}: not of a family that the lean runner knows; use runner='transformers'")


def _unloadable(name: str, error: Exception) -> ModelUnavailable:
    return ModelUnavailable(f"{name}: cannot be loaded as a causal language model ({_first_line(error)})")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
