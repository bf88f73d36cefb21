"""From a name to a model: the default one, a directory, a GGUF file, a hub id. Every failure is one clear line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption, ModelUnavailable

if TYPE_CHECKING:
    from stcon.models.base import Model
    from stcon.models.transformers import TransformersModel

DTYPES = ("auto", "float32", "bfloat16", "float16")
HUB_TIMEOUT_S = 10.0

# owner/name, or a bare name as the hub's oldest models have; anything else is meant as a path
_HUB_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*")


def load_model(
    name: str | Path = "default", *, device: str = "auto", dtype: str = "auto", progress: bool = True
) -> Model:
    """Load a model.

    Args:
        name: ``"default"`` (``$STCON_MODEL`` if set, else SmolLM2-135M-Instruct, fetched on first use), a directory, a
            ``.gguf`` file, or a hub id.
        device: ``"auto"`` (CUDA if there is one, else the CPU), or what torch calls a device.
        dtype: ``"auto"`` (float32 on the CPU, bfloat16 elsewhere), ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        progress: show a download's progress on stderr.

    Raises:
        ModelUnavailable: no such model, it cannot be fetched or read, or what it needs is not installed.
        InvalidOption: no such device or dtype.
    """
    if dtype not in DTYPES:
        raise InvalidOption(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    require_torch()
    if name == "default":
        name = _default(progress)
    placed = _device(device)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_pretrained(str(path), str(name), placed, dtype, local_only=True)
    if path.is_file() or path.suffix == ".gguf":
        return _from_gguf(path, placed, dtype)
    if isinstance(name, Path) or not _looks_like_hub_id(str(name)):
        raise ModelUnavailable(f"{name}: no such file or directory; check the path, or give a hub id like owner/name")
    return _from_hub(str(name), placed, dtype)


def require_torch() -> None:
    """Raise `ModelUnavailable`, saying what to install, unless torch and transformers can be imported."""
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ImportError as error:
            raise ModelUnavailable(
                f"running a model needs {package}, which is not installed; run: pip install 'stcon[torch]'"
            ) from error


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


def _dtype(dtype: str, device: str) -> Any:
    import torch

    if dtype == "auto":
        dtype = "float32" if device.startswith("cpu") else "bfloat16"
    return getattr(torch, dtype)


def _looks_like_hub_id(name: str) -> bool:
    return bool(_HUB_ID.fullmatch(name)) and not name.startswith((".", "~"))


def _from_gguf(path: Path, device: str, dtype: str) -> TransformersModel:
    """A GGUF file, its weights dequantised."""
    if not path.is_file():
        raise ModelUnavailable(f"{path}: no such file; check the path")
    if path.suffix != ".gguf":
        raise ModelUnavailable(f"{path}: expected a model directory or a .gguf file")
    _require_gguf()
    from stcon.models import text
    from stcon.models.transformers import TransformersModel
    from stcon.vocab.vocabulary import Vocabulary

    prompts = text.from_gguf(path)  # first, so that a broken file ends here and not after seconds of work
    vocabulary = Vocabulary.from_gguf(path)
    network = _load_gguf(path, device, dtype)
    return TransformersModel(network, vocabulary, prompts, name=path.stem)


def _load_gguf(path: Path, device: str, dtype: str) -> Any:
    """The network in a GGUF file: by the quick way if it is a plain Llama, else by transformers."""
    from stcon.models.gguf_weights import load_llama
    from stcon.models.transformers import quiet

    try:
        with quiet():
            network = load_llama(path, _dtype(dtype, device))
    except (RuntimeError, ValueError) as error:
        raise _unloadable(str(path), error) from error
    if network is None:
        return _load_network(str(path.parent), str(path), device, dtype, gguf_file=path.name, local_files_only=True)
    return network.to(device).eval()


def _from_pretrained(source: str, name: str, device: str, dtype: str, *, local_only: bool) -> TransformersModel:
    """A directory or a hub id."""
    from transformers import AutoTokenizer

    from stcon.models import text
    from stcon.models.transformers import TransformersModel, quiet
    from stcon.vocab.vocabulary import Vocabulary

    network = _load_network(source, name, device, dtype, local_files_only=local_only)
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local_only)
    except Exception as error:
        raise ModelUnavailable(f"{name}: its tokenizer cannot be loaded ({_first_line(error)})") from error
    size = max(len(tokenizer), _num_logits(network))
    vocabulary = Vocabulary.from_tokenizer(tokenizer, size=size, end_ids=_end_ids(network, size))
    return TransformersModel(network, vocabulary, text.from_tokenizer(tokenizer), name=Path(name).name or name)


def _load_network(source: str, name: str, device: str, dtype: str, **options: Any) -> Any:
    """The causal LM, in eval mode, on its device. Any failure of the library becomes `ModelUnavailable`."""
    from transformers import AutoModelForCausalLM

    from stcon.models.transformers import quiet

    try:
        with quiet():
            network = AutoModelForCausalLM.from_pretrained(source, dtype=_dtype(dtype, device), **options)
    except Exception as error:  # OSError, ValueError, KeyError, RuntimeError …: the library promises no set
        raise _unloadable(name, error) from error
    return network.to(device).eval()


def _num_logits(network: Any) -> int:
    """Logits a position has: more than the tokenizer has tokens where the embedding is padded."""
    head = network.get_output_embeddings()
    size = network.config.get_text_config().vocab_size if head is None else head.weight.shape[0]
    return int(size)


def _end_ids(network: Any, size: int) -> list[int]:
    """The end tokens that the model's own configuration names, besides those its tokenizer does."""
    found: list[int] = []
    for config in (network.generation_config, network.config):
        value = getattr(config, "eos_token_id", None)
        found += value if isinstance(value, list) else [] if value is None else [value]
    return [token for token in dict.fromkeys(found) if 0 <= token < size]


def _from_hub(name: str, device: str, dtype: str) -> TransformersModel:
    """A hub id: what is cached first, so that a cached model needs no network; then the hub."""
    try:
        return _from_pretrained(name, name, device, dtype, local_only=True)
    except ModelUnavailable:
        _check_hub(name)
    return _from_pretrained(name, name, device, dtype, local_only=False)


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


def _unloadable(name: str, error: Exception) -> ModelUnavailable:
    return ModelUnavailable(f"{name}: cannot be loaded as a causal language model ({_first_line(error)})")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
