"""A random Llama of two layers with a byte-level tokenizer, as a directory and as a GGUF file."""

import json

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXT = ['{"name":"anna bell","age":34}', "the man of the moon is here, and café or über 日本", "Hello world 123"]


def tokenizer(vocab_size=320):
    """A `PreTrainedTokenizerFast` trained on a few lines."""
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXT * 3, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=SPECIAL[2], bos_token=SPECIAL[1], chat_template=TEMPLATE
    )


def network(vocab_size, **changes):
    """The random network, float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    options = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.3,
        **changes,
    }
    return LlamaForCausalLM(LlamaConfig(**options)).eval()


def save(directory, padding=0, **changes):
    """Write tokenizer and network to `directory`, the embedding `padding` rows larger than the tokenizer."""
    words = tokenizer()
    net = network(len(words) + padding, **changes)
    words.save_pretrained(directory)
    net.save_pretrained(directory)
    return net


def save_gguf(path, words, net, blocks="Q8_0", **extra):
    """Write the same as a GGUF file, matrices in `blocks` and the rest as float32; `extra` are more keys."""
    from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants

    writer = GGUFWriter(str(path), "llama")
    config = net.config
    writer.add_name("tiny")
    for key, value in extra.items():
        writer.add_string(f"llama.{key}", value)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    vocab = sorted(words.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([text for text, _ in vocab])
    writer.add_token_types([TokenType.CONTROL if text in SPECIAL else TokenType.NORMAL for text, _ in vocab])
    merges = json.loads(words.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for theirs, tensor in net.state_dict().items():
        data = tensor.numpy().astype(np.float32)
        name = gguf_name(theirs)
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = config.num_attention_heads if "attn_q" in name else config.num_key_value_heads
            data = permute(data, heads)
        if data.ndim == 2 and "token_embd" not in name:
            kind = GGMLQuantizationType[blocks]
            writer.add_tensor(name, quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def permute(weights, heads):
    """llama.cpp's order of the rows of query and key projections."""
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_name(name):
    """A parameter's name in llama.cpp."""
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name
