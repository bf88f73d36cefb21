"""Whether a splitter's blocks stay what they are when text grows (Assumption 1), and what to do when they do not.

For a text s let m(s) be the start of its last block or of its trailing whitespace, whichever is smaller. A splitter is
*local* if every block of s that ends at or before m(s) is a block of s·a, for every s and character a. Nothing in a
pre-tokenizer says so, hence it is tried on a few thousand fixed cases, once a vocabulary, when blocks are first asked
for (some 30 ms). What the cases miss costs a non-canonical split, never a wrong text.

Some pre-tokenizers in use are not local. GPT-2's (and SmolLM2's) cuts ``'r`` into ``'`` and ``r``, and joins them when
``e`` follows; GPT-4o's turns ``don`` and ``'`` into one block when ``t`` follows. The cases then tell which characters
undo cuts; a text is split with each of them appended as well, and only the cuts that all agree on are given. Where the
cases break even that, the whole text is one block.

Source: the paper's Section C.4, Assumption 1 and Theorem 20. The paper tests Qwen's and finds no violation; the
fallbacks are ours.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from stcon.vocab.blocks import PairSplitter, Splitter, WholeSplitter, common_prefix

NUM_TEXTS = 300
MAX_ROUNDS = 3
MAX_FOUND = 200
MAX_PROBES = 12
PROBE_REACH = 8
STRIDE = 3
ATOMS = (
    *("a", "b", "Z", "word", "Name", "0", "7", "42", "x1", "é", "É", "ß", "中", "文A", "あ", "ア", "ё", "한", "ǅ", "ʰ"),
    *(" ", " ", "  ", "\n", "\r\n", "\t", " \n", "\u00a0", "\u3000", "\u2028"),
    *(
        '"',
        '":',
        '","',
        '":"',
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ": ",
        ", ",
        "-",
        ".",
        "/",
        "\\",
        "\\n",
        "_",
        "<",
        "</",
        ">",
        "#",
    ),
    *(
        "'",
        "'s",
        "'t",
        "'m",
        "'d",
        "'re",
        "'ve",
        "'ll",
        "'LL",
        "’",
        "'ſ",
        "€",
        "😀",
        "\u0301",
        "\u200d",
        "٣",
        "²",
        "«",
        "—",
        "\x00",
        "\x7f",
    ),
)


class Locality:
    """A splitter made safe, with the stable-tail test on it.

    Args:
        splitter: the splitter to use, local as far as the cases tell.
        is_local: whether it is the tokenizer's own.
        restarts: whether splitting the text from a block's start gives the same blocks as splitting all of it.
        note: one line for people.
    """

    def __init__(self, splitter: Splitter, *, is_local: bool, restarts: bool, note: str) -> None:
        self.splitter = splitter
        self.is_local = is_local
        self.restarts = restarts
        self.note = note
        # the last block alone decides when the splitter restarts at blocks, so the same few keys come back all the time
        self._stable = lru_cache(maxsize=4096)(self._compute_stable)

    def certain_length(self, text: str) -> int:
        """m(text), in characters: blocks that end at or before it are final (Theorem 20(i))."""
        starts = self.splitter.starts(text)
        return min(starts[-1], len(text.rstrip())) if starts else 0

    def tail_is_stable(self, text: str, next_bytes: frozenset[int]) -> bool:
        """See `Vocabulary.tail_is_stable`."""
        if not text or text[-1].isspace():
            return False
        if self.restarts:
            text = text[self.splitter.starts(text)[-1] :]
        return self._stable(text, next_bytes)

    def _compute_stable(self, text: str, next_bytes: frozenset[int]) -> bool:
        size = len(text)
        for character in _next_characters(next_bytes):
            if character is None or size not in self.splitter.starts(text + character):
                return False
        return True


class ProbingSplitter:
    """`inner`, less the cuts near the end of the text that one more character of `probes` would undo.

    Args:
        inner: a splitter that is not local.
        probes: the characters that undid a cut in the cases.
        reach: how many of the last blocks a probe is tried on; None: all.
    """

    def __init__(self, inner: Splitter, probes: Iterable[str], reach: int | None) -> None:
        self.inner = inner
        self.probes = tuple(probes)
        self.reach = reach

    def starts(self, text: str) -> list[int]:
        """See `Splitter.starts`. Cost: one split of `text` and one of its last blocks for each probe."""
        starts = self.inner.starts(text)
        first = 0 if self.reach is None else max(0, len(starts) - self.reach)
        if not starts:
            return starts
        origin = starts[first]
        for probe in self.probes:
            probed = [origin + start for start in self.inner.starts(text[origin:] + probe)]
            starts = starts[:first] + common_prefix(starts[first:], probed)
        return starts

    def mended(self, found: Iterable[tuple[str, str]]) -> ProbingSplitter:
        """With those characters of the violations `found` as probes that the ones before do not make superfluous."""
        mended = self
        for text, character in found:
            settled = _settled(mended, text)
            if len(mended.probes) <= MAX_PROBES and mended.starts(text + character)[: len(settled)] != settled:
                mended = ProbingSplitter(self.inner, (*mended.probes, character), self.reach)
        return mended


def check_locality(splitter: Splitter) -> Locality:
    """Try Assumption 1 on `splitter` and choose a safe policy. Cost: a few thousand calls of `splitter.starts`."""
    if isinstance(splitter, PairSplitter):
        note = "no pre-tokenizer: cut where no token crosses, which is local by construction"
        return Locality(splitter, is_local=True, restarts=True, note=note)
    texts = list(_texts(getattr(splitter, "added", ())))
    found = list(islice(violations(splitter, texts), MAX_FOUND))
    restarts = _restarts(splitter, texts)
    if not found:
        note = f"pre-tokenizer blocks, local on {len(texts)} texts grown by single characters"
        return Locality(splitter, is_local=True, restarts=restarts, note=note)
    probing = ProbingSplitter(splitter, (), PROBE_REACH if restarts else None)
    for _ in range(MAX_ROUNDS):
        probing = probing.mended(found)
        if len(probing.probes) > MAX_PROBES:
            break
        found = list(islice(violations(probing, texts[::STRIDE]), MAX_FOUND))
        if not found:
            shown = "".join(probing.probes)
            note = f"the pre-tokenizer is not local (Assumption 1): cuts that one of {shown!r} would undo are held back"
            return Locality(probing, is_local=False, restarts=_restarts(probing, texts), note=note)
    note = "the pre-tokenizer is not local (Assumption 1): no block is final before the text is"
    return Locality(WholeSplitter(), is_local=False, restarts=True, note=note)


def violations(splitter: Splitter, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every (s, a), with s·a a prefix of a text, for which a block of s that ends by m(s) is no block of s·a."""
    for text in texts:
        settled: list[int] = []
        for size in range(1, len(text) + 1):
            starts = splitter.starts(text[:size])
            if starts[: len(settled)] != settled:
                yield text[: size - 1], text[size - 1]
            certain = len(text[:size].rstrip())
            settled = [start for start in starts if start <= certain]


def _settled(splitter: Splitter, text: str) -> list[int]:
    """The starts up to m(text)."""
    certain = len(text.rstrip())
    return [start for start in splitter.starts(text) if start <= certain]


def _restarts(splitter: Splitter, texts: Sequence[str]) -> bool:
    """Whether a third of the texts, split again from the start of each of its blocks, gives the rest of its blocks."""
    for text in texts[::STRIDE]:
        starts = splitter.starts(text)
        for index, start in enumerate(starts):
            if splitter.starts(text[start:]) != [later - start for later in starts[index:]]:
                return False
    return True


def _texts(added: Iterable[str]) -> Iterator[str]:
    """The fixed cases: short texts over `ATOMS` and the added tokens, always the same."""
    rng = random.Random(20)
    atoms = [*ATOMS, *list(added)[:8]]
    for index in range(NUM_TEXTS):
        yield "".join(rng.choice(atoms) for _ in range(4 + index % 5))


def _next_characters(next_bytes: frozenset[int]) -> Iterator[str | None]:
    """Characters to try for `next_bytes`, ASCII first; None for a byte that begins no character."""
    for byte in sorted(next_bytes):
        if byte < 0x80:
            yield chr(byte)
        elif 0xC2 <= byte <= 0xF4:
            yield from _characters_led_by(byte)
        else:
            yield None


@lru_cache(maxsize=64)
def _characters_led_by(lead: int) -> tuple[str, ...]:
    """The first, middle and last character of each general category among those whose UTF-8 begins with `lead`.

    Three of each, because pre-tokenizers also name ranges inside a category (CJK, kana).
    """
    low, high = _range_led_by(lead)
    by_category: dict[str, list[str]] = {}
    for character in map(chr, range(low, high)):
        category = unicodedata.category(character)
        if category not in ("Cs", "Co"):
            by_category.setdefault(category, []).append(character)
    chosen = [group[i] for group in by_category.values() for i in sorted({0, len(group) // 2, len(group) - 1})]
    # the long s and the Kelvin sign match `s` and `k` where a pattern ignores case
    return (*chosen, *(c for c in "ſK" if low <= ord(c) < high))


def _range_led_by(lead: int) -> tuple[int, int]:
    """Code points whose UTF-8 begins with the byte `lead`, as a half-open range."""
    if lead < 0xE0:
        return (lead & 0x1F) << 6, ((lead & 0x1F) + 1) << 6
    if lead < 0xF0:
        return max(0x800, (lead & 0x0F) << 12), ((lead & 0x0F) + 1) << 12
    return max(0x10000, (lead & 0x07) << 18), min(0x110000, ((lead & 0x07) + 1) << 18)
