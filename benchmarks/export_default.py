"""The default model as a directory that transformers loads by itself, for its server beside ours.

python benchmarks/export_default.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def export(directory: Path) -> None:
    """Write the weights (float32), the tokenizer and the chat template."""
    import torch
    from transformers import AutoTokenizer

    from stcon.models.gguf_weights import load_llama
    from stcon.models.pull import default_model_path

    file = default_model_path()
    network: Any = load_llama(file, torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    network.config.architectures = [type(network).__name__]
    network.config.eos_token_id = network.generation_config.eos_token_id = tokenizer.eos_token_id
    network.save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))


if __name__ == "__main__":
    export(Path(sys.argv[1]))
