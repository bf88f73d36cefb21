"""From a name to an `MlxModel`: a folder (as mlx-lm or transformers write one), a GGUF file of a Llama, a hub id.

A folder with ``quantization`` in its configuration, as ``mlx_lm.convert -q`` writes it, is loaded as it is. A GGUF file
is dequantised tensor by tensor, without torch, into mlx-lm's own Llama.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption, ModelUnavailable

if TYPE_CHECKING:
    from stcon.models.mlx.model import MlxModel
    from stcon.models.text import PromptText

DTYPES = ("float32", "bfloat16", "float16")


def load(name: str | Path = "default", *, dtype: str = "auto", progress: bool = True) -> MlxModel:
    """Load a model.

    Args:
        name: as for `stcon.load_model`.
        dtype: of the weights: ``"float32"``, ``"bfloat16"``, ``"float16"``; ``"auto"``: as a folder has them, float32
            for a GGUF file. Quantised layers keep theirs.
        progress: show a download's progress on stderr.

    Raises:
        ModelUnavailable: no such model, mlx-lm does not know it, or it is not installed.
    """
    require_mlx()
    if name == "default":
        from stcon.models.pull import default_model_path

        name = default_model_path(progress)
    path = Path(name).expanduser()
    if path.is_file() or path.suffix == ".gguf":
        return from_gguf(path, "float32" if dtype == "auto" else dtype)
    return from_folder(path if path.is_dir() else str(name), dtype)


def require_mlx() -> None:
    """Raise `ModelUnavailable`, saying what to install, unless mlx and mlx-lm are there."""
    from importlib.util import find_spec

    # mlx-cpu alone leaves a folder named mlx without mlx.core
    for module, package in (("mlx", "mlx"), ("mlx.core", "mlx"), ("mlx_lm", "mlx-lm")):
        if find_spec(module) is None:
            raise ModelUnavailable(f"this runner needs {package}; run: pip install 'stcon[mlx]'")


def use_device(device: str) -> None:
    """Let mlx compute on ``"cpu"`` or ``"gpu"`` from here on in this process; ``"auto"`` leaves it as it is.

    Raises:
        InvalidOption: this build of mlx has no GPU.
    """
    require_mlx()
    import mlx.core as mx

    if device == "auto":
        return
    if device == "gpu" and not mx.is_available(mx.gpu):
        raise InvalidOption("device: this build of mlx has no GPU")
    mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)


def from_folder(source: Path | str, dtype: str = "auto") -> MlxModel:
    """A folder, or a hub id."""
    import mlx_lm

    from stcon.models import text
    from stcon.models.mlx.model import UNKNOWN_CONTEXT, MlxModel
    from stcon.vocab.vocabulary import Vocabulary

    try:
        network, tokenizer, config = mlx_lm.load(str(source), return_config=True)
    except Exception as error:  # the library promises no set of errors
        raise ModelUnavailable(f"{source}: mlx-lm cannot load it ({_first_line(error)})") from error
    _cast(network, dtype)
    inner = config.get("text_config") or config
    size = max(int(inner["vocab_size"]), len(tokenizer._tokenizer))
    vocabulary = Vocabulary.from_tokenizer(
        tokenizer._tokenizer, size=size, end_ids=sorted(int(token) for token in tokenizer.eos_token_ids)
    )
    return MlxModel(
        network,
        vocabulary,
        text.from_tokenizer(tokenizer._tokenizer),
        name=Path(source).name,
        context_length=int(inner.get("max_position_embeddings") or UNKNOWN_CONTEXT),
    )


def from_gguf(path: Path, dtype: str = "float32") -> MlxModel:
    """A GGUF file of the Llama family.

    Raises:
        ModelUnavailable: it is none, or is cut short.
    """
    from stcon.models import text
    from stcon.models.mlx.model import MlxModel
    from stcon.vocab.vocabulary import Vocabulary

    if not path.is_file():
        raise ModelUnavailable(f"{path}: no such file; check the path")
    prompts: PromptText = text.from_gguf(path)  # first, so that a broken file ends here
    network, context = _llama(path, dtype)
    return MlxModel(network, Vocabulary.from_gguf(path), prompts, name=path.stem, context_length=context)


def _llama(path: Path, dtype: str) -> tuple[Any, int]:
    """mlx-lm's Llama with the file's weights, and its context length."""
    import mlx.core as mx
    from mlx_lm.models import llama

    from stcon.models.gguf_weights import dequantised, llama_settings, parameter, read_directory

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        metadata, tensors = read_directory(data, path)
        settings = llama_settings(metadata, tensors)
        if settings is None:
            raise ModelUnavailable(f"{path}: only plain Llama files run here; convert it to a folder for mlx-lm")
        network = llama.Model(llama.ModelArgs.from_dict({"model_type": "llama", **settings}))
        heads = {"attn_q": settings["num_attention_heads"], "attn_k": settings["num_key_value_heads"]}
        try:
            weights = [
                (parameter(name), mx.array(dequantised(data, tensor, heads.get(name.split(".")[-2], 0))))
                for name, tensor in tensors.items()
            ]
            network.load_weights(weights, strict=True)
        except (ValueError, NotImplementedError, KeyError) as error:
            raise ModelUnavailable(f"{path}: its tensors do not fit ({_first_line(error)}); fetch it again") from error
    _cast(network, dtype)
    mx.eval(network.parameters())
    network.eval()
    return network, int(settings.get("max_position_embeddings") or 2048)


def _cast(network: Any, dtype: str) -> None:
    """The weights in `dtype`; quantised matrices, which are integers, keep theirs."""
    import mlx.core as mx

    if dtype != "auto":
        network.set_dtype(getattr(mx, dtype))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
