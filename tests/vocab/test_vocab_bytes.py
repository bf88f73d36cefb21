"""Token bytes, encoding and end tokens, against the tokenizers' own decoders."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from vocab_cases import BUILDERS, CORPUS, OLD_TEXTS, SENTENCEPIECE, TEXTS

from stcon.errors import InvalidOption, ModelUnavailable
from stcon.vocab import Vocabulary

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@SHARED
@given(text=TEXTS)
def test_encode_round_trip(vocabulary, text):
    """Whatever the text, normalised or not and with special tokens' names in it, its tokens spell it exactly."""
    ids = vocabulary.encode(text)
    assert vocabulary.encode_bytes(text.encode()) == ids
    if vocabulary.missing_bytes.isdisjoint(text.encode()):
        assert vocabulary.decode(ids) == text.encode()
        assert vocabulary.spells(ids, text.encode())
    else:
        assert vocabulary.spells(ids, text.encode()) == (vocabulary.decode(ids) == text.encode())


@SHARED
@given(text=TEXTS)
def test_encode_no_special(vocabulary, text):
    """`encode` never gives a special or an end token."""
    assert vocabulary.special_ids.isdisjoint(vocabulary.encode(text))


@settings(deadline=None)
@given(text=TEXTS, name=st.sampled_from(sorted(set(BUILDERS) - {"roberta", *SENTENCEPIECE})))
def test_encode_as_tokenizer(text, name):
    """Byte level: the tokenizer's own ids, for text without special names that its normalizer leaves alone."""
    tokenizer = BUILDERS[name]()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    specials = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    for special in specials:
        text = text.replace(special, "")
    if tokenizer.normalizer is None or tokenizer.normalizer.normalize_str(text) == text:
        assert vocabulary.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids


@settings(deadline=None)
@given(text=TEXTS, name=st.sampled_from(SENTENCEPIECE))
def test_encode_sentencepiece_in_the_middle(text, name):
    """Sentencepiece: behind other text the tokenizer gives the ids of `encode`; the dummy space is at the start."""
    text = text.replace("▁", "").replace("</s>", "").replace("<0x", "").replace("<unk>", "").replace("<s>", "")
    tokenizer = BUILDERS[name]()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    # a byte token merges with nothing, so the text after it is spelled by itself
    before = tokenizer.encode("\x01", add_special_tokens=False).ids
    assert tokenizer.encode("\x01" + text, add_special_tokens=False).ids == before + vocabulary.encode(text)
    same = tokenizer.encode(text, add_special_tokens=False).ids == vocabulary.encode(text)
    assert same is not _gets_prefix(name, text)


def _gets_prefix(name, text):
    """Whether the tokenizer itself writes a dummy space before `text`."""
    return bool(text) and (name == "llama2" or (name in ("metaspace", "spaced") and text[0] != " "))


def test_token_bytes_every_token(built):
    """A token's bytes are what the tokenizer's decoder adds for it behind an anchor."""
    tokenizer, vocabulary = built
    anchor = tokenizer.encode("x", add_special_tokens=False).ids
    added = tokenizer.get_added_tokens_decoder()
    shown = tokenizer.decode(anchor)
    checked = 0
    for token in range(vocabulary.size):
        data = vocabulary.token_bytes(token)
        if token in added and added[token].special:
            assert data is None
            continue
        assert data is not None
        text = tokenizer.decode([*anchor, token], skip_special_tokens=False)
        assert text == shown + data.decode("utf-8", "replace")
        checked += 1
    assert checked > 400


def test_token_bytes_byte_tokens(built):
    """Every byte is a token, so any text can be spelled whatever a constraint masks."""
    _, vocabulary = built
    single = {vocabulary.token_bytes(token) for token in range(vocabulary.size)}
    assert {bytes([byte]) for byte in range(256)} <= single


def test_token_bytes_added_text(built):
    """Added tokens that are not special have their surface bytes, and text that shows them is spelled by them."""
    tokenizer, vocabulary = built
    token = tokenizer.token_to_id("<tool_call>")
    if token is not None:
        assert vocabulary.token_bytes(token) == b"<tool_call>"
        assert token in vocabulary.encode("a <tool_call>{")


def test_from_tokenizer_known_ends(built):
    """End tokens are found by their names among the added tokens, and have no bytes."""
    tokenizer, vocabulary = built
    expected = {tokenizer.token_to_id(name) for name in ("<|endoftext|>", "<|im_end|>", "</s>")} - {None}
    assert set(vocabulary.end_ids) == expected
    assert all(vocabulary.token_bytes(token) is None for token in vocabulary.end_ids)


def test_from_tokenizer_given_ends():
    """End tokens given by the caller come first, and lose their bytes even if they are ordinary tokens."""
    tokenizer = BUILDERS["gpt2"]()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, end_ids=[7])
    assert vocabulary.end_ids[0] == 7
    assert len(vocabulary.end_ids) == 3
    assert vocabulary.token_bytes(7) is None
    assert 7 in vocabulary.special_ids
    with pytest.raises(InvalidOption, match="end token 99999"):
        Vocabulary.from_tokenizer(tokenizer, end_ids=[99999])


def test_from_tokenizer_size():
    """Logits may be padded past the tokenizer: padding has no bytes; a size below the tokenizer's is refused."""
    tokenizer = BUILDERS["gpt2"]()
    total = tokenizer.get_vocab_size()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, size=total + 37)
    assert vocabulary.size == total + 37
    assert all(vocabulary.token_bytes(token) is None for token in range(total, total + 37))
    with pytest.raises(InvalidOption, match="less than the tokenizer's"):
        Vocabulary.from_tokenizer(tokenizer, size=total - 1)


def test_from_tokenizer_holes():
    """Ids without a token have no bytes."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 3, "▁": 7}, []))
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert [vocabulary.token_bytes(token) for token in range(vocabulary.size)] == [
        *(b"a", None, None, b"b"),
        *(None, None, None, b" "),
    ]


def test_from_tokenizer_unigram():
    """Unigram without byte fallback: exact where its characters reach, cut at places that no token crosses."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    text = '{"name": "Ada Lovelace", "x": 12}'
    assert vocabulary.decode(vocabulary.encode(text)) == text.encode()
    assert len(vocabulary.block_starts(text)) > 3
    assert vocabulary.end_ids == (tokenizer.token_to_id("</s>"),)
    assert not vocabulary.spells(vocabulary.encode("\x01"), b"\x01")


def test_from_tokenizer_unknown_character():
    """Where a tokenizer has no token for a character, `spells` says that its ids do not spell the text."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert ord("b") in vocabulary.missing_bytes
    assert not vocabulary.spells(vocabulary.encode("aba"), b"aba")
    assert vocabulary.spells(vocabulary.encode("aa"), b"aa")


@pytest.mark.parametrize(
    "tokenizer",
    [
        Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")),
        Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")),
        Tokenizer(models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>")),
        "a name",
        object(),
    ],
)
def test_from_tokenizer_inexact(tokenizer):
    """A tokenizer whose tokens have no exact bytes is refused."""
    with pytest.raises(ModelUnavailable):
        Vocabulary.from_tokenizer(tokenizer)


def test_added_token_with_neighbours():
    """An added token that swallows the space beside it is not used to spell text, which it would change."""
    tokenizer = BUILDERS["qwen2"]()
    picky = Tokenizer.from_str(tokenizer.to_str())
    picky.add_tokens([AddedToken("<mark>", rstrip=True, special=False)])
    vocabulary = Vocabulary.from_tokenizer(picky)
    text = "a<mark>  b"
    assert vocabulary.decode(vocabulary.encode(text)) == text.encode()
    assert vocabulary.token_bytes(picky.token_to_id("<mark>")) == b"<mark>"


def test_from_bytes_greedy():
    """Without an encoder the longest match is taken; equal tokens give the lower id; a missing byte is named."""
    vocabulary = Vocabulary.from_bytes([b"a", b"ab", b"b", b"abc", None, b"ab"], end_ids=[4])
    assert vocabulary.encode("ababcb") == [1, 3, 2]
    assert vocabulary.size == 6
    with pytest.raises(InvalidOption, match="0x7A"):
        vocabulary.encode("az")


def test_encode_bytes_not_text():
    """Bytes that are not UTF-8 have no tokenization."""
    vocabulary = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)], end_ids=[])
    assert vocabulary.encode_bytes("é".encode()) == [0xC3, 0xA9]
    with pytest.raises(ValueError, match="utf-8"):
        vocabulary.encode_bytes(b"\xc3")


def test_qwen35_three_ways(qwen35):
    """tiktoken and the tokenizers library agree on every byte, id and block of the Qwen3.5 vocabulary."""
    from stcon.vocab.qwen import qwen35_tokenizer

    other = Vocabulary.from_tokenizer(qwen35_tokenizer())
    assert (other.size, other.end_ids, other.special_ids) == (248_077, qwen35.end_ids, qwen35.special_ids)
    assert qwen35.size == 248_077
    assert all(other.token_bytes(token) == qwen35.token_bytes(token) for token in range(other.size))
    assert qwen35.token_bytes(qwen35.encode("<tool_call>")[0]) == b"<tool_call>"

    @settings(deadline=None, max_examples=50)
    @given(OLD_TEXTS)
    def agree(text):
        assert other.encode(text) == qwen35.encode(text)
        assert other.block_starts(text) == qwen35.block_starts(text)

    agree()
