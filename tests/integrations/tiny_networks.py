"""Random networks of several families on one small tokenizer, and our own engine on each: what theirs must equal."""

from functools import cache

import pytest
import tiny_llama
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

import stcon
from stcon.models.text import PromptText
from stcon.models.transformers import TransformersModel
from stcon.vocab.vocabulary import Vocabulary

COMMON = {"hidden_size": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.3}
ATTENTION = {
    **COMMON,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16, "head_dim": 8}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "head_dim": 8,
}
FAMILIES = {
    "llama": ATTENTION,
    "qwen2": ATTENTION,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "initializer_range": 0.3, "eos_token_id": 2},
    "gemma3_text": {
        **ATTENTION,
        "head_dim": 8,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen3_5_text": {**ATTENTION, **LINEAR},
}
PLAIN = ("llama", "qwen2", "gpt2")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "active"],
}
TREE = {
    "type": "object",
    "properties": {"name": {"enum": ["a", "the man", "b"]}, "items": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "items"],
}
PROMPTS = ["the man", '{"name":"', "日本 café", "Hello world 123"]


@cache
def tokenizer():
    """A byte-level BPE of 320 tokens."""
    return tiny_llama.tokenizer()


@cache
def vocabulary():
    """Its vocabulary; 2 is the end that the networks know."""
    return Vocabulary.from_tokenizer(tokenizer())


@cache
def network(family, seed=7):
    """A random network of `family`, float32."""
    torch.manual_seed(seed)
    if family not in CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {family}")
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer()), **FAMILIES[family])
    found = AutoModelForCausalLM.from_config(config).eval()
    found.generation_config.eos_token_id = list(vocabulary().end_ids)
    found.generation_config.pad_token_id = 0
    return found


@cache
def engine(family):
    """Our own engine on it."""

    def encode(text):
        return tokenizer().encode(text, add_special_tokens=False)

    return TransformersModel(network(family), vocabulary(), PromptText(encode, encode), name=family)


@cache
def grammar(name):
    """A grammar of each kind."""
    return {
        "person": lambda: stcon.compile(PERSON),
        "tree": lambda: stcon.compile(TREE),
        "pattern": lambda: stcon.compile_regex("(yes|no|maybe) because [a-z ]{3,9}[.!]"),
    }[name]()


def ids(*prompts):
    """Prompts as a batch padded on the left, and its attention mask."""
    rows = [tokenizer().encode(prompt, add_special_tokens=False) for prompt in prompts]
    width = max(map(len, rows))
    batch = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    return batch, torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])


def text_of(tokens):
    """An output up to its first end token."""
    ends = [i for i, token in enumerate(tokens) if token in vocabulary().end_ids]
    return vocabulary().decode(tokens[: ends[0]] if ends else tokens).decode()


def own(family, prompt, name, limit, mode):
    """What our engine writes."""
    return engine(family).generate(prompt, grammar(name), limit, mode=mode)
