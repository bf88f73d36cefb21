"""`Vocabulary`: what a constraint needs to know of a tokenizer, exact to the byte.

A token's bytes are what it adds to a text that has begun: where a tokenizer writes a dummy space before the first word
(sentencepiece), the bytes and `Vocabulary.encode` leave that space out, because the text under a constraint always
follows a prompt. So ``decode(encode(x)) == x`` for every text whose bytes have tokens (`Vocabulary.missing_bytes`), and
the first word is spelled without a space unless the text has one.

Special and end tokens have no bytes: no constraint admits them as text. Added tokens that are not special (Qwen's
``<tool_call>``) have their surface bytes.

Unicode normalisation (NFC in Qwen) is left out as well. Where it changes nothing, which is so for all text in that
form, `encode` gives the tokenizer's own ids; elsewhere it gives ids that spell the text, where the tokenizer's do not.

Source: DESIGN §4; the paper's Sections C.4 and D.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stcon.errors import InvalidOption
from stcon.vocab.blocks import PairSplitter, Splitter
from stcon.vocab.locality import Locality, check_locality
from stcon.vocab.plain import plain_tokens
from stcon.vocab.trie import PackedTokens, TokenTrie, build_trie, pack_tokens

Encoder = Callable[[str], list[int]]


class Vocabulary:
    """The tokens of a model and how its tokenizer spells text. Immutable; threads may share one.

    Build it with `from_tokenizer`, `from_tiktoken`, `from_gguf` or `from_bytes`.

    Args:
        token_bytes: [V] the bytes of each id, None where it has none (special, end, hole, padding).
        end_ids: tokens that end the text; they lose their bytes if they have any.
        special_ids: tokens that never stand for text; they lose their bytes too.
        encode: text to ids, special tokens neither added nor recognised.
        splitter: the tokenizer's blocks; None: cut wherever no token crosses.

    Cost: one sort of V byte strings; `trie` and `rest` are built when first asked for.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes | None],
        *,
        end_ids: Iterable[int],
        special_ids: Iterable[int] = (),
        encode: Encoder,
        splitter: Splitter | None = None,
    ) -> None:
        self.size = len(token_bytes)
        self.end_ids = tuple(dict.fromkeys(end_ids))
        if wrong := [token for token in self.end_ids if not 0 <= token < self.size]:
            raise InvalidOption(f"end token {wrong[0]} is not in 0..{self.size - 1}")
        self.special_ids = frozenset(special_ids) | frozenset(self.end_ids)
        spelled = list(token_bytes)
        for token in self.special_ids:
            spelled[token] = None
        self._bytes = tuple(data or None for data in spelled)
        self._encode = encode
        self._packed = pack_tokens(self._bytes)
        self._splitter = splitter or PairSplitter(self._packed)

    # ------------------------------------------------------------------------------------------------- tokens

    @property
    def num_words(self) -> int:
        """Words W of a bitmask: ceil(V / 32)."""
        return -(-self.size // 32)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return int(self._packed.lengths.max(initial=0))

    @cached_property
    def missing_bytes(self) -> frozenset[int]:
        """The bytes that are no token by themselves (SmolLM2 lacks U+0004); text with them may have no spelling."""
        single = {data[0] for data in self._bytes if data and len(data) == 1}
        return frozenset(range(256)) - single

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of `token_id`; None if it has none."""
        return self._bytes[token_id]

    def decode(self, token_ids: Iterable[int]) -> bytes:
        """The bytes of `token_ids`, those without bytes left out."""
        return b"".join(self._bytes[token] or b"" for token in token_ids)

    def encode(self, text: str) -> list[int]:
        """The tokenizer's split of `text` as a continuation: nothing added, special tokens in it read as plain text."""
        return self._encode(text) if text else []

    def encode_prefix(self, text: str, length: int) -> list[int]:
        """The first tokens of ``encode(text)``: those of its blocks that end by `length`, in UTF-8 bytes.

        Not the same as encoding the shorter text: GPT-2's pattern cuts ``\\r\\n`` before a word after the ``\\r``, and
        not at all by itself.
        """
        data = text.encode()
        cuts = [cut for cut in (*self.block_starts(text), len(data)) if cut <= length]
        return [token for a, b in pairwise(cuts) for token in self.encode(data[a:b].decode())]

    def encode_bytes(self, data: bytes) -> list[int]:
        """`encode` of UTF-8. Raises UnicodeDecodeError (a ValueError) if it is not."""
        return self.encode(data.decode())

    def spells(self, token_ids: Iterable[int], data: bytes) -> bool:
        """Whether `token_ids`, all of them with bytes, spell exactly `data`."""
        pieces = [self._bytes[token] for token in token_ids]
        return None not in pieces and b"".join(piece for piece in pieces if piece) == data

    # ------------------------------------------------------------------------------------------------- arrays

    @property
    def order(self) -> NDArray[np.int32]:
        """int32[N]: the ids that have bytes, in lexicographic order of their bytes."""
        return self._packed.order

    @property
    def data(self) -> NDArray[np.uint8]:
        """uint8[]: their bytes, concatenated in that order."""
        return self._packed.data

    @property
    def offsets(self) -> NDArray[np.int32]:
        """int32[N + 1]: where each begins in `data`."""
        return self._packed.offsets

    @property
    def packed(self) -> PackedTokens:
        """The three arrays together."""
        return self._packed

    @property
    def packed_nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self._packed.nbytes

    @cached_property
    def trie(self) -> TokenTrie:
        """The trie of all tokens that have bytes."""
        return build_trie(self._packed)

    @cached_property
    def rest(self) -> TokenTrie:
        """The trie of the tokens that are not plain (see `plain_words`)."""
        return build_trie(self._packed.select(~self._plain[0]))

    @cached_property
    def plain_words(self) -> NDArray[np.int32]:
        """int32[W]: bitmask of the plain tokens: whole UTF-8 characters, none of them ``"``, ``\\`` or below U+0020."""
        return bitmask(self.order[self._plain[0]], self.size)

    @property
    def plain_longest(self) -> int:
        """The most code points in a plain token (0 if there is none)."""
        return self._plain[1]

    @cached_property
    def _plain(self) -> tuple[NDArray[np.bool_], int]:
        return plain_tokens([self._bytes[token] or b"" for token in self.order.tolist()])

    # ------------------------------------------------------------------------------------------------- blocks

    def block_starts(self, text: str) -> list[int]:
        """Where the blocks of `text` start, in UTF-8 bytes: the first is 0; [] for the empty text.

        The blocks are those which the tokenizer spells one by one, except that the last may be several taken together
        (see `is_local`). Whatever text follows, every block that ends at or before `certain_length` stays a block.
        """
        return _byte_offsets(text, self._locality.splitter.starts(text))

    def certain_length(self, text: str) -> int:
        """How many UTF-8 bytes of `text` can be committed now: up to its last block or its trailing whitespace.

        Source: m(s) of Assumption 1, Theorem 20(i).
        """
        return len(text[: self._locality.certain_length(text)].encode())

    @property
    def is_local(self) -> bool:
        """Whether the pre-tokenizer satisfies Assumption 1, as far as a few thousand fixed cases tell.

        If it does not, `block_starts` gives fewer blocks, those that are certain; it is safe to use either way.
        """
        return self._locality.is_local

    @property
    def locality_note(self) -> str:
        """How blocks are cut, and why; for people."""
        return self._locality.note

    @cached_property
    def _locality(self) -> Locality:
        return check_locality(self._splitter)

    def tail_is_stable(self, text: str, next_bytes: Iterable[int]) -> bool:
        """The stable-tail test of Theorem 20(ii): whether the last block of `text` is final whatever comes next.

        Args:
            text: the output so far, whole characters.
            next_bytes: every byte that may follow. ASCII bytes are tried as they are, lead bytes by one character of
                each kind that starts with them; a continuation byte means `text` ends inside a character: False.
        """
        return self._locality.tail_is_stable(text, frozenset(next_bytes))

    # ------------------------------------------------------------------------------------------------- constructors

    @classmethod
    def from_bytes(
        cls,
        token_bytes: Sequence[bytes | None],
        end_ids: Iterable[int],
        encode: Encoder | None = None,
        *,
        splitter: Splitter | None = None,
    ) -> Vocabulary:
        """A vocabulary from its bytes, for tests and for engines with tokenizers of their own.

        Args:
            token_bytes, end_ids: as in the class.
            encode: text to ids; None: greedy longest match.
            splitter: as in the class.
        """
        end_ids = tuple(end_ids)
        ids: dict[bytes, int] = {}
        for token, data in enumerate(token_bytes):
            if data and token not in end_ids:
                ids.setdefault(data, token)
        return cls(token_bytes, end_ids=end_ids, encode=encode or greedy_encoder(ids), splitter=splitter)

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, *, size: int | None = None, end_ids: Iterable[int] | None = None
    ) -> Vocabulary:
        """The vocabulary of a transformers fast tokenizer or a `tokenizers.Tokenizer`.

        Args:
            tokenizer: byte-level BPE, or sentencepiece-style BPE or unigram.
            size: V, at least the tokenizer's; give the model's when its logits are padded.
            end_ids: end tokens from elsewhere (the model's generation config); the tokenizer's own and the known names
                among its added tokens (``<|im_end|>``, ``<|eot_id|>`` ...) are found by themselves.

        Raises:
            ModelUnavailable: a tokenizer whose tokens have no exact bytes (WordPiece, slow tokenizers ...).
            InvalidOption: `size` is too small or an end token is out of range.
        """
        from stcon.vocab.huggingface import load

        return load(tokenizer, size=size, end_ids=end_ids)

    @classmethod
    def from_tiktoken(
        cls,
        encoding: Any,
        *,
        size: int | None = None,
        end_ids: Iterable[int] | None = None,
        text_tokens: Iterable[str] = (),
    ) -> Vocabulary:
        """The vocabulary of a `tiktoken.Encoding`.

        Args:
            encoding: the encoding; its added tokens are special except `text_tokens`.
            size, end_ids: as in `from_tokenizer`.
            text_tokens: added tokens that stand for their text (``<tool_call>``).

        Raises:
            InvalidOption: `size` is too small, a text token is unknown, or an end token is out of range.
        """
        from stcon.vocab.tiktoken import load

        return load(encoding, size=size, end_ids=end_ids, text_tokens=text_tokens)

    @classmethod
    def from_gguf(
        cls, path: str | PathLike[str], *, size: int | None = None, end_ids: Iterable[int] | None = None
    ) -> Vocabulary:
        """The vocabulary in the metadata of a GGUF file (byte-level BPE or sentencepiece), its weights not read.

        Args:
            path: the file.
            size, end_ids: as in `from_tokenizer`; the file's end-of-text, -turn and -message tokens are found.

        Raises:
            ModelUnavailable: not a GGUF file, cut short, or with a tokenizer of another kind.
        """
        from stcon.vocab.gguf import load

        return load(path, size=size, end_ids=end_ids)


def greedy_encoder(ids: dict[bytes, int]) -> Encoder:
    """An encoder by longest match, for vocabularies without a tokenizer."""
    longest = max(map(len, ids), default=0)

    def encode(text: str) -> list[int]:
        data = text.encode()
        tokens: list[int] = []
        begin = 0
        while begin < len(data):
            for end in range(min(len(data), begin + longest), begin, -1):
                if (token := ids.get(data[begin:end])) is not None:
                    break
            else:
                raise InvalidOption(f"no token of this vocabulary begins with byte 0x{data[begin]:02X}")
            tokens.append(token)
            begin = end
        return tokens

    return encode


def _byte_offsets(text: str, starts: list[int]) -> list[int]:
    """Character offsets (ascending, the first 0) as offsets in the UTF-8 of `text`."""
    if text.isascii():
        return starts
    sizes = (len(text[start:end].encode()) for start, end in pairwise([*starts, len(text)]))
    return [0, *accumulate(sizes)][: len(starts)]


def bitmask(token_ids: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """int32[W]: token t as bit t % 32 of word t // 32."""
    bits = np.zeros(-(-size // 32) * 32, np.uint8)
    bits[token_ids] = 1
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)
