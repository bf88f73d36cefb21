"""Vocabularies from GGUF files: the real one, and small files written here, against transformers on the same files."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from vocab_cases import BUILDERS, TEXTS

from stcon.errors import ModelUnavailable
from stcon.vocab import Vocabulary
from stcon.vocab.gguf import CONTROL, UNKNOWN, UNUSED, USER_DEFINED, build_tokenizer
from stcon.vocab.gguf_metadata import read_metadata

gguf = pytest.importorskip("gguf", reason="writes GGUF files: pip install gguf")
NORMAL, BYTE = 1, 6


def write(path, *, arch, model, tokens, types, pre=None, merges=None, scores=None, eos=0):
    """A GGUF file of metadata alone."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_eos_token_id(eos)
    if pre:
        writer.add_tokenizer_pre(pre)
    if merges is not None:
        writer.add_token_merges(merges)
    if scores is not None:
        writer.add_token_scores(scores)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def byte_level_file(path, pre):
    """The small byte-level tokenizer as a GGUF file."""
    import json

    model = json.loads(BUILDERS["qwen2"]().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    extra = ["<|endoftext|>", "<|im_end|>", "<think>", "[PAD7]", "<unk>"]
    types = [NORMAL] * len(tokens) + [CONTROL, CONTROL, USER_DEFINED, UNUSED, UNKNOWN]
    merges = [" ".join(pair) for pair in model["merges"]]
    tokens += extra
    eos = tokens.index("<|endoftext|>")
    return write(path, arch="llama", model="gpt2", tokens=tokens, types=types, pre=pre, merges=merges, eos=eos)


def sentencepiece_file(path, arch, *, with_merges):
    """The small sentencepiece-style tokenizer as a GGUF file, its merges listed or left to the scores."""
    import json

    model = json.loads(BUILDERS["llama2"]().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(tokens) - 259)]
    merges = [" ".join(pair) for pair in model["merges"]] if with_merges else None
    scores = [float(-number) for number in range(len(tokens))]
    eos = tokens.index("</s>")
    return write(path, arch=arch, model="llama", tokens=tokens, types=types, merges=merges, scores=scores, eos=eos)


def transformers_tokenizer(path):
    """What transformers makes of the file."""
    pytest.importorskip("transformers", reason="compares with transformers: pip install 'stcon[torch]'")
    try:
        from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer
    except ImportError:
        pytest.skip("this release of transformers reads GGUF tokenizers elsewhere")
    architecture, tokenizer, _ = get_gguf_tokenizer(str(path))
    return convert_gguf_tokenizer(architecture, tokenizer)[0]


def assert_same_ids(path, examples=100):
    """Our tokenizer of the file and transformers' give the same ids for any text."""
    ours, theirs = build_tokenizer(read_metadata(path)), transformers_tokenizer(path)

    @settings(deadline=None, max_examples=examples)
    @given(TEXTS)
    def same(text):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False).ids

    same()


@pytest.mark.parametrize("pre", ["qwen2", "qwen35", "llama-bpe", "tekken", "gpt-4o", "smollm", None])
def test_build_tokenizer_byte_level(tmp_path, pre):
    """Byte-level files, whatever their pre-tokenizer, give transformers' ids."""
    assert_same_ids(byte_level_file(tmp_path / "m.gguf", pre), examples=60)


@pytest.mark.parametrize("arch", ["llama", "gemma2"])
@pytest.mark.parametrize("with_merges", [True, False])
def test_build_tokenizer_sentencepiece(tmp_path, arch, with_merges):
    """Sentencepiece files give transformers' ids, from their merges or from their scores."""
    assert_same_ids(sentencepiece_file(tmp_path / "m.gguf", arch, with_merges=with_merges))


def test_build_tokenizer_smollm2(smollm2_path):
    """The default model's file gives transformers' ids."""
    assert_same_ids(smollm2_path)


def test_from_gguf_smollm2(smollm2):
    """The default model: its size, both its end tokens, and a known spelling."""
    assert smollm2.size == 49_152
    assert smollm2.end_ids == (2, 0)
    assert smollm2.decode([2, 0, 19556, 28]) == b"Hello,"
    assert smollm2.encode("Hello,") == [19556, 28]


def test_from_gguf_token_types(tmp_path):
    """Control, unknown and unused tokens have no bytes; user-defined ones stand for their text."""
    path = byte_level_file(tmp_path / "m.gguf", "qwen2")
    tokens = read_metadata(path)["tokenizer.ggml.tokens"]
    vocabulary = Vocabulary.from_gguf(path)
    for text in ("<|endoftext|>", "<|im_end|>", "[PAD7]", "<unk>"):
        assert vocabulary.token_bytes(tokens.index(text)) is None
    assert vocabulary.token_bytes(tokens.index("<think>")) == b"<think>"
    assert vocabulary.encode("<think>") == [tokens.index("<think>")]
    assert vocabulary.end_ids == (tokens.index("<|endoftext|>"), tokens.index("<|im_end|>"))


def test_from_gguf_sentencepiece(tmp_path):
    """A sentencepiece file spells text exactly, byte tokens and all, and has no dummy space."""
    vocabulary = Vocabulary.from_gguf(sentencepiece_file(tmp_path / "m.gguf", "llama", with_merges=True))
    assert vocabulary.token_bytes(3 + 0xE2) == b"\xe2"
    assert vocabulary.token_bytes(0) is vocabulary.token_bytes(1) is vocabulary.token_bytes(2) is None
    for text in ("name", " name", "▁", "😀", '{"a":1}'):
        assert vocabulary.decode(vocabulary.encode(text)) == text.encode()


def test_read_metadata_as_package(tmp_path):
    """Every key and value is what the gguf package reads."""
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 255)
    writer.add_int8("a.i8", -128)
    writer.add_uint16("a.u16", 65_535)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "é▁")
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.strings", ["x", "", "ÿ"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    theirs = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items() if "." in key}
    ours = read_metadata(path)
    assert ours == {key: value for key, value in theirs.items() if not key.startswith("GGUF")}


def test_read_metadata_cut_short(tmp_path):
    """A file cut anywhere in its metadata ends in one clear line."""
    whole = byte_level_file(tmp_path / "m.gguf", "qwen2").read_bytes()
    rng = random.Random(1)
    cuts = [*range(1, 120), *(rng.randrange(len(whole) // 2) for _ in range(60))]
    broken = tmp_path / "broken.gguf"
    for cut in cuts:
        broken.write_bytes(whole[:cut])
        with pytest.raises(ModelUnavailable, match="not a complete GGUF file"):
            Vocabulary.from_gguf(broken)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        b"PK\x03\x04" + bytes(64),
        b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 2**61),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 77, 5),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000,
    ],
)
def test_read_metadata_hostile(tmp_path, data):
    """Sizes and nesting that a file only claims cost nothing and are refused."""
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelUnavailable):
        read_metadata(path)


def test_from_gguf_unreadable(tmp_path):
    """A missing file, one without a tokenizer, and one of another kind are refused by name."""
    with pytest.raises(ModelUnavailable, match="cannot read"):
        Vocabulary.from_gguf(tmp_path / "none.gguf")
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(8))
    with pytest.raises(ModelUnavailable, match="carries no tokenizer"):
        Vocabulary.from_gguf(path)
    write(path, arch="bert", model="bert", tokens=["a"], types=[NORMAL])
    with pytest.raises(ModelUnavailable, match="kind 'bert'"):
        Vocabulary.from_gguf(path)


def test_from_gguf_impossible_merges(tmp_path):
    """Merges of tokens that the file does not have are left out instead of ending in the library."""
    tokens = [*"abc", "ab"]
    path = tmp_path / "m.gguf"
    write(
        path, arch="llama", model="gpt2", tokens=tokens, types=[NORMAL] * 4, merges=["a b", "b x", "a", "a b c", "b c"]
    )
    vocabulary = Vocabulary.from_gguf(path, end_ids=[2])
    assert vocabulary.encode("ab") == [3]
