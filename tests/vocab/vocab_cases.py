"""Small tokenizers in the layouts of real families, trained on a few lines of JSON-like text; no download."""

from __future__ import annotations

import os
import unicodedata
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from stcon.vocab.gguf import _GPT4O, _LLAMA3, _QWEN2, _TEKKEN

CORPUS = [
    '{"name":"Ada Lovelace","age":36,"tags":["maths","poetry"],"active":true,"score":12.50,"note":null}',
    '{"name": "José Müller", "city": "Zürich", "email": "jose@example.org", "joined": "2024-01-31"}',
    '{\n  "title": "It\'s what we\'ll do; they\'ve said they\'re done",\n  "items": [\n    1,\n    22\n  ]\n}',
    "The quick brown fox doesn't jump over the lazy dog. I'd say 東京 is a city and Москва too.",
    '[{"id":1,"price":9.99},{"id":2,"price":100.00}]  \n\n   indented\t\ttext\r\n',
    "def function(argument): return argument + 1  # x1 y2 Größe naïve café",
]

DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(pre_tokenizer, *, normalizer=None, ignore_merges=False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    ends = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ends])
    texts = ["<tool_call>", "</tool_call>", "<tool>", "<think>"]
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in texts])
    return tokenizer


def _pattern(pattern: str, *before):
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*before, split, byte_level])


def _sentencepiece(kind: str) -> Tokenizer:
    """Llama 2 (`llama2`: prefix by normalizer; `metaspace`: by pre-tokenizer; `spaced`: cut at spaces too) or Gemma."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=pieces, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    # only the first three are special; the byte pieces are ordinary tokens of the model
    model = tokenizer.model
    built = Tokenizer(model)
    built.normalizer = tokenizer.normalizer
    built.decoder = tokenizer.decoder
    built.add_special_tokens([AddedToken(text, normalized=False) for text in pieces[:3]])
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    if kind == "llama2":
        built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        built.decoder = decoders.Sequence(strip)
    elif kind in ("metaspace", "spaced"):
        built.normalizer = None
        built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=kind == "spaced")
        built.decoder = decoders.Sequence(strip)
    else:
        built.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    return built


BUILDERS = {
    "gpt2": cache(lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))),
    "roberta": cache(lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))),
    "smollm": cache(
        lambda: _byte_level(
            pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        )
    ),
    "qwen2": cache(lambda: _byte_level(_pattern(_QWEN2), normalizer=normalizers.NFC())),
    "llama3": cache(lambda: _byte_level(_pattern(_LLAMA3), ignore_merges=True)),
    "gpt4o": cache(lambda: _byte_level(_pattern(_GPT4O))),
    "tekken": cache(lambda: _byte_level(_pattern(_TEKKEN))),
    "deepseek": cache(
        lambda: _byte_level(
            _pattern(
                DEEPSEEK,
                pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), behavior="isolated"),
                pre_tokenizers.Split(Regex("[一-龥\u3040-ゟ゠-ヿ]+"), behavior="isolated"),
            )
        )
    ),
    "unsplit": cache(lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))),
    "llama2": cache(lambda: _sentencepiece("llama2")),
    "metaspace": cache(lambda: _sentencepiece("metaspace")),
    "spaced": cache(lambda: _sentencepiece("spaced")),
    "gemma": cache(lambda: _sentencepiece("gemma")),
}
SENTENCEPIECE = ("llama2", "metaspace", "spaced", "gemma")


def smollm2_gguf() -> Path | None:
    """The default model's file: STCON_TEST_GGUF, or the cache of `stcon pull`; None if it is in neither."""
    from stcon.models.pull import default_model_file

    named = os.environ.get("STCON_TEST_GGUF")
    path = Path(named) if named else default_model_file()
    return path if path.is_file() else None


_FRAGMENTS = st.sampled_from(
    [
        *(
            '{"',
            '":"',
            '","',
            '":',
            "}",
            "]",
            "[",
            ",",
            ": ",
            '"',
            "\\",
            "\\n",
            "\\u00e9",
            "name",
            "Ada",
            "don't",
            "we'll",
        ),
        *(
            "'r",
            "'re",
            "'s",
            "'",
            "l",
            "e",
            "AB",
            "Cd",
            " ",
            "  ",
            "    ",
            "\n",
            "\r\n",
            "\n\n",
            "\t",
            "\u00a0",
            "\u3000",
        ),
        *(
            "0",
            "12",
            "345",
            "6789",
            ".5",
            "-1e9",
            "é",
            "É",
            "e\u0301",
            "ﬁ",
            "中文",
            "あ",
            "ア",
            "Москва",
            "😀",
            "👨‍👩‍👧",
            "\u0301",
        ),
        *(
            "<tool_call>",
            "<tool",
            "<",
            "</tool_call",
            "_call>",
            "<think>",
            "<|im_end|>",
            "<|endoftext|>",
            "</s>",
            "▁",
            "<0x41>",
        ),
    ]
)
TEXTS = st.one_of(
    st.lists(_FRAGMENTS, max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
# For what compares two regular expression engines: characters that all know, whatever their Unicode version
OLD_TEXTS = st.one_of(
    st.lists(_FRAGMENTS, max_size=12).map("".join),
    st.text(
        st.characters(exclude_categories=["Cs", "Cn"]).filter(lambda c: unicodedata.ucd_3_2_0.category(c) != "Cn"),
        max_size=20,
    ),
)
