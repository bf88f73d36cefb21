"""Vocabularies of tiktoken encodings, and the same tokenizer in the form of the tokenizers library.

tiktoken calls every added token special. Those that models write as text (``<tool_call>``, ``</think>``) are named by
the caller, as their Hugging Face counterparts flag them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption
from stcon.vocab.blocks import PreTokenSplitter, Splitter
from stcon.vocab.byte_level import BYTE_ALPHABET
from stcon.vocab.ends import known_ends

if TYPE_CHECKING:
    import tiktoken
    from tokenizers import Tokenizer

    from stcon.vocab.vocabulary import Vocabulary


def load(
    encoding: tiktoken.Encoding,
    *,
    size: int | None = None,
    end_ids: Iterable[int] | None = None,
    text_tokens: Iterable[str] = (),
) -> Vocabulary:
    """See `Vocabulary.from_tiktoken`."""
    from stcon.vocab.vocabulary import Vocabulary

    specials = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
    as_text = frozenset(text_tokens)
    if unknown := as_text - specials.keys():
        raise InvalidOption(f"{min(unknown)!r} is not among the encoding's added tokens")
    if size is not None and size < encoding.n_vocab:
        raise InvalidOption(f"size {size:,} is less than the encoding's {encoding.n_vocab:,} tokens")

    token_bytes: list[bytes | None] = [None] * (encoding.n_vocab if size is None else size)
    for data in encoding.token_byte_values():
        token_bytes[encoding.encode_single_token(data)] = data
    for name, token in specials.items():
        token_bytes[token] = name.encode() if name in as_text else None

    def encode(text: str) -> list[int]:
        ids: list[int] = encoding.encode(text, allowed_special=as_text, disallowed_special=())
        return ids

    return Vocabulary(
        token_bytes,
        end_ids=[*(end_ids or ()), *known_ends(specials)],
        special_ids=[token for name, token in specials.items() if name not in as_text],
        encode=encode,
        splitter=_splitter(encoding._pat_str, as_text),
    )


def to_tokenizers(encoding: tiktoken.Encoding, *, text_tokens: Iterable[str] = (), normalizer: Any = None) -> Tokenizer:
    """`encoding` as a `tokenizers.Tokenizer` with the same ids, its added tokens special but for `text_tokens`.

    Cost: every split of every token is looked up: about 4 s for 248k tokens.
    Source: transformers' ``TikTokenConverter``, which does the same from a file.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    ranks = encoding._mergeable_ranks
    vocab = {_spelled(data): rank for data, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab, merges_of(ranks), ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(encoding._pat_str), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    as_text = frozenset(text_tokens)
    names = sorted(encoding.special_tokens_set, key=encoding.encode_single_token)
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=name not in as_text) for name in names])
    return tokenizer


def merges_of(ranks: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """The merge list of byte-level BPE that ranks tokens as `ranks` does, each token by each of its splits."""
    splits = []
    for data, rank in ranks.items():
        for cut in range(1, len(data)):
            left, right = ranks.get(data[:cut]), ranks.get(data[cut:])
            if left is not None and right is not None:
                splits.append((rank, left, right, data[:cut], data[cut:]))
    splits.sort(key=lambda split: split[:3])
    return [(_spelled(left), _spelled(right)) for *_, left, right in splits]


def _spelled(data: bytes) -> str:
    """`data` in the printable alphabet of byte-level BPE."""
    return "".join(map(BYTE_ALPHABET.__getitem__, data))


def _splitter(pattern: str, added: Iterable[str]) -> Splitter:
    """The encoding's pattern, read by `regex` as by tiktoken's own engine (tested by spelling block by block).

    Where the two know different versions of Unicode, a block with a new character may be another one: the text is then
    committed in a split that is not the tokenizer's.
    """
    import regex

    compiled = regex.compile(pattern)

    def pieces(text: str) -> list[int]:
        return [match.start() for match in compiled.finditer(text)]

    return PreTokenSplitter(pieces, tuple(added))
