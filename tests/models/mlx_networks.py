"""Tiny random networks of mlx-lm over bytes, one with attention alone and one with recurrent layers."""

from __future__ import annotations

from typing import Any

from stcon.models.mlx import MlxModel
from stcon.models.text import PromptText
from stcon.vocab.vocabulary import Vocabulary

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
KINDS = ("llama", "qwen3_5")
MERGES = [b'{"', b'":"', b'","', b'":', b'"}', b'"]', b"true", b"name"]
VOCABULARY = Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), *MERGES, None], end_ids=(264,))


def network(kind: str, seed: int = 0) -> Any:
    """A network of `VOCABULARY.size` logits, in float32."""
    import mlx.core as mx

    mx.random.seed(seed)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY.size,
        "tie_word_embeddings": True,
    }
    if kind == "llama":
        from mlx_lm.models import llama

        found = llama.Model(llama.ModelArgs(model_type="llama", num_hidden_layers=2, **shape))
    else:
        from mlx_lm.models import qwen3_5

        linear = {
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "head_dim": 16,
        }
        args = qwen3_5.TextModelArgs(model_type="qwen3_5", num_hidden_layers=4, **shape, **linear)
        found = qwen3_5.TextModel(args)
    mx.eval(found.parameters())
    return found


def model(kind: str, seed: int = 0, *, chunk: int = 8) -> MlxModel:
    """The network with its vocabulary; `chunk` is small, so that prompts take several calls."""
    text = PromptText(VOCABULARY.encode, VOCABULARY.encode, chat_template=TEMPLATE)
    return MlxModel(network(kind, seed), VOCABULARY, text, name=f"tiny-{kind}", context_length=600, chunk=chunk)
